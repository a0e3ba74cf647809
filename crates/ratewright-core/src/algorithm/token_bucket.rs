//! Token bucket: a bucket is one moment, the moment at which it will be full again.
//!
//! Taking units moves the moment later; time catches up with it. A charge fits if the moment stays
//! within one full refill of now, otherwise it is short and nothing changes.
//!
//! ```text
//!   full_at - now
//!   one refill ┤- - - - - ╷- - - - - -   a charge that would cross this line is short
//!              │  ╷       │╲
//!              │  │╲      │ ╲            each step up is one charge,
//!            0 ┼──┘─╲─────┘──╲────► now  each slope down is time passing
//! ```
//!
//! A moment is whole microseconds plus a fraction over the quota's own units, so nothing is ever
//! rounded, and every integer stays below 2^53, where Redis' Lua, which has only doubles, is exact.
//!
//! The moment is at most two full refills from now: `Record` does not move it further, and a clock setback is repaired
//! to this maximum. It is also at most [`TIME_MAX`](crate::quantity::TIME_MAX): a charge that would exceed it is short too.
//!
//! # Laws
//! - In any period a key spends at most `burst` plus the units that return during it; if the clock steps back, units
//!   return again during the repeated time.
//! - `retry_after` is exact: the same charge fits then, and is short one microsecond earlier, if one more refill ends
//!   before `TIME_MAX`.
//! - A refund, however late, never leaves more units than if nothing had been charged.
//! - When the quota changes, the same share stays spent, rounded up.

use super::{Bucket, Charged, Demand, Fit, Level, charge};
use crate::charge::Act;
use crate::quantity::{Micros, Moment, Span, Timestamp};
use crate::quota::Quota;

/// A bucket that refills continuously.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    /// When it will be full again.
    pub full_at: Moment,
}

impl TokenBucket {
    /// A full bucket: the state of a key that was never seen.
    #[inline(always)]
    pub fn full(quota: &Quota) -> Self {
        Self { full_at: Timestamp::default().moment(quota.over()) }
    }

    /// This bucket converted from the quota `from` to the quota `to`: the same share is spent. Times are rounded to
    /// whole microseconds, in the direction that leaves fewer units.
    #[must_use]
    pub fn inherit(self, from: &Quota, to: &Quota, now: Timestamp) -> Self {
        let whole = from.time_to_fill().micros().max(1);
        let spent = self.full_at.ceil().since(now).as_micros().min(2 * whole);
        let fill = to.time_to_fill().ceil().as_micros();
        let spent = (u128::from(spent) * u128::from(fill)).div_ceil(u128::from(whole));
        // At most two refills, so it fits.
        let spent = Micros::new(u64::try_from(spent).unwrap_or(u64::MAX));
        Self { full_at: (now.moment(to.over()) + Span::whole(spent, to.over())).within_time() }
    }

    /// When it will be full, seen from `now`: a full bucket saves nothing up.
    #[inline(always)]
    pub(super) fn settled(self, quota: &Quota, now: Timestamp) -> Moment {
        self.full_at.recast(quota.over()).not_before(now)
    }

    /// The line that no charge may cross: one full refill from `now`.
    #[inline(always)]
    fn latest(quota: &Quota, now: Timestamp) -> Moment {
        (now.moment(quota.over()) + quota.time_to_fill()).within_time()
    }

    /// The line that nothing crosses: two full refills from `now`.
    #[inline(always)]
    fn deepest(quota: &Quota, now: Timestamp) -> Moment {
        (now.moment(quota.over()) + quota.time_deepest()).within_time()
    }

    /// The time until a bucket that is full at `start` has room for units that take `earn` to return.
    #[inline(always)]
    pub(super) fn short_by(start: Moment, quota: &Quota, earn: Span, now: Timestamp) -> Micros {
        (start + earn).checked_sub(Self::latest(quota, now)).map_or(Micros::ZERO, Span::ceil)
    }
}

impl Bucket for TokenBucket {
    #[inline(always)]
    fn mend(&mut self, quota: &Quota, now: Timestamp) -> bool {
        // Most states are clearly sound, by whole microseconds.
        if self.full_at.micros() < now.as_micros() + quota.time_deepest().micros() {
            return false;
        }
        let (full_at, latest) = (self.full_at.recast(quota.over()), Self::deepest(quota, now));
        self.full_at = full_at.min(latest);
        latest < full_at
    }

    #[inline(always)]
    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit {
        if let Some(fit) = demand.plain(quota) {
            return fit;
        }
        let earn = quota.time_to_earn(demand.total());
        match Self::short_by(self.settled(quota, now), quota, earn, now) {
            Micros::ZERO => Fit::NOW,
            retry_after => Fit::Short { retry_after },
        }
    }

    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32 {
        let start = self.settled(quota, now);
        let deepest = Self::deepest(quota, now);
        let cost = cost.min(quota.deepest());
        self.full_at = start + quota.time_to_earn(u64::from(cost));
        if self.full_at <= deepest {
            return cost;
        }
        self.full_at = deepest;
        deepest.checked_sub(start).map_or(0, |moved| quota.units_earned_in(moved))
    }

    /// The fast path, for a charge that fits: nothing is computed twice.
    #[inline(always)]
    fn charge(&mut self, quota: &Quota, demand: Demand, act: Act, now: Timestamp) -> Charged {
        let full_at = self.settled(quota, now) + quota.time_to_earn(demand.total());
        let latest = Self::latest(quota, now);
        match latest.checked_sub(full_at) {
            Some(room) if demand.ahead == 0 && act.spends(true) => {
                self.full_at = full_at;
                let level =
                    Level { remaining: quota.units_earned_in(room), reset_after: full_at.ceil().since(now) };
                Charged { fit: Fit::NOW, counted: Some(demand.cost), level }
            }
            _ => charge(self, quota, demand, act, now),
        }
    }

    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp) {
        self.full_at = self.settled(quota, now);
        let latest = Self::latest(quota, now);
        if latest < self.full_at || now < paid_at {
            return;
        }
        // The uncharged bucket would be earlier by the cost, less the time it stood full since then,
        // which is at most all the time since then.
        if let Some(unpaid) = quota.time_to_earn(u64::from(cost)).after(now.since(paid_at)) {
            self.full_at = (self.full_at - unpaid).not_before(now);
        }
    }

    #[inline(always)]
    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        let full_at = self.settled(quota, now);
        let latest = Self::latest(quota, now);
        Level {
            remaining: latest.checked_sub(full_at).map_or(0, |room| quota.units_earned_in(room)),
            reset_after: full_at.ceil().since(now),
        }
    }

    fn gone_at(&self, _: &Quota) -> Timestamp {
        self.full_at.ceil()
    }
}
