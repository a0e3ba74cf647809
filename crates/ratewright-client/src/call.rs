//! One call: its attempts, and the waits between them.
//!
//! ```text
//!   loop {
//!       call.turn().await?              wait in the gate; the deadline may come first
//!       result = send().await
//!       match call.next(result).await   decide; drain the response and wait, if it is sent again
//!           Return(result) => return result
//!           Again => {}
//!   }
//! ```
//!
//! Every adapter is this loop. Dropping the future at any `await` ends the call: its place in the gate and its timers go
//! with it.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, StatusCode};

pub use crate::body::{BodyFactory, ReplayBody};
use crate::budget::RetryBudget;
use crate::event::{Event, EventKind};
use crate::gate::{LaneKey, LanePermit, ThrottleTimes};
pub use crate::response::ResponseHead;
use crate::retry::RetryInner;
pub use crate::retry::{Partition, RequestInfo};
use crate::retry_decision::{CallState, Cause, Failure, NextStep, Now, Seen, Why, decide};
use crate::retry_summary::{DeadlineError, RetrySummary, WaitedFor};
pub use crate::timer::Timer;

/// The header that tells servers which attempt a request is, from the second on.
pub const ATTEMPT: HeaderName = HeaderName::from_static("ratewright-attempt");

/// A call in progress.
///
/// ```
/// use http::{HeaderMap, Method, Uri};
/// use ratewright_client::Retry;
/// use ratewright_client::call::RequestInfo;
/// use ratewright_client::retry_decision::BodyKind;
///
/// let uri = Uri::from_static("https://api.example.com/items");
/// let request = RequestInfo::new(&Method::GET, &uri, &HeaderMap::new(), BodyKind::None);
/// let call = Retry::new().call(request);
/// assert!(!call.is_last());
/// ```
#[derive(Debug)]
pub struct Call {
    shared: Arc<RetryInner>,
    request: RequestInfo,
    key: LaneKey,
    budget: Option<Arc<RetryBudget>>,
    began: Duration,
    /// The time when the call last went on after an `await`. Clocks are slow on some machines, so it is read once for each.
    now: Duration,
    attempts: u32,
    permit: Option<LanePermit>,
    is_redirected: bool,
}

/// What to do after an attempt.
#[derive(Debug)]
pub enum Next<T> {
    /// Give this to the caller.
    Return(T),
    /// Send again: the wait is over.
    Again,
}

/// Why a call has no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The last attempt failed.
    #[error(transparent)]
    Send(E),
    /// The request waited until its deadline.
    #[error(transparent)]
    Deadline(#[from] DeadlineError),
}

impl Call {
    pub(crate) fn new(shared: Arc<RetryInner>, request: RequestInfo) -> Self {
        let key = shared.gate.key(&request.kind.method, &request.uri, &request.partition);
        let budget = shared.budget.map(|size| shared.gate.budget(key, size));
        let began = shared.timer.now();
        Self {
            shared,
            request,
            key,
            budget,
            began,
            now: began,
            attempts: 0,
            permit: None,
            is_redirected: false,
        }
    }

    /// Waits for the request's turn, and counts an attempt: its number, from 1.
    pub async fn turn(&mut self) -> Result<u32, DeadlineError> {
        self.now = self.shared.timer.now();
        if !self.try_turn() {
            self.queue().await?;
        }
        self.start()
    }

    /// Waits for the request's turn in line.
    pub(crate) async fn queue(&mut self) -> Result<(), DeadlineError> {
        self.emit(EventKind::Queued);
        let permit = self.shared.gate.enter(self.key, &*self.shared.timer, self.deadline()).await;
        self.now = self.shared.timer.now();
        self.permit = Some(permit.map_err(|_| self.deadline_error(WaitedFor::Turn))?);
        Ok(())
    }

    /// Counts an attempt that is sent now.
    pub(crate) fn start(&mut self) -> Result<u32, DeadlineError> {
        if self.now > self.deadline() {
            self.permit = None;
            return Err(self.deadline_error(WaitedFor::Turn)); // a timer was late
        }
        self.attempts += 1;
        self.is_redirected = false;
        self.emit(EventKind::Sending);
        Ok(self.attempts)
    }

    /// Takes the request's turn if it can be sent without waiting. A turn that it has is lost if the lane was closed since.
    pub(crate) fn try_turn(&mut self) -> bool {
        self.permit.take_if(|permit| permit.is_revoked(self.now));
        if self.shared.has_gate && self.permit.is_none() {
            self.permit = self.shared.gate.try_enter(self.key, self.now, self.deadline());
        }
        !self.shared.has_gate || self.permit.is_some()
    }

    /// Waits until the inner service is ready, at most until the deadline. Its error ends the call.
    #[cfg(feature = "tower")]
    pub(crate) async fn ready<E: From<DeadlineError>>(
        &mut self,
        ready: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let ready = tokio::select! {
            biased;
            ready = ready => ready,
            () = self.shared.timer.sleep_until(self.deadline()) => {
                return Err(self.deadline_error(WaitedFor::Service).into());
            }
        };
        self.now = self.shared.timer.now();
        if ready.is_err() {
            self.emit(EventKind::Failed { why: Why::Done });
        }
        ready
    }

    /// The header that says which attempt this is; nothing for the first.
    pub fn attempt_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let sends_header = self.shared.has_attempt_header && self.attempts > 1;
        sends_header.then(|| (ATTEMPT, HeaderValue::from(self.attempts)))
    }

    /// True if the request will not be sent again, so that nobody has to keep a copy of it.
    pub fn is_last(&self) -> bool {
        self.attempts >= self.shared.policy.attempts
    }

    /// Says that the HTTP client has followed a redirect in this attempt. Then nothing proves any more that the request was
    /// not processed: its first hop may have been.
    pub fn redirected(&mut self) {
        self.is_redirected = true;
    }

    /// Decides what to do after an attempt, and waits if it is to be repeated.
    pub async fn next<R: ResponseHead, E: Error + 'static>(
        &mut self,
        result: Result<R, E>,
    ) -> Next<Result<R, E>> {
        let seen = match &result {
            Ok(response) => Seen::Response(response.status(), response.headers()),
            Err(_) if self.is_redirected => Seen::Failure(Failure::Unknown),
            Err(error) => Seen::Failure(Failure::of(error)),
        };
        match self.decide(seen) {
            NextStep::Return { why, retry_at } => Next::Return(self.finish(result, why, retry_at)),
            NextStep::Retry { at, .. } => {
                let at = self.began.saturating_add(at);
                let sleep = self.shared.timer.sleep_until(at);
                let gate = self.shared.has_gate.then_some(&self.shared.gate);
                let _asleep = gate.map(|gate| gate.sleeper(self.key, self.now));
                if let Ok(response) = result {
                    drain_until(response, sleep).await;
                } else {
                    sleep.await;
                }
                self.now = self.shared.timer.now();
                Next::Again
            }
        }
    }

    /// Everything between a response and the wait: the decision, the budget, the gate.
    fn decide(&mut self, seen: Seen<'_>) -> NextStep {
        self.now = self.shared.timer.now();
        let now = self.now;
        if let Some(headers) = seen.success() {
            // Most calls: neither chance nor the time of day has to be asked.
            if let Some(permit) = self.permit.take() {
                self.shared.gate.accepted(permit, headers, now);
            }
            if let Some(budget) = &self.budget {
                budget.succeeded();
            }
            return NextStep::Return { why: Why::Done, retry_at: None };
        }
        let shared = self.shared.clone();
        let at = Now { elapsed: now.saturating_sub(self.began), wall: shared.timer.wall() };
        let budget = self.budget.as_ref().map_or(u64::MAX, |budget| budget.left());
        let state = CallState { request: &self.request.kind, attempts: self.attempts, budget };
        let policy = if self.is_redirected { &shared.policy.distrusting_429() } else { &shared.policy };
        let step = decide(policy, state, seen, at, shared.random.next());
        self.leave_gate(seen, step, at, now);
        let step = match step {
            NextStep::Retry { cost, cause, .. } => match self.late_refusal(cost, cause, now) {
                None => step,
                Some(why) => {
                    let wait = seen.server_wait(at.wall).map(|(_, wait)| wait);
                    let wait = wait.or_else(|| (why == Why::Deadline).then(|| self.opens_after(now)));
                    NextStep::Return { why, retry_at: wait.and_then(|wait| at.wall.checked_add(wait)) }
                }
            },
            NextStep::Return { .. } => step,
        };
        if let NextStep::Retry { at: due, cause, .. } = step {
            let wait = due.saturating_sub(at.elapsed);
            self.emit(EventKind::Waiting { wait, cause, status: seen.status() });
        }
        step
    }

    /// Why a retry that was decided on is not made: other calls have used the lane or the budget meanwhile.
    fn late_refusal(&self, cost: u64, cause: Cause, now: Duration) -> Option<Why> {
        if cause.is_throttle()
            && self.shared.has_gate
            && self.shared.gate.would_miss_deadline(self.key, now, self.deadline())
        {
            return Some(Why::Deadline);
        }
        let is_paid = self.budget.as_ref().is_none_or(|budget| budget.take(cost));
        if is_paid { None } else { Some(Why::Budget) }
    }

    /// Tells the gate what came of the request.
    fn leave_gate(&mut self, seen: Seen<'_>, step: NextStep, at: Now, now: Duration) {
        let (Some(permit), Seen::Response(status, headers)) = (self.permit.take(), seen) else { return };
        let throttling = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            .then(|| seen.server_wait(at.wall));
        let hint = match throttling {
            Some(Some((_, wait))) => wait,
            Some(None) if status == StatusCode::TOO_MANY_REQUESTS => Duration::ZERO,
            Some(None) | None => return self.shared.gate.accepted(permit, headers, now),
        };
        let retry_at = match step {
            NextStep::Retry { at, .. } => self.began.saturating_add(at),
            NextStep::Return { .. } => now.saturating_add(hint),
        };
        self.shared.gate.throttled(permit, headers, now, ThrottleTimes { hint, retry_at });
    }

    fn finish<R: ResponseHead, E>(
        &mut self,
        mut result: Result<R, E>,
        why: Why,
        retry_at: Option<SystemTime>,
    ) -> Result<R, E> {
        let event = match &mut result {
            Ok(response) => {
                let summary = RetrySummary { attempts: self.attempts, why, retry_at };
                response.extensions_mut().insert(summary);
                EventKind::Returned { why, status: response.status() }
            }
            Err(_) => EventKind::Failed { why },
        };
        self.emit(event);
        result
    }

    fn deadline(&self) -> Duration {
        self.began.saturating_add(self.shared.policy.deadline)
    }

    fn deadline_error(&self, waited_for: WaitedFor) -> DeadlineError {
        self.emit(EventKind::Failed { why: Why::Deadline });
        let RetryInner { policy, timer, .. } = &*self.shared;
        let retry_at = timer.wall().checked_add(self.opens_after(timer.now()));
        DeadlineError { attempts: self.attempts, deadline: policy.deadline, retry_at, waited_for }
    }

    /// How long the request's lane stays closed. Without a gate, every wait of the call is over when it gets here.
    fn opens_after(&self, now: Duration) -> Duration {
        if self.shared.has_gate { self.shared.gate.opens_after(self.key, now) } else { Duration::ZERO }
    }

    fn emit(&self, kind: EventKind) {
        let (method, uri) = (&self.request.kind.method, &self.request.uri);
        self.shared.on_event.emit(&Event { method, uri, attempts: self.attempts, kind });
    }
}

/// Waits, and reads the rest of a response meanwhile. A body that is slow or large is given up at the end of the wait.
async fn drain_until<R: ResponseHead>(response: R, sleep: impl Future<Output = ()> + Unpin) {
    let mut sleep = sleep;
    let is_awake = tokio::select! {
        biased;
        () = &mut sleep => true,
        () = response.drain() => false,
    };
    if !is_awake {
        sleep.await;
    }
}

impl Cause {
    /// True if a limiter asked for the wait, and not a failure.
    pub fn is_throttle(self) -> bool {
        matches!(self, Self::Server(_) | Self::Throttled)
    }
}
