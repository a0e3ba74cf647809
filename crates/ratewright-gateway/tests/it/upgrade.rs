//! Connections that switch to another protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratewright_core::{Algorithm, AttributeName, Policy, Quota, WindowStart};
use ratewright_gateway::{Route, Timeouts};

use crate::world::{Client, Scripted, Setup, World, route, settings, text, until};

/// A server that switches and then says everything twice; without the word to switch it says no.
async fn doubling() -> Scripted {
    Scripted::start(|mut client: Client, _| async move {
        let Some(head) = client.until(b"\r\n\r\n").await else { return };
        let head = String::from_utf8_lossy(&head).to_lowercase();
        if !head.contains("upgrade: websocket\r\n") || !head.contains("connection: upgrade\r\n") {
            client.send(text("no")).await;
            return;
        }
        client
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello")
            .await;
        while let Some(word) = client.until(b".").await {
            client.send([word.clone(), word].concat()).await;
        }
    })
    .await
}

const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";

#[tokio::test]
async fn a_websocket_is_tunnelled_both_ways() {
    let world = World::before(&[doubling().await.address]).await;
    let mut client = world.connect().await;
    let answer = client.ask(HANDSHAKE).await;
    assert_eq!((answer.status, answer.headers["upgrade"].as_str()), (101, "websocket"));
    assert_eq!(answer.headers["sec-websocket-accept"], "x");
    assert_eq!(client.until(b"hello").await.unwrap(), b"hello");
    for word in ["a.", "\r\n\r\n.", "GET / HTTP."] {
        client.send(word).await;
        assert_eq!(client.exactly(2 * word.len()).await.unwrap(), [word, word].concat().as_bytes());
    }
}

#[tokio::test]
async fn who_does_not_ask_to_switch_is_not_switched() {
    let world = World::before(&[doubling().await.address]).await;
    assert_eq!(world.get("/chat").await.text(), "no");
    let h2c = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n";
    assert_eq!(
        world.connect().await.ask(h2c).await.text(),
        "no",
        "no tunnel for requests that nobody limits"
    );
}

/// Opens a tunnel.
async fn switched(world: &World) -> Client {
    let mut client = world.connect().await;
    assert_eq!(client.ask(HANDSHAKE).await.status, 101);
    assert_eq!(client.until(b"hello").await.unwrap(), b"hello");
    client
}

#[tokio::test]
async fn a_tunnel_through_which_nothing_goes_is_closed_on_both_sides() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let server = Scripted::start(move |mut client: Client, _| {
        let over = Arc::clone(&over);
        async move {
            client.until(b"\r\n\r\n").await;
            client.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello").await;
            client.all_that_comes().await;
            over.store(true, Ordering::SeqCst);
        }
    })
    .await;
    let timeouts = Timeouts { tunnel_idle: Duration::from_millis(300), ..Timeouts::default() };
    let world = World::of(Route { timeouts, ..route(&[server.address]) }).await;
    let mut client = switched(&world).await;
    assert_eq!(client.all_that_comes().await, b"");
    until("the server is let go", || is_over.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_tunnel_holds_its_permit_until_it_is_over() {
    let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), "1/s".parse().unwrap()).unwrap();
    let permits = vec![Policy::new("at-once", quota).unwrap().by(&[AttributeName::Ip])];
    let settings = settings(route(&[doubling().await.address]));
    let world = World::start(Setup { permits, settings, ..Setup::default() }).await;
    for _ in 0..3 {
        let client = switched(&world).await;
        assert_eq!(world.get("/chat").await.status, 429);
        assert_eq!(world.permits.n_keys(), 1);
        drop(client);
        until("the permit is back", || world.permits.n_keys() == 0).await;
    }
}
