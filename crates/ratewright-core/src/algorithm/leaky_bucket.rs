//! Leaky bucket: the token bucket seen from the other side.
//!
//! A token bucket counts the units that can still be taken; a leaky bucket counts those that have not leaked yet. Both
//! store the same moment: the token bucket is full then, the leaky bucket is empty. So as a meter it decides as the
//! token bucket does. As a queue it differs: a charge that fits gets a `wait`, the time until all earlier charges have
//! leaked, so that charges leave one after the other at the quota's rate.
//!
//! ```text
//!   2/s, burst 3      arrive at 0:  A B C D          wait:  A 0s   B 0.5s   C 1s   D short(0.5s)
//!                                                    leave: A····B····C
//! ```
//!
//! The query says how long it can wait (`patience`). An entrypoint that cannot wait sends zero, and gets a denial
//! instead of a wait, so that no charge is made for a request that gives up.

use super::token_bucket::TokenBucket;
use super::{Bucket, Demand, Fit, Level};
use crate::quantity::{Micros, Span, Timestamp};
use crate::quota::Quota;

/// A token bucket whose charges queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue(pub TokenBucket);

impl Bucket for Queue {
    fn mend(&mut self, quota: &Quota, now: Timestamp) -> bool {
        self.0.mend(quota, now)
    }

    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit {
        if let Some(fit) = demand.plain(quota) {
            return fit;
        }
        let over = quota.over();
        let queued = self.0.settled(quota, now);
        let turn = queued + quota.time_to_earn(demand.ahead);
        // No wait is longer than a full refill, so no patience need be.
        let patience = demand.patience.min(quota.time_to_fill().ceil());
        let patient = now.moment(over) + Span::whole(patience, over);

        let no_room = TokenBucket::short_by(queued, quota, quota.time_to_earn(demand.total()), now);
        let no_patience = turn.checked_sub(patient).map_or(Micros::ZERO, Span::ceil);
        let retry_after = no_room.max(no_patience);
        if retry_after.is_zero() {
            Fit::Fits { wait: turn.checked_sub(now.moment(over)).map_or(Micros::ZERO, Span::ceil) }
        } else {
            Fit::Short { retry_after }
        }
    }

    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32 {
        self.0.spend(quota, cost, now)
    }

    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp) {
        self.0.refund(quota, cost, paid_at, now);
    }

    fn level(&self, quota: &Quota, now: Timestamp) -> Level {
        self.0.level(quota, now)
    }

    fn gone_at(&self, quota: &Quota) -> Timestamp {
        self.0.gone_at(quota)
    }
}
