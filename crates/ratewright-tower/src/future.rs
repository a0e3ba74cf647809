//! A request's way through the layer.
//!
//! ```text
//!            ┌─ never waits ─┐
//!   request ─┤               ├─► denied ──────────────────────────────► Answered
//!            └─ Deciding ────┘   allowed ─► (Waiting) ─► Answering ─► (Refunding) ─► fields are added
//! ```
//!
//! Whoever drops the future while it is Waiting gets the charge back; later on it has been made use of. A refund that has begun
//! comes to its end, whoever is still there.

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
use crate::claim::{Claim, Owned, refund_uncounted};
use crate::gate::{Asked, Gate, Manner, at_once};

/// What was decided, with what its charge was for if that may have to be given back.
pub(crate) type Rated = Asked<Option<Owned>>;

type Boxed<V> = Pin<Box<dyn Future<Output = V> + Send>>;

pin_project! {
    /// The answer of a service behind a limiter, to come.
    pub struct RateLimitFuture<T, B, S, O>
    where
        T: Service<Request<B>>,
        S: Store<Error = Infallible>,
        S: 'static,
        O: Observe,
        O: 'static,
    {
        gate: Arc<Gate<S, O>>,
        #[pin]
        stage: Stage<T, T::Future, T::Response, B, S, O>,
    }
}

pin_project! {
    #[project = Now]
    enum Stage<T, F, A, B, S, O>
    where
        S: Store<Error = Infallible>,
        S: 'static,
        O: Observe,
        O: 'static,
    {
        // The store is asked.
        Deciding { deciding: Boxed<(Parts, Result<Rated, Problem>)>, ready: Option<(T, B)> },
        // The charge was paid with a wait.
        Waiting { sleep: Pin<Box<Sleep>>, held: Option<(Claim<S, O>, Manner)>, ready: Option<(T, Request<B>)> },
        // The service is at work.
        Answering { #[pin] answer: F, asked: Option<Rated> },
        // The answer does not count.
        Refunding { refunding: Boxed<Rated>, answer: Option<A> },
        // The service was not asked.
        Answered { answer: Option<Response<String>> },
    }
}

impl<T, B, S, O> RateLimitFuture<T, B, S, O>
where
    T: Service<Request<B>> + Clone,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// The way of a request about which the store must be asked.
    pub(crate) fn deciding(
        gate: Arc<Gate<S, O>>,
        ready: T,
        parts: Parts,
        mut known: Option<RequestContext>,
        body: B,
    ) -> Self {
        let asking = Arc::clone(&gate);
        let deciding = Box::pin(async move {
            let asked = asking.ask(&parts, &mut known, Owned::kept).await;
            (parts, asked)
        });
        Self { gate, stage: Stage::Deciding { deciding, ready: Some((ready, body)) } }
    }

    /// The way of a request about which the limiter has decided. `inner` is ready.
    pub(crate) fn decided(
        gate: Arc<Gate<S, O>>,
        asked: Result<Rated, Problem>,
        inner: &mut T,
        parts: Parts,
        body: B,
    ) -> Self {
        let stage = enter(&gate, asked, inner, parts, body);
        Self { gate, stage }
    }
}

/// Where a request goes once the limiter has decided.
fn enter<T, B, S, O>(
    gate: &Arc<Gate<S, O>>,
    asked: Result<Rated, Problem>,
    inner: &mut T,
    parts: Parts,
    body: B,
) -> Stage<T, T::Future, T::Response, B, S, O>
where
    T: Service<Request<B>> + Clone,
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let mut asked = match asked {
        Ok(asked) if asked.is_denied() => {
            return Stage::Answered { answer: Some(gate.deny(&parts, &asked)) };
        }
        Ok(asked) => asked,
        Err(problem) => return Stage::Answered { answer: Some(gate.reject(&parts, problem)) },
    };
    let wait = asked.decision.wait();
    let mut request = Request::from_parts(parts, body);
    if let (Some(owned), Some(open)) = (&asked.kept, asked.decision.open_charges()) {
        let meter = BodyMeter::new(Arc::clone(&gate.limiter), owned.clone(), open);
        request.extensions_mut().insert(meter);
    }
    asked.decision = asked.decision.kept();
    match asked.kept {
        Some(owned) if !wait.is_zero() => {
            let claim = Claim::new(Arc::clone(&gate.limiter), owned, asked.decision);
            let ready = std::mem::replace(inner, inner.clone());
            Stage::Waiting {
                sleep: Box::pin(sleep(whole_milliseconds(wait))),
                held: Some((claim, asked.manner)),
                ready: Some((ready, request)),
            }
        }
        kept => {
            let asked = Asked { kept, ..asked };
            Stage::Answering { answer: inner.call(request), asked: Some(asked) }
        }
    }
}

/// The timer counts in milliseconds. Nobody goes early.
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
                Now::Deciding { deciding, ready } => {
                    let (parts, asked) = ready!(deciding.as_mut().poll(context));
                    let (mut inner, body) = ready.take().expect(ONCE);
                    enter(this.gate, asked, &mut inner, parts, body)
                }
                Now::Waiting { sleep, held, ready } => {
                    ready!(sleep.as_mut().poll(context));
                    let (claim, manner) = held.take().expect(ONCE);
                    let (mut inner, request) = ready.take().expect(ONCE);
                    let asked =
                        claim.keep().map(|(owned, decision)| Asked { decision, kept: Some(owned), manner });
                    Stage::Answering { answer: inner.call(request), asked }
                }
                Now::Answering { answer, asked } => {
                    let answer = ready!(answer.poll(context))?;
                    let asked = asked.take().expect(ONCE);
                    match settle(this.gate, asked, answer.status().as_u16()) {
                        Ok(asked) => return Poll::Ready(Ok(finish(this.gate, answer, asked))),
                        Err(refunding) => Stage::Refunding { refunding, answer: Some(answer) },
                    }
                }
                Now::Refunding { refunding, answer } => {
                    let asked = ready!(refunding.as_mut().poll(context));
                    return Poll::Ready(Ok(finish(this.gate, answer.take().expect(ONCE), asked)));
                }
                Now::Answered { answer } => {
                    return Poll::Ready(Ok(answer.take().expect(ONCE).map(R::from)));
                }
            };
            this.stage.set(next);
        }
    }
}

/// Gives back what an answer of this status does not cost: at once, or by a future if the store must be waited for.
fn settle<S, O>(gate: &Gate<S, O>, asked: Rated, status: u16) -> Result<Rated, Boxed<Rated>>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let Asked { mut decision, kept, manner } = asked;
    let Some(owned) = kept.filter(|_| decision.awaits_answer()) else {
        return Ok(Asked { decision, kept: None, manner });
    };
    let limiter = Arc::clone(&gate.limiter);
    if limiter.never_waits() {
        at_once(refund_uncounted(&limiter, &owned, &mut decision, status));
        return Ok(Asked { decision, kept: None, manner });
    }
    let refund = async move {
        refund_uncounted(&limiter, &owned, &mut decision, status).await;
        Asked { decision, kept: None, manner }
    };
    // By a task of its own: whoever drops this future does not keep the charge.
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

/// Adds the fields, and the decision for whoever wants to know more.
fn finish<S, O, R>(gate: &Gate<S, O>, mut answer: Response<R>, asked: Rated) -> Response<R> {
    asked.render(answer.headers_mut());
    if gate.door.keeps_decisions {
        answer.extensions_mut().insert(Arc::new(asked.decision));
    }
    answer
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
            Stage::Answering { .. } => "answering",
            Stage::Refunding { .. } => "refunding",
            Stage::Answered { .. } => "answered",
        };
        f.debug_tuple("RateLimitFuture").field(&stage).finish()
    }
}
