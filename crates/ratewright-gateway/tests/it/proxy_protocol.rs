//! The PROXY protocol in front of the gateway: the announced address is the client's, for everything.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Policy, Quota};
use ratewright_gateway::GatewaySettings;
use ratewright_gateway::access_log::{AccessLog, AccessLogEntry};
use ratewright_http::address::Proxies;
use ratewright_http::{HttpSettings, IdentityRules};
use ratewright_lab::within;
use ratewright_listen::{ConnectionSetup, ProxyProtocol, Tls};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::harness::{
    Client, RawResponse, ScriptedServer, Setup, TestGateway, route, settings, text, wait_until,
};
use crate::hyper_peers::{connect_over, exchange, get};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A header of version 1.
fn announce(client: &str) -> String {
    let (family, destination) = if client.contains(':') { ("TCP6", "::9") } else { ("TCP4", "10.0.0.9") };
    format!("PROXY {family} {client} {destination} 40000 8000\r\n")
}

/// An upstream that responds with `X-Forwarded-For`, `X-Real-IP` and `X-Forwarded-Proto`.
async fn showing() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let field = |name: &str| {
                let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                line.unwrap_or("-").to_owned()
            };
            let fields = ["x-forwarded-for", "x-real-ip", "x-forwarded-proto"].map(field);
            client.send(text(&fields.join(" | "))).await;
        }
    })
    .await
}

/// A gateway that accepts headers from this host, with one request an hour for each address.
struct ProxiedGateway {
    gateway: TestGateway,
    proxy: ProxyProtocol,
}

#[derive(Default)]
struct Options {
    from: Option<&'static str>,
    burst: Option<u32>,
    trusted: Option<&'static str>,
    tls: Option<Tls>,
    access_log: Option<Arc<dyn AccessLog>>,
    connections_per_address: Option<NonZeroU32>,
    request_header: Option<Duration>,
}

impl ProxiedGateway {
    async fn start(options: Options) -> Self {
        let server = showing().await;
        let from = options.from.unwrap_or("127.0.0.0/8").parse().unwrap();
        let proxy = ProxyProtocol::new("listen.gateway", vec![from]);
        let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/h".parse().unwrap()).unwrap();
        let quota = quota.with_burst(options.burst.unwrap_or(100).try_into().unwrap()).unwrap();
        let policy = Policy::new("each", quota).unwrap().by(&[AttributeName::Ip]);
        let trusted = options.trusted.into_iter().map(|network| network.parse().unwrap()).collect();
        let proxies = Proxies::default().trusted(trusted);
        let settings = GatewaySettings {
            has_access_log: options.access_log.is_some(),
            connections_per_address: options.connections_per_address,
            request_header: options.request_header.unwrap_or(Duration::from_secs(20)),
            ..settings(route(&[server.address]))
        };
        let connections = ConnectionSetup { proxy_protocol: Some(proxy.clone()), tls: options.tls };
        let http_settings = HttpSettings::default().rules(IdentityRules::default().proxies(proxies));
        let (policies, access_log) = (vec![policy], options.access_log);
        let setup = Setup { policies, settings, http_settings, access_log, connections, ..Setup::default() };
        Self { gateway: TestGateway::start(setup).await, proxy }
    }

    /// A connection that starts with these bytes.
    async fn connect(&self, beginning: &str) -> Client {
        let mut client = self.gateway.connect().await;
        client.send(beginning).await;
        client
    }

    /// Sends one request for an announced client. Returns the status and what the upstream saw.
    async fn exchange(&self, client: &str, fields: &str) -> (u16, String) {
        let mut connection = self.connect(&announce(client)).await;
        let response = connection.exchange(&GET.replace("\r\n\r\n", &format!("\r\n{fields}\r\n"))).await;
        (response.status, response.text())
    }

    /// Sends bytes, and reads until the connection is closed.
    async fn send_raw(&self, bytes: &str) -> String {
        let mut client = self.gateway.connect().await;
        let _ = client.stream.write_all(bytes.as_bytes()).await;
        String::from_utf8(client.read_to_end().await).unwrap()
    }

    /// Why connections were rejected, and how often.
    fn refused(&self) -> Vec<(&'static str, u64)> {
        self.proxy.n_refused().filter(|(_, n)| *n > 0).map(|(refusal, n)| (refusal.name(), n)).collect()
    }
}

fn seen(client: &str) -> (u16, String) {
    (200, format!("{client} | {client} | http"))
}

#[tokio::test]
async fn the_announced_address_is_what_limits_and_upstreams_see() {
    let balanced = ProxiedGateway::start(Options { burst: Some(1), ..Options::default() }).await;
    for client in ["198.51.100.7", "198.51.100.8", "2001:db8::7"] {
        assert_eq!(balanced.exchange(client, "").await, seen(client));
        assert_eq!(balanced.exchange(client, "").await.0, 429, "{client} has a bucket of its own");
    }
    assert_eq!(balanced.exchange("::ffff:198.51.100.7", "").await.0, 429, "the same client in IPv6's form");
    assert_eq!(balanced.exchange("2001:db8::8", "").await.0, 429, "the same network of IPv6");
    // Health checks of the load balancer count for its own address.
    let mut probe = balanced.connect("PROXY UNKNOWN\r\n").await;
    let response = probe.exchange(GET).await;
    assert_eq!((response.status, response.text()), seen("127.0.0.1"));
    assert_eq!(balanced.refused(), []);
}

#[tokio::test]
async fn forwarding_headers_count_only_if_the_announced_address_is_trusted() {
    let options = || Options { trusted: Some("198.51.100.0/24"), burst: Some(1), ..Options::default() };
    let balanced = ProxiedGateway::start(options()).await;
    let (inner, outer) = ("X-Forwarded-For: 203.0.113.9\r\n", "198.51.100.7");
    let expected = (200, "203.0.113.9, 198.51.100.7 | 203.0.113.9 | http".to_owned());
    assert_eq!(balanced.exchange(outer, inner).await, expected);
    assert_eq!(balanced.exchange(outer, inner).await.0, 429, "the client behind the trusted proxy");
    assert_eq!(balanced.exchange(outer, "").await, seen(outer), "the trusted proxy itself");
    assert_eq!(
        balanced.exchange("192.0.2.1", inner).await,
        seen("192.0.2.1"),
        "a stranger's header is removed"
    );
    // A load balancer that may announce clients is not a trusted proxy, and vice versa.
    let balanced = ProxiedGateway::start(Options { trusted: Some("127.0.0.0/8"), ..options() }).await;
    assert_eq!(balanced.exchange(outer, inner).await, seen(outer));
    let balanced = ProxiedGateway::start(Options { from: Some("10.0.0.0/8"), ..options() }).await;
    assert_eq!(balanced.send_raw(&format!("{}{GET}", announce(outer))).await, "");
    assert_eq!(balanced.refused(), [("peer", 1)]);
}

/// Collects the clients of requests.
#[derive(Default)]
struct Clients(Mutex<Vec<String>>);

impl AccessLog for Clients {
    fn record(&self, entry: &AccessLogEntry<'_>) {
        self.0.lock().unwrap().push(entry.client.to_string());
    }
}

#[tokio::test]
async fn a_header_announces_all_requests_of_its_connection() {
    let clients = Arc::new(Clients::default());
    let log: Arc<dyn AccessLog> = clients.clone();
    let balanced = ProxiedGateway::start(Options { access_log: Some(log), ..Options::default() }).await;
    // HTTP/1.1: kept alive, header and first request in one segment, then byte by byte.
    let mut client = balanced.gateway.connect().await;
    client.send(format!("{}{GET}{GET}", announce("198.51.100.7"))).await;
    for _ in 0..2 {
        assert_eq!(client.response().await.map(|response| response.text()), Some(seen("198.51.100.7").1));
    }
    assert_eq!(client.exchange(GET).await.text(), seen("198.51.100.7").1);
    let mut client = balanced.gateway.connect().await;
    client.stream.set_nodelay(true).unwrap();
    for byte in format!("{}{GET}", announce("198.51.100.8")).bytes() {
        client.send([byte]).await;
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    assert_eq!(client.response().await.map(|response| response.text()), Some(seen("198.51.100.8").1));
    // HTTP/2 with prior knowledge.
    let mut stream = TcpStream::connect(balanced.gateway.address).await.unwrap();
    stream.write_all(announce("198.51.100.9").as_bytes()).await.unwrap();
    let client = connect_over(stream).await;
    for _ in 0..3 {
        assert_eq!(exchange(&client, get("/")).await, seen("198.51.100.9"));
    }
    let mut expected = vec!["198.51.100.7"; 3];
    expected.push("198.51.100.8");
    expected.extend(["198.51.100.9"; 3]);
    assert_eq!(*clients.0.lock().unwrap(), expected);
}

/// A certificate, and a client that trusts it and offers this protocol.
fn tls(speaks: &[u8]) -> (Tls, TlsConnector) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let server = Tls::new(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes(), None).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::clone(cert.der())).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut client = builder.with_no_client_auth();
    client.alpn_protocols = vec![speaks.to_vec()];
    (server, TlsConnector::from(Arc::new(client)))
}

async fn shake_hands(address: SocketAddr, connector: &TlsConnector, before: &str) -> TlsStream<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(before.as_bytes()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    within("a handshake", connector.connect(name, stream)).await.unwrap()
}

#[tokio::test]
async fn tls_follows_the_header() {
    let expected = "198.51.100.7 | 198.51.100.7 | https";
    let (server, connector) = tls(b"http/1.1");
    let balanced = ProxiedGateway::start(Options { tls: Some(server), ..Options::default() }).await;
    let mut stream = shake_hands(balanced.gateway.address, &connector, &announce("198.51.100.7")).await;
    stream.write_all(GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut response = String::new();
    within("the whole response", stream.read_to_string(&mut response)).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with(expected), "{response}");
    let (server, connector) = tls(b"h2");
    let balanced = ProxiedGateway::start(Options { tls: Some(server), ..Options::default() }).await;
    let stream = shake_hands(balanced.gateway.address, &connector, &announce("198.51.100.7")).await;
    assert_eq!(exchange(&connect_over(stream).await, get("/")).await, (200, expected.to_owned()));
    // Without a header there is no handshake.
    let stream = TcpStream::connect(balanced.gateway.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    assert!(within("a handshake", connector.connect(name, stream)).await.is_err());
    assert_eq!(balanced.refused(), [("missing", 1)]);
}

#[tokio::test]
async fn a_connection_without_a_proxy_header_is_closed_and_not_counted() {
    let balanced = ProxiedGateway::start(Options { burst: Some(1), ..Options::default() }).await;
    for _ in 0..3 {
        assert_eq!(balanced.send_raw(GET).await, "");
    }
    assert_eq!(balanced.send_raw(&format!("{}{GET}", announce("127.0.0.1"))).await, "");
    assert_eq!(balanced.send_raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, "");
    assert_eq!(balanced.refused(), [("missing", 4), ("address", 1)]);
    assert_eq!(balanced.gateway.metrics_text(), "", "no request has come");
    let mut probe = balanced.connect("PROXY UNKNOWN\r\n").await;
    assert_eq!(probe.exchange(GET).await.status, 200, "the peer's own bucket is full");
}

/// A client may write another header into its request. It is not a request.
#[tokio::test]
async fn a_second_proxy_header_gets_400() {
    let balanced = ProxiedGateway::start(Options::default()).await;
    for second in [announce("203.0.113.9"), "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_owned()] {
        let received = balanced.send_raw(&format!("{}{second}{GET}", announce("198.51.100.7"))).await;
        assert!(received.starts_with("HTTP/1.1 400 ") && !received.contains("200 OK"), "{received}");
    }
}

#[tokio::test]
async fn a_header_must_come_in_time() {
    let request_header = Some(Duration::from_millis(300));
    let balanced = ProxiedGateway::start(Options { request_header, ..Options::default() }).await;
    assert_eq!(balanced.send_raw("").await, "", "silence");
    assert_eq!(balanced.send_raw("PROXY TCP4 198.51.100.7 ").await, "");
    let client = balanced.connect("PROXY ").await;
    wait_until("it is cut off, byte by byte", || client.stream.try_write(b"1").is_err()).await;
    let (n_late, n_long) = (balanced.refused()[0].1, balanced.refused().get(1).map_or(0, |(_, n)| *n));
    assert_eq!(n_late + n_long, 3, "{:?}", balanced.refused());
    assert_eq!(balanced.exchange("198.51.100.7", "").await.0, 200);
}

/// Sends a request on a new connection. None: closed without a response.
async fn exchange_on_new_connection(
    balanced: &ProxiedGateway,
    client: &str,
) -> Option<(Client, RawResponse)> {
    let mut connection = balanced.connect(&announce(client)).await;
    let _ = connection.stream.write_all(GET.as_bytes()).await;
    let response = connection.response().await?;
    Some((connection, response))
}

#[tokio::test]
async fn connections_are_limited_by_announced_address() {
    let connections_per_address = NonZeroU32::new(2);
    let balanced = ProxiedGateway::start(Options { connections_per_address, ..Options::default() }).await;
    let mut kept = Vec::new();
    for client in ["198.51.100.7", "198.51.100.8", "2001:db8::7"] {
        for _ in 0..2 {
            kept.push(exchange_on_new_connection(&balanced, client).await.expect("a free slot"));
        }
        assert!(
            exchange_on_new_connection(&balanced, client).await.is_none(),
            "{client} has two connections"
        );
    }
    assert!(
        exchange_on_new_connection(&balanced, "2001:db8::8").await.is_none(),
        "all of a /64 are one client"
    );
    assert!(
        exchange_on_new_connection(&balanced, "198.51.100.9").await.is_some(),
        "another client has places left"
    );
    for (client, _) in &mut kept {
        assert_eq!(client.exchange(GET).await.status, 200, "those before are not touched");
    }
    kept.remove(0);
    let response = async {
        loop {
            if let Some(response) = exchange_on_new_connection(&balanced, "198.51.100.7").await {
                return response;
            }
        }
    };
    let _response = within("the free slot", response).await;
    // Connections without a header use no slot of an address, and release their own.
    for _ in 0..20 {
        assert_eq!(balanced.send_raw(GET).await, "");
    }
    let mut probe = balanced.connect("PROXY UNKNOWN\r\n").await;
    assert_eq!(probe.exchange(GET).await.status, 200);
}
