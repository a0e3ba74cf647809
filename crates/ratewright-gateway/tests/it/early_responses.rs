//! Responses before the end of the request, and interim responses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use ratewright_gateway::route::Timeouts;
use ratewright_gateway::{Route, RouteTable};
use ratewright_lab::within;
use tokio::sync::mpsc;

use crate::harness::{Client, ScriptedServer, Setup, TestGateway, route, settings, text};
use crate::hyper_peers::{connect, pieces, send, whole};

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends a body until it ends or the connection fails.
async fn pour(mut stream: tokio::net::tcp::OwnedWriteHalf, n: usize) {
    let piece = vec![b'x'; 65_536];
    for _ in 0..n / piece.len() {
        if tokio::io::AsyncWriteExt::write_all(&mut stream, &piece).await.is_err() {
            return;
        }
    }
}

/// Posts 100 MB while reading the response. Returns what else was received.
async fn post_large(
    gateway: &TestGateway,
) -> (String, tokio::task::JoinHandle<()>, tokio::net::tcp::OwnedReadHalf) {
    let mut client = gateway.connect().await;
    client.send(POST).await;
    let (mut reads, writes) = client.stream.into_split();
    let pouring = tokio::spawn(pour(writes, 100_000_000));
    let mut head = Vec::new();
    while !head.ends_with(b"early") {
        let n = within("an early response", tokio::io::AsyncReadExt::read_buf(&mut reads, &mut head))
            .await
            .unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&head));
    }
    (String::from_utf8(head).unwrap(), pouring, reads)
}

#[tokio::test]
async fn a_response_before_a_close_is_forwarded() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\nearly").await;
        // As servers should: closing with unread data would send a reset, which can overtake the response.
        tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await.unwrap();
        client.read_to_end().await;
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    for n in 0..10 {
        let (head, pouring, _reads) = post_large(&gateway).await;
        assert!(head.starts_with("HTTP/1.1 413 "), "{n}: {head}");
        pouring.abort();
    }
}

/// An upstream that responds at once and never reads the body.
async fn early() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            client.send(text("early")).await;
            if head.starts_with(b"POST") {
                std::future::pending::<()>().await;
            }
        }
    })
    .await
}

/// It responds, keeps the connection open and never reads: the connection is not reused.
#[tokio::test]
async fn a_connection_with_half_a_request_is_not_reused() {
    let server = early().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut clients = Vec::new();
    for n in 0..4 {
        let posted = post_large(&gateway).await;
        assert!(posted.0.starts_with("HTTP/1.1 200 "), "{n}");
        clients.push(posted);
        for _ in 0..4 {
            assert_eq!(gateway.get("/").await.status, 200, "{n}");
        }
    }
    drop(clients);
}

/// The rest of a request after its response has a timeout.
#[tokio::test]
async fn an_upstream_that_responds_and_stops_reading_is_dropped() {
    let server = early().await;
    let timeouts = Timeouts { idle: Duration::from_millis(100), ..Timeouts::default() };
    let gateway = TestGateway::with_route(Route { timeouts, ..route(&[server.address]) }).await;
    let (_, pouring, _reads) = post_large(&gateway).await;
    within("the client is disconnected", pouring).await.unwrap();
}

/// The response arrives complete while the request continues, in HTTP/1.1 and HTTP/2.
#[tokio::test]
async fn an_early_response_is_forwarded_at_once() {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let sender = sender.clone();
        async move {
            while let Some(head) = client.read_until(b"\r\n\r\n").await {
                if !head.starts_with(b"POST") {
                    client.send(text("next")).await;
                    continue;
                }
                client.read_until(b"one").await;
                client.send(text("early")).await;
                client.read_until(b"two").await;
                sender.send(()).unwrap();
            }
        }
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\none").await;
    assert_eq!(client.response().await.unwrap().text(), "early");
    client.send("two").await;
    within("the upstream has all of it", receiver.recv()).await.unwrap();
    assert_eq!(client.exchange(GET).await.text(), "next", "the connection stays open");

    let (sender, upload) = pieces();
    sender.send("one");
    let request = Request::post("http://a/").body(upload).unwrap();
    let response = send(&connect(gateway.address).await, request).await;
    assert_eq!(whole(response.into_body()).await.0, "early");
    sender.send("two");
    within("the upstream has all of it", receiver.recv()).await.unwrap();
}

#[tokio::test]
async fn interim_responses_are_not_the_response() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
            client.send("HTTP/1.1 100 Continue\r\n\r\n").await;
            client.send("HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n").await;
            client.send(text(&line)).await;
        }
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    for n in 0..3 {
        let response = client.exchange(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!((response.status, response.text()), (200, format!("GET /{n} HTTP/1.1")));
    }
    assert_eq!(server.n_connections.load(Ordering::SeqCst), 1);
}

/// Some clients discard the response of a stream that is reset afterwards.
#[tokio::test]
async fn an_early_http2_response_reaches_a_client_that_still_sends() {
    let server = ScriptedServer::echo().await;
    let mut settings = settings(route(&[server.address]));
    settings.routes = RouteTable::default();
    let gateway = TestGateway::start(Setup { settings, ..Setup::default() }).await;
    let client = connect(gateway.address).await;
    for n_pieces in [1, 40] {
        let (sender, pieces) = pieces();
        for _ in 0..n_pieces {
            sender.send(&"x".repeat(64 * 1024));
        }
        let post = Request::post("http://a/").body(pieces).unwrap();
        let response = within("a response", client.clone().send_request(post)).await.unwrap();
        assert_eq!(response.status(), 404);
        let (text, _) = whole(response.into_body()).await;
        assert!(text.contains("no route"), "{text}");
        drop(sender);
    }
}
