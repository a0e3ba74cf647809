//! What each algorithm promises never to exceed.

use proptest::prelude::*;
use ratewright_core::Quota;
use ratewright_core::quota::{Algorithm, Refill};

/// The most that may be spent in a stretch in which so much time passes.
fn bound(quota: &Quota, passed: u64) -> u128 {
    let (units, window) = (u128::from(quota.units()), u128::from(quota.window().as_micros()));
    let capacity = u128::from(quota.capacity().get());
    let passed = u128::from(passed);
    let windows = passed / window + 1; // that a stretch can touch or wholly contain
    match quota.algorithm() {
        Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => {
            capacity + passed * units / window
        }
        Algorithm::TokenBucket(Refill::Stepped) => capacity + units * passed.div_ceil(window),
        Algorithm::SlidingWindow => units * windows,
        Algorithm::SlidingWindowCounter => 2 * units * windows - 1,
        Algorithm::FixedWindow(_) => 2 * units * windows,
    }
}

/// Checks every stretch of a history: O(n²), and worth it.
pub(crate) fn check_never_over(quota: &Quota, paid: &[(u64, u32)]) -> Result<(), TestCaseError> {
    check_never_over_together(&[quota], paid)
}

/// The same for charges under several quotas: all of them together stay within the sum of the bounds.
pub(crate) fn check_never_over_together(quotas: &[&Quota], paid: &[(u64, u32)]) -> Result<(), TestCaseError> {
    for (first, &(start, _)) in paid.iter().enumerate() {
        let mut spent = 0u128;
        for &(end, cost) in &paid[first..] {
            spent += u128::from(cost);
            let most: u128 = quotas.iter().map(|quota| bound(quota, end - start)).sum();
            prop_assert!(spent <= most, "{spent} spent in {} us, at most {most}; {quotas:?}", end - start);
        }
    }
    Ok(())
}
