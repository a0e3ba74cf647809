//! HTTP/2 streams and connections that fail after a success: which requests are retried, and what counts against the
//! server.

use http::Request;
use ratewright_gateway::Route;
use ratewright_gateway::upstream::Protocol;

use crate::harness::{Client, ScriptedServer, TestGateway, route_to};
use crate::hyper_peers::{ChannelBody, body, connect, exchange, get};
use crate::refused_streams::serve;

/// What a server does with the second request of its first connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// Resets the stream.
    Resets,
    /// Closes the connection.
    Closes,
}

/// An empty response on stream 1.
const ANSWER: [u8; 10] = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];

/// `INTERNAL_ERROR` on stream 3.
const RESET: [u8; 13] = [0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 2];

async fn server(then: Then) -> ScriptedServer {
    ScriptedServer::start(move |mut client: Client, n| async move {
        if n > 0 {
            return serve(client).await;
        }
        client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await; // empty SETTINGS
        client.read_exact(24).await; // the preface
        let mut n_requests = 0;
        while let Some(head) = client.read_exact(9).await {
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            client.read_exact(length).await;
            n_requests += usize::from(head[3] == 1);
            match (head[3] == 1, n_requests, then) {
                (true, 1, _) => client.send(ANSWER).await,
                (true, _, Then::Resets) => client.send(RESET).await,
                (true, _, Then::Closes) => return,
                (false, ..) => {}
            }
        }
    })
    .await
}

/// The status of a second request that must not be retried, and the number of connections.
async fn outcome(then: Then, request: Request<ChannelBody>) -> (u16, usize) {
    let server = server(then).await;
    let route =
        Route { retries_max: 0, ..route_to(&[format!("http://{}", server.address)], Protocol::Http2) };
    let gateway = TestGateway::with_route(route).await;
    let client = connect(gateway.address).await;
    assert_eq!(exchange(&client, get("/")).await.0, 200);
    let status = exchange(&client, request).await.0;
    (status, server.n_connections.load(std::sync::atomic::Ordering::SeqCst))
}

fn post() -> Request<ChannelBody> {
    Request::post("http://a/").body(body("")).unwrap()
}

#[tokio::test]
async fn a_stream_reset_by_the_upstream_is_not_a_stale_connection() {
    assert_eq!(outcome(Then::Resets, get("/")).await, (502, 1));
    assert_eq!(outcome(Then::Resets, post()).await, (502, 1));
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_a_repeatable_request_nothing() {
    assert_eq!(outcome(Then::Closes, get("/")).await, (200, 2));
    assert_eq!(outcome(Then::Closes, post()).await, (502, 1));
}
