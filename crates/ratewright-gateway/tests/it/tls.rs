//! Servers over TLS: whose certificate is not good is never spoken to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Response, Version};
use ratewright_gateway::{
    Balance, ClientTls, Health, Match, PathPattern, Protocol, Route, Routes, Settings, Upstream,
};
use ratewright_http::path::Case;
use ratewright_listen::Tls;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::AsyncReadExt;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::peers::{Speaking, body, connect, exchange, get};
use crate::world::{Client, Scripted, Setup, World, route_to, settings};

/// A server with a certificate for this name, and who trusts it.
async fn server(name: &str) -> (Speaking, RootCertStore) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
    let tls = Tls::new(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes(), None).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let server = Speaking::secret(tls, |request| async move {
        let spoken = if request.version() == Version::HTTP_2 { "2" } else { "1.1" };
        Response::new(body(spoken))
    });
    (server.await, roots)
}

async fn world(port: u16, protocol: Protocol, roots: RootCertStore) -> World {
    let settings = settings(route_to(&[format!("https://localhost:{port}")], protocol));
    World::start(Setup { settings, roots: Some(roots), ..Setup::default() }).await
}

#[tokio::test]
async fn a_server_with_a_good_certificate_is_spoken_to_in_both_protocols() {
    for (protocol, spoken) in [(Protocol::Http1, "1.1"), (Protocol::Http2, "2")] {
        let (server, roots) = server("localhost").await;
        let world = world(server.address.port(), protocol, roots).await;
        let mut client = world.connect().await;
        for _ in 0..3 {
            let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!((answer.status, answer.text().as_str()), (200, spoken));
        }
        assert_eq!(server.n_connections(), 1);
        assert_eq!(exchange(&connect(world.address).await, get("/")).await, (200, spoken.to_owned()));
    }
}

#[tokio::test]
async fn a_server_with_a_wrong_name_or_of_an_unknown_authority_is_a_502() {
    let (named, of_named) = server("elsewhere.example").await;
    let (unknown, _) = server("localhost").await;
    for (server, roots) in [(&named, of_named), (&unknown, RootCertStore::empty())] {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let world = world(server.address.port(), protocol, roots.clone()).await;
            let answer = world.get("/secret").await;
            assert_eq!(answer.status, 502);
            assert!(!answer.text().contains("localhost"), "{}", answer.text());
        }
        assert!(server.n_connections() > 0, "it was tried");
    }
}

/// Two routes lead to one server, and one of them trusts its authority: a connection of the one is none for the other.
#[tokio::test]
async fn an_upstream_may_trust_an_authority_of_its_own() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let (server, roots) = server("localhost").await;
        let url = [format!("https://localhost:{}", server.address.port())];
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let upstream = |route: &Route| {
            let servers = route.upstream.servers().cloned().collect();
            Upstream::new(servers, Balance::RoundRobin, protocol, Health::default())
        };
        let at = |path: &str, route: Route| {
            let path = PathPattern::new(path, Case::Sensitive).unwrap();
            (Match { paths: vec![path], ..Match::default() }, route)
        };
        let strange = route_to(&url, protocol);
        let trusting = Arc::new(upstream(&strange).trusting(ClientTls::of_ca(tls, b"the authority")));
        let trusting = Route { id: "trusting".into(), upstream: trusting, ..strange.clone() };
        let routes = Routes::new(vec![at("/trusting", trusting), at("/strange", strange)]).unwrap();
        let settings = Settings { routes, ..Settings::default() };
        let world = World::start(Setup { settings, ..Setup::default() }).await;
        let mut client = world.connect().await;
        for (path, status) in [("/trusting", 200), ("/strange", 502), ("/trusting", 200)] {
            assert_eq!(client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await.status, status);
        }
    }
}

/// A server that speaks no TLS sees a handshake, and nothing of any request.
#[tokio::test]
async fn nothing_is_said_in_the_clear_to_a_server_that_should_speak_tls() {
    let n_heard = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&n_heard);
    let plain = Scripted::start(move |mut client: Client, _| {
        let heard = Arc::clone(&heard);
        async move {
            let mut first = [0; 16];
            client.stream.read_exact(&mut first).await.unwrap();
            assert_eq!(first[0], 0x16, "a handshake");
            client.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
            let rest = client.all_that_comes().await;
            assert!(!rest.windows(6).any(|window| window == b"secret"));
            heard.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let world = world(plain.address.port(), protocol, RootCertStore::empty()).await;
        assert_eq!(world.get("/secret").await.status, 502);
    }
    crate::world::until("all was heard", || n_heard.load(Ordering::SeqCst) >= 2).await;
}

/// Who offers only what we did not ask for does not agree with us.
#[tokio::test]
async fn a_server_without_http_2_is_not_spoken_to_in_it() {
    use ratewright_listen::Alpn;
    use std::time::Duration;

    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls::new(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes(), None).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let server = Scripted::start(move |client: Client, _| {
        let tls = tls.clone();
        async move {
            let shaken = tls
                .accept(
                    client.stream,
                    std::net::Ipv4Addr::LOCALHOST.into(),
                    Alpn::Http1,
                    Duration::from_secs(5),
                )
                .await;
            assert!(shaken.is_none(), "no handshake without a protocol in common");
        }
    })
    .await;
    let world = world(server.address.port(), Protocol::Http2, roots).await;
    assert_eq!(world.get("/").await.status, 502);
}
