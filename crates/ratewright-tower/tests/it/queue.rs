//! A leaky bucket as a queue: requests wait for their turn.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Leak};
use ratewright_core::{Limiter, Policies, Policy, Store};
use ratewright_store::MemoryStore;
use ratewright_tower::RateLimitLayer;
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceExt};

use crate::world::{Body, RemoteStore, clock, limiter, quota, reader, request};

/// One request a second, at most three waiting.
fn queue() -> Policy {
    let quota = quota(Algorithm::LeakyBucket(Leak::Queue), "1/s").with_burst(4.try_into().unwrap()).unwrap();
    Policy::new("queue", quota).unwrap().by(&[AttributeName::Ip])
}

/// The seconds until the request passed, or the status of its denial.
async fn wait<S: Store<Error = Infallible> + 'static>(layer: RateLimitLayer<S>) -> Result<u64, u16> {
    let begin = Instant::now();
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let response = layer.layer(hello).oneshot(request(1, "/")).await.unwrap();
    if response.status() == 200 { Ok(begin.elapsed().as_secs()) } else { Err(response.status().as_u16()) }
}

#[tokio::test(start_paused = true)]
async fn queued_requests_wait_for_their_turn_and_a_full_queue_denies() {
    let (limiter, _) = limiter([queue()]);
    let layer = RateLimitLayer::new(limiter, reader());
    let ask = || wait(layer.clone());
    let (a, b, c, d, e) = tokio::join!(ask(), ask(), ask(), ask(), ask());
    assert_eq!([a, b, c, d, e], [Ok(0), Ok(1), Ok(2), Ok(3), Err(429)]);
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_than_patience() {
    let (limiter, _) = limiter([queue()]);
    let layer = RateLimitLayer::new(limiter, reader().patience(Duration::from_secs(1)));
    let ask = || wait(layer.clone());
    assert_eq!(tokio::join!(ask(), ask(), ask()), (Ok(0), Ok(1), Err(429)));
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_waiting_frees_its_turn() {
    let (limiter, _) = limiter([queue()]);
    drop_while_waiting(RateLimitLayer::new(limiter, reader())).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_waiting_frees_its_turn_in_a_remote_store() {
    let store = RemoteStore(MemoryStore::new(clock(), 1_000));
    let limiter = Limiter::new(Policies::new(vec![queue()]).unwrap(), store);
    drop_while_waiting(RateLimitLayer::new(Arc::new(limiter), reader())).await;
}

async fn drop_while_waiting<S: Store<Error = Infallible> + 'static>(layer: RateLimitLayer<S>) {
    assert_eq!(wait(layer.clone()).await, Ok(0));
    for _ in 0..10 {
        let impatient = timeout(Duration::from_millis(1), wait(layer.clone()));
        assert!(impatient.await.is_err(), "it waits");
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(wait(layer.clone()).await, Ok(1));
}
