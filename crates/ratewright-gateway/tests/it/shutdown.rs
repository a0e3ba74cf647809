//! Graceful shutdown: requests in flight finish.

use std::sync::atomic::Ordering;

use http::Response;
use ratewright_gateway::upstream::Protocol;
use ratewright_listen::ShutdownPhase;

use crate::harness::{Client, ScriptedServer, TestGateway, route_to, text, wait_until};
use crate::hyper_peers::{HyperServer, body, connect, get, piece, pieces, send, whole};

#[tokio::test]
async fn streams_of_http_2_finish_after_a_stop() {
    let (sender, response) = pieces();
    let response = std::sync::Mutex::new(Some(response));
    let server = HyperServer::start(move |_| {
        let response = response.lock().unwrap().take().unwrap_or_else(|| body("other"));
        async move { Response::new(response) }
    })
    .await;
    let mut gateway = TestGateway::with_route(route_to(&[server.url()], Protocol::Http2)).await;
    let client = connect(gateway.address).await;
    let mut response = send(&client, get("/")).await;
    sender.send("one");
    assert_eq!(piece(response.body_mut()).await, "one");
    gateway.stop();
    let address = gateway.address;
    wait_until("new connections are refused", || std::net::TcpStream::connect(address).is_err()).await;
    sender.send("two");
    drop(sender);
    assert_eq!(whole(response.into_body()).await.0, "two");
    gateway.stopped().await;
}

#[tokio::test]
async fn a_tunnel_goes_on_after_a_stop_until_a_side_closes_it() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        while let Some(word) = client.read_until(b".").await {
            client.send(word).await;
        }
    })
    .await;
    let mut gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut client = gateway.connect().await;
    let handshake = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(client.exchange(handshake).await.status, 101);
    client.send("before.").await;
    assert_eq!(client.read_until(b".").await.unwrap(), b"before.");
    gateway.stop();
    let address = gateway.address;
    wait_until("new connections are refused", || std::net::TcpStream::connect(address).is_err()).await;
    client.send("after.").await;
    assert_eq!(client.read_until(b".").await.unwrap(), b"after.");
    drop(client);
    gateway.stopped().await;
}

/// An idle connection does not delay the end.
#[tokio::test]
async fn idle_connections_are_closed_by_a_stop() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            client.send(text("x")).await;
        }
    })
    .await;
    let mut gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut silent = gateway.connect().await;
    let mut used = gateway.connect().await;
    assert_eq!(used.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    let http2 = connect(gateway.address).await;
    whole(send(&http2, get("/")).await.into_body()).await;
    assert!(server.n_connections.load(Ordering::SeqCst) > 0);
    gateway.stop();
    assert_eq!((silent.read_to_end().await, used.read_to_end().await), (vec![], vec![]));
    wait_until("the other too", || http2.is_closed()).await;
    gateway.stopped().await;
}

/// Keep-alive connections close with their next response; new connections go to the other process.
#[tokio::test]
async fn after_a_handover_keep_alive_connections_close_with_the_next_response() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            client.send(text("x")).await;
        }
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (mut kept, mut idle) = (gateway.connect().await, gateway.connect().await);
    for client in [&mut kept, &mut idle] {
        assert_eq!(client.exchange(request).await.headers.get("connection"), None);
    }
    let http2 = connect(gateway.address).await;
    whole(send(&http2, get("/")).await.into_body()).await;
    gateway.advance_to(ShutdownPhase::HandedOver);
    let address = gateway.address;
    wait_until("new connections are refused", || std::net::TcpStream::connect(address).is_err()).await;
    let response = kept.exchange(request).await;
    assert_eq!((response.status, response.headers["connection"].as_str()), (200, "close"));
    assert_eq!(kept.read_to_end().await, b"");
    wait_until("HTTP/2 clients get GOAWAY at once", || http2.is_closed()).await;
    assert_eq!(idle.exchange(request).await.status, 200, "who comes late is served too");
    gateway.advance_to(ShutdownPhase::Draining);
    gateway.stopped().await;
}

/// A connection that was opened just before the end has time for its first request.
#[tokio::test]
async fn a_connection_without_a_request_gets_a_grace_period() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        while client.read_until(b"\r\n\r\n").await.is_some() {
            client.send(text("x")).await;
        }
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let mut new = gateway.connect().await;
    gateway.advance_to(ShutdownPhase::Draining);
    let address = gateway.address;
    wait_until("new connections are refused", || std::net::TcpStream::connect(address).is_err()).await;
    let response = new.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((response.status, response.headers["connection"].as_str()), (200, "close"));
    gateway.stopped().await;
}
