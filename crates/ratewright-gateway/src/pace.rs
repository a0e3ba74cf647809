//! The minimum rate of a request body (`body_rate_min`).
//!
//! A client that sends a byte now and then never exceeds the idle timeout, so it could hold an upstream connection and a permit for
//! ever. So bytes are counted in windows, and a window contains only time spent waiting for the client:
//!
//! ```text
//!   waiting for the client   ████████       ████      ██████     its time runs
//!   passing bytes on                 ░░░░░░░    ░░░░░░           the upstream's does
//!   windows                  ├── enough came ──┤├── too little: cut off
//! ```
//!
//! # Law
//! - A window restarts once `n_bytes` have come. A client is cut off exactly when a window of waiting ends before that.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::quiet::Ring;

/// The minimum rate of a request body: `n_bytes` in each window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyRate {
    /// Bytes in a window.
    pub n_bytes: u64,
    /// How long a window is.
    pub window: Duration,
}

/// Time is not looked at more often than this.
const LOOKED_AT_AFTER: Duration = Duration::from_millis(20);

/// How fast a body comes.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: BodyRate,
    /// Bytes of the present window.
    n_bytes: u64,
    /// How long the client was waited for in this window, before the present wait.
    waited: Duration,
    /// Since when it is waited for, and how long its connection had been held back until then.
    since: Option<(Instant, Duration)>,
    ring: Ring,
}

impl std::fmt::Display for BodyRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes in {:?}", self.n_bytes, self.window)
    }
}

impl Pace {
    pub(crate) fn new(rate: BodyRate) -> Self {
        Self { rate, n_bytes: 0, waited: Duration::ZERO, since: None, ring: Ring::default() }
    }

    pub(crate) fn rate(&self) -> BodyRate {
        self.rate
    }

    /// Bytes came, and are passed on. `held` is how long the client's connection has been held back, in all.
    pub(crate) fn came(&mut self, n_bytes: u64, held: Duration) {
        self.waited = self.waited(held);
        self.since = None;
        self.n_bytes = self.n_bytes.saturating_add(n_bytes);
        if self.n_bytes >= self.rate.n_bytes {
            (self.n_bytes, self.waited) = (0, Duration::ZERO);
        }
    }

    /// Waits for the client. Ready when a window is over in which it has not sent enough.
    pub(crate) fn poll_too_slow(&mut self, context: &mut Context<'_>, held: Duration) -> Poll<()> {
        let now = Instant::now();
        self.since.get_or_insert((now, held));
        let left = self.rate.window.saturating_sub(self.waited(held));
        if left.is_zero() {
            return Poll::Ready(());
        }
        if let Some(until) = now.checked_add(left.max(LOOKED_AT_AFTER)) {
            let _ = self.ring.poll_at(context, until);
        }
        Poll::Pending
    }

    /// How long the client was waited for in this window. Time in which we held it back is not its own.
    fn waited(&self, held: Duration) -> Duration {
        let Some((since, held_before)) = self.since else { return self.waited };
        self.waited + since.elapsed().saturating_sub(held.saturating_sub(held_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::{advance, timeout};

    const RATE: BodyRate = BodyRate { n_bytes: 100, window: Duration::from_secs(10) };

    /// Waits so many seconds for the client. True if it has been too slow by then.
    async fn wait(pace: &mut Pace, seconds: u64) -> bool {
        let slow = poll_fn(|context| pace.poll_too_slow(context, Duration::ZERO));
        timeout(Duration::from_secs(seconds), slow).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_trickles_is_too_slow_and_one_that_sends_enough_is_not() {
        let (mut pace, begin) = (Pace::new(RATE), Instant::now());
        for _ in 0..50 {
            assert!(!wait(&mut pace, 9).await);
            pace.came(100, Duration::ZERO);
        }
        assert_eq!(begin.elapsed().as_secs(), 450);
        for _ in 0..9 {
            assert!(!wait(&mut pace, 1).await);
            pace.came(11, Duration::ZERO);
        }
        assert!(wait(&mut pace, 2).await, "99 bytes in ten seconds");
        assert_eq!(begin.elapsed().as_secs(), 460);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_not_saved_up() {
        let mut pace = Pace::new(RATE);
        assert!(!wait(&mut pace, 1).await);
        pace.came(1_000_000, Duration::ZERO);
        assert!(!wait(&mut pace, 9).await);
        assert!(wait(&mut pace, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_time_of_waiting_counts() {
        let mut pace = Pace::new(RATE);
        for _ in 0..4 {
            assert!(!wait(&mut pace, 2).await);
            pace.came(1, Duration::ZERO);
            advance(Duration::from_secs(1_000)).await; // the upstream takes its time
        }
        assert!(wait(&mut pace, 3).await, "it was waited for ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_connection_is_held_back_is_not_the_clients() {
        let (mut pace, begin) = (Pace::new(RATE), Instant::now());
        // Held back from the first second to the ninety-first.
        let held = || begin.elapsed().saturating_sub(Duration::from_secs(1)).min(Duration::from_secs(90));
        poll_fn(|context| pace.poll_too_slow(context, held())).await;
        assert_eq!(begin.elapsed().as_secs(), 100);
    }
}
