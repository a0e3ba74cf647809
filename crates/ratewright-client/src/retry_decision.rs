//! The decision after each attempt: give the result back, or send again, and when.
//!
//! ```text
//!   sent ──► response or failure ──► decide ──► Return  to the caller, with the reason
//!     ▲                                 │
//!     └──── at that time, through ──────┴─────► Retry   never before the time that the server named
//!           the gate
//! ```
//!
//! Pure: time and chance are arguments. `clients/vectors` defines it, and holds the TypeScript client to the same cases.
//!
//! # Laws
//! - A retry is never due before the server's wait is over, and never after the deadline.
//! - A wait that does not fit is not shortened: the response goes back at once.
//! - A request is sent twice only if that is safe.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, StatusCode, header};

use crate::budget::RETRY_COST;
use crate::policy::{RetryPolicy, millis};
pub use crate::server_wait::WaitSource;
use crate::server_wait::server_wait;

/// A request, as far as sending it twice is concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestKind {
    /// Its method.
    pub method: Method,
    /// True if it has an `Idempotency-Key`, by which the server recognises a repetition.
    pub has_idempotency_key: bool,
    /// Whether its body can be sent again.
    pub body: BodyKind,
    /// What the caller says about repetitions.
    pub repeat: Repeat,
}

/// Whether a body can be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyKind {
    /// The request has no body.
    None,
    /// In memory, with this many bytes.
    Bytes(usize),
    /// A function makes it, for each attempt anew.
    Factory,
    /// It can be read once.
    Stream,
}

/// What the caller says about repetitions. Put it into a request's extensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Repeat {
    /// The method decides, or an `Idempotency-Key`.
    #[default]
    Auto,
    /// It may be processed twice, whatever its method is.
    Safe,
    /// Repeat it only if it was certainly not processed, whatever its method is.
    OnlyIfUnprocessed,
    /// Send it once.
    Never,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug)]
pub struct CallState<'a> {
    /// What is being sent.
    pub request: &'a RequestKind,
    /// Sends so far, at least 1.
    pub attempts: u32,
    /// What the origin's budget holds, in thousandths of a retry.
    pub budget: u64,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// A response's head.
    Response(StatusCode, &'a HeaderMap),
    /// No response.
    Failure(Failure),
}

/// Whether the server may have processed a request that got no response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The server has certainly not processed the request.
    NotSent,
    /// The server may have processed it.
    Unknown,
}

/// Monotonic and wall-clock time.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since the call began, on a clock that nobody sets.
    pub elapsed: Duration,
    /// The time of day, for dates that servers send.
    pub wall: SystemTime,
}

/// What to do after an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextStep {
    /// Give the result back.
    Return {
        /// The reason.
        why: Why,
        /// When the server said that a repetition is welcome.
        retry_at: Option<SystemTime>,
    },
    /// Send again.
    Retry {
        /// At this time, since the call began.
        at: Duration,
        /// The reason.
        cause: Cause,
        /// What to take from the origin's budget, in thousandths of a retry.
        cost: u64,
    },
}

/// Why a result goes back to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Why {
    /// Nothing to retry. In [`EventKind::Failed`](crate::EventKind::Failed): the service inside the tower layer broke.
    Done,
    /// The caller wants one send.
    Never,
    /// All attempts are used.
    Attempts,
    /// It might be processed twice, and must not be.
    Unsafe,
    /// The body cannot be sent again.
    Body,
    /// The server asks for a longer wait than the policy accepts.
    ServerWait,
    /// The next attempt would start after the deadline.
    Deadline,
    /// The origin's retry budget is used up: most requests fail, and retries would make it worse.
    Budget,
}

/// Why a request is sent again, and where the wait comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The server said how long to wait.
    Server(WaitSource),
    /// 429 or 503, without a wait.
    Throttled,
    /// 408 or another 5xx.
    ServerError,
    /// There was no response.
    Connection,
}

/// Decides what to do after an attempt. `random` is in [0, 1).
pub fn decide(policy: &RetryPolicy, state: CallState<'_>, seen: Seen<'_>, now: Now, random: f64) -> NextStep {
    if seen.success().is_some() {
        return NextStep::Return { why: Why::Done, retry_at: None };
    }
    let server = seen.server_wait(now.wall);
    let give_up =
        |why| NextStep::Return { why, retry_at: server.and_then(|(_, wait)| now.wall.checked_add(wait)) };
    if let Some(why) = permanent_refusal(policy, state, seen) {
        return give_up(why);
    }
    if server.is_some_and(|(_, wait)| wait > policy.server_wait_max) {
        return give_up(Why::ServerWait);
    }
    let (cause, wait) = wait(policy, state.attempts, seen, server, random);
    let at = Duration::from_millis(millis(now.elapsed).saturating_add(wait));
    if at > policy.deadline {
        return give_up(Why::Deadline);
    }
    // Retries after a 429 are free: the gate paces them.
    let cost = if seen.status() == Some(StatusCode::TOO_MANY_REQUESTS) { 0 } else { RETRY_COST };
    if state.budget < cost {
        return give_up(Why::Budget);
    }
    NextStep::Retry { at, cause, cost }
}

/// Why this request cannot be sent again, at any time.
fn permanent_refusal(policy: &RetryPolicy, state: CallState<'_>, seen: Seen<'_>) -> Option<Why> {
    if state.request.repeat == Repeat::Never {
        Some(Why::Never)
    } else if state.attempts >= policy.attempts {
        Some(Why::Attempts)
    } else if !is_safe(policy, state.request, seen) {
        Some(Why::Unsafe)
    } else if !can_replay(policy, state.request.body) {
        Some(Why::Body)
    } else {
        None
    }
}

fn is_safe(policy: &RetryPolicy, request: &RequestKind, seen: Seen<'_>) -> bool {
    let was_processed = match seen {
        Seen::Failure(failure) => failure != Failure::NotSent,
        Seen::Response(status, headers) => {
            !(policy.trust_429 && status == StatusCode::TOO_MANY_REQUESTS && is_from_limiter(headers))
        }
    };
    !was_processed
        || match request.repeat {
            Repeat::Safe => true,
            Repeat::Auto => request.has_idempotency_key || is_idempotent(&request.method),
            Repeat::OnlyIfUnprocessed | Repeat::Never => false,
        }
}

fn is_from_limiter(headers: &HeaderMap) -> bool {
    const NAMES: [&str; 6] = [
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-remaining",
        "ratelimit-reset",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    headers.contains_key(header::RETRY_AFTER) || NAMES.iter().any(|name| headers.contains_key(*name))
}

/// RFC 9110 §9.2.2, and QUERY. Compared in upper case, as browsers send them.
fn is_idempotent(method: &Method) -> bool {
    const NAMES: [&str; 7] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"];
    NAMES.iter().any(|name| method.as_str().eq_ignore_ascii_case(name))
}

fn can_replay(policy: &RetryPolicy, body: BodyKind) -> bool {
    match body {
        BodyKind::None | BodyKind::Factory => true,
        BodyKind::Bytes(length) => length <= policy.replay_max,
        BodyKind::Stream => false,
    }
}

/// The wait before the next attempt in milliseconds, and where it comes from.
fn wait(
    policy: &RetryPolicy,
    attempts: u32,
    seen: Seen<'_>,
    server: Option<(WaitSource, Duration)>,
    random: f64,
) -> (Cause, u64) {
    if let Some((source, wait)) = server {
        return (
            Cause::Server(source),
            millis(wait).saturating_add(share(policy.spread.ceiling(attempts), random)),
        );
    }
    let failure = || share(policy.failure_backoff.ceiling(attempts), random);
    match seen.status() {
        None => (Cause::Connection, failure()),
        Some(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
            let ceiling = policy.throttle_backoff.ceiling(attempts);
            let low = ceiling.div_ceil(10); // full jitter would send some at once, into the same denial
            (Cause::Throttled, low + share(ceiling - low, random))
        }
        Some(_) => (Cause::ServerError, failure()),
    }
}

/// A random part of a range of milliseconds, rounded down.
#[expect(clippy::cast_possible_truncation, reason = "a part of a u64 fits; the cast saturates")]
#[expect(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "jitter need not be exact")]
fn share(range: u64, random: f64) -> u64 {
    (random * range as f64) as u64
}

impl<'a> Seen<'a> {
    /// The headers of a response that does not call for a retry.
    pub(crate) fn success(self) -> Option<&'a HeaderMap> {
        match self {
            Self::Response(status, headers) => (!is_retryable(status)).then_some(headers),
            Self::Failure(_) => None,
        }
    }

    pub(crate) fn status(self) -> Option<StatusCode> {
        match self {
            Self::Response(status, _) => Some(status),
            Self::Failure(_) => None,
        }
    }

    /// The wait that the server asks for, if it is one.
    pub(crate) fn server_wait(self, wall: SystemTime) -> Option<(WaitSource, Duration)> {
        match self {
            Self::Response(_, headers) => server_wait(headers, wall).filter(|(_, wait)| !wait.is_zero()),
            Self::Failure(_) => None,
        }
    }
}

fn is_retryable(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}
