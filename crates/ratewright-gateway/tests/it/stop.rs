//! The end: what is under way finishes, whatever it is.

use std::sync::atomic::Ordering;

use http::Response;
use ratewright_gateway::Protocol;
use ratewright_listen::ShutdownPhase;

use crate::peers::{Speaking, ask, body, connect, get, piece, pieces, whole};
use crate::world::{Client, Scripted, World, route_to, text, until};

#[tokio::test]
async fn streams_of_http_2_finish_after_a_stop() {
    let (sender, answer) = pieces();
    let answer = std::sync::Mutex::new(Some(answer));
    let server = Speaking::start(move |_| {
        let answer = answer.lock().unwrap().take().unwrap_or_else(|| body("other"));
        async move { Response::new(answer) }
    })
    .await;
    let mut world = World::of(route_to(&[server.url()], Protocol::Http2)).await;
    let client = connect(world.address).await;
    let mut answer = ask(&client, get("/")).await;
    sender.send("one");
    assert_eq!(piece(answer.body_mut()).await, "one");
    world.stop();
    let address = world.address;
    until("nobody else gets in", || std::net::TcpStream::connect(address).is_err()).await;
    sender.send("two");
    drop(sender);
    assert_eq!(whole(answer.into_body()).await.0, "two");
    world.stopped().await;
}

#[tokio::test]
async fn a_tunnel_goes_on_after_a_stop_until_a_side_closes_it() {
    let server = Scripted::start(|mut client: Client, _| async move {
        client.until(b"\r\n\r\n").await;
        client
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        while let Some(word) = client.until(b".").await {
            client.send(word).await;
        }
    })
    .await;
    let mut world = World::before(&[server.address]).await;
    let mut client = world.connect().await;
    let handshake = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(client.ask(handshake).await.status, 101);
    client.send("before.").await;
    assert_eq!(client.until(b".").await.unwrap(), b"before.");
    world.stop();
    let address = world.address;
    until("nobody else gets in", || std::net::TcpStream::connect(address).is_err()).await;
    client.send("after.").await;
    assert_eq!(client.until(b".").await.unwrap(), b"after.");
    drop(client);
    world.stopped().await;
}

/// An idle connection does not hold up the end.
#[tokio::test]
async fn idle_connections_are_closed_by_a_stop() {
    let server = Scripted::start(|mut client: Client, _| async move {
        while client.until(b"\r\n\r\n").await.is_some() {
            client.send(text("x")).await;
        }
    })
    .await;
    let mut world = World::before(&[server.address]).await;
    let mut silent = world.connect().await;
    let mut used = world.connect().await;
    assert_eq!(used.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    let http2 = connect(world.address).await;
    whole(ask(&http2, get("/")).await.into_body()).await;
    assert!(server.n_connections.load(Ordering::SeqCst) > 0);
    world.stop();
    assert_eq!((silent.all_that_comes().await, used.all_that_comes().await), (vec![], vec![]));
    until("the other too", || http2.is_closed()).await;
    world.stopped().await;
}

/// Clients on kept connections are told with their next response, and only then cut off; new ones go to the other process.
#[tokio::test]
async fn after_a_hand_over_kept_connections_end_with_their_next_response() {
    let server = Scripted::start(|mut client: Client, _| async move {
        while client.until(b"\r\n\r\n").await.is_some() {
            client.send(text("x")).await;
        }
    })
    .await;
    let world = World::before(&[server.address]).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (mut kept, mut idle) = (world.connect().await, world.connect().await);
    for client in [&mut kept, &mut idle] {
        assert_eq!(client.ask(request).await.headers.get("connection"), None);
    }
    let http2 = connect(world.address).await;
    whole(ask(&http2, get("/")).await.into_body()).await;
    world.advance_to(ShutdownPhase::HandedOver);
    let address = world.address;
    until("nobody else gets in", || std::net::TcpStream::connect(address).is_err()).await;
    let answer = kept.ask(request).await;
    assert_eq!((answer.status, answer.headers["connection"].as_str()), (200, "close"));
    assert_eq!(kept.all_that_comes().await, b"");
    until("HTTP/2 is told at once", || http2.is_closed()).await;
    assert_eq!(idle.ask(request).await.status, 200, "who comes late is served too");
    world.advance_to(ShutdownPhase::Draining);
    world.stopped().await;
}

/// A connection that was opened just before the end has time for its first request.
#[tokio::test]
async fn a_connection_without_a_request_is_given_a_moment() {
    let server = Scripted::start(|mut client: Client, _| async move {
        while client.until(b"\r\n\r\n").await.is_some() {
            client.send(text("x")).await;
        }
    })
    .await;
    let world = World::before(&[server.address]).await;
    let mut new = world.connect().await;
    world.advance_to(ShutdownPhase::Draining);
    let address = world.address;
    until("nobody else gets in", || std::net::TcpStream::connect(address).is_err()).await;
    let answer = new.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!((answer.status, answer.headers["connection"].as_str()), (200, "close"));
    world.stopped().await;
}
