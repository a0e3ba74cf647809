//! Connections through hyper and all stages, to an upstream that records its requests.

use super::*;
use crate::body::Body;
use crate::route::{HostPolicy, Match, Route, Timeouts};
use crate::route_table::RouteTable;
use crate::upstream::UpstreamServer;
use crate::upstream::{Balance, Health, Protocol, Upstream};
use crate::{GatewaySettings, Snapshot};
use http::Response;
use http::header::UPGRADE;
use http_body::Body as _;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use ratewright_core::decision::Unobserved;
use ratewright_core::{ManualClock, Policies};
use ratewright_http::HttpSettings;
use ratewright_lab::within;
use ratewright_listen::ShutdownTrigger;
use ratewright_tower::{PermitLimiter, Permits};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, split};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

/// A gateway with one server.
struct TestGateway {
    worker: Arc<Worker<Arc<Permits>, Unobserved>>,
    seen: Seen,
    stop: Shutdown,
}

/// Requests that reached the upstream: method, path and body.
type Seen = Arc<Mutex<Vec<String>>>;

impl TestGateway {
    async fn new() -> Self {
        let seen = Seen::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let settings =
            GatewaySettings { routes: routes(listener.local_addr().unwrap()), ..GatewaySettings::default() };
        tokio::spawn(serve(listener, Arc::clone(&seen)));
        let limiter = Arc::new(Limiter::new(Policies::new(Vec::new()).unwrap(), Arc::default()));
        let permits = PermitLimiter::new(Policies::default());
        let snapshot = Snapshot {
            settings: Arc::new(settings),
            policies: limiter.policies(),
            permits: permits.policies(),
            http_settings: Arc::new(HttpSettings::default()),
        };
        let gateway = Gateway {
            limiter,
            permits,
            snapshot: snapshot.shared(),
            clock: Arc::new(ManualClock::default()),
            wall: Arc::new(ManualClock::default()),
            client_tls: client_tls(),
            metrics: Arc::default(),
            access_log: Arc::new(crate::access_log::NoAccessLog),
        };
        let worker =
            Arc::new(Worker::new(Arc::new(gateway), GatewayOptions::POOL_IDLE_TIMEOUT, Default::default()));
        let (_, stop) = ShutdownTrigger::new();
        Self { worker, seen, stop }
    }

    /// The client's end of a new connection.
    fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (worker, stop) = (Arc::clone(&self.worker), self.stop.clone());
        let peer = IpAddr::from([192, 0, 2, 1]);
        tokio::spawn(serve_connection(worker, (peer, Scheme::Http), theirs, stop));
        ours
    }

    /// Sends bytes on a new connection, and returns all responses.
    async fn send_all(&self, text: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(text).await.unwrap();
        let mut responses = Vec::new();
        within("the gateway closes it", stream.read_to_end(&mut responses)).await.unwrap();
        String::from_utf8_lossy(&responses).into_owned()
    }

    /// Sends bytes on a new connection, and returns the statuses and the upstream's requests.
    async fn exchange(&self, text: &str) -> (Vec<String>, Vec<String>) {
        let responses = self.send_all(text.as_bytes()).await;
        let statuses = responses.split("HTTP/1.1 ").skip(1).map(|response| response.split_at(3).0.to_owned());
        (statuses.collect(), std::mem::take(&mut *self.seen.lock()))
    }
}

fn routes(address: SocketAddr) -> RouteTable {
    let servers = vec![UpstreamServer::parse(&format!("http://{address}")).unwrap()];
    let upstream = Upstream::new(servers, Balance::default(), Protocol::default(), Health::default());
    let route = Route {
        id: "all".into(),
        label: "/".into(),
        policies: Vec::new(),
        upstream: Arc::new(upstream),
        timeouts: Timeouts::default(),
        body_max: 1024 * 1024,
        body_rate_min: GatewaySettings::default().body_rate_min,
        host: HostPolicy::default(),
        retries_max: 0,
        cors: None,
    };
    RouteTable::new(vec![(Match::default(), route)]).unwrap()
}

fn client_tls() -> ClientTls {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    ClientTls::new(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

async fn serve(listener: TcpListener, seen: Seen) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let seen = Arc::clone(&seen);
        let service = hyper::service::service_fn(move |request| respond(request, Arc::clone(&seen)));
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection.with_upgrades());
    }
}

/// The upstream. After an upgrade it echoes.
async fn respond(mut request: Request<Incoming>, seen: Seen) -> Result<Response<Body>, hyper::Error> {
    let mut body = Vec::new();
    while let Some(frame) =
        std::future::poll_fn(|cx| std::pin::Pin::new(request.body_mut()).poll_frame(cx)).await
    {
        body.extend(frame?.into_data().unwrap_or_default());
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    seen.lock().push(format!("{} {} {body}", request.method(), request.uri().path()).trim_end().to_owned());
    let mut response = Response::new(Body::empty());
    if request.headers().contains_key(UPGRADE) {
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("echo"));
        tokio::spawn(async move {
            let stream = TokioIo::new(hyper::upgrade::on(&mut request).await.unwrap());
            let (mut from, mut to) = split(stream);
            let _ = copy(&mut from, &mut to).await;
        });
    }
    Ok(response)
}

const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_request_with_ambiguous_framing_gets_400_and_closes_the_connection() {
    let gateway = TestGateway::new().await;
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n",
        "Content-Length: 0, 0\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "X: y\nContent-Length: 0\r\n",
        "X: y\r\n Content-Length: 0\r\n",
        "Content-Length : 0\r\n",
    ] {
        let hostile = format!("POST /hostile HTTP/1.1\r\nHost: a\r\n{lines}\r\n0\r\n\r\n{LAST}");
        assert_eq!(gateway.exchange(&hostile).await, (vec!["400".to_owned()], Vec::new()), "{lines}");
    }
}

#[tokio::test]
async fn a_rejection_contains_its_reason() {
    let gateway = TestGateway::new().await;
    let hostile = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n";
    let response = gateway.send_all(hostile.as_bytes()).await;
    assert!(response.contains("several Content-Length values"), "{response}");
    assert!(response.contains("connection: close"), "{response}");
}

/// Everything arrives in one read, so the rejection exists before the first response.
#[tokio::test]
async fn a_rejection_applies_to_the_right_pipelined_request() {
    let gateway = TestGateway::new().await;
    let good = "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let hostile = "POST /hostile HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    for n in 0..4 {
        let (statuses, seen) = gateway.exchange(&format!("{}{hostile}{inner}{LAST}", good.repeat(n))).await;
        assert_eq!(statuses, [vec!["200"; n], vec!["400"]].concat());
        assert_eq!(seen, vec!["POST /good hi"; n]);
    }
}

#[tokio::test]
async fn pipelined_requests_get_responses_in_order() {
    let gateway = TestGateway::new().await;
    let chunked = "PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 6\r\n\r\n";
    let sized = "POST /sized HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let bare = "\r\nGET /bare HTTP/1.1\r\nHost: a\r\n\r\n";
    let (statuses, seen) = gateway.exchange(&[sized, bare, chunked, bare, LAST].concat()).await;
    assert_eq!(statuses, ["200"; 5]);
    assert_eq!(seen, ["POST /sized abc", "GET /bare", "PUT /chunked hello!", "GET /bare", "GET /last"]);
}

#[tokio::test]
async fn a_head_may_come_byte_by_byte() {
    let gateway = TestGateway::new().await;
    let mut stream = gateway.connect();
    for byte in LAST.bytes() {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut responses = String::new();
    within("the gateway closes it", stream.read_to_string(&mut responses)).await.unwrap();
    assert!(responses.starts_with("HTTP/1.1 200"), "{responses}");
}

#[tokio::test]
async fn an_oversized_head_gets_431() {
    let gateway = TestGateway::new().await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(gateway.exchange(&long).await, (vec!["431".to_owned()], Vec::new()));
}

#[tokio::test]
async fn a_tunnel_carries_arbitrary_bytes() {
    let gateway = TestGateway::new().await;
    let mut stream = gateway.connect();
    let handshake = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(handshake.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within("the whole head", stream.read_u8()).await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    for frame in [&b"\x81\x05hello"[..], b"\n\n\r\n\r\n\0", b"GET / HTTP/1.1\nX\r\n\r\n", b"more"] {
        stream.write_all(frame).await.unwrap();
        let mut echo = vec![0; frame.len()];
        within("it comes back", stream.read_exact(&mut echo)).await.unwrap();
        assert_eq!(echo, frame);
    }
}

#[tokio::test]
async fn http2_bypasses_the_framing_guard() {
    let gateway = TestGateway::new().await;
    let io = TokioIo::new(gateway.connect());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let request = Request::get("http://a/x").body(Body::empty()).unwrap();
        let response = within("a response", sender.send_request(request)).await;
        assert_eq!(response.unwrap().status(), StatusCode::OK);
    }
}
