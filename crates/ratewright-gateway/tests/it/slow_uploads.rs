//! Clients that send request bodies too slowly, and clients that only seem to.
//!
//! A client that must not be cut off has to outlast another client that is: see [`windows_pass`].

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use ratewright_gateway::route::BodyRate;
use ratewright_gateway::upstream::Protocol;
use ratewright_gateway::{GatewaySettings, Route};
use ratewright_lab::within;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::harness::{Client, RawResponse, TestGateway, route, route_to, wait_until};
use crate::hyper_peers::{
    ChannelBody, HyperServer, Sender, body, connect, exchange, piece, pieces, send, whole,
};
use crate::upgrade::{HANDSHAKE, doubling};

/// Short, because tests wait for several windows.
const RATE: BodyRate = BodyRate { n_bytes: 2_000, window: Duration::from_millis(200) };

/// For clients that must not be cut off, even if they get no processor for a second.
const GENEROUS: BodyRate = BodyRate { n_bytes: 2_000, window: Duration::from_secs(2) };

/// The pause between two bytes of a client that trickles.
const PAUSE: Duration = Duration::from_millis(5);

/// A gateway with a minimum rate, and its upstream.
struct Slow {
    gateway: TestGateway,
    /// Releases requests for `/late` and `/deaf`.
    release: watch::Sender<bool>,
    _server: HyperServer,
}

/// `/echo` responds at once and echoes, `/late` responds when it is released, `/deaf` reads nothing before that, and
/// any other path counts what it reads.
async fn respond(request: Request<Incoming>, mut released: watch::Receiver<bool>) -> Response<ChannelBody> {
    let path = request.uri().path().to_owned();
    if path == "/echo" {
        let (sender, response) = pieces();
        tokio::spawn(send_back(request.into_body(), sender));
        return Response::new(response);
    }
    if path == "/late" || path == "/deaf" {
        let _ = released.wait_for(|is_released| *is_released).await;
    }
    let read = request.into_body().collect().await.map(|read| read.to_bytes().len());
    Response::new(body(&read.unwrap_or(0).to_string()))
}

async fn send_back(mut from: Incoming, to: Sender) {
    while let Some(Ok(frame)) = from.frame().await {
        to.send(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
}

impl Slow {
    async fn new(protocol: Protocol, body_rate_min: Option<BodyRate>) -> Self {
        let (release, released) = watch::channel(false);
        let server = HyperServer::start(move |request| respond(request, released.clone())).await;
        let gateway =
            TestGateway::with_route(Route { body_rate_min, ..route_to(&[server.url()], protocol) }).await;
        Self { gateway, release, _server: server }
    }

    /// A gateway for each upstream protocol.
    async fn both() -> [Self; 2] {
        [Self::new(Protocol::Http1, Some(RATE)).await, Self::new(Protocol::Http2, Some(RATE)).await]
    }

    /// The same at the generous rate, and both at once, because its window is long.
    async fn generous(test: impl AsyncFn(Self)) {
        let test = async |protocol| test(Self::new(protocol, Some(GENEROUS)).await).await;
        tokio::join!(test(Protocol::Http1), test(Protocol::Http2));
    }

    /// Sends a head, and then a byte now and then until a response arrives.
    async fn trickle(&self, framing: &str, byte: &str) -> RawResponse {
        let mut client = self.gateway.connect().await;
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")).await;
        let cut_off = async {
            loop {
                client.send(byte).await;
                if tokio::time::timeout(PAUSE, client.stream.readable()).await.is_ok() {
                    return client.response().await.expect("a response");
                }
            }
        };
        within("it is cut off", cut_off).await
    }

    async fn connect_2(&self) -> SendRequest<ChannelBody> {
        connect(self.gateway.address).await
    }
}

/// Waits until two clients of other gateways have been cut off, one after the other: the first at this rate.
async fn windows_pass(rate: BodyRate) {
    for rate in [rate, RATE] {
        let slow = Slow::new(Protocol::Http1, Some(rate)).await;
        assert_eq!(slow.trickle("Content-Length: 1000000", "x").await.status, 408);
    }
}

/// Posts a body that is sent frame by frame.
fn post(client: &SendRequest<ChannelBody>, path: &str) -> (Sender, JoinHandle<(u16, String)>) {
    let (sender, upload) = pieces();
    let request = Request::post(format!("http://a{path}")).body(upload).unwrap();
    let client = client.clone();
    (sender, tokio::spawn(async move { exchange(&client, request).await }))
}

#[tokio::test]
async fn a_client_that_trickles_gets_408() {
    for slow in Slow::both().await {
        for (framing, byte) in
            [("Content-Length: 1000000", "x"), ("Transfer-Encoding: chunked", "1\r\nx\r\n")]
        {
            let response = slow.trickle(framing, byte).await;
            assert_eq!(
                (response.status, response.headers["content-type"].as_str()),
                (408, "application/problem+json")
            );
            let detail = "request body too slow; send at least 2000 bytes in 200ms";
            assert!(response.text().contains(detail), "{}", response.text());
        }
        assert_eq!(slow.gateway.metrics_text(), "/: 2 of 408");
    }
}

#[tokio::test]
async fn a_client_that_trickles_over_http2_gets_408_and_keeps_its_connection() {
    for slow in Slow::both().await {
        let client = slow.connect_2().await;
        let (sender, asking) = post(&client, "/");
        wait_until("it is cut off", || {
            sender.send("x");
            asking.is_finished()
        })
        .await;
        let (status, text) = asking.await.unwrap();
        assert!(status == 408 && text.contains("too slow"), "{status} {text}");
        let whole = Request::post("http://a/").body(body("whole")).unwrap();
        assert_eq!(exchange(&client, whole).await, (200, "5".to_owned()));
    }
}

/// Long polling.
#[tokio::test]
async fn a_request_without_a_body_may_wait() {
    for slow in Slow::both().await {
        let mut client = slow.gateway.connect().await;
        client.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let (sender, asking) = post(&slow.connect_2().await, "/late");
        drop(sender);
        windows_pass(RATE).await;
        slow.release.send_replace(true);
        assert_eq!(client.response().await.unwrap().status, 200);
        assert_eq!(within("a response", asking).await.unwrap().0, 200);
    }
}

/// A stream of gRPC, for example.
#[tokio::test]
async fn after_the_response_starts_the_body_has_no_minimum_rate() {
    Slow::generous(async |slow| {
        let (sender, upload) = pieces();
        let request = Request::post("http://a/echo").body(upload).unwrap();
        let mut over_2 = send(&slow.connect_2().await, request).await.into_body();
        let mut over_1 = slow.gateway.connect().await;
        over_1.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").await;
        over_1.read_until(b"\r\n\r\n").await.unwrap();
        sender.send("a");
        assert_eq!(piece(&mut over_2).await, "a");
        over_1.send("a").await;
        over_1.read_until(b"a\r\n").await.unwrap();
        windows_pass(GENEROUS).await;
        sender.send("b");
        assert_eq!(piece(&mut over_2).await, "b");
        drop(sender);
        assert_eq!(whole(over_2).await.0, "");
        over_1.send("b").await;
        over_1.read_until(b"b\r\n").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn expect_continue_gets_100_and_restarts_the_timeout() {
    let rate = GatewaySettings::default().body_rate_min;
    for slow in [Slow::new(Protocol::Http1, rate).await, Slow::new(Protocol::Http2, rate).await] {
        let mut client = slow.gateway.connect().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
        assert_eq!(client.response().await.unwrap().status, 100);
        client.send("body").await;
        assert_eq!(client.response().await.unwrap().text(), "4");
    }
}

/// Sends more than all buffers hold, and reads the response.
async fn upload(mut client: Client) -> RawResponse {
    const SIZE: usize = 20_000_000;
    client.send(format!("POST /deaf HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n")).await;
    client.send(vec![b'x'; SIZE]).await;
    client.response().await.unwrap()
}

#[tokio::test]
async fn a_client_held_back_by_the_upstream_is_not_slow() {
    Slow::generous(async |slow| {
        let over_1 = tokio::spawn(upload(slow.gateway.connect().await));
        let (sender, over_2) = post(&slow.connect_2().await, "/deaf");
        (0..200).for_each(|_| sender.send(&"x".repeat(100_000)));
        drop(sender);
        windows_pass(GENEROUS).await;
        assert!(!over_1.is_finished() && !over_2.is_finished());
        slow.release.send_replace(true);
        assert_eq!(within("a response", over_1).await.unwrap().text(), "20000000");
        assert_eq!(within("a response", over_2).await.unwrap(), (200, "20000000".to_owned()));
    })
    .await;
}

/// One body fills the window that all streams of a connection share, and its upstream does not read it.
#[tokio::test]
async fn a_stream_held_back_by_another_is_not_slow() {
    Slow::generous(async |slow| {
        let client = slow.connect_2().await;
        let (large, deaf) = post(&client, "/deaf");
        (0..100).for_each(|_| large.send(&"x".repeat(100_000)));
        let (small, held) = post(&client, "/");
        small.send("held back");
        windows_pass(GENEROUS).await;
        assert!(!held.is_finished());
        slow.release.send_replace(true);
        drop((large, small));
        assert_eq!(within("a response", deaf).await.unwrap(), (200, "10000000".to_owned()));
        assert_eq!(within("a response", held).await.unwrap(), (200, "9".to_owned()));
    })
    .await;
}

/// After an upgrade there is no body, and a WebSocket may be silent for hours.
#[tokio::test]
async fn an_upgraded_connection_may_be_silent_or_trickle() {
    let server = doubling().await;
    let gateway =
        TestGateway::with_route(Route { body_rate_min: Some(RATE), ..route(&[server.address]) }).await;
    let [mut silent, mut trickling] = [gateway.connect().await, gateway.connect().await];
    for client in [&mut silent, &mut trickling] {
        assert_eq!(client.exchange(HANDSHAKE).await.status, 101);
        client.read_until(b"hello").await.unwrap();
    }
    // One is silent, the other sends a byte now and then, in both directions.
    let (stop, stopped) = watch::channel(false);
    let trickle = tokio::spawn(async move {
        while !*stopped.borrow() {
            trickling.send(".").await;
            assert_eq!(trickling.read_exact(2).await.expect("it is not cut off"), b"..");
            tokio::time::sleep(PAUSE).await;
        }
    });
    windows_pass(RATE).await;
    stop.send_replace(true);
    within("it ends", trickle).await.unwrap();
    silent.send("still here.").await;
    assert_eq!(silent.read_exact(22).await.unwrap(), b"still here.still here.");
}

#[tokio::test]
async fn a_route_may_have_no_minimum_rate() {
    let free = Slow::new(Protocol::Http1, None).await;
    let (sender, asking) = post(&free.connect_2().await, "/");
    sender.send("a");
    windows_pass(RATE).await;
    sender.send("b");
    drop(sender);
    assert_eq!(within("a response", asking).await.unwrap(), (200, "2".to_owned()));
}
