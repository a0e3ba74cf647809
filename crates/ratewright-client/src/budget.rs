//! How many retries an origin can be asked to bear.
//!
//! A server that fails gets more requests just when it can take fewer: each call comes three times again. The budget ends
//! that. It holds 50 retries; each success adds a tenth of one, so that in the long run one request in ten is a retry.
//!
//! # Laws
//! - However many calls take from it at once, what was taken never exceeds what was there.
//! - It never holds more than it began with.

use std::sync::atomic::{AtomicU64, Ordering};

/// The size of a budget, in thousandths of a retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetSize {
    /// What it begins with, and the most that it holds.
    pub reserve: u64,
    /// What a success adds.
    pub per_success: u64,
}

/// What is left for retries to one origin.
#[derive(Debug)]
pub struct RetryBudget {
    size: BudgetSize,
    left: AtomicU64,
}

impl Default for BudgetSize {
    fn default() -> Self {
        Self { reserve: 50_000, per_success: 100 }
    }
}

impl RetryBudget {
    /// A full budget.
    pub fn new(size: BudgetSize) -> Self {
        Self { size, left: AtomicU64::new(size.reserve) }
    }

    /// What is left, in thousandths of a retry.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
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
            let more = left.saturating_add(self.size.per_success).min(self.size.reserve);
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
            reserve in 0..5_000_u64,
            per_success in 0..2_000_u64,
            history in prop::collection::vec(prop::option::of(0..1_500_u64), 0..300),
        ) {
            let budget = RetryBudget::new(BudgetSize { reserve, per_success });
            let (mut taken, mut earned) = (0, 0);
            for step in history {
                match step {
                    Some(cost) => taken += if budget.take(cost) { cost } else { 0 },
                    None => {
                        budget.succeeded();
                        earned += per_success;
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
            let budget = RetryBudget::new(BudgetSize { reserve: 5_500, per_success: 0 });
            let start = Barrier::new(4);
            let taken: usize = std::thread::scope(|scope| {
                let take = || {
                    start.wait();
                    (0..3).filter(|_| budget.take(1_000)).count()
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!((taken, budget.left()), (5, 500));
        }
    }
}
