//! The stages of a request in the layer.
//!
//! ```text
//!            ┌─ never waits ─┐
//!   request ─┤               ├─► denied ────────────────────────────► Rejected
//!            └─ Deciding ────┘   allowed ─► (Waiting) ─► Calling ─► (Refunding) ─► headers are added
//! ```
//!
//! Dropping the future while it is Waiting refunds the charge; from Calling on the charge is kept. A refund that has
//! begun completes even if the future is dropped.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use ratewright_core::{Micros, Observe, Store};
use ratewright_http::{Problem, RequestContext};
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use crate::body_meter::BodyMeter;
use crate::decide::{Decider, RenderContext, RequestDecision, now_or_never};
use crate::refund_guard::{OwnedQuery, RefundGuard, refund_uncounted};

/// The decision on a request, with its query if the charge may be refunded.
pub(crate) type RateDecision = RequestDecision<Option<OwnedQuery>>;

type Boxed<V> = Pin<Box<dyn Future<Output = V> + Send>>;

pin_project! {
    /// The response future of [`RateLimit`](crate::RateLimit).
    pub struct RateLimitFuture<T, B, S, O>
    where
        T: Service<Request<B>>,
        S: Store<Error = Infallible>,
        S: 'static,
        O: Observe,
        O: 'static,
    {
        decider: Arc<Decider<S, O>>,
        #[pin]
        stage: Stage<T, T::Future, T::Response, B, S, O>,
    }
}

pin_project! {
    #[project = StageProjection]
    enum Stage<T, F, A, B, S, O>
    where
        S: Store<Error = Infallible>,
        S: 'static,
        O: Observe,
        O: 'static,
    {
        // Waits for the store.
        Deciding { deciding: Boxed<(Parts, Result<RateDecision, Problem>)>, ready: Option<(T, B)> },
        // Waits for its turn in the queue of a leaky bucket.
        Waiting { sleep: Pin<Box<Sleep>>, guard: Option<(RefundGuard<S, O>, RenderContext)>, ready: Option<(T, Request<B>)> },
        // Waits for the service.
        Calling { #[pin] response: F, decided: Option<RateDecision> },
        // The response does not count.
        Refunding { refunding: Boxed<RateDecision>, response: Option<A> },
        // The service is not called.
        Rejected { response: Option<Response<String>> },
    }
}

impl<T, B, S, O> RateLimitFuture<T, B, S, O>
where
    T: Service<Request<B>> + Clone,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// A request whose decision has to wait for the store.
    pub(crate) fn deciding(
        decider: Arc<Decider<S, O>>,
        ready: T,
        parts: Parts,
        mut known: Option<RequestContext>,
        body: B,
    ) -> Self {
        let shared = Arc::clone(&decider);
        let deciding = Box::pin(async move {
            let decided = shared.decide(&parts, &mut known, OwnedQuery::if_needed).await;
            (parts, decided)
        });
        Self { decider, stage: Stage::Deciding { deciding, ready: Some((ready, body)) } }
    }

    /// A request with a decision. `inner` is ready.
    pub(crate) fn decided(
        decider: Arc<Decider<S, O>>,
        decided: Result<RateDecision, Problem>,
        inner: &mut T,
        parts: Parts,
        body: B,
    ) -> Self {
        let stage = after_decision(&decider, decided, inner, parts, body);
        Self { decider, stage }
    }
}

/// The stage after the decision.
fn after_decision<T, B, S, O>(
    decider: &Arc<Decider<S, O>>,
    decided: Result<RateDecision, Problem>,
    inner: &mut T,
    parts: Parts,
    body: B,
) -> Stage<T, T::Future, T::Response, B, S, O>
where
    T: Service<Request<B>> + Clone,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let mut decided = match decided {
        Ok(decided) if decided.is_denied() => {
            return Stage::Rejected { response: Some(decider.deny(&parts, &decided)) };
        }
        Ok(decided) => decided,
        Err(problem) => return Stage::Rejected { response: Some(decider.reject(&parts, problem)) },
    };
    let wait = decided.decision.wait();
    let mut request = Request::from_parts(parts, body);
    if let (Some(query), Some(open)) = (&decided.kept, decided.decision.open_charges()) {
        let meter = BodyMeter::new(Arc::clone(&decider.limiter), query.clone(), open);
        request.extensions_mut().insert(meter);
    }
    decided.decision = decided.decision.kept();
    match decided.kept {
        Some(query) if !wait.is_zero() => {
            let guard = RefundGuard::new(Arc::clone(&decider.limiter), query, decided.decision);
            let ready = std::mem::replace(inner, inner.clone());
            Stage::Waiting {
                sleep: Box::pin(sleep(whole_milliseconds(wait))),
                guard: Some((guard, decided.rendering)),
                ready: Some((ready, request)),
            }
        }
        kept => {
            let decided = RequestDecision { kept, ..decided };
            Stage::Calling { response: inner.call(request), decided: Some(decided) }
        }
    }
}

/// The timer counts in milliseconds. Rounded up, so that no request goes early.
fn whole_milliseconds(wait: Micros) -> Duration {
    Duration::from_millis(wait.as_micros().div_ceil(1_000))
}

impl<T, B, R, S, O> Future for RateLimitFuture<T, B, S, O>
where
    T: Service<Request<B>, Response = Response<R>> + Clone,
    R: From<String>,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    type Output = Result<Response<R>, T::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        const ONCE: &str = "a future is not polled after it is ready";
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::Deciding { deciding, ready } => {
                    let (parts, decided) = ready!(deciding.as_mut().poll(context));
                    let (mut inner, body) = ready.take().expect(ONCE);
                    after_decision(this.decider, decided, &mut inner, parts, body)
                }
                StageProjection::Waiting { sleep, guard, ready } => {
                    ready!(sleep.as_mut().poll(context));
                    let (guard, rendering) = guard.take().expect(ONCE);
                    let (mut inner, request) = ready.take().expect(ONCE);
                    let decided = guard.disarm().map(|(query, decision)| RequestDecision {
                        decision,
                        kept: Some(query),
                        rendering,
                    });
                    Stage::Calling { response: inner.call(request), decided }
                }
                StageProjection::Calling { response, decided } => {
                    let response = ready!(response.poll(context))?;
                    let decided = decided.take().expect(ONCE);
                    match refund_uncounted_charges(this.decider, decided, response.status().as_u16()) {
                        Ok(decided) => return Poll::Ready(Ok(with_headers(this.decider, response, decided))),
                        Err(refunding) => Stage::Refunding { refunding, response: Some(response) },
                    }
                }
                StageProjection::Refunding { refunding, response } => {
                    let decided = ready!(refunding.as_mut().poll(context));
                    return Poll::Ready(Ok(with_headers(
                        this.decider,
                        response.take().expect(ONCE),
                        decided,
                    )));
                }
                StageProjection::Rejected { response } => {
                    return Poll::Ready(Ok(response.take().expect(ONCE).map(R::from)));
                }
            };
            this.stage.set(next);
        }
    }
}

/// Refunds charges that do not count a response with this status: now, or in a future if the store must be awaited.
fn refund_uncounted_charges<S, O>(
    decider: &Decider<S, O>,
    decided: RateDecision,
    status: u16,
) -> Result<RateDecision, Boxed<RateDecision>>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let RequestDecision { mut decision, kept, rendering } = decided;
    let Some(query) = kept.filter(|_| decision.awaits_answer()) else {
        return Ok(RequestDecision { decision, kept: None, rendering });
    };
    let limiter = Arc::clone(&decider.limiter);
    if limiter.never_waits() {
        now_or_never(refund_uncounted(&limiter, &query, &mut decision, status));
        return Ok(RequestDecision { decision, kept: None, rendering });
    }
    let refund = async move {
        refund_uncounted(&limiter, &query, &mut decision, status).await;
        RequestDecision { decision, kept: None, rendering }
    };
    // In a task of its own: dropping the response future must not cancel the refund.
    match Handle::try_current() {
        Err(_) => Err(Box::pin(refund)),
        Ok(runtime) => {
            let refunding = runtime.spawn(refund);
            Err(Box::pin(async move {
                refunding.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
            }))
        }
    }
}

/// Adds the rate limit headers, and the decision as an extension.
fn with_headers<S, O, R>(
    decider: &Decider<S, O>,
    mut response: Response<R>,
    decided: RateDecision,
) -> Response<R> {
    decided.render(response.headers_mut());
    if decider.reader.keeps_decisions {
        response.extensions_mut().insert(Arc::new(decided.decision));
    }
    response
}

impl<T, B, S, O> fmt::Debug for RateLimitFuture<T, B, S, O>
where
    T: Service<Request<B>>,
    S: Store<Error = Infallible>,
    O: Observe,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Deciding { .. } => "deciding",
            Stage::Waiting { .. } => "waiting",
            Stage::Calling { .. } => "calling",
            Stage::Refunding { .. } => "refunding",
            Stage::Rejected { .. } => "rejected",
        };
        f.debug_tuple("RateLimitFuture").field(&stage).finish()
    }
}
