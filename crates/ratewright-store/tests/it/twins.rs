//! One meaning: the memory store and the script give the same standings for the same history.

use proptest::prelude::*;
use ratewright_core::quantity::TIME_MAX;
use ratewright_core::quota::{Algorithm, Leak, Rate, Refill, WindowStart};
use ratewright_core::store::{Act, Basis, Outcome, Receipt, Standing};
use ratewright_core::{Micros, Quota, Timestamp};

use crate::generate::{Gap, algorithms, cost, gaps, quotas_of, starts};
use crate::world::{Gate, MemoryWorld, RedisWorld, join, take, trial};

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes, in terms of the first quota.
    Pass(Gap),
    /// The clock is set back.
    Back(Gap),
    /// A query: charges of these gates, with an act and a share of the capacity, by somebody so patient.
    Query(Vec<(usize, u8, u32)>, Option<Gap>),
    /// One of the receipts so far is given back.
    Refund(usize),
    /// The first gate gets its other quota.
    Change,
    /// A bucket is forgotten.
    Reset(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let shares = prop_oneof![5 => Just(0u32), 3 => 0u32..500, 1 => 0u32..1_100, 1 => 1_000u32..5_000];
    let charges = prop::collection::vec((0usize..3, 0u8..9, shares), 1..5);
    let step = prop_oneof![
        5 => gaps().prop_map(Step::Pass),
        1 => gaps().prop_map(Step::Back),
        10 => (charges, prop::option::of(gaps())).prop_map(|(charges, patience)| Step::Query(charges, patience)),
        3 => (0usize..16).prop_map(Step::Refund),
        2 => Just(Step::Change),
        1 => (0usize..3).prop_map(Step::Reset),
    ];
    prop::collection::vec(step, 1..40)
}

/// Three quotas of these algorithms, and another one for the first gate, whose window stays.
fn quotas(of: [Algorithm; 3]) -> impl Strategy<Value = (Vec<Quota>, Quota)> {
    let [a, b, c] = of.map(quotas_of);
    (a, b, c, quotas_of(of[0])).prop_map(|(a, b, c, other)| {
        let rate = Rate::new(other.rate().units(), a.window()).unwrap();
        let other = if a.algorithm().has_burst() { other } else { Quota::new(a.algorithm(), rate).unwrap() };
        (vec![a, b, c], other)
    })
}

/// A standing without its basis, and without the receipt's identity.
fn told(standing: &Standing) -> (String, u32, Micros, Micros) {
    (format!("{:?}", standing.outcome), standing.remaining, standing.reset_after, standing.wait)
}

/// Plays one history in both worlds.
fn play(quotas: Vec<Quota>, other: Quota, start: Timestamp, steps: Vec<Step>) -> Result<(), TestCaseError> {
    // So much room that two keys hardly ever lie in one shard: a new key there makes the store forget what meant
    // nothing under the quota it was written under, and under a changed quota it may mean something.
    let (memory, redis) = (MemoryWorld::with_room_for(10_000_000, start), RedisWorld::at(start));
    let names = ["a", "b", "c"];
    let mut gates: Vec<_> =
        quotas.into_iter().zip(names).map(|(quota, name)| Gate::new(name, quota)).collect();
    let mut other = Gate::new("a", other);
    let mut receipts: Vec<(usize, bool, Receipt, Receipt)> = Vec::new();
    let (mut changed, mut ever_changed) = (false, false);
    for step in steps {
        match step {
            Step::Pass(gap) => {
                // Up to the very end of time: there some laws end, but not this one.
                let then =
                    ratewright_core::Clock::now(&memory.clock) + Micros::new(gap.micros(&gates[0].quota));
                memory.clock.set(then.min(Timestamp::from_micros(TIME_MAX - 1)));
            }
            Step::Back(gap) => {
                // What means nothing any more may be forgotten, by each world in its own time; going back it
                // would mean something again.
                redis.clock.set(ratewright_core::Clock::now(&memory.clock));
                for (n, gate) in gates.iter().enumerate() {
                    let standing = memory.peek(gate);
                    prop_assert_eq!(told(&standing), told(&redis.peek(gate)));
                    let is_full = standing.remaining == gate.capacity() && standing.reset_after.is_zero();
                    // Where the quota was changed, there may be another state that means nothing any more.
                    if is_full || n == 0 && ever_changed {
                        memory.reset(gate);
                        redis.reset(gate);
                    }
                }
                let now = ratewright_core::Clock::now(&memory.clock).as_micros();
                let back = gap.micros(&gates[0].quota);
                memory.clock.set(Timestamp::from_micros(now.saturating_sub(back)));
            }
            Step::Query(charges, patience) => {
                let patience = patience.map_or(Micros::MAX, |gap| Micros::new(gap.micros(&gates[0].quota)));
                redis.clock.set(ratewright_core::Clock::now(&memory.clock));
                let charges: Vec<_> = charges
                    .iter()
                    .map(|&(gate, act, share)| {
                        let cost = cost(share, &gates[gate].quota);
                        let act = match act {
                            0 | 1 => take(cost),
                            2 => trial(cost),
                            3 => Act::Record(cost),
                            4 => Act::Look(cost),
                            5 => Act::Record(0),
                            7 | 8 => join(cost),
                            _ => Act::Look(0),
                        };
                        (&gates[gate], "c", act)
                    })
                    .collect();
                let of_gate: Vec<_> = charges
                    .iter()
                    .map(|(gate, _, _)| gates.iter().position(|other| std::ptr::eq(other, *gate)).unwrap())
                    .collect();
                let ours = memory.apply_within(patience, &charges);
                let theirs = redis.apply_within(patience, &charges);
                prop_assert_eq!(
                    ours.iter().map(told).collect::<Vec<_>>(),
                    theirs.iter().map(told).collect::<Vec<_>>(),
                    "{:?}",
                    charges.iter().map(|(gate, _, act)| (&gate.quota, act)).collect::<Vec<_>>()
                );
                prop_assert!(theirs.iter().all(|standing| standing.basis == Basis::Shared));
                for ((ours, theirs), gate) in ours.into_iter().zip(theirs).zip(of_gate) {
                    if let (Outcome::Charged(ours), Outcome::Charged(theirs)) = (ours.outcome, theirs.outcome)
                    {
                        receipts.push((gate, changed && gate == 0, ours, theirs));
                    }
                }
            }
            Step::Refund(nth) if !receipts.is_empty() => {
                redis.clock.set(ratewright_core::Clock::now(&memory.clock));
                let (gate, was_changed, ours, theirs) = receipts.swap_remove(nth % receipts.len());
                // To the quota that was charged, also while the other one is in use.
                let gate = if gate == 0 && was_changed != changed { &other } else { &gates[gate] };
                prop_assert_eq!(memory.refund(gate, ours), redis.refund(gate, theirs));
            }
            Step::Refund(_) => {}
            Step::Change => {
                std::mem::swap(&mut gates[0], &mut other);
                (changed, ever_changed) = (!changed, true);
            }
            Step::Reset(gate) => {
                memory.reset(&gates[gate]);
                redis.reset(&gates[gate]);
            }
        }
    }
    Ok(())
}

/// Histories of each algorithm. Many more under `make test-all`.
fn cases() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases * 2, ..config }
}

macro_rules! twins {
    ($($name:ident: $algorithm:expr,)*) => {
        proptest! {
            #![proptest_config(cases())]
            $(
                #[test]
                fn $name(
                    (quotas, other) in quotas([$algorithm; 3]),
                    start in starts(),
                    steps in steps(),
                ) {
                    play(quotas, other, start, steps)?;
                }
            )*
        }
    };
}

twins! {
    token_buckets_agree: Algorithm::TokenBucket(Refill::Smooth),
    stepped_buckets_agree: Algorithm::TokenBucket(Refill::Stepped),
    meters_agree: Algorithm::LeakyBucket(Leak::Meter),
    queues_agree: Algorithm::LeakyBucket(Leak::Queue),
    logs_agree: Algorithm::SlidingWindow,
    counters_agree: Algorithm::SlidingWindowCounter,
    fixed_windows_agree: Algorithm::FixedWindow(WindowStart::Epoch),
    windows_from_the_first_hit_agree: Algorithm::FixedWindow(WindowStart::FirstHit),
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn mixed_algorithms_agree(
        (quotas, other) in [algorithms(), algorithms(), algorithms()].prop_flat_map(quotas),
        start in starts(),
        steps in steps(),
    ) {
        play(quotas, other, start, steps)?;
    }
}

/// Logs of some hundred charges, which the script keeps in several chunks: charges of all kinds, refunds from anywhere,
/// and clocks that step back.
#[test]
fn long_logs_agree() {
    for seed in 1..=6_u64 {
        let start = Timestamp::from_micros(1_700_000_000_000_000);
        let (memory, redis) = (MemoryWorld::at(start), RedisWorld::at(start));
        let gate =
            Gate::new("long", Quota::new(Algorithm::SlidingWindow, "300/60s".parse().unwrap()).unwrap());
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut receipts = Vec::new();
        for step in 0..1_500 {
            let now = ratewright_core::Clock::now(&memory.clock).as_micros();
            let now = match next(400) {
                0 => now - next(90_000_000),
                1 => now + next(90_000_000),
                _ => now + next(150_000),
            };
            memory.clock.set(Timestamp::from_micros(now));
            redis.clock.set(Timestamp::from_micros(now));
            let cost = u32::try_from(1 + next(20) / 19 * next(300)).unwrap();
            let act = match next(20) {
                0 => Act::Look(cost),
                1..=5 => Act::Record(cost),
                _ => take(cost),
            };
            let (ours, theirs) = (memory.apply(&gate, act), redis.apply(&gate, act));
            assert_eq!(told(&ours), told(&theirs), "seed {seed}, step {step}: {act:?}");
            if let (Outcome::Charged(ours), Outcome::Charged(theirs)) = (ours.outcome, theirs.outcome) {
                receipts.push((ours, theirs));
            }
            if next(4) == 0 && !receipts.is_empty() {
                let nth = usize::try_from(next(receipts.len() as u64)).unwrap();
                let (ours, theirs) = receipts.swap_remove(nth);
                assert_eq!(
                    memory.refund(&gate, ours),
                    redis.refund(&gate, theirs),
                    "seed {seed}, step {step}"
                );
            }
        }
    }
}
