//! Client errors are reported to the client and do not count against the upstream, over HTTP/1.1 and HTTP/2.

use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use ratewright_gateway::Route;
use ratewright_gateway::route::Timeouts;
use ratewright_gateway::upstream::Protocol;

use crate::harness::{TestGateway, route_to};
use crate::hyper_peers::{HyperServer, body};

/// An upstream that responds with the length of the body.
async fn counting() -> HyperServer {
    HyperServer::start(|request| async move {
        let n = request.into_body().collect().await.map_or(0, |all| all.to_bytes().len());
        Response::new(body(&n.to_string()))
    })
    .await
}

/// True if no server was ever ejected.
fn is_unblamed(gateway: &TestGateway) -> bool {
    let settings = gateway.settings();
    let mut states = settings.routes.iter().flat_map(|(_, route)| route.upstream.states());
    states.all(|state| state.is_healthy && state.n_ejections == 0)
}

/// Sends an invalid request more often than `failures_max`, then a valid one.
async fn check(route: Route, protocol: Protocol, request: &str, status: u16) {
    let server = counting().await;
    let gateway =
        TestGateway::with_route(Route { upstream: route_to(&[server.url()], protocol).upstream, ..route })
            .await;
    for n in 0..5 {
        let response = gateway.connect().await.exchange(request).await;
        assert_eq!(response.status, status, "{protocol:?}, {n}: {}", response.text());
    }
    assert!(is_unblamed(&gateway), "{protocol:?}");
    let right = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n";
    assert_eq!(gateway.connect().await.exchange(right).await.text(), "5");
}

#[tokio::test]
async fn an_oversized_chunked_body_gets_413() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\n12345\r\n6\r\n678901\r\n0\r\n\r\n";
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let route = Route { body_max: 10, ..route_to(&[], protocol) };
        check(route, protocol, request, 413).await;
    }
}

#[tokio::test]
async fn a_stalled_request_body_gets_408() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf.";
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let timeouts = Timeouts { idle: Duration::from_millis(200), ..Timeouts::default() };
        let route = Route { timeouts, ..route_to(&[], protocol) };
        check(route, protocol, request, 408).await;
    }
}

#[tokio::test]
async fn an_invalid_body_gets_400() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n";
    for protocol in [Protocol::Http1, Protocol::Http2] {
        check(route_to(&[], protocol), protocol, request, 400).await;
    }
}
