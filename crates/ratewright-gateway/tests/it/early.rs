//! Answers that come before the request has ended, and words before the answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use ratewright_gateway::{Route, Routes, Timeouts};
use tokio::sync::mpsc;

use crate::peers::{ask, connect, pieces, whole};
use crate::world::{Client, Scripted, Setup, World, route, settings, text, within};

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends a body until nobody takes it any more, or it has ended.
async fn pour(mut stream: tokio::net::tcp::OwnedWriteHalf, n: usize) {
    let piece = vec![b'x'; 65_536];
    for _ in 0..n / piece.len() {
        if tokio::io::AsyncWriteExt::write_all(&mut stream, &piece).await.is_err() {
            return;
        }
    }
}

/// Posts a hundred megabytes, and reads the answer while it sends. Tells what there is beside the answer.
async fn post_large(world: &World) -> (String, tokio::task::JoinHandle<()>, tokio::net::tcp::OwnedReadHalf) {
    let mut client = world.connect().await;
    client.send(POST).await;
    let (mut reads, writes) = client.stream.into_split();
    let pouring = tokio::spawn(pour(writes, 100_000_000));
    let mut head = Vec::new();
    while !head.ends_with(b"early") {
        let n = within(tokio::io::AsyncReadExt::read_buf(&mut reads, &mut head)).await.unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&head));
    }
    (String::from_utf8(head).unwrap(), pouring, reads)
}

#[tokio::test]
async fn who_refuses_a_body_without_reading_it_and_closes_is_heard() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\nearly").await;
        // As servers should: at once with what was sent unread it would be a reset, which can overtake the answer.
        tokio::io::AsyncWriteExt::shutdown(&mut client.stream).await.unwrap();
        client.all_that_comes().await;
    })
    .await;
    let world = World::before(&[server.address]).await;
    for n in 0..10 {
        let (head, pouring, _reads) = post_large(&world).await;
        assert!(head.starts_with("HTTP/1.1 413 "), "{n}: {head}");
        pouring.abort();
    }
}

/// A server that answers at once and never reads a body.
async fn early() -> Scripted {
    Scripted::start(|mut client: Client, _| async move {
        while let Some(head) = client.until(b"\r\n\r\n").await {
            client.send(text("early")).await;
            if head.starts_with(b"POST") {
                std::future::pending::<()>().await;
            }
        }
    })
    .await
}

/// It answers, keeps the connection and never reads: nobody else is put behind that.
#[tokio::test]
async fn a_connection_with_half_a_request_in_it_is_not_used_again() {
    let server = early().await;
    let world = World::before(&[server.address]).await;
    let mut clients = Vec::new();
    for n in 0..4 {
        let posted = post_large(&world).await;
        assert!(posted.0.starts_with("HTTP/1.1 200 "), "{n}");
        clients.push(posted);
        for _ in 0..4 {
            assert_eq!(world.get("/").await.status, 200, "{n}");
        }
    }
    drop(clients);
}

/// What is left of a request after its answer is not waited with for ever.
#[tokio::test]
async fn a_server_that_answers_and_never_reads_on_holds_nobody_for_long() {
    let server = early().await;
    let timeouts = Timeouts { idle: Duration::from_millis(100), ..Timeouts::default() };
    let world = World::of(Route { timeouts, ..route(&[server.address]) }).await;
    let (_, pouring, _reads) = post_large(&world).await;
    within(pouring).await.unwrap(); // nobody takes it any more: the client is cut off
}

/// An answer comes whole while the request goes on, in HTTP/1.1 and HTTP/2.
#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_passed_on_at_once() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Scripted::start(move |mut client: Client, _| {
        let tell = tell.clone();
        async move {
            while let Some(head) = client.until(b"\r\n\r\n").await {
                if !head.starts_with(b"POST") {
                    client.send(text("next")).await;
                    continue;
                }
                client.until(b"one").await;
                client.send(text("early")).await;
                client.until(b"two").await;
                tell.send(()).unwrap();
            }
        }
    })
    .await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\none").await;
    assert_eq!(client.answer().await.unwrap().text(), "early");
    client.send("two").await;
    within(told.recv()).await.unwrap();
    assert_eq!(client.ask(GET).await.text(), "next", "the connection goes on");

    let (sender, upload) = pieces();
    sender.send("one");
    let request = Request::post("http://a/").body(upload).unwrap();
    let answer = ask(&connect(world.address).await, request).await;
    assert_eq!(whole(answer.into_body()).await.0, "early");
    sender.send("two");
    within(told.recv()).await.unwrap();
}

#[tokio::test]
async fn words_before_the_answer_do_not_count_as_one() {
    let server = Scripted::start(|mut client: Client, _| async move {
        while let Some(head) = client.until(b"\r\n\r\n").await {
            let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
            client.send("HTTP/1.1 100 Continue\r\n\r\n").await;
            client.send("HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n").await;
            client.send(text(&line)).await;
        }
    })
    .await;
    let world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    for n in 0..3 {
        let answer = client.ask(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!((answer.status, answer.text()), (200, format!("GET /{n} HTTP/1.1")));
    }
    assert_eq!(server.n_connections.load(Ordering::SeqCst), 1);
}

/// Some clients take a stream that is reset for one without an answer, also if the answer came before.
#[tokio::test]
async fn an_early_answer_over_http_2_reaches_who_is_still_sending() {
    let server = Scripted::echo().await;
    let mut settings = settings(route(&[server.address]));
    settings.routes = Routes::default();
    let world = World::start(Setup { settings, ..Setup::default() }).await;
    let client = connect(world.address).await;
    for n_pieces in [1, 40] {
        let (sender, pieces) = pieces();
        for _ in 0..n_pieces {
            sender.send(&"x".repeat(64 * 1024));
        }
        let post = Request::post("http://a/").body(pieces).unwrap();
        let answer = within(client.clone().send_request(post)).await.unwrap();
        assert_eq!(answer.status(), 404);
        let (text, _) = whole(answer.into_body()).await;
        assert!(text.contains("no route"), "{text}");
        drop(sender);
    }
}
