//! Sliding window counter: the count of this window, plus the overlapping part of the previous window's count.
//!
//! ```text
//!        previous = 8           current = 3
//!   │ · · · · · · · · │ · · ·    ▲          │
//!                     │◄──────►  now        one window back from now covers
//!              ├─────────────────┤          60 % of the previous window:  8 × 0.6 + 3 = 7.8
//! ```
//!
//! It keeps two counts instead of a log, and assumes that the previous window's units were spent evenly. The weight is
//! a ratio of ticks, in integers. A tick is a microsecond, or longer if units × window would exceed 2^52, where a
//! double stops being exact. Elapsed time is rounded down to whole ticks, so the previous window may count for too
//! much, never for too little.
//!
//! # Laws
//! - Any period shorter than a window spends less than twice `units` (all at the end of one window, then as fast as the
//!   previous count loses weight). A steady stream is limited to `units`.
//! - `retry_after` is exact.
//! - A refund counts only within the window of its charge.

use super::fixed_window::aligned;
use super::{Bucket, Demand, Fit, Level, deepen, forfeits, pull_back};
use crate::quantity::{Micros, Timestamp};
use crate::quota::Quota;

/// The counts of two neighbouring windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlidingCounter {
    /// When the current window began.
    pub opened_at: Timestamp,
    /// Units spent in the window before it.
    pub previous: u32,
    /// Units spent in it.
    pub current: u32,
}

impl SlidingCounter {
    /// The counts as they stand in the window that `now` lies in.
    fn settled(self, quota: &Quota, now: Timestamp) -> Self {
        let next_at = self.opened_at + quota.window();
        if now < next_at {
            return self;
        }
        // A window begins where the one before it ended, also after one that was pulled back to an odd time.
        if now < next_at + quota.window() {
            return Self { opened_at: next_at, previous: self.current, current: 0 };
        }
        Self { opened_at: aligned(quota, now), previous: 0, current: 0 }
    }

    /// Spent units, in ticks: a current unit counts for a whole window, a previous one for the rest of the window.
    fn weight(self, quota: &Quota, now: Timestamp) -> u128 {
        let elapsed = now.since(self.opened_at).as_micros() / quota.tick();
        let left = ticks(quota).saturating_sub(elapsed);
        u128::from(self.previous) * u128::from(left) + u128::from(self.current) * u128::from(ticks(quota))
    }

    /// The first time from the start of this window at which the units of the previous one take at most `room` ticks.
    /// After the end of this window they count for nothing.
    fn faded_at(self, quota: &Quota, room: u128) -> Timestamp {
        let next = self.opened_at + quota.window();
        let Some(weight_max) = room.checked_div(u128::from(self.previous)) else { return self.opened_at };
        let weight_max = u64::try_from(weight_max).unwrap_or(u64::MAX);
        let elapsed = ticks(quota).saturating_sub(weight_max).saturating_mul(quota.tick());
        (self.opened_at + Micros::new(elapsed)).min(next)
    }
}

/// The window in ticks, rounded up.
pub fn ticks(quota: &Quota) -> u64 {
    quota.window().as_micros().div_ceil(quota.tick())
}

impl Bucket for SlidingCounter {
    fn mend(&mut self, quota: &Quota, now: Timestamp) -> bool {
        pull_back(&mut self.opened_at, quota, now)
    }

    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit {
        if let Some(fit) = demand.plain(quota) {
            return fit;
        }
        let window = self.settled(quota, now);
        let worth = |units: u64| u128::from(units) * u128::from(ticks(quota));
        let room = worth(u64::from(quota.units()) - demand.total());
        if window.weight(quota, now) <= room {
            return Fit::NOW;
        }
        let current = worth(u64::from(window.current));
        let when = match room.checked_sub(current) {
            Some(room) => window.faded_at(quota, room),
            // This window is too full by itself: it must become the previous one, and fade.
            None => {
                let opened_at = window.opened_at + quota.window();
                Self { opened_at, previous: window.current, current: 0 }.faded_at(quota, room)
            }
        };
        Fit::Short { retry_after: when.since(now) }
    }

    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32 {
        *self = self.settled(quota, now);
        deepen(&mut self.current, cost, quota)
    }

    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp) {
        *self = self.settled(quota, now);
        if forfeits(self.current, quota, paid_at, now) {
            return;
        }
        if self.opened_at <= paid_at && paid_at.since(self.opened_at) < quota.window() {
            self.current = self.current.saturating_sub(cost);
        }
    }

    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        let window = self.settled(quota, now);
        let free = u128::from(quota.units()) * u128::from(ticks(quota));
        let free = free.saturating_sub(window.weight(quota, now)) / u128::from(ticks(quota));
        let untouched = window.previous == 0 && window.current == 0;
        let end = window.opened_at + quota.window();
        Level {
            remaining: u32::try_from(free).unwrap_or(u32::MAX),
            reset_after: if untouched { Micros::ZERO } else { end.since(now) },
        }
    }

    fn gone_at(&self, quota: &Quota) -> Timestamp {
        match (self.previous, self.current) {
            (0, 0) => self.opened_at,
            (_, 0) => self.opened_at + quota.window(),
            _ => self.opened_at + quota.window() + quota.window(),
        }
    }
}
