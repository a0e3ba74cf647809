//! Limits on the bytes of requests.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use ratewright_core::decision::ExtraCharge;
use ratewright_core::policy::Cost;
use ratewright_core::query::AttributeName;
use ratewright_core::{Limiter, Policies, Policy, Store};
use ratewright_store::MemoryStore;
use ratewright_tower::{BodyMeter, RateLimitLayer, RequestReader};
use tower::{Layer, ServiceExt};

use crate::world::{Body, RemoteStore, bucket, clock, header_text, over_http_2, reader, request};

/// A hundred bytes a day for each cookie.
fn upload() -> Policy {
    bucket("upload", "100/30d").by(&[AttributeName::Cookie("sid")]).with_cost(Cost::RequestBytes)
}

fn layer<S: Store<Error = Infallible> + 'static>(store: S, reader: RequestReader) -> RateLimitLayer<S> {
    let limiter = Limiter::new(Policies::new(vec![upload()]).unwrap(), store);
    RateLimitLayer::new(Arc::new(limiter), reader)
}

/// Sends a request; the service reads `n_bytes` of its body if the length was not known before.
async fn send<S: Store<Error = Infallible> + 'static>(
    layer: &RateLimitLayer<S>,
    headers: &[(&'static str, &str)],
    n_bytes: usize,
) -> (u16, String) {
    let mut request = request(1, "/");
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().unwrap());
    }
    exchange(layer, request, n_bytes).await
}

async fn exchange<S: Store<Error = Infallible> + 'static>(
    layer: &RateLimitLayer<S>,
    request: Request<Body>,
    n_bytes: usize,
) -> (u16, String) {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let mut response = Response::new(Body::default());
        if let Some(meter) = request.extensions().get::<BodyMeter>()
            && meter.take(n_bytes).await != ExtraCharge::Charged
        {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(service).oneshot(request).await.unwrap();
    let remaining = header_text(response.headers(), "x-ratelimit-remaining").to_owned();
    (response.status().as_u16(), remaining)
}

const A: (&str, &str) = ("cookie", "sid=a");
const CHUNKED: (&str, &str) = ("transfer-encoding", "chunked");

fn outcome(status: u16, remaining: &str) -> (u16, String) {
    (status, remaining.to_owned())
}

#[tokio::test]
async fn known_lengths_are_charged_at_once_and_others_as_bytes_arrive() {
    let layer = layer(MemoryStore::new(clock(), 1_000), reader().metering_bodies());
    assert_eq!(send(&layer, &[A, ("content-length", "40")], 0).await, outcome(200, "60"));
    assert_eq!(send(&layer, &[A, ("content-length", "61")], 0).await, outcome(429, "60"));
    assert_eq!(send(&layer, &[A, ("content-length", "0")], 0).await, outcome(200, "-"), "nothing to count");
    assert_eq!(send(&layer, &[A], 0).await, outcome(200, "-"), "HTTP/1.1 without a length has no body");
    assert_eq!(send(&layer, &[A, CHUNKED], 50).await.0, 200);
    assert_eq!(send(&layer, &[A, ("content-length", "11")], 0).await, outcome(429, "10"));
    assert_eq!(send(&layer, &[A, CHUNKED], 50).await.0, 429, "there is room for ten bytes");
    assert_eq!(send(&layer, &[A, CHUNKED], 10).await.0, 200);
    assert_eq!(send(&layer, &[A, CHUNKED], 0).await.0, 429, "there is no room for one byte");
    assert_eq!(send(&layer, &[A, ("content-length", "99999999999999")], 0).await.0, 429);
}

/// A request with two cookies is counted under both, also while its body arrives.
#[tokio::test]
async fn a_body_is_charged_to_every_bucket_of_its_request() {
    let layer = layer(MemoryStore::new(clock(), 1_000), reader().metering_bodies());
    assert_eq!(send(&layer, &[A, ("cookie", "sid=b"), CHUNKED], 70).await.0, 200);
    for sid in ["sid=a", "sid=b"] {
        assert_eq!(
            send(&layer, &[("cookie", sid), ("content-length", "31")], 0).await,
            outcome(429, "30"),
            "{sid}"
        );
    }
}

#[tokio::test]
async fn bodies_of_unknown_length_are_denied_unless_the_service_meters_them() {
    let layer = layer(MemoryStore::new(clock(), 1_000), reader());
    assert_eq!(send(&layer, &[A, CHUNKED], 0).await.0, 429);
    let mut streamed = over_http_2(request(1, "/"));
    streamed.headers_mut().append("cookie", "sid=a".parse().unwrap());
    assert_eq!(exchange(&layer, streamed, 0).await.0, 429);
    assert_eq!(
        send(&layer, &[A, ("content-length", "100")], 0).await,
        outcome(200, "0"),
        "nothing was spent before"
    );
}

#[tokio::test]
async fn a_remote_store_charges_bodies_too() {
    let store = RemoteStore(MemoryStore::new(clock(), 1_000));
    let layer = layer(store, reader().metering_bodies());
    assert_eq!(send(&layer, &[A, CHUNKED], 100).await.0, 200);
    assert_eq!(send(&layer, &[A, CHUNKED], 1).await.0, 429);
}
