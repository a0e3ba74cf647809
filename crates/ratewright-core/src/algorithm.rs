//! Five ways of counting, as pure functions over small states.
//!
//! | algorithm | state | never more than |
//! |---|---|---|
//! | [`token_bucket`] | when it will be full again | burst + refill, in any stretch of time |
//! | [`stepped`], a token bucket's other refill | units spent, since when | burst + units × ⌈Δ / window⌉ |
//! | [`leaky_bucket`] | when it will be empty again | burst + leak, in any stretch of time |
//! | [`sliding_log`] | every charge of the last window | units, in any window |
//! | [`sliding_counter`] | two counts | less than 2 × units, in any window |
//! | [`fixed_window`] | one count | 2 × units, in any window; units in each of its own |
//!
//! All share one shape, [`Bucket`]. Charges of one call happen at one instant, and taking *a* then
//! *b* at one instant is taking *a + b*; so a charge that has others of the same key before it is
//! judged against the untouched state with those units `ahead` of it. A call is weighed as a whole
//! before anything moves, without copies and without undoing.
//!
//! Time may stand still, leap, or go back. A clock that is a little behind, by less than a window, finds
//! things as they are: for that key time stands still. What lies further ahead than it ever could, because
//! the clock was set back, is mended: pulled back to where it is at its strictest, and stored so at once, or
//! the key would be shut out until the clock has caught up. Going back can thus make a key wait longer, never
//! let it spend more.

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

/// Whether a demand can be met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It can; the query may proceed after `wait`.
    Fits {
        /// Zero, unless the quota is a queue.
        wait: Micros,
    },
    /// It can at the earliest after `retry_after`, if no other query spends; not a microsecond earlier.
    Short {
        /// The shortest wait after which it fits.
        retry_after: Micros,
    },
    /// It asks for more than there can ever be.
    Never,
}

/// What happened to a single charge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charged {
    /// How it fitted.
    pub fit: Fit,
    /// The units that were counted, if it was spent.
    pub counted: Option<u32>,
    /// What is left.
    pub level: Level,
}

/// What is left, and when more will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// Whole units that could be spent now.
    pub remaining: u32,
    /// For a bucket, until it is full again; for a window, until it or its oldest entry leaves. Zero
    /// if nothing is spent.
    pub reset_after: Micros,
}

/// The state behind one key.
///
/// Each function takes the time, and none assumes that it moved forward since the last call. A store calls
/// [`mend`](Bucket::mend) before any other.
pub trait Bucket {
    /// Pulls back a state that lies further ahead than it ever could, and returns whether it did. The
    /// store must keep the mended state even if the charge is denied.
    fn mend(&mut self, quota: &Quota, now: Timestamp) -> bool;

    /// Weighs a demand. Changes nothing. A demand for nothing fits unless the bucket is past its limit.
    fn fit(&self, quota: &Quota, demand: Demand, now: Timestamp) -> Fit;

    /// Spends `cost` units, whether they fit or not, and returns how many of them were counted: all, unless
    /// the state would get deeper than two capacities.
    fn spend(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> u32;

    /// Gives back what time has not yet repaid of `cost` units that were spent at `paid_at`. Nothing, while
    /// the bucket is past its limit: units beyond two capacities were not counted, and must not be given back
    /// in the guise of others; nor if `paid_at` lies ahead, where it is unknown what time has repaid.
    fn refund(&mut self, quota: &Quota, cost: u32, paid_at: Timestamp, now: Timestamp);

    /// Weighs a demand and, if `act` then spends, spends it: all that a call with a single charge needs.
    fn charge(&mut self, quota: &Quota, demand: Demand, act: Act, now: Timestamp) -> Charged
    where
        Self: Sized,
    {
        charge(self, quota, demand, act, now)
    }

    /// What is left.
    fn level(&self, quota: &Quota, now: Timestamp) -> Level;

    /// From when on this state means the same as none. Losing it then loses nothing.
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
    let fit = if act.only_tells() { Fit::NOW } else { bucket.fit(quota, demand, now) };
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
