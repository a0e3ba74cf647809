//! Streams and connections of HTTP/2 that break after they were good: what is sent again for nothing, and what is the server's fault.

use http::Request;
use ratewright_gateway::{Protocol, Route};

use crate::peers::{Pieces, body, connect, exchange, get};
use crate::refused::serve;
use crate::world::{Client, Scripted, World, route_to};

/// What a server does with the second request of its first connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// It calls off the stream, for a reason of its own.
    Resets,
    /// It closes the connection without a word.
    Closes,
}

/// An answer with nothing in it, to the stream with the number 1.
const ANSWER: [u8; 10] = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];

/// `INTERNAL_ERROR`, on the stream with the number 3.
const RESET: [u8; 13] = [0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 2];

async fn server(then: Then) -> Scripted {
    Scripted::start(move |mut client: Client, n| async move {
        if n > 0 {
            return serve(client).await;
        }
        client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await; // settings, none
        client.exactly(24).await; // the preface
        let mut n_requests = 0;
        while let Some(head) = client.exactly(9).await {
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            client.exactly(length).await;
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

/// The status of a second request that may not be repeated, and how many connections it took.
async fn outcome(then: Then, request: Request<Pieces>) -> (u16, usize) {
    let server = server(then).await;
    let route =
        Route { retries_max: 0, ..route_to(&[format!("http://{}", server.address)], Protocol::Http2) };
    let world = World::of(route).await;
    let client = connect(world.address).await;
    assert_eq!(exchange(&client, get("/")).await.0, 200);
    let status = exchange(&client, request).await.0;
    (status, server.n_connections.load(std::sync::atomic::Ordering::SeqCst))
}

fn post() -> Request<Pieces> {
    Request::post("http://a/").body(body("")).unwrap()
}

#[tokio::test]
async fn a_stream_that_the_server_calls_off_is_no_connection_that_was_closed_while_idle() {
    assert_eq!(outcome(Then::Resets, get("/")).await, (502, 1));
    assert_eq!(outcome(Then::Resets, post()).await, (502, 1));
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_nothing_if_the_request_can_be_repeated() {
    assert_eq!(outcome(Then::Closes, get("/")).await, (200, 2));
    assert_eq!(outcome(Then::Closes, post()).await, (502, 1));
}
