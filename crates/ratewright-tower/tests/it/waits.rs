//! A leaky bucket as a queue: a request is paid with a wait.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use ratewright_core::{Algorithm, AttributeName, Leak, Limiter, Policies, Policy, Store};
use ratewright_store::MemoryStore;
use ratewright_tower::RateLimitLayer;
use tokio::time::{Instant, timeout};
use tower::{Layer, ServiceExt};

use crate::world::{Body, Distant, clock, door, limiter, quota, request};

/// One request each second, three of them waiting at most.
fn queue() -> Policy {
    let quota = quota(Algorithm::LeakyBucket(Leak::Queue), "1/s").with_burst(4.try_into().unwrap()).unwrap();
    Policy::new("queue", quota).unwrap().by(&[AttributeName::Ip])
}

/// When the request got through, or that it was denied.
async fn wait<S: Store<Error = Infallible> + 'static>(layer: RateLimitLayer<S>) -> Result<u64, u16> {
    let begin = Instant::now();
    let hello = tower::service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let answer = layer.layer(hello).oneshot(request(1, "/")).await.unwrap();
    if answer.status() == 200 { Ok(begin.elapsed().as_secs()) } else { Err(answer.status().as_u16()) }
}

#[tokio::test(start_paused = true)]
async fn who_is_in_the_queue_waits_for_its_turn_and_who_finds_it_full_is_denied() {
    let (limiter, _) = limiter([queue()]);
    let layer = RateLimitLayer::new(limiter, door());
    let ask = || wait(layer.clone());
    let (a, b, c, d, e) = tokio::join!(ask(), ask(), ask(), ask(), ask());
    assert_eq!([a, b, c, d, e], [Ok(0), Ok(1), Ok(2), Ok(3), Err(429)]);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_doors_patience() {
    let (limiter, _) = limiter([queue()]);
    let layer = RateLimitLayer::new(limiter, door().patience(Duration::from_secs(1)));
    let ask = || wait(layer.clone());
    assert_eq!(tokio::join!(ask(), ask(), ask()), (Ok(0), Ok(1), Err(429)));
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_while_waiting_leaves_its_place_to_others() {
    let (limiter, _) = limiter([queue()]);
    going_away(RateLimitLayer::new(limiter, door())).await;
}

#[tokio::test(start_paused = true)]
async fn so_it_does_where_the_store_must_be_waited_for() {
    let store = Distant(MemoryStore::new(clock(), 1_000));
    let limiter = Limiter::new(Policies::new(vec![queue()]).unwrap(), store);
    going_away(RateLimitLayer::new(Arc::new(limiter), door())).await;
}

async fn going_away<S: Store<Error = Infallible> + 'static>(layer: RateLimitLayer<S>) {
    assert_eq!(wait(layer.clone()).await, Ok(0));
    for _ in 0..10 {
        let impatient = timeout(Duration::from_millis(1), wait(layer.clone()));
        assert!(impatient.await.is_err(), "it waits");
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(wait(layer.clone()).await, Ok(1));
}
