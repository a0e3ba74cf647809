//! Limits how often one message is logged. The next line says how many were suppressed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When a message was last logged, and how many were suppressed since.
#[derive(Debug)]
pub struct LogThrottle {
    /// In microseconds.
    every: u64,
    logged_at: AtomicU64,
    n_suppressed: AtomicU64,
}

impl LogThrottle {
    /// Logs at most once in `every`.
    pub const fn new(every: Duration) -> Self {
        let every = every.as_secs() * 1_000_000 + every.subsec_micros() as u64;
        Self { every, logged_at: AtomicU64::new(0), n_suppressed: AtomicU64::new(0) }
    }

    /// If the message is to be logged now: how many were suppressed since the last one. `now` is in microseconds.
    pub fn admit(&self, now: u64) -> Option<u64> {
        let logged_at = self.logged_at.load(Ordering::Relaxed);
        let is_due = logged_at == 0 || now.saturating_sub(logged_at) >= self.every;
        let is_ours = is_due
            && self
                .logged_at
                .compare_exchange(logged_at, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_ours {
            self.n_suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.n_suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_once_per_interval_with_the_number_suppressed() {
        let (throttle, second) = (LogThrottle::new(Duration::from_secs(1)), 1_000_000);
        assert_eq!(throttle.admit(second), Some(0));
        assert_eq!([throttle.admit(second), throttle.admit(2 * second - 1)], [None, None]);
        assert_eq!(throttle.admit(2 * second), Some(2));
    }
}
