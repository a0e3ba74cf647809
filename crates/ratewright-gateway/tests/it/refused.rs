//! Servers that speak HTTP/2 and say of a request that they have not looked at it.

use http::{Request, Response};
use ratewright_gateway::{Protocol, Route};

use crate::peers::{Pieces, body, connect, exchange};
use crate::world::{Client, Scripted, World, route_to};

/// Refused unseen, and broken off.
const REFUSED_STREAM: u8 = 7;
const INTERNAL_ERROR: u8 = 2;

/// A frame that calls off the stream with the number 1.
fn reset(reason: u8) -> Vec<u8> {
    vec![0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, reason]
}

/// A frame that says goodbye: no stream after this one has been looked at.
fn farewell(last: u8) -> Vec<u8> {
    vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0]
}

/// A server that answers the first `n_refusals` requests with these frames and nothing else, and closes if they are a farewell.
async fn refusing(n_refusals: usize, frames: Vec<u8>) -> Scripted {
    Scripted::start(move |mut client: Client, n| {
        let frames = frames.clone();
        async move {
            if n >= n_refusals {
                return serve(client).await;
            }
            client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await; // settings, none
            client.exactly(24).await; // the preface
            while let Some(head) = client.exactly(9).await {
                let length = usize::from(head[1]) << 8 | usize::from(head[2]);
                client.exactly(length).await;
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

/// Answers every request.
pub(crate) async fn serve(client: Client) {
    let Ok(mut connection) = h2::server::handshake(client.stream).await else { return };
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let _ = respond.send_response(Response::new(()), true);
    }
}

/// The status of a request, and how many connections it took.
async fn outcome(
    n_refusals: usize,
    frames: Vec<u8>,
    retries_max: u32,
    request: Request<Pieces>,
) -> (u16, usize) {
    let server = refusing(n_refusals, frames).await;
    let route = Route { retries_max, ..route_to(&[format!("http://{}", server.address)], Protocol::Http2) };
    let world = World::of(route).await;
    let status = exchange(&connect(world.address).await, request).await.0;
    (status, server.n_connections.load(std::sync::atomic::Ordering::SeqCst))
}

fn post(text: &str) -> Request<Pieces> {
    Request::post("http://a/").body(body(text)).unwrap()
}

#[tokio::test]
async fn what_was_refused_unseen_is_sent_again_whatever_its_method() {
    for retries_max in [0, 1] {
        assert_eq!(outcome(1, reset(REFUSED_STREAM), retries_max, post("")).await, (200, 2));
        assert_eq!(outcome(1, farewell(0), retries_max, post("")).await, (200, 2));
    }
    assert_eq!(outcome(2, reset(REFUSED_STREAM), 2, post("")).await, (200, 3));
}

#[tokio::test]
async fn a_server_that_goes_on_refusing_is_not_asked_for_ever() {
    assert_eq!(outcome(100, reset(REFUSED_STREAM), 1, post("")).await, (502, 2));
    assert_eq!(outcome(100, farewell(0), 3, post("")).await, (502, 4));
}

#[tokio::test]
async fn what_may_have_been_seen_or_has_lost_its_body_is_not_sent_again() {
    assert_eq!(outcome(1, reset(INTERNAL_ERROR), 1, post("")).await, (502, 1));
    assert_eq!(outcome(1, farewell(1), 1, post("")).await, (502, 1));
    assert_eq!(outcome(1, reset(REFUSED_STREAM), 1, post("gone")).await, (502, 1));
}
