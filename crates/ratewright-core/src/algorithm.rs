//! Five ways of counting, as pure functions over small states.
//!
//! | algorithm | state | never more than |
//! |---|---|---|
//! | [`token_bucket`] | when it will be full again | burst + refill, in any stretch of time |
//! | [`stepped`]: a token bucket that refills in steps | units spent, and the last step | burst + units × ⌈Δ / window⌉ |
//! | [`leaky_bucket`] | when it will be empty again | burst + leak, in any stretch of time |
//! | [`sliding_log`] | every charge of the last window | units, in any window |
//! | [`sliding_counter`] | two counts | less than 2 × units, in any window |
//! | [`fixed_window`] | one count | units, in each of its windows; 2 × units, in any period of that length |
//!
//! All implement one trait, [`Bucket`]. The charges of one call happen at one instant, and taking *a* then *b* at one
//! instant equals taking *a + b*. So a charge that follows others of the same key is checked against the unchanged
//! state, with their units counted as `ahead`. All charges of a call are checked before any state changes, so nothing
//! is copied or undone.
//!
//! The clock may stand still, jump forward, or go back. If it is behind a state by less than a window, the state is
//! used as it is: for that key, time stands still. If the clock was set back further, the state is later than any
//! charge could have made it, and is repaired: it moves back to the strictest valid value, and is stored at once.
//! Otherwise the key would be denied until the clock catches up. A clock that goes back can make a key wait longer; it
//! never lets a key spend more.

pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_counter;
pub mod sliding_log;
pub mod stepped;
pub mod token_bucket;

use crate::charge::Act;
use crate::quantity::{Micros, Timestamp};
use crate::quota::Quota;

/// What a charge asks of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Units that earlier charges of the same call claim from the same key.
    pub ahead: u64,
    /// Units that this charge takes.
    pub cost: u32,
    /// The longest wait that the caller accepts, if the quota is a queue.
    pub patience: Micros,
}

/// Whether a demand fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It fits; the query may proceed after `wait`.
    Fits {
        /// Zero, unless the quota is a queue.
        wait: Micros,
    },
    /// It does not fit now. It fits after `retry_after` if no other query spends, and not a microsecond earlier.
    Short {
        /// The shortest wait after which it fits.
        retry_after: Micros,
    },
    /// It exceeds the capacity, so it never fits.
    Never,
}

/// What happened to a single charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charged {
    /// How it fitted.
    pub fit: Fit,
    /// The units that were counted; `None` if the charge spends nothing.
    pub counted: Option<u32>,
    /// What is left.
    pub level: Level,
}

/// How many units remain, and when more return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// Whole units that could be spent now.
    pub remaining: u32,
    /// For a bucket, the time until it is full again; for a window, until it ends or its oldest entry expires. Zero if
    /// nothing is spent.
    pub reset_after: Micros,
}

/// The state behind one key.
///
/// Each function takes the current time, and none assumes that it is later than in the last call. A store calls
/// [`mend`](Bucket::mend) before any other function.
pub trait Bucket {
    /// Repairs a state that is later than any charge could have made it, because the clock was set back. Returns
    /// whether it did. The store must keep the repaired state even if the charge is denied.
    fn mend(&mut self, quota: &Quota, now: Timestamp) -> bool;

    /// Checks whether a demand fits. Changes nothing. A demand for zero units fits unless the bucket is past its limit.
    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit;

    /// Spends `cost` units, whether they fit or not, and returns how many of them were counted: all, unless more than
    /// twice the capacity would be spent.
    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32;

    /// Refunds those of `cost` units, spent at `paid_at`, that have not returned by themselves. Refunds nothing while
    /// the bucket is past its limit: units beyond twice the capacity were not counted, and must not be refunded in
    /// place of counted ones. Refunds nothing if `paid_at` is in the future, because it is then unknown how many units
    /// have returned.
    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp);

    /// Checks whether a demand fits, and spends it if `act` says so: all that a call with a single charge needs.
    fn charge(&mut self, quota: &Quota, demand: Demand, act: Act, now: Timestamp) -> Charged
    where
        Self: Sized,
    {
        charge(self, quota, demand, act, now)
    }

    /// What is left.
    fn level(&self, quota: &Quota, now: Timestamp) -> Level;

    /// When this state becomes equivalent to no state. From then on it can be dropped.
    fn gone_at(&self, quota: &Quota) -> Timestamp;
}

impl Demand {
    /// All units that must fit together.
    #[inline]
    fn total(self) -> u64 {
        self.ahead + u64::from(self.cost)
    }

    /// The fit where the state does not matter: more than the capacity never fits.
    #[inline]
    fn plain(self, quota: &Quota) -> Option<Fit> {
        (self.total() > u64::from(quota.capacity().get())).then_some(Fit::Never)
    }
}

impl Fit {
    /// It fits, and at once.
    pub const NOW: Self = Self::Fits { wait: Micros::ZERO };
}

/// Weighs, spends if `act` says so, and returns what is left.
fn charge<B: Bucket>(bucket: &mut B, quota: &Quota, demand: Demand, act: Act, now: Timestamp) -> Charged {
    let fit = if act.is_read_only() { Fit::NOW } else { bucket.fit(quota, demand, now) };
    let spends = act.spends(matches!(fit, Fit::Fits { .. }));
    let counted = spends.then(|| bucket.spend(quota, demand.cost, now));
    Charged { fit, counted, level: bucket.level(quota, now) }
}

/// True if a refund must give nothing back.
fn forfeits(spent: u32, quota: &Quota, paid_at: Timestamp, now: Timestamp) -> bool {
    quota.capacity().get() < spent || now < paid_at
}

/// Pulls a beginning back to now that lies more than a window ahead, and returns whether it did.
fn pull_back(began: &mut Timestamp, quota: &Quota, now: Timestamp) -> bool {
    let too_far = now + quota.window() < *began;
    if too_far {
        *began = now;
    }
    too_far
}

/// Adds units to a count, no deeper than two capacities, and returns how many were added. A count that is
/// already deeper, as it can be under a quota since lowered, stays: what was spent stays spent.
fn deepen(count: &mut u32, cost: u32, quota: &Quota) -> u32 {
    let counted = quota.deepest().saturating_sub(*count).min(cost);
    *count += counted;
    counted
}
