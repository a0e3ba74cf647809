//! The layer and its service: identify, decide, render.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use ratewright_core::decision::{Observe, Unobserved};
use ratewright_core::{Limiter, Store};
use ratewright_http::RequestContext;
use ratewright_store::{MemoryStore, SystemClock};
use tower_layer::Layer;
use tower_service::Service;

use crate::decide::{Decider, now_or_never};
use crate::future::RateLimitFuture;
use crate::request_reader::RequestReader;

/// Puts a rate limiter in front of services.
///
/// [`RateLimitLayer::per_ip`] is the shortest way to a limit, [`RateLimitLayer::in_memory`] takes any policies, and
/// [`RateLimitLayer::new`] takes a limiter with any store. Clones of a layer share one limiter.
///
/// The service must be `Clone`, and its response body must implement `From<String>`, for the body of a denial: `String` and
/// `axum::body::Body` do. Map other bodies first.
pub struct RateLimitLayer<S = MemoryStore<SystemClock>, O = Unobserved> {
    decider: Arc<Decider<S, O>>,
}

/// A service behind a rate limiter.
pub struct RateLimit<T, S = MemoryStore<SystemClock>, O = Unobserved> {
    inner: T,
    decider: Arc<Decider<S, O>>,
}

impl<S: Store<Error = Infallible>, O: Observe> RateLimitLayer<S, O> {
    /// A layer that has `limiter` decide on each request, as read by `reader`.
    pub fn new(limiter: Arc<Limiter<S, O>>, reader: RequestReader) -> Self {
        Self { decider: Arc::new(Decider::new(limiter, reader)) }
    }

    /// The same limiter, with requests read in another way. `change` gets the current reader:
    /// `layer.with_reader(|reader| reader.patience(Duration::ZERO))`.
    #[must_use]
    pub fn with_reader(self, change: impl FnOnce(RequestReader) -> RequestReader) -> Self {
        let Decider { limiter, reader, .. } = &*self.decider;
        Self::new(Arc::clone(limiter), change(reader.clone()))
    }
}

impl<T, S, O> Layer<T> for RateLimitLayer<S, O> {
    type Service = RateLimit<T, S, O>;

    fn layer(&self, inner: T) -> Self::Service {
        RateLimit { inner, decider: Arc::clone(&self.decider) }
    }
}

impl<T, S, O, B, R> Service<Request<B>> for RateLimit<T, S, O>
where
    T: Service<Request<B>, Response = Response<R>> + Clone,
    R: From<String>,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    type Response = Response<R>;
    type Error = T::Error;
    type Future = RateLimitFuture<T, B, S, O>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        limit(&self.decider, &mut self.inner, None, request)
    }
}

impl<T, S, O> RateLimit<T, S, O>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// Like `call`, for a server that already knows the peer. The service is cloned for each request, and its clones
    /// must be ready without `poll_ready`.
    pub fn call_known<B, R>(&self, known: RequestContext, request: Request<B>) -> RateLimitFuture<T, B, S, O>
    where
        T: Service<Request<B>, Response = Response<R>> + Clone,
        R: From<String>,
    {
        limit(&self.decider, &mut self.inner.clone(), Some(known), request)
    }
}

/// Decides now if the store never waits, otherwise in the returned future. `inner` is ready.
fn limit<T, S, O, B>(
    decider: &Arc<Decider<S, O>>,
    inner: &mut T,
    mut known: Option<RequestContext>,
    request: Request<B>,
) -> RateLimitFuture<T, B, S, O>
where
    T: Service<Request<B>> + Clone,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let (parts, body) = request.into_parts();
    if decider.limiter.never_waits()
        && let Some(decided) = now_or_never(decider.decide(&parts, &mut known, decider.finish(&parts)))
    {
        return RateLimitFuture::decided(decider, decided, inner, parts, body);
    }
    // The ready service goes with the request; its clone must become ready again.
    let clone = inner.clone();
    let ready = std::mem::replace(inner, clone);
    RateLimitFuture::deciding(Arc::clone(decider), ready, parts, known, body)
}

impl<S, O> Clone for RateLimitLayer<S, O> {
    fn clone(&self) -> Self {
        Self { decider: Arc::clone(&self.decider) }
    }
}

impl<T: Clone, S, O> Clone for RateLimit<T, S, O> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), decider: Arc::clone(&self.decider) }
    }
}

impl<S, O> fmt::Debug for RateLimitLayer<S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("reader", &self.decider.reader).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug, S, O> fmt::Debug for RateLimit<T, S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("reader", &self.decider.reader)
            .finish_non_exhaustive()
    }
}
