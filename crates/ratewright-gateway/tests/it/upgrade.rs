//! Upgrades to another protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, WindowStart};
use ratewright_core::{Policy, Quota};
use ratewright_gateway::Route;
use ratewright_gateway::route::Timeouts;

use crate::harness::{Client, ScriptedServer, Setup, TestGateway, route, settings, text, wait_until};

/// An upstream that upgrades and then sends everything twice. It rejects other requests.
pub(crate) async fn doubling() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        let Some(head) = client.read_until(b"\r\n\r\n").await else { return };
        let head = String::from_utf8_lossy(&head).to_lowercase();
        if !head.contains("upgrade: websocket\r\n") || !head.contains("connection: upgrade\r\n") {
            client.send(text("no")).await;
            return;
        }
        client
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello")
            .await;
        while let Some(word) = client.read_until(b".").await {
            client.send([word.clone(), word].concat()).await;
        }
    })
    .await
}

pub(crate) const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";

#[tokio::test]
async fn a_websocket_is_tunnelled_both_ways() {
    let gateway = TestGateway::in_front_of(&[doubling().await.address]).await;
    let mut client = gateway.connect().await;
    let response = client.exchange(HANDSHAKE).await;
    assert_eq!((response.status, response.headers["upgrade"].as_str()), (101, "websocket"));
    assert_eq!(response.headers["sec-websocket-accept"], "x");
    assert_eq!(client.read_until(b"hello").await.unwrap(), b"hello");
    for word in ["a.", "\r\n\r\n.", "GET / HTTP."] {
        client.send(word).await;
        assert_eq!(client.read_exact(2 * word.len()).await.unwrap(), [word, word].concat().as_bytes());
    }
}

#[tokio::test]
async fn a_request_without_upgrade_is_not_upgraded() {
    let gateway = TestGateway::in_front_of(&[doubling().await.address]).await;
    assert_eq!(gateway.get("/chat").await.text(), "no");
    let h2c = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n";
    assert_eq!(
        gateway.connect().await.exchange(h2c).await.text(),
        "no",
        "no tunnel for requests that no policy limits"
    );
}

/// An upstream that responds to an upgrade with this head, and to every other request with 200. It counts all requests
/// that reach it, also through a tunnel, and the connections that have ended.
async fn switching(head: &'static str) -> (ScriptedServer, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (n_requests, n_ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&n_requests), Arc::clone(&n_ended));
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let (n_requests, n_ended) = counts.clone();
        async move {
            while let Some(request) = client.read_until(b"\r\n\r\n").await {
                n_requests.fetch_add(1, Ordering::SeqCst);
                let is_upgrade = String::from_utf8_lossy(&request).to_lowercase().contains("upgrade:");
                client.send(if is_upgrade { format!("{head}\r\n") } else { text("ok") }).await;
            }
            n_ended.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    (server, n_requests, n_ended)
}

/// A 101 that does not match the requested upgrade opens no tunnel, so pipelined requests are counted like all others.
#[tokio::test]
async fn a_101_that_does_not_match_the_upgrade_gets_502_and_opens_no_tunnel() {
    for head in [
        "HTTP/1.1 101 Switching Protocols\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive\r\nUpgrade: websocket\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: \r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket2\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket, h2c\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
    ] {
        let (server, n_requests, n_ended) = switching(head).await;
        let policies = vec![per_day("3/d")];
        let gateway = TestGateway::start(Setup {
            policies,
            settings: settings(route(&[server.address])),
            ..Setup::default()
        })
        .await;
        let mut client = gateway.connect().await;
        client.send(HANDSHAKE.to_owned() + &"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20)).await;
        let mut statuses = Vec::new();
        while statuses.len() < 21 {
            statuses.push(client.response().await.unwrap().status);
        }
        assert_eq!(statuses[..3], [502, 200, 200], "{head}");
        assert!(statuses[3..].iter().all(|status| *status == 429), "{head}: {statuses:?}");
        assert_eq!(n_requests.load(Ordering::SeqCst), 3, "{head}");
        wait_until("the upstream connection is closed", || n_ended.load(Ordering::SeqCst) == 1).await;
    }
}

/// One client must not be able to eject an upstream for all others.
#[tokio::test]
async fn a_101_that_does_not_match_is_not_retried_and_does_not_eject_the_upstream() {
    let (server, n_requests, _) = switching("HTTP/1.1 101 Switching Protocols\r\n").await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    for n in 1..=10 {
        assert_eq!(gateway.connect().await.exchange(HANDSHAKE).await.status, 502);
        assert_eq!(n_requests.load(Ordering::SeqCst), n, "sent once");
    }
    assert_eq!(gateway.get("/").await.status, 200);
}

#[tokio::test]
async fn a_101_that_nobody_asked_for_gets_502() {
    let server = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"\r\n\r\n").await;
        client
            .send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        client.read_to_end().await;
    })
    .await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    assert_eq!(gateway.get("/").await.status, 502);
}

/// Names of protocols and connection options are case-insensitive, and may be in lists.
#[tokio::test]
async fn a_101_that_matches_in_another_spelling_opens_a_tunnel() {
    for head in [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nCONNECTION: keep-alive , UPGRADE\r\nUPGRADE: WEBSOCKET\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive\r\nConnection: upgrade\r\nUpgrade: ,websocket,\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket\r\n",
    ] {
        let gateway = TestGateway::in_front_of(&[switching(head).await.0.address]).await;
        let mut client = gateway.connect().await;
        let response = client.exchange(HANDSHAKE).await;
        assert_eq!((response.status, response.headers["upgrade"].as_str()), (101, "websocket"), "{head}");
        assert_eq!(response.headers["connection"], "upgrade");
        client.send("not HTTP\r\n\r\n").await;
        assert_eq!(client.response().await.unwrap().text(), "ok", "{head}");
    }
}

fn per_day(rate: &str) -> Policy {
    let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), rate.parse().unwrap()).unwrap();
    Policy::new("daily", quota).unwrap().by(&[AttributeName::Ip])
}

/// Opens a tunnel.
async fn switched(gateway: &TestGateway) -> Client {
    let mut client = gateway.connect().await;
    assert_eq!(client.exchange(HANDSHAKE).await.status, 101);
    assert_eq!(client.read_until(b"hello").await.unwrap(), b"hello");
    client
}

#[tokio::test]
async fn an_idle_tunnel_is_closed_on_both_sides() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let server = ScriptedServer::start(move |mut client: Client, _| {
        let over = Arc::clone(&over);
        async move {
            client.read_until(b"\r\n\r\n").await;
            client.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello").await;
            client.read_to_end().await;
            over.store(true, Ordering::SeqCst);
        }
    })
    .await;
    let timeouts = Timeouts { tunnel_idle: Duration::from_millis(300), ..Timeouts::default() };
    let gateway = TestGateway::with_route(Route { timeouts, ..route(&[server.address]) }).await;
    let mut client = switched(&gateway).await;
    assert_eq!(client.read_to_end().await, b"");
    wait_until("the server is let go", || is_over.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_tunnel_holds_its_permit_until_it_is_over() {
    let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), "1/s".parse().unwrap()).unwrap();
    let permits = vec![Policy::new("at-once", quota).unwrap().by(&[AttributeName::Ip])];
    let settings = settings(route(&[doubling().await.address]));
    let gateway = TestGateway::start(Setup { permits, settings, ..Setup::default() }).await;
    for _ in 0..3 {
        let client = switched(&gateway).await;
        assert_eq!(gateway.get("/chat").await.status, 429);
        assert_eq!(gateway.permits.n_keys(), 1);
        drop(client);
        wait_until("the permit is back", || gateway.permits.n_keys() == 0).await;
    }
}
