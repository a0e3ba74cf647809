//! Clients that speak HTTP/2 and make no room for what they asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratewright_core::{Algorithm, AttributeName, Policy, Quota, WindowStart};
use ratewright_gateway::{Protocol, Route, Settings, Timeouts};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::peers::{Pieces, Speaking, ask, body, connect, exchange, get, pieces};
use crate::world::{Client, Scripted, Setup, World, route, route_to, settings, until, within};

/// A client that has room for so many bytes of each answer until it reads them; and what tells that its connection is over.
async fn narrow(world: &World, window: u32) -> (SendRequest<Pieces>, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(world.address).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(connection))
}

/// Nothing is waited for longer than this.
fn impatient(route: Route) -> Settings {
    let timeouts = Timeouts { idle: Duration::from_millis(200), ..Timeouts::default() };
    Settings { timeouts, ..settings(Route { timeouts, ..route }) }
}

/// At most ten at once.
fn permits() -> Vec<Policy> {
    let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), "10/s".parse().unwrap()).unwrap();
    vec![Policy::new("at-once", quota).unwrap().by(&[AttributeName::Ip])]
}

/// A server whose answer is longer than anything has room for, and whether it is still spoken to.
async fn endless() -> (Scripted, Arc<AtomicBool>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let server = Scripted::start(move |mut client: Client, _| {
        let over = Arc::clone(&over);
        async move {
            client.until(b"\r\n\r\n").await;
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n").await;
            let piece = vec![b'x'; 65_536];
            while tokio::io::AsyncWriteExt::write_all(&mut client.stream, &piece).await.is_ok() {}
            over.store(true, Ordering::SeqCst);
        }
    })
    .await;
    (server, is_over)
}

#[tokio::test]
async fn an_answer_that_is_not_taken_is_given_up_with_all_that_it_holds() {
    for window in [0, 1, 100_000] {
        let (server, is_over) = endless().await;
        let settings = impatient(route(&[server.address]));
        let world = World::start(Setup { permits: permits(), settings, ..Setup::default() }).await;
        let (client, _) = narrow(&world, window).await;
        let answer = ask(&client, get("/")).await;
        assert_eq!(answer.status(), 200);
        until("the server is let go", || is_over.load(Ordering::SeqCst)).await;
        until("the permit is back", || world.permits.n_keys() == 0).await;
        let broken = within(answer.into_body().collect()).await.unwrap_err();
        assert!(!broken.is_closed(), "the stream is reset and the connection goes on: {broken:?}");
    }
}

/// Nothing is left to be asked for, but the answer has not been taken yet.
#[tokio::test]
async fn a_short_answer_that_is_not_taken_is_given_up_too() {
    let server = Speaking::start(|_| async { http::Response::new(body("short")) }).await;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let settings = impatient(route_to(&[server.url()], protocol));
        let world = World::start(Setup { permits: permits(), settings, ..Setup::default() }).await;
        let (client, _) = narrow(&world, 0).await;
        let answer = ask(&client, get("/")).await;
        assert_eq!(answer.status(), 200);
        until("the permit is back", || world.permits.n_keys() == 0).await;
        within(answer.into_body().collect()).await.unwrap_err();
        // So is one of ours.
        let refused = ask(&client, http::Request::options("*").body(body("")).unwrap()).await;
        assert_eq!(refused.status(), 400);
        within(refused.into_body().collect()).await.unwrap_err();
    }
}

/// A server that says nothing for a while is not the client's fault, nor is a client that reads.
#[tokio::test]
async fn an_answer_that_is_taken_comes_whole() {
    let (sender, answer) = pieces();
    let answer = std::sync::Mutex::new(Some(answer));
    let server = Speaking::start(move |_| {
        let answer = answer.lock().unwrap().take().unwrap();
        async move { http::Response::new(answer) }
    })
    .await;
    let world = World::of(route_to(&[server.url()], Protocol::Http2)).await;
    let (client, _) = narrow(&world, 10).await;
    let answer = ask(&client, get("/")).await;
    let text = "0123456789".repeat(1_000);
    sender.send(&text);
    drop(sender);
    let whole = within(answer.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(whole, text.as_bytes());
}

/// All of the answer is with the library, and the rest of it finds no room: no stream is under way, and the connection is held.
#[tokio::test]
async fn a_connection_whose_answers_are_over_does_not_wait_for_room() {
    let server = Speaking::start(|_| async { http::Response::new(body("more than one byte")) }).await;
    let route = route_to(&[server.url()], Protocol::Http1);
    let settings = Settings { request_header: Duration::from_secs(1), ..impatient(route) };
    let world = World::start(Setup { settings, ..Setup::default() }).await;
    let (client, connection) = narrow(&world, 1).await;
    let answer = ask(&client, get("/")).await;
    drop(within(connection).await.unwrap());
    assert!(answer.into_body().collect().await.is_err());
    assert_eq!(exchange(&connect(world.address).await, get("/")).await.0, 200);
}
