//! Limits on requests in flight.
//!
//! Put this layer outside the rate limits: a request without a permit then costs nothing, and a request over a rate
//! limit releases its permit at once.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use ratewright_core::Verdict;
use ratewright_core::decision::{Observe, Unobserved};
use tower_layer::Layer;
use tower_service::Service;

use crate::decide::{Decider, now_or_never};
use crate::permit_body::PermitBody;
use crate::permit_limiter::PermitLimiter;
use crate::permits::{Permit, Permits};
use crate::request_reader::RequestReader;

/// Limits how many requests are in flight.
///
/// When a client disconnects, hyper drops the response future. Then the request is no longer in flight, even if work that the
/// handler started elsewhere continues. A server that knows of such work calls [`InFlightFuture::abort`], as the gateway does: only
/// then does [`AfterAbort`](ratewright_core::policy::AfterAbort) have an effect.
///
/// ```
/// # use axum::{Router, routing::get};
/// use ratewright_core::{Policies, Policy};
/// use ratewright_core::query::AttributeName;
/// use ratewright_store::WallClock;
/// use ratewright_tower::{InFlightLayer, PermitLimiter, Quota, RequestReader};
///
/// # fn main() -> Result<(), ratewright_core::policy::PolicyError> {
/// let four_at_once = Policy::new("in-flight", Quota::per_second(4))?.by(&[AttributeName::Ip]);
/// let limiter = PermitLimiter::new(Policies::new(vec![four_at_once])?);
/// let layer = InFlightLayer::new(&limiter, RequestReader::new(WallClock));
/// # let service = tower_layer::Layer::layer(&layer, Router::<()>::new().route("/", get(|| async {})));
/// # Ok(())
/// # }
/// ```
pub struct InFlightLayer<O = Unobserved> {
    permits: Arc<Permits>,
    decider: Arc<Decider<Arc<Permits>, O>>,
}

/// A service with a limit on requests in flight.
pub struct InFlight<T, O = Unobserved> {
    inner: T,
    permits: Arc<Permits>,
    decider: Arc<Decider<Arc<Permits>, O>>,
}

pin_project! {
    /// The response future of [`InFlight`].
    #[derive(Debug)]
    pub struct InFlightFuture<F> {
        #[pin]
        stage: Stage<F>,
    }
}

/// The permits that a request keeps after its client has disconnected. They are released when this is dropped.
#[derive(Debug)]
pub struct KeptPermit(#[expect(dead_code, reason = "held until it is dropped")] Permit);

pin_project! {
    #[project = StageProjection]
    #[derive(Debug)]
    enum Stage<F> {
        Calling { #[pin] response: F, permit: Option<Permit> },
        Rejected { response: Option<Response<String>> },
    }
}

impl<O: Observe> InFlightLayer<O> {
    /// A layer that takes a permit from `limiter` for each request, as read by `reader`.
    pub fn new(limiter: &PermitLimiter<O>, reader: RequestReader) -> Self {
        let PermitLimiter { permits, limiter } = limiter.clone();
        Self { permits, decider: Arc::new(Decider::new(limiter, reader)) }
    }
}

impl<T, O> Layer<T> for InFlightLayer<O> {
    type Service = InFlight<T, O>;

    fn layer(&self, inner: T) -> Self::Service {
        InFlight { inner, permits: Arc::clone(&self.permits), decider: Arc::clone(&self.decider) }
    }
}

impl<T, O, B, R> Service<Request<B>> for InFlight<T, O>
where
    T: Service<Request<B>, Response = Response<R>>,
    R: From<String>,
    O: Observe,
{
    type Response = Response<PermitBody<R>>;
    type Error = T::Error;
    type Future = InFlightFuture<T::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let permits = &self.permits;
        let http_settings = self.decider.reader.http_settings.load_full();
        let mut known = None;
        let deciding = self.decider.decide(&parts, &mut known, |query, decision, rendering| {
            if decision.verdict() == Verdict::Deny {
                let rendering = rendering.with_retry_after_only();
                return Err(Box::new(self.decider.deny(&parts, decision, rendering)));
            }
            Ok(permits.permit(query, decision))
        });
        let decided = now_or_never(deciding).expect("permits never wait");
        if let Some(mut known) = known {
            known.http_settings.get_or_insert(http_settings);
            parts.extensions.insert(known); // for the inner layers
        }
        let stage = match decided {
            Ok(Ok(permit)) => {
                let response = self.inner.call(Request::from_parts(parts, body));
                Stage::Calling { response, permit: Some(permit) }
            }
            Ok(Err(denial)) => Stage::Rejected { response: Some(*denial) },
            Err(problem) => Stage::Rejected { response: Some(self.decider.reject(&parts, problem)) },
        };
        InFlightFuture { stage }
    }
}

impl<F> InFlightFuture<F> {
    /// Call it when the client has disconnected. It releases the permits of policies that free them then, and returns the others.
    /// Hold these until the work has ended. If the future is dropped without this call, all permits are released.
    pub fn abort(self: Pin<&mut Self>) -> Option<KeptPermit> {
        match self.project().stage.project() {
            StageProjection::Calling { permit, .. } => permit.take()?.abort().map(KeptPermit),
            StageProjection::Rejected { .. } => None,
        }
    }
}

impl<F, R, E> Future for InFlightFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: From<String>,
{
    type Output = Result<Response<PermitBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().stage.project() {
            StageProjection::Calling { response, permit } => {
                let response = ready!(response.poll(context))?;
                let permit = permit.take();
                Poll::Ready(Ok(response.map(|body| PermitBody::new(body, permit))))
            }
            StageProjection::Rejected { response } => {
                let response = response.take().expect("a future is not polled after it is ready");
                Poll::Ready(Ok(response.map(PermitBody::from)))
            }
        }
    }
}

impl<O> Clone for InFlightLayer<O> {
    fn clone(&self) -> Self {
        Self { permits: Arc::clone(&self.permits), decider: Arc::clone(&self.decider) }
    }
}

impl<T: Clone, O> Clone for InFlight<T, O> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            permits: Arc::clone(&self.permits),
            decider: Arc::clone(&self.decider),
        }
    }
}

impl<O> fmt::Debug for InFlightLayer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightLayer").field("reader", &self.decider.reader).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug, O> fmt::Debug for InFlight<T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("inner", &self.inner).finish_non_exhaustive()
    }
}
