//! Limits on the bytes of requests: `cost: {bytes: request}`.

use http::Request;
use ratewright_core::{
    Algorithm, Ask, Attribute, AttributeName, Cost, Entrypoint, Micros, Policy, Query, Quota, Refill, Select,
};

use crate::peers::{body, connect, exchange, pieces};
use crate::world::{Answer, Scripted, Setup, World, route, settings, text, within};

/// A hundred bytes, and one more each second.
fn bytes() -> Policy {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/s".parse().unwrap()).unwrap();
    let quota = quota.with_burst(100.try_into().unwrap()).unwrap();
    Policy::new("upload", quota).unwrap().by(&[AttributeName::Ip]).costing(Cost::RequestBytes)
}

/// A server that reads bodies of any kind, and answers with their length.
async fn taking_bodies() -> Scripted {
    Scripted::start(|mut client, _| async move {
        while let Some(head) = client.until(b"\r\n\r\n").await {
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if let Some(length) = length {
                client.exactly(length.parse().unwrap()).await;
            } else if head.contains("transfer-encoding: chunked") {
                client.until(b"0\r\n\r\n").await;
            }
            client.send(text("taken")).await;
        }
    })
    .await
}

async fn world() -> World {
    let server = taking_bodies().await;
    let settings = settings(route(&[server.address]));
    World::start(Setup { policies: vec![bytes()], settings, ..Setup::default() }).await
}

async fn post(world: &World, length: usize) -> Answer {
    let body = "x".repeat(length);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
    world.connect().await.ask(&head).await
}

async fn post_chunked(world: &World, length: usize) -> Answer {
    let (size, body) = (format!("{length:x}"), "x".repeat(length));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = if length > 0 { format!("{size}\r\n{body}\r\n") } else { String::new() };
    world.connect().await.ask(&format!("{head}{chunks}0\r\n\r\n")).await
}

/// How many bytes are left to the client.
async fn left(world: &World) -> u32 {
    let attributes = [Attribute { name: AttributeName::Ip, value: "127.0.0.1" }];
    let query = Query {
        select: Select::EveryBucket("upload"),
        attributes: &attributes,
        address: None,
        ask: Ask::Look(0),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    };
    let decision = world.limiter.decide(&query).await;
    let remaining = decision.standings().map(|(_, _, standing)| standing.remaining).next();
    remaining.expect("the policy has a bucket")
}

async fn until_left(world: &World, n: u32) {
    within(async {
        while left(world).await != n {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn content_length_is_charged_before_the_body_is_forwarded() {
    let world = world().await;
    let first = post(&world, 60).await;
    assert_eq!((first.status, &*first.headers["x-ratelimit-remaining"]), (200, "40"));
    let second = post(&world, 41).await;
    assert_eq!(second.status, 429);
    assert_eq!(second.headers["retry-after"], "1", "one byte is missing");
    assert_eq!(post(&world, 40).await.status, 200);
    assert_eq!(post(&world, 101).await.status, 429, "more than ever fits");
    let get = world.get("/").await;
    assert_eq!(get.status, 200, "a request without a body costs nothing");
    assert_eq!(post(&world, 0).await.status, 200);
    world.clock.advance(Micros::from_secs(10));
    assert_eq!((post(&world, 11).await.status, post(&world, 10).await.status), (429, 200));
}

#[tokio::test]
async fn chunked_bodies_are_charged_as_they_come_and_cut_off_when_they_do_not_fit() {
    let world = world().await;
    assert_eq!(post_chunked(&world, 70).await.status, 200);
    assert_eq!(left(&world).await, 30);
    assert_eq!(post_chunked(&world, 0).await.status, 200);
    assert_eq!(left(&world).await, 30, "an empty body costs nothing");
    let denied = post_chunked(&world, 80).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.headers["retry-after"], "50", "50 bytes are missing");
    assert_eq!(denied.headers["content-type"], "application/problem+json");
    assert_eq!(left(&world).await, 30, "what did not fit was not taken");
    assert_eq!(post_chunked(&world, 30).await.status, 200);
    assert_eq!(post_chunked(&world, 1).await.status, 429);
    assert_eq!(post(&world, 1).await.status, 429);
    world.clock.advance(Micros::from_secs(1));
    assert_eq!(post_chunked(&world, 1).await.status, 200);
}

/// An open upload has spent what it sent, and concurrent uploads share the limit.
#[tokio::test]
async fn concurrent_uploads_never_exceed_the_limit_together() {
    let world = world().await;
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut client = world.connect().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        open.push(client);
    }
    for (n, client) in open.iter_mut().enumerate() {
        client.send(format!("14\r\n{}\r\n", "x".repeat(20))).await;
        if n < 5 {
            until_left(&world, 80 - 20 * u32::try_from(n).unwrap()).await;
        }
    }
    for (n, client) in open.iter_mut().enumerate() {
        client.send("0\r\n\r\n").await;
        assert_eq!(client.answer().await.unwrap().status, if n < 5 { 200 } else { 429 }, "{n}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_is_charged_as_far_as_it_came() {
    let world = world().await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.send(format!("32\r\n{}\r\n", "x".repeat(50))).await;
    drop(client);
    until_left(&world, 50).await;
}

#[tokio::test]
async fn http2_is_charged_with_and_without_a_length() {
    let world = world().await;
    let client = connect(world.address).await;
    let (sender, streamed) = pieces();
    let asking = exchange(&client, Request::post("http://a/").body(streamed).unwrap());
    let sending = async move {
        sender.send(&"x".repeat(40));
        tokio::task::yield_now().await;
        sender.send(&"x".repeat(30));
    };
    let ((status, _), ()) = tokio::join!(asking, sending);
    assert_eq!(status, 200);
    until_left(&world, 30).await;
    let sized =
        |n: usize| Request::post("http://a/").header("content-length", n).body(body(&"x".repeat(n))).unwrap();
    assert_eq!(exchange(&client, sized(31)).await.0, 429);
    assert_eq!(exchange(&client, sized(30)).await.0, 200);
    let (sender, streamed) = pieces();
    sender.send("x");
    drop(sender);
    let request = Request::post("http://a/").body(streamed).unwrap();
    assert_eq!(exchange(&client, request).await.0, 429, "nothing is left");
    let empty = Request::get("http://a/").body(body("")).unwrap();
    assert_eq!(exchange(&client, empty).await.0, 200, "a stream that ends with its head has no body");
}
