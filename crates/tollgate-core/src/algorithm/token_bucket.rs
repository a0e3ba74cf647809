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
//! The moment never lies later than two full refills from now: that is as deep as `Record` may go,
//! and where a clock that stepped back leaves it.
//!
//! # Laws
//! - In any stretch of time a key spends at most `burst` plus what the quota returns meanwhile; if the
//!   clock steps back, the time that passes twice counts twice.
//! - `retry_after` is exact: the same charge fits then, and is short one microsecond earlier.
//! - A refund, however late, leaves at most what would be left had nothing been charged.

use super::{Bucket, Demand, Fit, Level};
use crate::quantity::{Micros, Moment, Span, Timestamp};
use crate::quota::Quota;

/// A bucket that refills continuously.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    /// When it will be full again.
    pub full_at: Moment,
}

impl TokenBucket {
    /// A full bucket, as one that was never seen is.
    #[inline]
    pub fn full(quota: &Quota) -> Self {
        Self { full_at: Timestamp::default().moment(quota.over()) }
    }

    /// When it will be full, seen from `now`: not before now, and not later than two refills.
    #[inline]
    pub(super) fn settled(self, quota: &Quota, now: Timestamp) -> Moment {
        let now = now.moment(quota.over());
        let deepest = now + quota.time_to_fill().doubled();
        self.full_at.recast(quota.over()).min(deepest).max(now)
    }

    /// What fits under a ceiling: `full_at` may not lie later than that after now.
    #[inline]
    pub(super) fn fit_under(start: Moment, ceiling: Moment, earn: Span) -> Option<Micros> {
        (start + earn).checked_sub(ceiling).map(Span::ceil).filter(|short| !short.is_zero())
    }
}

impl Bucket for TokenBucket {
    #[inline]
    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit {
        if let Some(fit) = demand.plain(quota) {
            return fit;
        }
        let start = self.settled(quota, now);
        let latest = now.moment(quota.over()) + quota.time_to_fill();
        match Self::fit_under(start, latest, quota.time_to_earn(demand.total())) {
            None => Fit::NOW,
            Some(retry_after) => Fit::Short { retry_after },
        }
    }

    #[inline]
    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32 {
        let start = self.settled(quota, now);
        let deepest = now.moment(quota.over()) + quota.time_to_fill().doubled();
        let cost = cost.min(quota.deepest());
        let full_at = start + quota.time_to_earn(u64::from(cost));
        self.full_at = full_at.min(deepest);
        if full_at <= deepest {
            return cost;
        }
        deepest.checked_sub(start).map_or(0, |moved| quota.units_earned_in(moved))
    }

    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp) {
        self.full_at = self.settled(quota, now);
        // The uncharged bucket would be earlier by the cost, less the time it stood full since then,
        // which is at most all the time since then.
        if let Some(unpaid) = quota.time_to_earn(u64::from(cost)).after(now.since(paid_at)) {
            self.full_at = (self.full_at - unpaid).max(now.moment(quota.over()));
        }
    }

    #[inline]
    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        let full_at = self.settled(quota, now);
        let now = now.moment(quota.over());
        let room = (now + quota.time_to_fill()).checked_sub(full_at);
        Level {
            remaining: room.map_or(0, |room| quota.units_earned_in(room)),
            reset_after: full_at.checked_sub(now).map_or(Micros::ZERO, Span::ceil),
        }
    }

    fn gone_at(&self, _: &Quota) -> Timestamp {
        self.full_at.ceil()
    }
}
