//! Limits on the bytes of requests: `cost: {bytes: request}`.

use http::Request;
use ratewright_core::policy::Cost;
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Micros, Policy, Query, Quota};
use ratewright_lab::within;

use crate::harness::{RawResponse, ScriptedServer, Setup, TestGateway, route, settings, text};
use crate::hyper_peers::{body, connect, exchange, pieces};

/// A burst of 100 bytes, and one more each second.
fn bytes() -> Policy {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/s".parse().unwrap()).unwrap();
    let quota = quota.with_burst(100.try_into().unwrap()).unwrap();
    Policy::new("upload", quota).unwrap().by(&[AttributeName::Ip]).with_cost(Cost::RequestBytes)
}

/// An upstream that responds with the length of any body.
async fn taking_bodies() -> ScriptedServer {
    ScriptedServer::start(|mut client, _| async move {
        while let Some(head) = client.read_until(b"\r\n\r\n").await {
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if let Some(length) = length {
                client.read_exact(length.parse().unwrap()).await;
            } else if head.contains("transfer-encoding: chunked") {
                client.read_until(b"0\r\n\r\n").await;
            }
            client.send(text("taken")).await;
        }
    })
    .await
}

async fn gateway() -> TestGateway {
    let server = taking_bodies().await;
    let settings = settings(route(&[server.address]));
    TestGateway::start(Setup { policies: vec![bytes()], settings, ..Setup::default() }).await
}

async fn post(gateway: &TestGateway, length: usize) -> RawResponse {
    let body = "x".repeat(length);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
    gateway.connect().await.exchange(&head).await
}

async fn post_chunked(gateway: &TestGateway, length: usize) -> RawResponse {
    let (size, body) = (format!("{length:x}"), "x".repeat(length));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunks = if length > 0 { format!("{size}\r\n{body}\r\n") } else { String::new() };
    gateway.connect().await.exchange(&format!("{head}{chunks}0\r\n\r\n")).await
}

/// The client's remaining bytes.
async fn left(gateway: &TestGateway) -> u32 {
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
    let decision = gateway.limiter.decide(&query).await;
    let remaining = decision.standings().map(|(_, _, standing)| standing.remaining).next();
    remaining.expect("the policy has a bucket")
}

async fn until_left(gateway: &TestGateway, n: u32) {
    within("they are charged", async {
        while left(gateway).await != n {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn content_length_is_charged_before_the_body_is_forwarded() {
    let gateway = gateway().await;
    let first = post(&gateway, 60).await;
    assert_eq!((first.status, &*first.headers["x-ratelimit-remaining"]), (200, "40"));
    let second = post(&gateway, 41).await;
    assert_eq!(second.status, 429);
    assert_eq!(second.headers["retry-after"], "1", "one byte is missing");
    assert_eq!(post(&gateway, 40).await.status, 200);
    assert_eq!(post(&gateway, 101).await.status, 429, "more than ever fits");
    let get = gateway.get("/").await;
    assert_eq!(get.status, 200, "a request without a body costs nothing");
    assert_eq!(post(&gateway, 0).await.status, 200);
    gateway.clock.advance(Micros::from_secs(10));
    assert_eq!((post(&gateway, 11).await.status, post(&gateway, 10).await.status), (429, 200));
}

#[tokio::test]
async fn chunked_bodies_are_charged_as_they_arrive_and_cut_off_over_the_limit() {
    let gateway = gateway().await;
    assert_eq!(post_chunked(&gateway, 70).await.status, 200);
    assert_eq!(left(&gateway).await, 30);
    assert_eq!(post_chunked(&gateway, 0).await.status, 200);
    assert_eq!(left(&gateway).await, 30, "an empty body costs nothing");
    let denied = post_chunked(&gateway, 80).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.headers["retry-after"], "50", "50 bytes are missing");
    assert_eq!(denied.headers["content-type"], "application/problem+json");
    assert_eq!(left(&gateway).await, 30, "what did not fit was not taken");
    assert_eq!(post_chunked(&gateway, 30).await.status, 200);
    assert_eq!(post_chunked(&gateway, 1).await.status, 429);
    assert_eq!(post(&gateway, 1).await.status, 429);
    gateway.clock.advance(Micros::from_secs(1));
    assert_eq!(post_chunked(&gateway, 1).await.status, 200);
}

/// An open upload is charged for its bytes so far, and concurrent uploads share the limit.
#[tokio::test]
async fn concurrent_uploads_never_exceed_the_limit_together() {
    let gateway = gateway().await;
    let mut open = Vec::new();
    for _ in 0..10 {
        let mut client = gateway.connect().await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        open.push(client);
    }
    for (n, client) in open.iter_mut().enumerate() {
        client.send(format!("14\r\n{}\r\n", "x".repeat(20))).await;
        if n < 5 {
            until_left(&gateway, 80 - 20 * u32::try_from(n).unwrap()).await;
        }
    }
    for (n, client) in open.iter_mut().enumerate() {
        client.send("0\r\n\r\n").await;
        assert_eq!(client.response().await.unwrap().status, if n < 5 { 200 } else { 429 }, "{n}");
    }
}

#[tokio::test]
async fn an_interrupted_body_is_charged_for_the_received_bytes() {
    let gateway = gateway().await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.send(format!("32\r\n{}\r\n", "x".repeat(50))).await;
    drop(client);
    until_left(&gateway, 50).await;
}

#[tokio::test]
async fn http2_is_charged_with_and_without_a_length() {
    let gateway = gateway().await;
    let client = connect(gateway.address).await;
    let (sender, streamed) = pieces();
    let asking = exchange(&client, Request::post("http://a/").body(streamed).unwrap());
    let sending = async move {
        sender.send(&"x".repeat(40));
        tokio::task::yield_now().await;
        sender.send(&"x".repeat(30));
    };
    let ((status, _), ()) = tokio::join!(asking, sending);
    assert_eq!(status, 200);
    until_left(&gateway, 30).await;
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
