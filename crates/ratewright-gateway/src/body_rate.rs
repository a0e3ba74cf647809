//! The minimum rate of a request body (`body_rate_min`).
//!
//! A client that sends a byte now and then never exceeds the idle timeout, so it could hold an upstream connection and
//! a permit for ever. So bytes are counted in windows, and a window contains only time spent waiting for the client:
//!
//! ```text
//!   waiting for the client   ████████       ████      ██████     the client's time
//!   forwarding                       ░░░░░░░    ░░░░░░           the upstream's time
//!   windows                  ├─── enough ──────┤├── too little: cut off
//! ```
//!
//! # Law
//! - A window restarts after `n_bytes`. A client is cut off exactly when a window of waiting ends before that.

use std::task::{Context, Poll};
use std::time::Duration;

use ratewright_listen::LazyTimer;
use tokio::time::Instant;

/// The minimum rate of a request body: `n_bytes` in each window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyRate {
    /// Bytes per window.
    pub n_bytes: u64,
    /// The length of a window.
    pub window: Duration,
}

/// The shortest interval between two timer checks.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Checks the rate of one body.
#[derive(Debug)]
pub(crate) struct BodyRateMonitor {
    rate: BodyRate,
    /// Bytes in the current window.
    n_bytes: u64,
    /// Time spent waiting in this window, without the current wait.
    waited: Duration,
    /// When the current wait began, and how long the connection had been held back by then.
    since: Option<(Instant, Duration)>,
    timer: LazyTimer,
}

impl std::fmt::Display for BodyRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes in {:?}", self.n_bytes, self.window)
    }
}

impl BodyRateMonitor {
    pub(crate) fn new(rate: BodyRate) -> Self {
        Self { rate, n_bytes: 0, waited: Duration::ZERO, since: None, timer: LazyTimer::default() }
    }

    pub(crate) fn rate(&self) -> BodyRate {
        self.rate
    }

    /// Counts received bytes. `held_back` is how long the client's connection has been held back in total.
    pub(crate) fn received(&mut self, n_bytes: u64, held_back: Duration) {
        self.waited = self.waited(held_back);
        self.since = None;
        self.n_bytes = self.n_bytes.saturating_add(n_bytes);
        if self.n_bytes >= self.rate.n_bytes {
            (self.n_bytes, self.waited) = (0, Duration::ZERO);
        }
    }

    /// Waits for the client. Ready when a window ends with too few bytes.
    pub(crate) fn poll_too_slow(&mut self, context: &mut Context<'_>, held_back: Duration) -> Poll<()> {
        let now = Instant::now();
        self.since.get_or_insert((now, held_back));
        let left = self.rate.window.saturating_sub(self.waited(held_back));
        if left.is_zero() {
            return Poll::Ready(());
        }
        if let Some(until) = now.checked_add(left.max(CHECK_INTERVAL_MIN)) {
            let _ = self.timer.poll_at(context, until);
        }
        Poll::Pending
    }

    /// Time spent waiting for the client in this window, without time in which we held it back.
    fn waited(&self, held_back: Duration) -> Duration {
        let Some((since, held_before)) = self.since else { return self.waited };
        self.waited + since.elapsed().saturating_sub(held_back.saturating_sub(held_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::{advance, timeout};

    const RATE: BodyRate = BodyRate { n_bytes: 100, window: Duration::from_secs(10) };

    /// Waits for the client for some seconds. True if it was too slow.
    async fn wait(monitor: &mut BodyRateMonitor, seconds: u64) -> bool {
        let slow = poll_fn(|context| monitor.poll_too_slow(context, Duration::ZERO));
        timeout(Duration::from_secs(seconds), slow).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_trickles_is_too_slow_and_one_that_sends_enough_is_not() {
        let (mut monitor, begin) = (BodyRateMonitor::new(RATE), Instant::now());
        for _ in 0..50 {
            assert!(!wait(&mut monitor, 9).await);
            monitor.received(100, Duration::ZERO);
        }
        assert_eq!(begin.elapsed().as_secs(), 450);
        for _ in 0..9 {
            assert!(!wait(&mut monitor, 1).await);
            monitor.received(11, Duration::ZERO);
        }
        assert!(wait(&mut monitor, 2).await, "99 bytes in ten seconds");
        assert_eq!(begin.elapsed().as_secs(), 460);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_not_saved_up() {
        let mut monitor = BodyRateMonitor::new(RATE);
        assert!(!wait(&mut monitor, 1).await);
        monitor.received(1_000_000, Duration::ZERO);
        assert!(!wait(&mut monitor, 9).await);
        assert!(wait(&mut monitor, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn only_time_waiting_for_the_client_counts() {
        let mut monitor = BodyRateMonitor::new(RATE);
        for _ in 0..4 {
            assert!(!wait(&mut monitor, 2).await);
            monitor.received(1, Duration::ZERO);
            advance(Duration::from_secs(1_000)).await; // the upstream is slow
        }
        assert!(wait(&mut monitor, 3).await, "it was waited for ten seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn time_held_back_is_not_the_clients() {
        let (mut monitor, begin) = (BodyRateMonitor::new(RATE), Instant::now());
        // PermitBody back from second 1 to second 91.
        let held_back =
            || begin.elapsed().saturating_sub(Duration::from_secs(1)).min(Duration::from_secs(90));
        poll_fn(|context| monitor.poll_too_slow(context, held_back())).await;
        assert_eq!(begin.elapsed().as_secs(), 100);
    }
}
