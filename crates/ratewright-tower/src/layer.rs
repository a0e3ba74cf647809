//! The layer and its service: identify, decide, render.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use ratewright_core::{Limiter, Observe, Store, Unobserved};
use ratewright_http::RequestContext;
use tower_layer::Layer;
use tower_service::Service;

use crate::claim::Owned;
use crate::door::Door;
use crate::future::RateLimitFuture;
use crate::gate::{Gate, at_once};

/// Puts a limiter in front of services.
pub struct RateLimitLayer<S, O = Unobserved> {
    gate: Arc<Gate<S, O>>,
}

/// A service behind a limiter.
pub struct RateLimit<T, S, O = Unobserved> {
    inner: T,
    gate: Arc<Gate<S, O>>,
}

impl<S: Store<Error = Infallible>, O: Observe> RateLimitLayer<S, O> {
    /// A layer that asks `limiter` about each request, as `door` reads it.
    pub fn new(limiter: Arc<Limiter<S, O>>, door: Door) -> Self {
        Self { gate: Arc::new(Gate { limiter, door }) }
    }
}

impl<T, S, O> Layer<T> for RateLimitLayer<S, O> {
    type Service = RateLimit<T, S, O>;

    fn layer(&self, inner: T) -> Self::Service {
        RateLimit { inner, gate: Arc::clone(&self.gate) }
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
        enter(&self.gate, &mut self.inner, None, request)
    }
}

impl<T, S, O> RateLimit<T, S, O>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// Like `call`, for a server that knows who is at the other end: the door is not asked. The service must be ready, and for
    /// many requests at once: it is cloned for each.
    pub fn call_known<B, R>(&self, known: RequestContext, request: Request<B>) -> RateLimitFuture<T, B, S, O>
    where
        T: Service<Request<B>, Response = Response<R>> + Clone,
        R: From<String>,
    {
        enter(&self.gate, &mut self.inner.clone(), Some(known), request)
    }
}

/// Decides about a request at once if that can be done, and else on its way. `inner` is ready.
fn enter<T, S, O, B>(
    gate: &Arc<Gate<S, O>>,
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
    let gate = Arc::clone(gate);
    if gate.limiter.never_waits()
        && let Some(asked) = at_once(gate.ask(&parts, &mut known, Owned::kept))
    {
        return RateLimitFuture::decided(gate, asked, inner, parts, body);
    }
    // The service that is ready goes along with the request; its clone must become ready anew.
    let clone = inner.clone();
    let ready = std::mem::replace(inner, clone);
    RateLimitFuture::deciding(gate, ready, parts, known, body)
}

impl<S, O> Clone for RateLimitLayer<S, O> {
    fn clone(&self) -> Self {
        Self { gate: Arc::clone(&self.gate) }
    }
}

impl<T: Clone, S, O> Clone for RateLimit<T, S, O> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), gate: Arc::clone(&self.gate) }
    }
}

impl<S, O> fmt::Debug for RateLimitLayer<S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("door", &self.gate.door).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug, S, O> fmt::Debug for RateLimit<T, S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("door", &self.gate.door)
            .finish_non_exhaustive()
    }
}
