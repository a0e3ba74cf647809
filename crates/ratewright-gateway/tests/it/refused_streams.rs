//! HTTP/2 upstreams that report that they did not process a request.

use http::{Request, Response};
use ratewright_gateway::Route;
use ratewright_gateway::upstream::Protocol;

use crate::harness::{Client, ScriptedServer, TestGateway, route_to};
use crate::hyper_peers::{ChannelBody, body, connect, exchange};

/// Not processed, and cancelled.
const REFUSED_STREAM: u8 = 7;
const INTERNAL_ERROR: u8 = 2;

/// RST_STREAM on stream 1.
fn reset(reason: u8) -> Vec<u8> {
    vec![0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, reason]
}

/// GOAWAY: no stream after this one was processed.
fn farewell(last: u8) -> Vec<u8> {
    vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0]
}

/// An upstream that responds to the first `n_refusals` requests with these frames only, and closes after a GOAWAY.
async fn refusing(n_refusals: usize, frames: Vec<u8>) -> ScriptedServer {
    ScriptedServer::start(move |mut client: Client, n| {
        let frames = frames.clone();
        async move {
            if n >= n_refusals {
                return serve(client).await;
            }
            client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await; // empty SETTINGS
            client.read_exact(24).await; // the preface
            while let Some(head) = client.read_exact(9).await {
                let length = usize::from(head[1]) << 8 | usize::from(head[2]);
                client.read_exact(length).await;
                if head[3] == 1 {
                    client.send(&frames).await;
                    if frames[3] == 7 {
                        return;
                    }
                }
            }
        }
    })
    .await
}

/// Responds to every request.
pub(crate) async fn serve(client: Client) {
    let Ok(mut connection) = h2::server::handshake(client.stream).await else { return };
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let _ = respond.send_response(Response::new(()), true);
    }
}

/// The status of a request, and the number of connections.
async fn outcome(
    n_refusals: usize,
    frames: Vec<u8>,
    retries_max: u32,
    request: Request<ChannelBody>,
) -> (u16, usize) {
    let server = refusing(n_refusals, frames).await;
    let route = Route { retries_max, ..route_to(&[format!("http://{}", server.address)], Protocol::Http2) };
    let gateway = TestGateway::with_route(route).await;
    let status = exchange(&connect(gateway.address).await, request).await.0;
    (status, server.n_connections.load(std::sync::atomic::Ordering::SeqCst))
}

fn post(text: &str) -> Request<ChannelBody> {
    Request::post("http://a/").body(body(text)).unwrap()
}

#[tokio::test]
async fn refused_streams_are_retried_whatever_the_method() {
    for retries_max in [0, 1] {
        assert_eq!(outcome(1, reset(REFUSED_STREAM), retries_max, post("")).await, (200, 2));
        assert_eq!(outcome(1, farewell(0), retries_max, post("")).await, (200, 2));
    }
    assert_eq!(outcome(2, reset(REFUSED_STREAM), 2, post("")).await, (200, 3));
}

#[tokio::test]
async fn a_server_that_keeps_refusing_streams_is_not_retried_forever() {
    assert_eq!(outcome(100, reset(REFUSED_STREAM), 1, post("")).await, (502, 2));
    assert_eq!(outcome(100, farewell(0), 3, post("")).await, (502, 4));
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_or_lost_its_body_is_not_retried() {
    assert_eq!(outcome(1, reset(INTERNAL_ERROR), 1, post("")).await, (502, 1));
    assert_eq!(outcome(1, farewell(1), 1, post("")).await, (502, 1));
    assert_eq!(outcome(1, reset(REFUSED_STREAM), 1, post("gone")).await, (502, 1));
}
