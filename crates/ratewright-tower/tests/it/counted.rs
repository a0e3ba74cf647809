//! Limits that count only some answers.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use http::{Request, Response, StatusCode};
use ratewright_core::{Counted, Limiter, Policies, Policy, Store};
use ratewright_store::MemoryStore;
use ratewright_tower::RateLimitLayer;
use tokio::sync::Barrier;
use tower::{Layer, Service, ServiceExt};

use crate::world::{Body, Distant, bucket, clock, door, limiter, request};

/// Three failures an hour.
fn failures() -> Policy {
    bucket("login", "3/h").counting(Counted::only(vec![401..=401, 403..=403]))
}

/// Logs in with a word: who says `right` is let in.
async fn login<S: Store<Error = Infallible> + 'static>(layer: &RateLimitLayer<S>, word: &str) -> u16 {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let status = if request.uri().path() == "/right" { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        Ok::<_, Infallible>(Response::builder().status(status).body(Body::default()).unwrap())
    });
    layer.layer(service).oneshot(request(1, word)).await.unwrap().status().as_u16()
}

async fn only_failures_count<S: Store<Error = Infallible> + 'static>(layer: RateLimitLayer<S>) {
    for _ in 0..20 {
        assert_eq!(login(&layer, "/right").await, 200);
    }
    for status in [401, 401, 401, 429] {
        assert_eq!(login(&layer, "/wrong").await, status);
    }
    assert_eq!(login(&layer, "/right").await, 429);
}

#[tokio::test]
async fn a_login_limit_punishes_failures_and_not_successes() {
    let (limiter, _) = limiter([failures()]);
    only_failures_count(RateLimitLayer::new(limiter, door())).await;
}

#[tokio::test]
async fn so_it_does_where_the_store_must_be_waited_for() {
    let store = Distant(MemoryStore::new(clock(), 1_000));
    let limiter = Arc::new(Limiter::new(Policies::new(vec![failures()]).unwrap(), store));
    only_failures_count(RateLimitLayer::new(limiter, door())).await;
}

#[tokio::test]
async fn who_leaves_while_its_charge_is_given_back_does_not_keep_it() {
    let store = Distant(MemoryStore::new(clock(), 1_000));
    let limiter = Arc::new(Limiter::new(Policies::new(vec![failures()]).unwrap(), store));
    let layer = RateLimitLayer::new(limiter, door());
    for _ in 0..10 {
        let service = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::default()))
        });
        let mut answer = Box::pin(layer.layer(service).call(request(1, "/right")));
        while !format!("{answer:?}").contains("refunding") {
            let polled = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
            assert!(polled.is_pending());
            tokio::task::yield_now().await;
        }
        drop(answer);
        tokio::task::yield_now().await; // the refund has a task of its own
        tokio::task::yield_now().await;
    }
    for status in [401, 401, 401, 429] {
        assert_eq!(login(&layer, "/wrong").await, status);
    }
}

#[tokio::test]
async fn failures_in_parallel_are_counted_before_they_are_known() {
    let (limiter, _) = limiter([failures()]);
    let layer = RateLimitLayer::new(limiter, door());
    let together = Arc::new(Barrier::new(3));
    let attempts: Vec<_> = (0..10)
        .map(|_| {
            let (layer, together) = (layer.clone(), together.clone());
            tokio::spawn(async move {
                // Nobody fails before as many have come as the limit allows.
                let service = tower::service_fn(move |_: Request<Body>| {
                    let together = together.clone();
                    async move {
                        together.wait().await;
                        let answer = Response::builder().status(401).body(Body::default());
                        Ok::<_, Infallible>(answer.unwrap())
                    }
                });
                layer.layer(service).oneshot(request(1, "/")).await.unwrap().status().as_u16()
            })
        })
        .collect();
    let mut statuses = Vec::new();
    for attempt in attempts {
        statuses.push(attempt.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [401, 401, 401, 429, 429, 429, 429, 429, 429, 429]);
}

#[tokio::test]
async fn only_the_policies_that_ask_for_it_give_back() {
    let (limiter, _) = limiter([failures(), bucket("all", "5/h")]);
    let layer = RateLimitLayer::new(limiter, door());
    for status in [200, 200, 200, 200, 200, 429] {
        assert_eq!(login(&layer, "/right").await, status);
    }
}
