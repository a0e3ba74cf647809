//! One limit, in the numbers that the headers show.

use std::fmt;

use ratewright_core::policy::Limit;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Outcome, Standing};
use ratewright_core::{Micros, Quota};

/// One limit, as the headers show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ShownLimit<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The quota's own name, if the policy has several.
    pub quota: Option<&'a str>,
    /// What it holds when full: `q`.
    pub capacity: u32,
    /// The units of its rate, as written.
    pub units: u32,
    /// Seconds in which an empty limit refills, at least 1: `w`.
    pub refill_within: u64,
    /// Units left: `r`.
    pub remaining: u32,
    /// Seconds during which no more than `remaining` can be spent; `None` if the limit is unused: `t`.
    pub more_after: Option<u64>,
}

impl<'a> ShownLimit<'a> {
    /// A limit with its current standing.
    pub(super) fn of(limit: &'a Limit, standing: &Standing) -> Self {
        let quota = standing.quota_in_force(limit.quota());
        let (remaining, more_after) = (standing.remaining, more_after(&quota, standing).as_secs_ceil());
        let more_after = (more_after > 0).then_some(more_after);
        Self { remaining, more_after, ..Self::full(limit, &quota) }
    }

    /// An unused limit.
    pub(crate) fn untouched(limit: &'a Limit) -> Self {
        Self::full(limit, limit.quota())
    }

    /// The limit, unused, under the quota in force.
    fn full(limit: &'a Limit, quota: &Quota) -> Self {
        let name = limit.name();
        let capacity = quota.capacity().get();
        Self {
            policy: name.policy(),
            quota: name.quota(),
            capacity,
            units: quota.units(),
            refill_within: refill_within(quota).as_secs_ceil().max(1),
            remaining: capacity,
            more_after: None,
        }
    }
}

/// The name under which the limit is shown: `login`, or `login.minute`.
impl fmt::Display for ShownLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.policy)?;
        self.quota.map_or(Ok(()), |quota| write!(f, ".{quota}"))
    }
}

/// The time in which an empty bucket refills.
fn refill_within(quota: &Quota) -> Micros {
    match quota.algorithm() {
        Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => quota.time_to_fill().ceil(),
        Algorithm::TokenBucket(Refill::Stepped) => {
            let steps = quota.capacity().get().div_ceil(quota.units());
            Micros::new(u64::from(steps).saturating_mul(quota.window().as_micros()))
        }
        Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter | Algorithm::FixedWindow(_) => {
            quota.window()
        }
    }
}

/// The time until more than `remaining` units can be spent: the next unit of a bucket returns, a window ends, or the oldest
/// entry leaves a sliding window. After a denial, at most `retry_after`. Zero if and only if the limit is unused.
fn more_after(quota: &Quota, standing: &Standing) -> Micros {
    let all_after = standing.reset_after;
    if all_after.is_zero() {
        return Micros::ZERO;
    }
    let more_after = match quota.algorithm() {
        Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => {
            let missing = quota.capacity().get().saturating_sub(standing.remaining);
            let others = quota.time_to_earn(u64::from(missing.saturating_sub(1)));
            all_after.saturating_sub(Micros::new(others.micros()))
        }
        Algorithm::TokenBucket(Refill::Stepped) => {
            Micros::new((all_after.as_micros() - 1) % quota.window().as_micros() + 1)
        }
        Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter | Algorithm::FixedWindow(_) => all_after,
    };
    let more_after = match standing.outcome {
        Outcome::Denied { retry_after } => more_after.min(retry_after),
        Outcome::Charged(_) | Outcome::WouldPass | Outcome::Never | Outcome::Unknown => more_after,
    };
    more_after.max(Micros::new(1))
}
