//! Token bucket, refilled in steps: all units of a window come back together.
//!
//! Steps happen at whole windows after the charge that found the bucket full.
//!
//! ```text
//!   5/2s, burst 10
//!   10 ┤──╷                                 since: the charge that found it full
//!      │  │        ┌──────╷        ┌───     each step returns 5, not more than are missing
//!    0 ┼──└────────┘      └────────┘
//!         since   +2s             +4s
//! ```
//!
//! # Laws
//! - In any stretch Δ a key spends at most burst + units × ⌈Δ / window⌉.
//! - `retry_after` is exact.
//! - Units that are spent and not refunded stay within that bound. The charge that found the bucket full sets the time
//!   of the steps, even if it is refunded.
//! - A changed quota keeps the share that was spent, rounded up.

use super::{Bucket, Demand, Fit, Level, deepen, forfeits, pull_back};
use crate::quantity::{Micros, Timestamp};
use crate::quota::Quota;

/// A bucket that refills in steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stepped {
    /// The last step, or the charge that found the bucket full.
    pub since: Timestamp,
    /// Units that have not come back yet.
    pub spent: u32,
}

impl Stepped {
    /// This bucket converted from the quota `from` to the quota `to`: the same share is spent, in whole units, rounded
    /// up. Its steps begin now.
    #[must_use]
    pub fn inherit(self, from: &Quota, to: &Quota, now: Timestamp) -> Self {
        let spent = u64::from(self.settled(from, now).spent.min(from.deepest()));
        let spent = (spent * u64::from(to.capacity().get())).div_ceil(from.capacity().get().into());
        Self { since: now, spent: u32::try_from(spent).unwrap_or(u32::MAX).min(to.deepest()) }
    }

    /// The bucket with all steps taken that are due. A full bucket begins its steps now.
    fn settled(self, quota: &Quota, now: Timestamp) -> Self {
        let window = quota.window().as_micros();
        let steps = now.since(self.since).as_micros() / window;
        let returned = steps.saturating_mul(u64::from(quota.units()));
        let spent = u64::from(self.spent).saturating_sub(returned);
        // Zero or at most what it was.
        let spent = u32::try_from(spent).unwrap_or(self.spent);
        let since = self.since + Micros::new(steps * window);
        Self { since: if spent == 0 { now } else { since }, spent }
    }

    /// Steps until at most `spent` units are spent.
    fn steps_to(self, spent: u64, quota: &Quota) -> u64 {
        u64::from(self.spent).saturating_sub(spent).div_ceil(u64::from(quota.units()))
    }

    /// How long it takes until the n-th step from now.
    fn until(self, steps: u64, quota: &Quota, now: Timestamp) -> Micros {
        if steps == 0 {
            return Micros::ZERO;
        }
        let due = self.since + Micros::new(steps.saturating_mul(quota.window().as_micros()));
        due.since(now)
    }
}

impl Bucket for Stepped {
    fn mend(&mut self, quota: &Quota, now: Timestamp) -> bool {
        pull_back(&mut self.since, quota, now)
    }

    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit {
        if let Some(fit) = demand.plain(quota) {
            return fit;
        }
        let bucket = self.settled(quota, now);
        let room = u64::from(quota.capacity().get()) - demand.total();
        if u64::from(bucket.spent) <= room {
            return Fit::NOW;
        }
        Fit::Short { retry_after: bucket.until(bucket.steps_to(room, quota), quota, now) }
    }

    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32 {
        *self = self.settled(quota, now);
        deepen(&mut self.spent, cost, quota)
    }

    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp) {
        *self = self.settled(quota, now);
        if forfeits(self.spent, quota, paid_at, now) {
            return;
        }
        let window = quota.window().as_micros();
        let passed = self.since.since(paid_at).as_micros();
        let repaid = passed.div_ceil(window).saturating_mul(u64::from(quota.units()));
        let unpaid = u64::from(cost).saturating_sub(repaid);
        self.spent = self.spent.saturating_sub(u32::try_from(unpaid).unwrap_or(cost));
    }

    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        let bucket = self.settled(quota, now);
        Level {
            remaining: quota.capacity().get().saturating_sub(bucket.spent),
            reset_after: bucket.until(bucket.steps_to(0, quota), quota, now),
        }
    }

    fn gone_at(&self, quota: &Quota) -> Timestamp {
        self.since + Micros::new(self.steps_to(0, quota).saturating_mul(quota.window().as_micros()))
    }
}
