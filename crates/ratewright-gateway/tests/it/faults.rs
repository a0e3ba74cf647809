//! What a client does wrong is told to the client and speaks against no server, by whichever HTTP the server is spoken to.

use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use ratewright_gateway::{Protocol, Route, Timeouts};

use crate::peers::{Speaking, body};
use crate::world::{World, route_to};

/// A server that answers with the length of what it was sent.
async fn counting() -> Speaking {
    Speaking::start(|request| async move {
        let n = request.into_body().collect().await.map_or(0, |all| all.to_bytes().len());
        Response::new(body(&n.to_string()))
    })
    .await
}

/// True if no server was ever left alone.
fn is_unblamed(world: &World) -> bool {
    let settings = world.settings();
    let mut states = settings.routes.iter().flat_map(|(_, route)| route.upstream.states());
    states.all(|state| state.is_healthy && state.n_ejections == 0)
}

/// Asks this more often than a server may fail, and then for something that is right.
async fn check(route: Route, protocol: Protocol, request: &str, status: u16) {
    let server = counting().await;
    let world = World::of(Route { upstream: route_to(&[server.url()], protocol).upstream, ..route }).await;
    for n in 0..5 {
        let answer = world.connect().await.ask(request).await;
        assert_eq!(answer.status, status, "{protocol:?}, {n}: {}", answer.text());
    }
    assert!(is_unblamed(&world), "{protocol:?}");
    let right = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n";
    assert_eq!(world.connect().await.ask(right).await.text(), "5");
}

#[tokio::test]
async fn a_body_without_a_length_that_is_too_long_is_a_413() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\n12345\r\n6\r\n678901\r\n0\r\n\r\n";
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let route = Route { body_max: 10, ..route_to(&[], protocol) };
        check(route, protocol, request, 413).await;
    }
}

#[tokio::test]
async fn a_body_that_stops_coming_is_a_408() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf.";
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let timeouts = Timeouts { idle: Duration::from_millis(200), ..Timeouts::default() };
        let route = Route { timeouts, ..route_to(&[], protocol) };
        check(route, protocol, request, 408).await;
    }
}

#[tokio::test]
async fn a_body_that_is_nonsense_is_a_400() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n";
    for protocol in [Protocol::Http1, Protocol::Http2] {
        check(route_to(&[], protocol), protocol, request, 400).await;
    }
}
