//! Requests as the upstream sees them across HTTP versions, and which failures count against it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use ratewright_gateway::route::Timeouts;
use ratewright_gateway::upstream::{Balance, Health, Protocol, UpstreamServer};
use ratewright_gateway::{Route, Upstream};

use crate::harness::{Client, ScriptedServer, TestGateway, route, text};
use crate::hyper_peers::{body, connect, exchange};

/// An upstream that responds with everything it read.
async fn mirror() -> ScriptedServer {
    ScriptedServer::start(|mut client: Client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let mut seen = String::from_utf8_lossy(&head).to_lowercase();
            if seen.contains("transfer-encoding: chunked") {
                client.read_until(b"0\r\n").await;
                seen.push_str(&String::from_utf8_lossy(&client.read_until(b"\r\n\r\n").await.unwrap()));
            }
            client.send(text(&seen)).await;
        }
    })
    .await
}

/// Browsers split cookies; HTTP/1.1 upstreams read only the first header, or join all by commas.
#[tokio::test]
async fn separate_cookies_arrive_as_one_header() {
    let server = mirror().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let request = Request::get("http://a/").header("cookie", "a=1").header("cookie", "sid=x").body(body(""));
    let (status, seen) = exchange(&connect(gateway.address).await, request.unwrap()).await;
    assert_eq!(status, 200);
    assert!(seen.contains("cookie: a=1; sid=x\r\n"), "{seen}");
    assert_eq!(seen.matches("cookie").count(), 1, "{seen}");
}

/// HTTP/1.1 requires a host. Without one, the server's own host is sent.
#[tokio::test]
async fn a_request_without_a_host_is_forwarded_with_one() {
    let server = mirror().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let seen = gateway.connect().await.exchange("GET / HTTP/1.0\r\n\r\n").await.text();
    assert!(seen.contains(&format!("\r\nhost: {}\r\n", server.address)), "{seen}");
    assert!(!seen.contains("x-forwarded-host"), "{seen}");
}

/// Some upstreams merge trailers into the head.
#[tokio::test]
async fn trailers_carry_no_identity() {
    let server = mirror().await;
    let gateway = TestGateway::in_front_of(&[server.address]).await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\
                   0\r\nX-Forwarded-For: 6.6.6.6\r\nAuthorization: Bearer x\r\nX-Sum: 17\r\n\r\n";
    let seen = gateway.connect().await.exchange(request).await.text();
    assert!(seen.ends_with("\r\n\r\nx-sum: 17\r\n\r\n"), "{seen}");
    assert!(!seen.contains("6.6.6.6") && !seen.contains("bearer"), "{seen}");
}

/// The health of each server.
fn healthy(gateway: &TestGateway) -> Vec<bool> {
    let settings = gateway.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    route.upstream.states().map(|state| state.is_healthy).collect()
}

#[tokio::test]
async fn a_hanging_server_is_ejected_also_if_the_total_timeout_is_shorter_than_the_header_timeout() {
    let hanging = ScriptedServer::start(|mut client: Client, _| async move {
        client.read_until(b"never").await;
    })
    .await;
    let timeouts = Timeouts { total: Some(Duration::from_millis(50)), ..Timeouts::default() };
    let gateway = TestGateway::with_route(Route { timeouts, ..route(&[hanging.address]) }).await;
    for _ in 0..3 {
        assert_eq!(healthy(&gateway), [true]);
        assert_eq!(gateway.get("/").await.status, 504);
    }
    assert_eq!(healthy(&gateway), [false]);
}

/// A connection that is closed just as it is reused does not count against the server; one that ends mid-response does.
#[tokio::test]
async fn only_upstream_failures_count_against_a_server() {
    for (said, is_healthy) in [("", true), ("HTTP/1.1 200 OK\r\nContent-", false)] {
        let server = ScriptedServer::start(move |mut client: Client, _| async move {
            client.read_until(b"\r\n\r\n").await;
            client.send(text("first")).await;
            client.read_until(b"\r\n\r\n").await;
            client.send(said).await;
        })
        .await;
        let servers = vec![UpstreamServer::parse(&format!("http://{}", server.address)).unwrap()];
        let health = Health { failures_max: NonZeroU32::MIN, ..Health::default() };
        let upstream = Upstream::new(servers, Balance::RoundRobin, Protocol::Http1, health);
        let gateway = TestGateway::with_route(Route { upstream: Arc::new(upstream), ..route(&[]) }).await;
        let mut client = gateway.connect().await;
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        let mut response = client.exchange(post).await;
        while response.text() == "first" {
            response = client.exchange(post).await; // the connection is kept, unless that took too long
        }
        assert_eq!(response.status, 502);
        assert_eq!(healthy(&gateway), [is_healthy], "{said:?}");
    }
}
