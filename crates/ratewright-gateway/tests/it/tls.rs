//! Upstreams over TLS: nothing is sent to one without a valid certificate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Response, Version};
use ratewright_gateway::route::{Match, PathPattern};
use ratewright_gateway::upstream::{Balance, ClientTls, Health, Protocol};
use ratewright_gateway::{GatewaySettings, Route, RouteTable, Upstream};
use ratewright_http::path::Case;
use ratewright_listen::Tls;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::AsyncReadExt;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::harness::{Client, ScriptedServer, Setup, TestGateway, route_to, settings};
use crate::hyper_peers::{HyperServer, body, connect, exchange, get};

/// A server with a certificate for this name, and the trust anchor.
async fn server(name: &str) -> (HyperServer, RootCertStore) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
    let tls = Tls::new(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes(), None).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let server = HyperServer::secret(tls, |request| async move {
        let spoken = if request.version() == Version::HTTP_2 { "2" } else { "1.1" };
        Response::new(body(spoken))
    });
    (server.await, roots)
}

async fn gateway(port: u16, protocol: Protocol, roots: RootCertStore) -> TestGateway {
    let settings = settings(route_to(&[format!("https://localhost:{port}")], protocol));
    TestGateway::start(Setup { settings, roots: Some(roots), ..Setup::default() }).await
}

#[tokio::test]
async fn a_valid_certificate_works_with_both_protocols() {
    for (protocol, spoken) in [(Protocol::Http1, "1.1"), (Protocol::Http2, "2")] {
        let (server, roots) = server("localhost").await;
        let gateway = gateway(server.address.port(), protocol, roots).await;
        let mut client = gateway.connect().await;
        for _ in 0..3 {
            let response = client.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!((response.status, response.text().as_str()), (200, spoken));
        }
        assert_eq!(server.n_connections(), 1);
        assert_eq!(exchange(&connect(gateway.address).await, get("/")).await, (200, spoken.to_owned()));
    }
}

#[tokio::test]
async fn a_certificate_with_a_wrong_name_or_an_unknown_authority_gets_502() {
    let (named, of_named) = server("elsewhere.example").await;
    let (unknown, _) = server("localhost").await;
    for (server, roots) in [(&named, of_named), (&unknown, RootCertStore::empty())] {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let gateway = gateway(server.address.port(), protocol, roots.clone()).await;
            let response = gateway.get("/secret").await;
            assert_eq!(response.status, 502);
            assert!(!response.text().contains("localhost"), "{}", response.text());
        }
        assert!(server.n_connections() > 0, "it was tried");
    }
}

/// Two routes lead to one server, and only one trusts its authority: they do not share connections.
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
        let trusting = Arc::new(upstream(&strange).with_tls(ClientTls::with_ca(tls, b"the authority")));
        let trusting = Route { id: "trusting".into(), upstream: trusting, ..strange.clone() };
        let routes = RouteTable::new(vec![at("/trusting", trusting), at("/strange", strange)]).unwrap();
        let settings = GatewaySettings { routes, ..GatewaySettings::default() };
        let gateway = TestGateway::start(Setup { settings, ..Setup::default() }).await;
        let mut client = gateway.connect().await;
        for (path, status) in [("/trusting", 200), ("/strange", 502), ("/trusting", 200)] {
            assert_eq!(
                client.exchange(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await.status,
                status
            );
        }
    }
}

/// A server without TLS sees a handshake, and nothing of any request.
#[tokio::test]
async fn an_https_upstream_gets_no_plain_text() {
    let n_heard = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&n_heard);
    let plain = ScriptedServer::start(move |mut client: Client, _| {
        let heard = Arc::clone(&heard);
        async move {
            let mut first = [0; 16];
            client.stream.read_exact(&mut first).await.unwrap();
            assert_eq!(first[0], 0x16, "a handshake");
            client.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
            let rest = client.read_to_end().await;
            assert!(!rest.windows(6).any(|window| window == b"secret"));
            heard.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let gateway = gateway(plain.address.port(), protocol, RootCertStore::empty()).await;
        assert_eq!(gateway.get("/secret").await.status, 502);
    }
    crate::harness::wait_until("all was heard", || n_heard.load(Ordering::SeqCst) >= 2).await;
}

/// ALPN must agree on the requested protocol.
#[tokio::test]
async fn a_server_without_http2_in_alpn_gets_502() {
    use ratewright_listen::Alpn;
    use std::time::Duration;

    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls::new(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes(), None).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let server = ScriptedServer::start(move |client: Client, _| {
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
    let gateway = gateway(server.address.port(), Protocol::Http2, roots).await;
    assert_eq!(gateway.get("/").await.status, 502);
}
