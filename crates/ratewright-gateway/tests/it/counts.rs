//! What is counted of requests whose client goes away, and of those that are none.

use std::sync::atomic::Ordering;

use ratewright_gateway::Protocol;

use crate::peers::{connect, get};
use crate::world::{Scripted, World, route, route_to, until};

/// A server that never answers.
async fn silent() -> Scripted {
    Scripted::start(|mut client, _| async move {
        client.until(b"never").await;
    })
    .await
}

async fn counted(world: &World, expected: &str) {
    until(expected, || world.counted() == expected).await;
}

#[tokio::test]
async fn a_client_that_goes_away_before_the_answer_is_counted() {
    let server = silent().await;
    let world = World::before(&[server.address]).await;
    for n in 1..=3 {
        let mut client = world.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        until("it is under way", || server.n_connections.load(Ordering::SeqCst) == n).await;
        drop(client);
        counted(&world, &format!("/: {n} of 499")).await;
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_before_the_answer_is_counted() {
    let server = silent().await;
    let world = World::before(&[server.address]).await;
    let client = connect(world.address).await;
    for n in 1..=3 {
        let asked = tokio::spawn(client.clone().send_request(get("/")));
        until("it is under way", || server.n_connections.load(Ordering::SeqCst) == n).await;
        asked.abort();
        counted(&world, &format!("/: {n} of 499")).await;
    }
}

/// In the middle of its body: whether the server is spoken to by one HTTP or the other.
#[tokio::test]
async fn a_client_that_breaks_off_in_its_body_is_counted_and_one_that_sends_nonsense_is_answered() {
    let server = silent().await;
    let other = crate::peers::Speaking::start(|request| async move {
        let _ = http_body_util::BodyExt::collect(request.into_body()).await;
        http::Response::new(crate::peers::body(""))
    })
    .await;
    for route in [route(&[server.address]), route_to(&[other.url()], Protocol::Http2)] {
        let world = World::of(route).await;
        let mut client = world.connect().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf.").await;
        drop(client);
        counted(&world, "/: 1 of 499").await;
        let nonsense = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n";
        assert_eq!(world.connect().await.ask(nonsense).await.status, 400);
        assert_eq!(world.counted(), "/: 1 of 400, 1 of 499");
    }
}

#[tokio::test]
async fn what_is_no_request_is_counted_without_a_route() {
    let world = World::before(&[silent().await.address]).await;
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(40_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X-Many: x\r\n".repeat(200));
    for (n, (head, status)) in
        [("no request\r\n\r\n", 400), ("GET / HTTP/3.0\r\n\r\n", 400), (&long, 431), (&many, 431)]
            .into_iter()
            .enumerate()
    {
        let mut client = world.connect().await;
        client.send(head).await;
        assert_eq!(client.answer().await.expect("an answer").status, status, "{n}");
    }
    counted(&world, "none: 2 of 400, 2 of 431").await;
}
