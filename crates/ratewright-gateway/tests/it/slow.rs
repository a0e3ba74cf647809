//! Clients that send their bodies too slowly, and those that only look as if they did.
//!
//! A client that must not be cut off has outlasted a second client that is cut off meanwhile: see [`windows_pass`].

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use ratewright_gateway::{BodyRate, Protocol, Route};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::peers::{Pieces, Sender, Speaking, ask, body, connect, exchange, piece, pieces, whole};
use crate::upgrade::{HANDSHAKE, doubling};
use crate::world::{Answer, Client, World, route, route_to, until, within};

const RATE: BodyRate = BodyRate { n_bytes: 10_000, window: Duration::from_secs(1) };

/// How long a client that trickles waits between two bytes.
const PAUSE: Duration = Duration::from_millis(5);

/// A gateway with a least rate, and a server behind it.
struct Slow {
    world: World,
    /// Lets the server go on with requests for `/late` and `/deaf`.
    release: watch::Sender<bool>,
    _server: Speaking,
}

/// `/echo` responds at once and sends everything back, `/late` responds when it is released, `/deaf` reads nothing before that,
/// and any other path counts what it reads.
async fn respond(request: Request<Incoming>, mut released: watch::Receiver<bool>) -> Response<Pieces> {
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
        let server = Speaking::start(move |request| respond(request, released.clone())).await;
        let world = World::of(Route { body_rate_min, ..route_to(&[server.url()], protocol) }).await;
        Self { world, release, _server: server }
    }

    /// A gateway for each way to speak to the server.
    async fn both() -> [Self; 2] {
        [Self::new(Protocol::Http1, Some(RATE)).await, Self::new(Protocol::Http2, Some(RATE)).await]
    }

    /// Sends a head, and then a byte now and then until a response comes.
    async fn trickle(&self, framing: &str, byte: &str) -> Answer {
        let mut client = self.world.connect().await;
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")).await;
        let cut_off = async {
            loop {
                client.send(byte).await;
                if tokio::time::timeout(PAUSE, client.stream.readable()).await.is_ok() {
                    return client.answer().await.expect("a response");
                }
            }
        };
        within(cut_off).await
    }

    async fn connect_2(&self) -> SendRequest<Pieces> {
        connect(self.world.address).await
    }
}

/// Waits until two clients of another gateway have been cut off, one after the other.
async fn windows_pass() {
    let slow = Slow::new(Protocol::Http1, Some(RATE)).await;
    for _ in 0..2 {
        assert_eq!(slow.trickle("Content-Length: 1000000", "x").await.status, 408);
    }
}

/// Posts a body that is sent piece by piece.
fn post(client: &SendRequest<Pieces>, path: &str) -> (Sender, JoinHandle<(u16, String)>) {
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
            let answer = slow.trickle(framing, byte).await;
            assert_eq!(
                (answer.status, answer.headers["content-type"].as_str()),
                (408, "application/problem+json")
            );
            let detail = "The body came too slowly; send at least 10000 bytes in 1s.";
            assert!(answer.text().contains(detail), "{}", answer.text());
        }
        assert_eq!(slow.world.counted(), "/: 2 of 408");
    }
}

#[tokio::test]
async fn so_does_one_over_http_2_and_its_connection_goes_on() {
    for slow in Slow::both().await {
        let client = slow.connect_2().await;
        let (sender, asking) = post(&client, "/");
        until("it is cut off", || {
            sender.send("x");
            asking.is_finished()
        })
        .await;
        let (status, text) = asking.await.unwrap();
        assert!(status == 408 && text.contains("too slowly"), "{status} {text}");
        let whole = Request::post("http://a/").body(body("whole")).unwrap();
        assert_eq!(exchange(&client, whole).await, (200, "5".to_owned()));
    }
}

/// Long polling.
#[tokio::test]
async fn a_request_without_a_body_waits_as_long_as_it_likes() {
    for slow in Slow::both().await {
        let mut client = slow.world.connect().await;
        client.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let (sender, asking) = post(&slow.connect_2().await, "/late");
        drop(sender);
        windows_pass().await;
        slow.release.send_replace(true);
        assert_eq!(client.answer().await.unwrap().status, 200);
        assert_eq!(within(asking).await.unwrap().0, 200);
    }
}

/// A stream of gRPC, for example.
#[tokio::test]
async fn once_the_response_has_begun_a_body_comes_as_slowly_as_it_likes() {
    for slow in Slow::both().await {
        let (sender, upload) = pieces();
        let request = Request::post("http://a/echo").body(upload).unwrap();
        let mut over_2 = ask(&slow.connect_2().await, request).await.into_body();
        let mut over_1 = slow.world.connect().await;
        over_1.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").await;
        over_1.until(b"\r\n\r\n").await.unwrap();
        sender.send("a");
        assert_eq!(piece(&mut over_2).await, "a");
        over_1.send("a").await;
        over_1.until(b"a\r\n").await.unwrap();
        windows_pass().await;
        sender.send("b");
        assert_eq!(piece(&mut over_2).await, "b");
        drop(sender);
        assert_eq!(whole(over_2).await.0, "");
        over_1.send("b").await;
        over_1.until(b"b\r\n").await.unwrap();
    }
}

#[tokio::test]
async fn who_asks_first_is_told_to_go_on_and_is_not_late() {
    for slow in Slow::both().await {
        let mut client = slow.world.connect().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
        assert_eq!(client.answer().await.unwrap().status, 100);
        client.send("body").await;
        assert_eq!(client.answer().await.unwrap().text(), "4");
    }
}

/// Sends more than all buffers on the way hold, and reads the response.
async fn upload(mut client: Client) -> Answer {
    const SIZE: usize = 20_000_000;
    client.send(format!("POST /deaf HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n")).await;
    client.send(vec![b'x'; SIZE]).await;
    client.answer().await.unwrap()
}

#[tokio::test]
async fn a_client_whom_the_upstream_holds_back_is_not_slow() {
    for slow in Slow::both().await {
        let over_1 = tokio::spawn(upload(slow.world.connect().await));
        let (sender, over_2) = post(&slow.connect_2().await, "/deaf");
        (0..200).for_each(|_| sender.send(&"x".repeat(100_000)));
        drop(sender);
        windows_pass().await;
        assert!(!over_1.is_finished() && !over_2.is_finished());
        slow.release.send_replace(true);
        assert_eq!(within(over_1).await.unwrap().text(), "20000000");
        assert_eq!(within(over_2).await.unwrap(), (200, "20000000".to_owned()));
    }
}

/// One body fills the window that all streams of a connection share, and its upstream does not read it.
#[tokio::test]
async fn a_stream_that_another_one_holds_back_is_not_slow() {
    for slow in Slow::both().await {
        let client = slow.connect_2().await;
        let (large, deaf) = post(&client, "/deaf");
        (0..100).for_each(|_| large.send(&"x".repeat(100_000)));
        let (small, held) = post(&client, "/");
        small.send("held back");
        windows_pass().await;
        assert!(!held.is_finished());
        slow.release.send_replace(true);
        drop((large, small));
        assert_eq!(within(deaf).await.unwrap(), (200, "10000000".to_owned()));
        assert_eq!(within(held).await.unwrap(), (200, "9".to_owned()));
    }
}

/// Behind an upgrade there is no body, and a WebSocket may have nothing to say for hours.
#[tokio::test]
async fn an_upgraded_connection_may_be_silent_or_trickle() {
    let server = doubling().await;
    let world = World::of(Route { body_rate_min: Some(RATE), ..route(&[server.address]) }).await;
    let [mut silent, mut trickling] = [world.connect().await, world.connect().await];
    for client in [&mut silent, &mut trickling] {
        assert_eq!(client.ask(HANDSHAKE).await.status, 101);
        client.until(b"hello").await.unwrap();
    }
    // One says nothing at all, the other a byte now and then, in both directions.
    let (stop, stopped) = watch::channel(false);
    let trickle = tokio::spawn(async move {
        while !*stopped.borrow() {
            trickling.send(".").await;
            assert_eq!(trickling.exactly(2).await.expect("it is not cut off"), b"..");
            tokio::time::sleep(PAUSE).await;
        }
    });
    windows_pass().await;
    stop.send_replace(true);
    within(trickle).await.unwrap();
    silent.send("still here.").await;
    assert_eq!(silent.exactly(22).await.unwrap(), b"still here.still here.");
}

#[tokio::test]
async fn a_route_may_have_no_least_rate() {
    let free = Slow::new(Protocol::Http1, None).await;
    let (sender, asking) = post(&free.connect_2().await, "/");
    sender.send("a");
    windows_pass().await;
    sender.send("b");
    drop(sender);
    assert_eq!(within(asking).await.unwrap(), (200, "2".to_owned()));
}
