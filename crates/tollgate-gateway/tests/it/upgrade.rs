//! Connections that switch to another protocol.

use crate::world::{Client, Scripted, World, text};

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
