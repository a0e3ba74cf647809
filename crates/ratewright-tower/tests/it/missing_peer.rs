//! A program that does not say who the peer is: every request fails, and the log says why without a flood.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};

use http::{Request, Response, Version};
use ratewright_core::Micros;
use ratewright_tower::{RateLimitLayer, RequestReader};
use tower::{Layer, ServiceExt, service_fn};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::world::{Body, bucket, clock, limiter};

/// Keeps the lines about missing peers: how many were suppressed before each.
#[derive(Clone, Default)]
struct ErrorLines(Arc<Mutex<Vec<u64>>>);

impl Subscriber for ErrorLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for ErrorLines {
    fn record_u64(&mut self, field: &Field, value: u64) {
        assert_eq!(field.name(), "suppressed");
        self.0.lock().unwrap().push(value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        assert_eq!(field.name(), "message");
        assert!(format!("{value:?}").contains("no peer address to count by"), "{value:?}");
    }
}

/// Also across clones of the layer, and across versions of HTTP.
#[test]
fn requests_without_a_peer_are_logged_once_a_minute() {
    let (limiter, _) = limiter([bucket("per-client", "1/s")]);
    let clock = clock();
    let layer = RateLimitLayer::new(limiter, RequestReader::new(clock.clone()));
    let service =
        service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::default())) });
    let send = |version| {
        let request = Request::get("/").version(version).body(Body::default()).unwrap();
        let service = layer.clone().layer(service);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(service.oneshot(request)).unwrap().status(), 500);
    };
    let lines = ErrorLines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        (0..50).for_each(|_| [Version::HTTP_11, Version::HTTP_2].into_iter().for_each(send));
        clock.advance(Micros::new(59_999_999));
        send(Version::HTTP_11);
        assert_eq!(*lines.0.lock().unwrap(), [0]);
        clock.advance(Micros::new(1));
        send(Version::HTTP_11);
        send(Version::HTTP_11);
    });
    assert_eq!(*lines.0.lock().unwrap(), [0, 100]);
}
