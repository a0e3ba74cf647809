//! Refunds that return nothing, because the store's clock was set back or its buckets were cleared.
//!
//! ```text
//!   clock   ──────────► 100  set back to 50 ──────────► 100 ─────►
//!   charge          90                                       refund at 110: the clock shows 20 s, but 70 s have passed
//! ```
//!
//! A refund returns the units that have not returned since the charge. After the clock was set back, it shows less time
//! than has passed, so refunds of charges up to the latest time seen return nothing. Those units still return with
//! time.
//!
//! Replies may be read in another order than Redis gave them, and threads may be late with the time they read. So a time
//! up to 100 ms earlier than the latest does not count as a step back.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ratewright_core::Timestamp;

/// A time this much earlier than the latest does not count as a step back, in microseconds. `apply.lua` has the same number.
const TOLERANCE: u64 = 100_000;

/// The latest time is noted once in so many microseconds: threads that all write it would wait for each other.
const NOTED_EVERY: u64 = 1_000;

/// What a store's clock has shown.
#[derive(Debug, Default)]
pub(crate) struct TimeSeen {
    latest: AtomicU64,
    void_until: AtomicU64,
}

impl TimeSeen {
    /// Records the time.
    #[inline(always)]
    pub(crate) fn note(&self, now: Timestamp) {
        let latest = self.latest.load(Relaxed);
        if now.as_micros().wrapping_sub(latest) > NOTED_EVERY {
            self.note_other(now.as_micros(), latest);
        }
    }

    #[cold]
    fn note_other(&self, now: u64, latest: u64) {
        self.latest.fetch_max(now, Relaxed);
        if now.saturating_add(TOLERANCE) < latest {
            self.void_until.fetch_max(latest.saturating_add(NOTED_EVERY), Relaxed);
        }
    }

    /// The latest time that was noted.
    #[cfg(feature = "redis")]
    pub(crate) fn latest(&self) -> Timestamp {
        Timestamp::from_micros(self.latest.load(Relaxed))
    }

    /// From now on, refunds of charges before `now` return nothing: the store has forgotten them.
    pub(crate) fn void_before(&self, now: Timestamp) {
        self.void_until.fetch_max(now.as_micros().saturating_sub(1), Relaxed);
    }

    /// True if a refund of a charge at this time returns nothing: the charge is forgotten, or it is unknown how much of
    /// it has returned since.
    pub(crate) fn is_void(&self, paid_at: Timestamp) -> bool {
        paid_at.as_micros() <= self.void_until.load(Relaxed)
    }
}
