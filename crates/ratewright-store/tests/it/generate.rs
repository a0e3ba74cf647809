//! Random quotas from 1/month to 1,000,000/s and at the edge of what can be built, and random histories that stand still,
//! creep and leap.

use std::num::NonZeroU32;

use proptest::prelude::*;
use ratewright_core::quantity::{TIME_MAX, YEAR};
use ratewright_core::quota::{Algorithm, Leak, Rate, Refill, WindowStart};
use ratewright_core::{Micros, Quota, Timestamp};

/// How time moves before a visit, in terms of the quota it meets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gap {
    Still,
    Micros(u64),
    /// Thousandths of the time in which one unit comes back.
    OfUnit(u64),
    /// Thousandths of the window.
    OfWindow(u64),
    Days(u64),
}

/// A visit: when, and what it asks for, in thousandths of the capacity.
pub(crate) type Visit = (Gap, u32);

impl Gap {
    pub(crate) fn micros(self, quota: &Quota) -> u64 {
        match self {
            Self::Still => 0,
            Self::Micros(micros) => micros,
            Self::OfUnit(share) => quota.time_to_earn(1).ceil().as_micros() * share / 1_000,
            Self::OfWindow(share) => quota.window().as_micros() * share / 1_000,
            Self::Days(days) => days * 86_400_000_000,
        }
    }
}

/// True if, from `now` on, all that a bucket may owe comes back before time ends: until then every law holds.
pub(crate) fn lasts(quota: &Quota, now: u64) -> bool {
    let window = quota.window().as_micros();
    let owes = match quota.algorithm() {
        Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => {
            2 * quota.time_to_fill().ceil().as_micros()
        }
        Algorithm::TokenBucket(Refill::Stepped) => {
            (u64::from(quota.deepest()).div_ceil(u64::from(quota.units())) + 1) * window
        }
        Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter | Algorithm::FixedWindow(_) => 3 * window,
    };
    now.saturating_add(owes) < TIME_MAX
}

/// One unit or many, now and then more than there can be.
pub(crate) fn cost(share: u32, quota: &Quota) -> u32 {
    let whole = u64::from(quota.capacity().get());
    u32::try_from((whole * u64::from(share)).div_ceil(1_000)).unwrap_or(u32::MAX).max(1)
}

pub(crate) fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::TokenBucket(Refill::Smooth)),
        Just(Algorithm::TokenBucket(Refill::Stepped)),
        Just(Algorithm::LeakyBucket(Leak::Meter)),
        Just(Algorithm::LeakyBucket(Leak::Queue)),
        Just(Algorithm::SlidingWindow),
        Just(Algorithm::SlidingWindowCounter),
        Just(Algorithm::FixedWindow(WindowStart::Epoch)),
        Just(Algorithm::FixedWindow(WindowStart::FirstHit)),
    ]
}

pub(crate) fn quotas() -> impl Strategy<Value = Quota> {
    algorithms().prop_flat_map(quotas_of)
}

/// Quotas of one algorithm. Now and then one at the edge.
pub(crate) fn quotas_of(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    prop_oneof![5 => usual_quotas_of(algorithm), 1 => edge_quotas_of(algorithm)]
}

/// Two quotas whose buckets have the same key: of windows, both have the same length.
pub(crate) fn quotas_on_one_key(algorithm: Algorithm) -> impl Strategy<Value = (Quota, Quota)> {
    (quotas_of(algorithm), quotas_of(algorithm)).prop_map(move |(first, second)| {
        if algorithm.has_burst() {
            return (first, second);
        }
        let rate = Rate::new(second.rate().units(), first.window()).unwrap();
        (first, Quota::new(algorithm, rate).unwrap())
    })
}

/// Quotas whose refill is about the longest that leaves room for a history, of all units and bursts there are.
fn edge_quotas_of(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    let units_max = if algorithm == Algorithm::SlidingWindow { Quota::LOG_UNITS_MAX } else { u32::MAX };
    let is_smooth = algorithm.has_burst() && algorithm != Algorithm::TokenBucket(Refill::Stepped);
    let fill_max = if is_smooth { Rate::WINDOW_MAX.as_micros() } else { 40 * YEAR };
    let fill = prop_oneof![Just(fill_max), fill_max / 2..fill_max];
    let many = |max: u32| prop_oneof![1..=100u32, 1..=max, Just(max)];
    (many(units_max), many(u32::MAX), fill).prop_map(move |(units, burst, fill)| {
        let burst = NonZeroU32::new(burst).filter(|_| algorithm.has_burst());
        let fills = burst.map_or(units, NonZeroU32::get);
        let window = u128::from(fill) * u128::from(units) / u128::from(fills);
        let window = u64::try_from(window).unwrap_or(fill_max).clamp(1, fill_max);
        let rate = Rate::new(NonZeroU32::new(units).unwrap(), Micros::new(window)).unwrap();
        let quota = Quota::new(algorithm, rate).unwrap();
        burst.and_then(|burst| quota.clone().with_burst(burst).ok()).unwrap_or(quota)
    })
}

/// Quotas as people may have them. Small ones are as likely as large ones.
fn usual_quotas_of(algorithm: Algorithm) -> impl Strategy<Value = Quota> {
    let units_max = if algorithm == Algorithm::SlidingWindow { 10_000 } else { 1_000_000 };
    let windows = prop_oneof![
        (1u64..=1_000, Just(1_000u64)),
        (1u64..=600, Just(1_000_000)),
        (1u64..=48, Just(3_600_000_000)),
        (1u64..=30, Just(86_400_000_000)),
        (1u64..=1_000_000, Just(1)),
    ];
    let small = |max: u32| prop_oneof![1..=5.min(max), 1..=100.min(max), 1..=max];
    (small(units_max), windows, prop::option::of(small(1_000_000))).prop_map(
        move |(units, (n, length), burst)| {
            let rate = Rate::new(NonZeroU32::new(units).unwrap(), Micros::new(n * length)).unwrap();
            let quota = Quota::new(algorithm, rate).unwrap();
            let Some(burst) = burst.and_then(NonZeroU32::new).filter(|_| algorithm.has_burst()) else {
                return quota;
            };
            quota.clone().with_burst(burst).unwrap_or(quota)
        },
    )
}

pub(crate) fn gaps() -> impl Strategy<Value = Gap> {
    prop_oneof![
        3 => Just(Gap::Still),
        1 => (1u64..4).prop_map(Gap::Micros),
        4 => (1u64..3_000).prop_map(Gap::OfUnit),
        3 => (1u64..2_500).prop_map(Gap::OfWindow),
        1 => (1u64..4_000).prop_map(Gap::Days),
    ]
}

pub(crate) fn visits(n_max: usize) -> impl Strategy<Value = Vec<Visit>> {
    let shares = prop_oneof![6 => Just(0u32), 3 => 0u32..400, 1 => 0u32..1_050];
    prop::collection::vec((gaps(), shares), 1..n_max)
}

/// When a history begins: in this century, or earlier, where it may go on for longer.
pub(crate) fn starts() -> impl Strategy<Value = Timestamp> {
    let this_century = 1_600_000_000_000_000u64..2_000_000_000_000_000;
    prop_oneof![4 => this_century, 1 => 1_000u64..1_000_000_000].prop_map(Timestamp::from_micros)
}
