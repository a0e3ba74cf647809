//! Fixed window: a count that starts again with each window.
//!
//! ```text
//!   3/min     │ 1 2 3 ✗ ✗     │ 1 2         │          epoch-aligned
//!             12:00           12:01         12:02
//!
//!   3/min       │1 2 3 ✗ ✗       │1 2       │          from the first hit
//!              12:00:07          12:01:19
//! ```
//!
//! The cheapest algorithm, and the coarsest: three hits at the end of one window and three at the beginning of the next
//! are six within a moment.
//!
//! # Laws
//! - Each window spends at most `units`; any stretch not longer than a window, at most twice that.
//! - If the clock steps back, a window that is now in the future stays the current one, with its count.
//! - A refund counts only within the window of its charge. Refunding the first hit does not close the window that it
//!   opened, unless it was the only hit.

use super::{Bucket, Demand, Fit, Level, deepen, forfeits, pull_back};
use crate::quantity::{Micros, Timestamp};
use crate::quota::{Algorithm, Quota, WindowStart};

/// One window's count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FixedWindow {
    /// When the window began.
    pub opened_at: Timestamp,
    /// Units spent in it.
    pub count: u32,
}

impl FixedWindow {
    /// The window that `now` lies in, with its count.
    fn settled(self, quota: &Quota, now: Timestamp) -> Self {
        let ends_at = self.opened_at + quota.window();
        if self.count == 0 {
            return Self { opened_at: opening(quota, now), count: 0 };
        }
        if now < ends_at {
            return self;
        }
        // Windows do not overlap, also after one that was pulled back to an odd time.
        Self { opened_at: opening(quota, now).max(ends_at), count: 0 }
    }

    /// How long this window still lasts.
    fn left(self, quota: &Quota, now: Timestamp) -> Micros {
        (self.opened_at + quota.window()).since(now)
    }
}

/// The beginning of the window that a hit at `now` falls in or opens.
fn opening(quota: &Quota, now: Timestamp) -> Timestamp {
    if quota.algorithm() == Algorithm::FixedWindow(WindowStart::FirstHit) { now } else { aligned(quota, now) }
}

/// The last multiple of the window's length, counted from the epoch.
pub(super) fn aligned(quota: &Quota, now: Timestamp) -> Timestamp {
    let (now, window) = (now.as_micros(), quota.window().as_micros());
    Timestamp::from_micros(now - now % window)
}

impl Bucket for FixedWindow {
    fn mend(&mut self, quota: &Quota, now: Timestamp) -> bool {
        pull_back(&mut self.opened_at, quota, now)
    }

    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit {
        if let Some(fit) = demand.plain(quota) {
            return fit;
        }
        let window = self.settled(quota, now);
        if u64::from(window.count) + demand.total() <= u64::from(quota.units()) {
            return Fit::NOW;
        }
        Fit::Short { retry_after: window.left(quota, now) }
    }

    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32 {
        *self = self.settled(quota, now);
        deepen(&mut self.count, cost, quota)
    }

    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp) {
        *self = self.settled(quota, now);
        if forfeits(self.count, quota, paid_at, now) {
            return;
        }
        if self.opened_at <= paid_at && paid_at.since(self.opened_at) < quota.window() {
            self.count = self.count.saturating_sub(cost);
        }
    }

    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        let window = self.settled(quota, now);
        let untouched = window.count == 0;
        Level {
            remaining: quota.units().saturating_sub(window.count),
            reset_after: if untouched { Micros::ZERO } else { window.left(quota, now) },
        }
    }

    fn gone_at(&self, quota: &Quota) -> Timestamp {
        if self.count == 0 { self.opened_at } else { self.opened_at + quota.window() }
    }
}
