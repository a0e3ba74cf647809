//! How patient a caller is.

use std::time::Duration;

/// The rules of a call: how often, how long and what is sent again.
///
/// ```
/// use ratewright_client::RetryPolicy;
/// use std::time::Duration;
///
/// let patient = RetryPolicy::default().deadline(Duration::from_secs(120));
/// assert_eq!(patient.attempts, 4);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The most sends for a call, the first included.
    pub attempts: u32,
    /// No send starts later than this after the call began. The deadline does not end a send that has started: give your
    /// HTTP client a timeout of its own. Without one, ten sends that hang after a throttle fill their lane, and other calls
    /// to the same limit wait until their deadline and fail.
    pub deadline: Duration,
    /// The longest wait that is accepted from a server. A longer one gives the response back at once; it is never
    /// shortened.
    pub server_wait_max: Duration,
    /// After 408, 5xx and connection failures.
    pub failure_backoff: Backoff,
    /// After 429 and 503 that do not say how long to wait.
    pub throttle_backoff: Backoff,
    /// What is added to a server's wait, so that clients that were denied together do not return together.
    pub spread: Backoff,
    /// The longest body, in bytes, that is kept to be sent again.
    pub replay_max: usize,
    /// True if a 429 with a limiter's own headers means that the request was not processed, so that any method may be sent
    /// again. Switch it off for servers that answer 429 after they did some of the work.
    pub trust_429: bool,
}

/// A range that doubles with each attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// After the first attempt.
    pub first: Duration,
    /// It grows no larger than this.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            deadline: Duration::from_secs(30),
            server_wait_max: Duration::from_secs(60),
            failure_backoff: Backoff { first: Duration::from_millis(100), max: Duration::from_secs(5) },
            throttle_backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_secs(10) },
            spread: Backoff { first: Duration::from_secs(1), max: Duration::from_secs(5) },
            replay_max: 64 * 1024,
            trust_429: true,
        }
    }
}

/// Setters, to be chained after `RetryPolicy::default()`.
impl RetryPolicy {
    /// Sets `attempts`: the most sends for a call, the first included.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets `deadline`: no send starts later than this after the call began. The deadline does not end a send that has started: give your …
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets `server_wait_max`: the longest wait that is accepted from a server. A longer one gives the response back at once; it is never …
    #[must_use]
    pub fn server_wait_max(mut self, server_wait_max: Duration) -> Self {
        self.server_wait_max = server_wait_max;
        self
    }

    /// Sets `failure_backoff`: after 408, 5xx and connection failures.
    #[must_use]
    pub fn failure_backoff(mut self, failure_backoff: Backoff) -> Self {
        self.failure_backoff = failure_backoff;
        self
    }

    /// Sets `throttle_backoff`: after 429 and 503 that do not say how long to wait.
    #[must_use]
    pub fn throttle_backoff(mut self, throttle_backoff: Backoff) -> Self {
        self.throttle_backoff = throttle_backoff;
        self
    }

    /// Sets `spread`: what is added to a server's wait, so that clients that were denied together do not return together.
    #[must_use]
    pub fn spread(mut self, spread: Backoff) -> Self {
        self.spread = spread;
        self
    }

    /// Sets `replay_max`: the longest body, in bytes, that is kept to be sent again.
    #[must_use]
    pub fn replay_max(mut self, replay_max: usize) -> Self {
        self.replay_max = replay_max;
        self
    }

    /// Sets `trust_429`: true if a 429 with a limiter's own headers means that the request was not processed, so that any method may be sent …
    #[must_use]
    pub fn trust_429(mut self, trust_429: bool) -> Self {
        self.trust_429 = trust_429;
        self
    }
}

impl RetryPolicy {
    pub(crate) fn distrusting_429(&self) -> Self {
        Self { trust_429: false, ..self.clone() }
    }
}

impl Backoff {
    /// The range after so many attempts, in whole milliseconds.
    pub(crate) fn ceiling(self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(63);
        millis(self.first).saturating_mul(1 << doublings).min(millis(self.max))
    }
}

/// Whole milliseconds, rounded up, at most what fits.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
