//! How many retries an origin can be asked to bear.
//!
//! A server that fails gets more requests just when it can take fewer: each call comes three times again. The budget ends
//! that. It holds 50 retries; each success adds a tenth of one, so that in the long run one request in ten is a retry.
//!
//! # Laws
//! - However many calls take from it at once, what was taken never exceeds what was there.
//! - It never holds more than it began with.

use std::sync::atomic::{AtomicU64, Ordering};

/// A retry, in the unit that budgets are counted in.
pub(crate) const RETRY_COST: u64 = 1_000;

/// The size of a budget.
///
/// ```
/// use ratewright_client::BudgetSize;
/// assert_eq!(BudgetSize::default(), BudgetSize { retries_max: 50, per_success: 0.1 });
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BudgetSize {
    /// How many retries it begins with, and the most that it holds.
    pub retries_max: u32,
    /// How many retries a success adds: 0.1 is one retry for ten successes. Rounded down to thousandths.
    pub per_success: f64,
}

/// What is left for retries to one origin, in thousandths of a retry.
///
/// ```
/// use ratewright_client::{BudgetSize, RetryBudget};
///
/// let budget = RetryBudget::new(BudgetSize { retries_max: 1, per_success: 0.1 });
/// assert!(budget.take(1_000) && !budget.take(1_000));
/// ```
#[derive(Debug)]
pub struct RetryBudget {
    full: u64,
    per_success: u64,
    left: AtomicU64,
}

impl Default for BudgetSize {
    fn default() -> Self {
        Self { retries_max: 50, per_success: 0.1 }
    }
}

impl RetryBudget {
    /// A full budget.
    pub fn new(size: BudgetSize) -> Self {
        let full = RETRY_COST * u64::from(size.retries_max);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
        #[expect(clippy::cast_precision_loss, reason = "a thousand is exact")]
        let per_success = (RETRY_COST as f64 * size.per_success) as u64;
        Self { full, per_success, left: AtomicU64::new(full) }
    }

    /// What is left, in thousandths of a retry.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.left() >= self.full
    }

    /// Takes `cost`, or nothing if less is left.
    #[must_use]
    pub fn take(&self, cost: u64) -> bool {
        let take = |left: u64| left.checked_sub(cost);
        cost == 0 || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Adds what a success is worth.
    pub fn succeeded(&self) {
        let add = |left: u64| {
            let more = left.saturating_add(self.per_success).min(self.full);
            (more > left).then_some(more) // a full budget is only read, so that calls on many cores share its line
        };
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Barrier;

    proptest! {
        /// E3: over any history, retries never exceed the reserve plus what successes have earned.
        #[test]
        fn a_budget_is_never_exceeded(
            retries_max in 0..6_u32,
            per_success in 0..2_000_u32,
            history in prop::collection::vec(prop::option::of(0..1_500_u64), 0..300),
        ) {
            let size = BudgetSize { retries_max, per_success: f64::from(per_success) / 1_000.0 };
            let budget = RetryBudget::new(size);
            let reserve = 1_000 * u64::from(retries_max);
            let (mut taken, mut earned) = (0, 0);
            for step in history {
                match step {
                    Some(cost) => taken += if budget.take(cost) { cost } else { 0 },
                    None => {
                        budget.succeeded();
                        earned += u64::from(per_success);
                    }
                }
                prop_assert!(taken <= reserve + earned);
                prop_assert!(budget.left() <= reserve);
            }
        }
    }

    #[test]
    fn threads_that_take_at_once_never_get_more_than_there_is() {
        for _ in 0..200 {
            let budget = RetryBudget::new(BudgetSize { retries_max: 5, per_success: 0.0 });
            let start = Barrier::new(4);
            let taken: usize = std::thread::scope(|scope| {
                let take = || {
                    start.wait();
                    (0..3).filter(|_| budget.take(900)).count()
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!((taken, budget.left()), (5, 500));
        }
    }
}
