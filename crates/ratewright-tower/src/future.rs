//! The stages of a request in the layer.
//!
//! ```text
//!            ┌─ never waits ─┐
//!   request ─┤               ├─► denied ────────────────────────────► Rejected
//!            └─ Deciding ────┘   allowed ─► (Waiting) ─► Calling ─► (Refunding) ─► headers are added
//! ```
//!
//! Dropping the future while it is Waiting refunds the charge; from Calling on the charge is kept. In a
//! tokio runtime, a refund that has begun completes even if the future is dropped.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use ratewright_core::decision::Observe;
use ratewright_core::{Decision, Micros, Query, Store, Verdict};
use ratewright_http::{Problem, RequestContext};
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use crate::body_meter::BodyMeter;
use crate::decide::{Decider, RenderContext, ResponseHeaders, now_or_never};
use crate::refund_guard::{OwnedQuery, RefundGuard, refund_uncounted};

/// The result of a decision, in its smallest form.
pub(crate) enum Decided {
    /// The request proceeds now. Whatever the service responds, the charge is kept, and only headers and the extension are added.
    Final { headers: ResponseHeaders, decision: Option<Arc<Decision>> },
    /// The request must wait, its charge may be refunded, or its body is still to be charged.
    Pending(Box<PendingDecision>),
    /// The request is denied.
    Denied(Box<Response<String>>),
}

/// A decision whose charge may still change, and what is needed until its response is ready.
pub(crate) struct PendingDecision {
    decision: Decision,
    query: OwnedQuery,
    rendering: RenderContext,
}

/// A decision after its refunds, and how the response shows it.
type Shown = (Decision, RenderContext);

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
        Deciding {
            deciding: Boxed<(Parts, Result<Decided, Problem>)>,
            ready: Option<(T, B)>,
            decider: Arc<Decider<S, O>>,
        },
        // Waits for its turn in the queue of a leaky bucket.
        Waiting { sleep: Pin<Box<Sleep>>, waiting: Option<Box<Queued<T, B, S, O>>> },
        // Waits for the service.
        Calling { #[pin] response: F, after: Option<AfterResponse<S, O>> },
        // The response does not count.
        Refunding { refunding: Boxed<Option<Shown>>, response: Option<A>, keeps_decision: bool },
        // The service is not called.
        Rejected { response: Option<Box<Response<String>>> },
    }
}

/// A request in a queue. Futures are moved often and queues are rare, so it is boxed.
struct Queued<T, B, S: Store<Error = Infallible> + 'static, O: Observe + 'static> {
    guard: RefundGuard<S, O>,
    decider: Arc<Decider<S, O>>,
    rendering: RenderContext,
    inner: T,
    request: Request<B>,
}

/// How the response is completed.
enum AfterResponse<S, O> {
    /// The charge is kept: only headers and the extension are added.
    Final { headers: ResponseHeaders, decision: Option<Arc<Decision>> },
    /// The charge may still change.
    Pending { decided: Box<PendingDecision>, decider: Arc<Decider<S, O>> },
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
            let decided = shared.decide(&parts, &mut known, shared.finish(&parts)).await;
            (parts, decided)
        });
        Self { stage: Stage::Deciding { deciding, ready: Some((ready, body)), decider } }
    }

    /// A request with a decision. `inner` is ready.
    #[inline(always)]
    pub(crate) fn decided(
        decider: &Arc<Decider<S, O>>,
        decided: Result<Decided, Problem>,
        inner: &mut T,
        parts: Parts,
        body: B,
    ) -> Self {
        Self { stage: after_decision(decider, decided, inner, parts, body) }
    }
}

/// The stage after the decision.
#[inline(always)]
fn after_decision<T, B, S, O>(
    decider: &Arc<Decider<S, O>>,
    decided: Result<Decided, Problem>,
    inner: &mut T,
    parts: Parts,
    body: B,
) -> Stage<T, T::Future, T::Response, B, S, O>
where
    T: Service<Request<B>> + Clone,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    match decided {
        Ok(Decided::Final { headers, decision }) => {
            let response = inner.call(Request::from_parts(parts, body));
            Stage::Calling { response, after: Some(AfterResponse::Final { headers, decision }) }
        }
        Ok(Decided::Pending(decided)) => {
            stage_of_pending(decider, decided, inner, Request::from_parts(parts, body))
        }
        Ok(Decided::Denied(denial)) => Stage::Rejected { response: Some(denial) },
        Err(problem) => Stage::Rejected { response: Some(Box::new(decider.reject(&parts, problem))) },
    }
}

/// The stage of an allowed request that must wait, or whose charge may still change.
fn stage_of_pending<T, B, S, O>(
    decider: &Arc<Decider<S, O>>,
    decided: Box<PendingDecision>,
    inner: &mut T,
    mut request: Request<B>,
) -> Stage<T, T::Future, T::Response, B, S, O>
where
    T: Service<Request<B>> + Clone,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let wait = decided.decision.wait();
    if let Some(open) = decided.decision.open_charges() {
        let meter = BodyMeter::new(Arc::clone(&decider.limiter), decided.query.clone(), open);
        request.extensions_mut().insert(meter);
    }
    let decider = Arc::clone(decider);
    if wait.is_zero() {
        let after = AfterResponse::Pending { decided, decider };
        return Stage::Calling { response: inner.call(request), after: Some(after) };
    }
    let PendingDecision { decision, query, rendering } = *decided;
    let guard = RefundGuard::new(Arc::clone(&decider.limiter), query, decision);
    let inner = std::mem::replace(inner, inner.clone());
    let queued = Queued { guard, decider, rendering, inner, request };
    Stage::Waiting { sleep: Box::pin(sleep(whole_milliseconds(wait))), waiting: Some(Box::new(queued)) }
}

impl<S: Store<Error = Infallible>, O: Observe> Decider<S, O> {
    /// Turns the decision on this request into its smallest form, for [`Decider::decide`].
    pub(crate) fn finish<'a>(
        &'a self,
        request: &'a Parts,
    ) -> impl FnOnce(&Query<'_>, &mut Decision, RenderContext) -> Decided + 'a {
        move |query, decision, rendering| {
            if decision.verdict() == Verdict::Deny {
                return Decided::Denied(Box::new(self.deny(request, decision, rendering)));
            }
            if let Some(query) = OwnedQuery::if_needed(query, decision) {
                let decision = decision.take_kept();
                return Decided::Pending(Box::new(PendingDecision { decision, query, rendering }));
            }
            let headers = rendering.headers(decision);
            let decision = self.reader.keeps_decisions.then(|| Arc::new(decision.take_kept()));
            Decided::Final { headers, decision }
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
                StageProjection::Deciding { deciding, ready, decider } => {
                    let (parts, decided) = ready!(deciding.as_mut().poll(context));
                    let (mut inner, body) = ready.take().expect(ONCE);
                    after_decision(decider, decided, &mut inner, parts, body)
                }
                StageProjection::Waiting { sleep, waiting } => {
                    ready!(sleep.as_mut().poll(context));
                    let Queued { guard, decider, rendering, mut inner, request } =
                        *waiting.take().expect(ONCE);
                    let after = guard.disarm().map(|(query, decision)| {
                        let decided = Box::new(PendingDecision { decision, query, rendering });
                        AfterResponse::Pending { decided, decider }
                    });
                    Stage::Calling { response: inner.call(request), after }
                }
                StageProjection::Calling { response, after } => {
                    let response = ready!(response.poll(context))?;
                    let (decided, decider) = match after.take().expect(ONCE) {
                        AfterResponse::Final { headers, decision } => {
                            return Poll::Ready(Ok(with_headers(response, headers, decision)));
                        }
                        AfterResponse::Pending { decided, decider } => (decided, decider),
                    };
                    let keeps_decision = decider.reader.keeps_decisions;
                    match refund_uncounted_charges(&decider, *decided, response.status().as_u16()) {
                        Ok(decided) => {
                            return Poll::Ready(Ok(with_decision(response, decided, keeps_decision)));
                        }
                        Err(refunding) => {
                            Stage::Refunding { refunding, response: Some(response), keeps_decision }
                        }
                    }
                }
                StageProjection::Refunding { refunding, response, keeps_decision } => {
                    let decided = ready!(refunding.as_mut().poll(context));
                    let response = response.take().expect(ONCE);
                    return Poll::Ready(Ok(match decided {
                        Some(decided) => with_decision(response, decided, *keeps_decision),
                        None => response,
                    }));
                }
                StageProjection::Rejected { response } => {
                    return Poll::Ready(Ok(response.take().expect(ONCE).map(R::from)));
                }
            };
            this.stage.set(next);
        }
    }
}

/// Refunds charges that do not count a response with this status: now, or in a future if the store must be awaited. The future
/// returns `None` if its runtime shuts down.
fn refund_uncounted_charges<S, O>(
    decider: &Decider<S, O>,
    decided: PendingDecision,
    status: u16,
) -> Result<Shown, Boxed<Option<Shown>>>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let PendingDecision { mut decision, query, rendering } = decided;
    if decision.counts_response(status) {
        return Ok((decision, rendering));
    }
    let limiter = Arc::clone(&decider.limiter);
    if limiter.never_waits() {
        now_or_never(refund_uncounted(&limiter, &query, &mut decision, status));
        return Ok((decision, rendering));
    }
    let refund = async move {
        refund_uncounted(&limiter, &query, &mut decision, status).await;
        Some((decision, rendering))
    };
    // In a task of its own: dropping the response future must not cancel the refund.
    match Handle::try_current() {
        Err(_) => Err(Box::pin(refund)),
        Ok(runtime) => {
            let refunding = runtime.spawn(refund);
            Err(Box::pin(async move {
                match refunding.await {
                    Ok(refunded) => refunded,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(_) => None,
                    },
                }
            }))
        }
    }
}

/// Adds the rate limit headers of a decision, and the decision as an extension.
fn with_decision<R>(
    response: Response<R>,
    (decision, rendering): Shown,
    keeps_decision: bool,
) -> Response<R> {
    let headers = rendering.headers(&decision);
    with_headers(response, headers, keeps_decision.then(|| Arc::new(decision)))
}

fn with_headers<R>(
    mut response: Response<R>,
    headers: ResponseHeaders,
    decision: Option<Arc<Decision>>,
) -> Response<R> {
    headers.put_into(response.headers_mut());
    if let Some(decision) = decision {
        response.extensions_mut().insert(decision);
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
