//! What a server sees of requests that come in other ways than it speaks itself, and what is held against it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use ratewright_gateway::{Balance, Health, Protocol, Route, Server, Timeouts, Upstream};

use crate::peers::{body, connect, exchange};
use crate::world::{Client, Scripted, World, route, text};

/// A server that answers with all that it has read up to the end of each head or body.
async fn mirror() -> Scripted {
    Scripted::start(|mut client: Client, _| async move {
        while let Some(head) = client.until(b"\r\n\r\n").await {
            let mut seen = String::from_utf8_lossy(&head).to_lowercase();
            if seen.contains("transfer-encoding: chunked") {
                client.until(b"0\r\n").await;
                seen.push_str(&String::from_utf8_lossy(&client.until(b"\r\n\r\n").await.unwrap()));
            }
            client.send(text(&seen)).await;
        }
    })
    .await
}

/// Browsers do so, and servers of HTTP/1.1 read the first field only, or all of them joined by commas.
#[tokio::test]
async fn cookies_that_come_one_by_one_arrive_as_one_field() {
    let server = mirror().await;
    let world = World::before(&[server.address]).await;
    let request = Request::get("http://a/").header("cookie", "a=1").header("cookie", "sid=x").body(body(""));
    let (status, seen) = exchange(&connect(world.address).await, request.unwrap()).await;
    assert_eq!(status, 200);
    assert!(seen.contains("cookie: a=1; sid=x\r\n"), "{seen}");
    assert_eq!(seen.matches("cookie").count(), 1, "{seen}");
}

/// HTTP/1.1 asks for a host. Who does not say one is sent to the server by the server's own name.
#[tokio::test]
async fn a_request_without_a_host_is_passed_on_with_one() {
    let server = mirror().await;
    let world = World::before(&[server.address]).await;
    let seen = world.connect().await.ask("GET / HTTP/1.0\r\n\r\n").await.text();
    assert!(seen.contains(&format!("\r\nhost: {}\r\n", server.address)), "{seen}");
    assert!(!seen.contains("x-forwarded-host"), "{seen}");
}

/// Some servers add trailers to the fields of the head.
#[tokio::test]
async fn nobody_is_claimed_at_the_end_of_a_body() {
    let server = mirror().await;
    let world = World::before(&[server.address]).await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\
                   0\r\nX-Forwarded-For: 6.6.6.6\r\nAuthorization: Bearer x\r\nX-Sum: 17\r\n\r\n";
    let seen = world.connect().await.ask(request).await.text();
    assert!(seen.ends_with("\r\n\r\nx-sum: 17\r\n\r\n"), "{seen}");
    assert!(!seen.contains("6.6.6.6") && !seen.contains("bearer"), "{seen}");
}

/// Which servers are healthy.
fn healthy(world: &World) -> Vec<bool> {
    let settings = world.settings();
    let (_, route) = settings.routes.iter().next().unwrap();
    route.upstream.states().map(|state| state.is_healthy).collect()
}

#[tokio::test]
async fn a_server_that_hangs_is_left_alone_also_where_all_has_less_time_than_the_answer() {
    let hanging = Scripted::start(|mut client: Client, _| async move {
        client.until(b"never").await;
    })
    .await;
    let timeouts = Timeouts { total: Some(Duration::from_millis(50)), ..Timeouts::default() };
    let world = World::of(Route { timeouts, ..route(&[hanging.address]) }).await;
    for _ in 0..3 {
        assert_eq!(healthy(&world), [true]);
        assert_eq!(world.get("/").await.status, 504);
    }
    assert_eq!(healthy(&world), [false]);
}

/// A connection that is closed just as it is used again says nothing of the server; one that ends in the middle does.
#[tokio::test]
async fn only_what_speaks_against_a_server_is_held_against_it() {
    for (said, is_healthy) in [("", true), ("HTTP/1.1 200 OK\r\nContent-", false)] {
        let server = Scripted::start(move |mut client: Client, _| async move {
            client.until(b"\r\n\r\n").await;
            client.send(text("first")).await;
            client.until(b"\r\n\r\n").await;
            client.send(said).await;
        })
        .await;
        let servers = vec![Server::parse(&format!("http://{}", server.address)).unwrap()];
        let health = Health { failures_max: NonZeroU32::MIN, ..Health::default() };
        let upstream = Upstream::new(servers, Balance::RoundRobin, Protocol::Http1, health);
        let world = World::of(Route { upstream: Arc::new(upstream), ..route(&[]) }).await;
        let mut client = world.connect().await;
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        let mut answer = client.ask(post).await;
        while answer.text() == "first" {
            answer = client.ask(post).await; // the connection is kept, unless that took too long
        }
        assert_eq!(answer.status, 502);
        assert_eq!(healthy(&world), [is_healthy], "{said:?}");
    }
}
