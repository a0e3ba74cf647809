//! Requests that could be read in more than one way are rejected or counted in the layer too.

use std::convert::Infallible;

use http::{Method, Request, Response};
use ratewright_core::{AttributeName, Condition, Pattern, Policy, Selector};
use ratewright_tower::RateLimitLayer;
use tower::{Layer, ServiceExt};

use crate::world::{Body, bucket, door, limiter, request};

/// The statuses of requests that are sent one after the other under a policy.
async fn statuses(policy: Policy, requests: Vec<Request<Body>>) -> Vec<u16> {
    let (limiter, _) = limiter([policy]);
    let layer = RateLimitLayer::new(limiter, door());
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(layer.layer(hello).oneshot(request).await.unwrap().status().as_u16());
    }
    statuses
}

fn with(method: &str, path: &str, headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = request(1, path);
    *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    request
}

fn on(method: &str) -> Policy {
    let condition =
        Condition::default().and_fits(AttributeName::Method, vec![Pattern::new(method, None).unwrap()]);
    bucket("p", "1/h").covering(Selector::When(condition))
}

#[tokio::test]
async fn a_method_counts_however_it_is_written_or_overridden() {
    let posts = vec![with("POST", "/", &[]), with("post", "/", &[]), with("Post", "/", &[])];
    assert_eq!(statuses(on("POST"), posts).await, [200, 429, 429]);
    assert_eq!(statuses(on("GET"), vec![with("GET", "/", &[]), with("HEAD", "/", &[])]).await, [200, 429]);
    let put = [("x-http-method-override", "put")];
    assert_eq!(statuses(on("PUT"), vec![with("POST", "/", &put), with("PUT", "/", &[])]).await, [200, 429]);
}

/// A body would be a protocol error in HTTP/2.
#[tokio::test]
async fn a_denial_of_head_has_no_body() {
    let (limiter, _) = limiter([bucket("p", "1/h")]);
    let layer = RateLimitLayer::new(limiter, door());
    let hello =
        tower::service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::default())) });
    for (method, status, has_body) in [("GET", 200, false), ("GET", 429, true), ("HEAD", 429, false)] {
        let response = layer.layer(hello).oneshot(with(method, "/", &[])).await.unwrap();
        assert_eq!(response.status(), status);
        let length = crate::world::field(response.headers(), "content-length").to_owned();
        assert_eq!(!crate::world::text(response).await.is_empty(), has_body, "{method}");
        assert!(method == "GET" || length.parse::<u32>().unwrap() > 0, "as a GET would have it");
    }
}

#[tokio::test]
async fn what_comes_twice_is_charged_twice_or_rejected() {
    let sid = bucket("p", "1/h").by(&[AttributeName::Cookie("sid")]);
    let cookie = |value| with("GET", "/", &[("cookie", value)]);
    let requests = vec![
        cookie("sid=a; sid=b"),
        cookie("sid=b"),
        cookie("sid=c"),
        cookie("sid=1; sid=2; sid=3; sid=4; sid=5"),
    ];
    assert_eq!(statuses(sid, requests).await, [200, 429, 200, 400]);
    let key = bucket("p", "1/h").by(&[AttributeName::Header("x-api-key")]);
    let twice = with("GET", "/", &[("x-api-key", "a"), ("x-api-key", "b")]);
    assert_eq!(statuses(key, vec![twice, with("GET", "/", &[("x-api-key", "a")])]).await, [400, 200]);
}

#[tokio::test]
async fn a_path_counts_in_every_reading() {
    let items = vec![Pattern::new("/api/items/**", Some(b'/')).unwrap()];
    let items = Condition::default().and_fits(AttributeName::Path, items);
    let policy = bucket("p", "1/h").covering(Selector::When(items));
    let requests = vec![with("GET", "/api/items/1", &[]), with("GET", "/api/items/1%2f..%2f..%2fx", &[])];
    assert_eq!(statuses(policy, requests).await, [200, 429]);
}

/// An application may read any line of `Host`, or the host in the target.
#[tokio::test]
async fn every_host_that_is_named_counts() {
    let by_host = || bucket("p", "1/h").by(&[AttributeName::Host]);
    let lines = |hosts: &[&str]| {
        let mut request = with("GET", "/", &[]);
        request.headers_mut().remove("host");
        for host in hosts {
            request.headers_mut().append("host", host.parse().unwrap());
        }
        request
    };
    let one_by_one =
        vec![lines(&["a.example", "b.example"]), lines(&["b.example"]), lines(&["A.example:80"])];
    assert_eq!(statuses(by_host(), one_by_one).await, [200, 429, 429]);
    let mut target = lines(&["b.example"]);
    *target.uri_mut() = "http://a.example/".parse().unwrap();
    assert_eq!(statuses(by_host(), vec![target, lines(&["b.example"])]).await, [200, 429]);
    assert_eq!(statuses(by_host(), vec![lines(&["a b"]), lines(&["c d"])]).await, [200, 429], "by address");
}
