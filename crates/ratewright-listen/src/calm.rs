//! Tells of what may come in floods once in a while, and how much was not told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When something was told last, and what was not told since.
#[derive(Debug)]
pub struct Calm {
    /// In microseconds.
    every: u64,
    told_at: AtomicU64,
    n_untold: AtomicU64,
}

impl Calm {
    /// Once in this time.
    pub const fn new(every: Duration) -> Self {
        let every = every.as_secs() * 1_000_000 + every.subsec_micros() as u64;
        Self { every, told_at: AtomicU64::new(0), n_untold: AtomicU64::new(0) }
    }

    /// How many were not told since the last one that was, if it is time for another. `now` is in microseconds.
    pub fn admit(&self, now: u64) -> Option<u64> {
        let told_at = self.told_at.load(Ordering::Relaxed);
        let is_due = told_at == 0 || now.saturating_sub(told_at) >= self.every;
        let is_ours = is_due
            && self
                .told_at
                .compare_exchange(told_at, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_ours {
            self.n_untold.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.n_untold.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_once_in_a_while_with_how_many_there_were() {
        let (calm, second) = (Calm::new(Duration::from_secs(1)), 1_000_000);
        assert_eq!(calm.admit(second), Some(0));
        assert_eq!([calm.admit(second), calm.admit(2 * second - 1)], [None, None]);
        assert_eq!(calm.admit(2 * second), Some(2));
    }
}
