//! Limits that count only responses with some statuses.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use http::{Request, Response, StatusCode};
use ratewright_core::policy::CountedResponses;
use ratewright_core::{Limiter, Policies, Policy, Store};
use ratewright_lab::within;
use ratewright_store::MemoryStore;
use ratewright_tower::RateLimitLayer;
use tokio::sync::Barrier;
use tower::{Layer, Service, ServiceExt};

use crate::world::{Body, RemoteStore, bucket, clock, limiter, reader, request};

/// Three failed logins an hour.
fn failures() -> Policy {
    bucket("login", "3/h").with_count(CountedResponses::only(vec![401..=401, 403..=403]))
}

/// Logs in with a password; `/right` is the right one. Returns the status and `X-RateLimit-Remaining`.
async fn login<S: Store<Error = Infallible> + 'static>(
    layer: &RateLimitLayer<S>,
    password: &str,
) -> (u16, u32) {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let status = if request.uri().path() == "/right" { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        Ok::<_, Infallible>(Response::builder().status(status).body(Body::default()).unwrap())
    });
    let response = layer.layer(service).oneshot(request(1, password)).await.unwrap();
    let remaining = response.headers()["x-ratelimit-remaining"].to_str().unwrap().parse().unwrap();
    (response.status().as_u16(), remaining)
}

async fn only_failures_count<S: Store<Error = Infallible> + 'static>(layer: RateLimitLayer<S>) {
    for _ in 0..20 {
        assert_eq!(login(&layer, "/right").await, (200, 3));
    }
    assert_eq!(login(&layer, "/wrong").await, (401, 2));
    assert_eq!(login(&layer, "/right").await, (200, 2));
    for expected in [(401, 1), (401, 0), (429, 0)] {
        assert_eq!(login(&layer, "/wrong").await, expected);
    }
    assert_eq!(login(&layer, "/right").await, (429, 0));
}

#[tokio::test]
async fn a_login_limit_counts_only_failures() {
    let (limiter, _) = limiter([failures()]);
    only_failures_count(RateLimitLayer::new(limiter, reader())).await;
}

#[tokio::test]
async fn a_login_limit_in_a_remote_store_counts_only_failures() {
    let store = RemoteStore(MemoryStore::new(clock(), 1_000));
    let limiter = Arc::new(Limiter::new(Policies::new(vec![failures()]).unwrap(), store));
    only_failures_count(RateLimitLayer::new(limiter, reader())).await;
}

#[tokio::test]
async fn a_refund_completes_if_the_response_future_is_dropped() {
    let store = RemoteStore(MemoryStore::new(clock(), 1_000));
    let limiter = Arc::new(Limiter::new(Policies::new(vec![failures()]).unwrap(), store));
    let layer = RateLimitLayer::new(limiter, reader());
    for _ in 0..10 {
        let service = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::default()))
        });
        let mut response = Box::pin(layer.layer(service).call(request(1, "/right")));
        let refunds = async {
            while !format!("{response:?}").contains("refunding") {
                let polled = poll_fn(|context| Poll::Ready(response.as_mut().poll(context))).await;
                assert!(polled.is_pending());
                tokio::task::yield_now().await;
            }
        };
        within("the refund begins", refunds).await;
        drop(response);
        tokio::task::yield_now().await; // the refund has a task of its own
        tokio::task::yield_now().await;
    }
    for status in [401, 401, 401, 429] {
        assert_eq!(login(&layer, "/wrong").await.0, status);
    }
}

/// Only responses that do not count wait for the store once more.
#[tokio::test]
async fn a_response_that_counts_does_not_wait_for_a_refund() {
    let store = RemoteStore(MemoryStore::new(clock(), 1_000));
    let limiter = Arc::new(Limiter::new(Policies::new(vec![failures()]).unwrap(), store));
    let layer = RateLimitLayer::new(limiter, reader());
    let service = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::builder().status(401).body(Body::default()).unwrap())
    });
    let mut response = Box::pin(layer.layer(service).call(request(1, "/wrong")));
    let response = poll_fn(|context| {
        assert!(!format!("{response:?}").contains("refunding"));
        response.as_mut().poll(context)
    });
    assert_eq!(response.await.unwrap().headers()["x-ratelimit-remaining"], "2");
}

#[tokio::test]
async fn parallel_requests_are_charged_before_their_statuses_are_known() {
    let (limiter, _) = limiter([failures()]);
    let layer = RateLimitLayer::new(limiter, reader());
    let together = Arc::new(Barrier::new(3));
    let attempts: Vec<_> = (0..10)
        .map(|_| {
            let (layer, together) = (layer.clone(), together.clone());
            tokio::spawn(async move {
                // No request fails before as many have arrived as the limit allows.
                let service = tower::service_fn(move |_: Request<Body>| {
                    let together = together.clone();
                    async move {
                        together.wait().await;
                        let response = Response::builder().status(401).body(Body::default());
                        Ok::<_, Infallible>(response.unwrap())
                    }
                });
                layer.layer(service).oneshot(request(1, "/")).await.unwrap().status().as_u16()
            })
        })
        .collect();
    let mut statuses = Vec::new();
    for attempt in attempts {
        statuses.push(within("each attempt has a response", attempt).await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [401, 401, 401, 429, 429, 429, 429, 429, 429, 429]);
}

#[tokio::test]
async fn only_policies_with_count_refund() {
    let (limiter, _) = limiter([failures(), bucket("all", "5/h")]);
    let layer = RateLimitLayer::new(limiter, reader());
    for status in [200, 200, 200, 200, 200, 429] {
        assert_eq!(login(&layer, "/right").await.0, status);
    }
}
