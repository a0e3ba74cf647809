//! Connections through hyper and all stages, to a server that tells what reached it.

use super::*;
use crate::body::Body;
use crate::route::{Match, Route, Timeouts};
use crate::routes::Routes;
use crate::server::Server;
use crate::upstream::{Balance, Health, Protocol, Upstream};
use crate::{HostPolicy, Settings, Snapshot};
use http::Response;
use http::header::UPGRADE;
use http_body::Body as _;
use hyper_util::rt::TokioExecutor;
use ratewright_core::{ManualClock, Policies, Unobserved};
use ratewright_http::Dialect;
use ratewright_listen::ShutdownTrigger;
use ratewright_tower::Permits;
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy, split};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

/// A gateway with one server behind it.
struct World {
    worker: Arc<Worker<Arc<Permits>, Unobserved>>,
    seen: Seen,
    stop: Shutdown,
}

/// Requests that reached the server: method, path and body.
type Seen = Arc<Mutex<Vec<String>>>;

impl World {
    async fn new() -> Self {
        let seen = Seen::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let settings = Settings { routes: routes(listener.local_addr().unwrap()), ..Settings::default() };
        tokio::spawn(serve(listener, Arc::clone(&seen)));
        let limiter = Arc::new(Limiter::new(Policies::new(Vec::new()).unwrap(), Arc::default()));
        let snapshot = Snapshot {
            settings: Arc::new(settings),
            policies: limiter.policies(),
            permits: limiter.policies(),
            dialect: Arc::new(Dialect::default()),
        };
        let gateway = Gateway {
            limiter: Arc::clone(&limiter),
            permits: limiter,
            snapshot: snapshot.shared(),
            clock: Arc::new(ManualClock::default()),
            wall: Arc::new(ManualClock::default()),
            client_tls: client_tls(),
            counts: Arc::default(),
            access_log: Arc::new(crate::Unlogged),
        };
        let worker = Arc::new(Worker::new(Arc::new(gateway), Listening::KEPT_FOR));
        let (_, stop) = ShutdownTrigger::new();
        Self { worker, seen, stop }
    }

    /// The client's end of a new connection.
    fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (worker, stop) = (Arc::clone(&self.worker), self.stop.clone());
        let peer = IpAddr::from([192, 0, 2, 1]);
        tokio::spawn(async move { converse(&worker, (peer, Scheme::Http), theirs, stop).await });
        ours
    }

    /// Says something on a connection of its own, and tells which answers come until the gateway closes it.
    async fn say(&self, text: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(text).await.unwrap();
        let mut answers = Vec::new();
        let closes = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answers));
        closes.await.expect("the gateway closes it").unwrap();
        String::from_utf8_lossy(&answers).into_owned()
    }

    /// Says something, and tells which statuses come back and what the server has seen.
    async fn hear(&self, text: &str) -> (Vec<String>, Vec<String>) {
        let answers = self.say(text.as_bytes()).await;
        let statuses = answers.split("HTTP/1.1 ").skip(1).map(|answer| answer.split_at(3).0.to_owned());
        (statuses.collect(), std::mem::take(&mut *self.seen.lock()))
    }
}

fn routes(address: SocketAddr) -> Routes {
    let servers = vec![Server::parse(&format!("http://{address}")).unwrap()];
    let upstream = Upstream::new(servers, Balance::default(), Protocol::default(), Health::default());
    let route = Route {
        id: "all".into(),
        label: "/".into(),
        policies: Vec::new(),
        upstream: Arc::new(upstream),
        timeouts: Timeouts::default(),
        body_max: 1024 * 1024,
        body_rate_min: Settings::default().body_rate_min,
        host: HostPolicy::default(),
        retries_max: 0,
        cors: None,
    };
    Routes::new(vec![(Match::default(), route)]).unwrap()
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
        let service = hyper::service::service_fn(move |request| answer(request, Arc::clone(&seen)));
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection.with_upgrades());
    }
}

/// The server: who asks to switch gets everything back from then on.
async fn answer(mut request: Request<Incoming>, seen: Seen) -> Result<Response<Body>, hyper::Error> {
    let mut body = Vec::new();
    while let Some(frame) =
        std::future::poll_fn(|cx| std::pin::Pin::new(request.body_mut()).poll_frame(cx)).await
    {
        body.extend(frame?.into_data().unwrap_or_default());
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    seen.lock().push(format!("{} {} {body}", request.method(), request.uri().path()).trim_end().to_owned());
    let mut answer = Response::new(Body::empty());
    if request.headers().contains_key(UPGRADE) {
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("echo"));
        tokio::spawn(async move {
            let stream = TokioIo::new(hyper::upgrade::on(&mut request).await.unwrap());
            let (mut from, mut to) = split(stream);
            let _ = copy(&mut from, &mut to).await;
        });
    }
    Ok(answer)
}

const LAST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_request_with_two_ends_is_refused_and_is_the_last() {
    let world = World::new().await;
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
        assert_eq!(world.hear(&hostile).await, (vec!["400".to_owned()], Vec::new()), "{lines}");
    }
}

#[tokio::test]
async fn who_is_refused_is_told_why() {
    let world = World::new().await;
    let hostile = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n";
    let answer = world.say(hostile.as_bytes()).await;
    assert!(answer.contains("several values of Content-Length"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}

/// All of it comes in one read, so the verdict is there before the first request has been answered.
#[tokio::test]
async fn the_verdict_is_for_the_request_that_it_is_of() {
    let world = World::new().await;
    let good = "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let hostile = "POST /hostile HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n";
    for n in 0..4 {
        let (statuses, seen) = world.hear(&format!("{}{hostile}{inner}{LAST}", good.repeat(n))).await;
        assert_eq!(statuses, [vec!["200"; n], vec!["400"]].concat());
        assert_eq!(seen, vec!["POST /good hi"; n]);
    }
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_their_order() {
    let world = World::new().await;
    let chunked = "PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 6\r\n\r\n";
    let sized = "POST /sized HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let bare = "\r\nGET /bare HTTP/1.1\r\nHost: a\r\n\r\n";
    let (statuses, seen) = world.hear(&[sized, bare, chunked, bare, LAST].concat()).await;
    assert_eq!(statuses, ["200"; 5]);
    assert_eq!(seen, ["POST /sized abc", "GET /bare", "PUT /chunked hello!", "GET /bare", "GET /last"]);
}

#[tokio::test]
async fn a_head_may_come_byte_by_byte() {
    let world = World::new().await;
    let mut stream = world.connect();
    for byte in LAST.bytes() {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    assert!(answers.starts_with("HTTP/1.1 200"), "{answers}");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_answered() {
    let world = World::new().await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(world.hear(&long).await, (vec!["431".to_owned()], Vec::new()));
}

#[tokio::test]
async fn a_tunnel_carries_what_is_no_http() {
    let world = World::new().await;
    let mut stream = world.connect();
    let handshake = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(handshake.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    for frame in [&b"\x81\x05hello"[..], b"\n\n\r\n\r\n\0", b"GET / HTTP/1.1\nX\r\n\r\n", b"more"] {
        stream.write_all(frame).await.unwrap();
        let mut echo = vec![0; frame.len()];
        let comes_back = tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut echo));
        comes_back.await.expect("it comes back").unwrap();
        assert_eq!(echo, frame);
    }
}

#[tokio::test]
async fn http_2_is_not_looked_at() {
    let world = World::new().await;
    let io = TokioIo::new(world.connect());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let request = Request::get("http://a/x").body(Body::empty()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::OK);
    }
}
