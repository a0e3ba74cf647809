//! A token bucket as a textbook has it, in big rationals: slow, simple, and written from the definition.

use num_bigint::BigInt;
use num_rational::BigRational;
use proptest::prelude::*;
use ratewright_core::Quota;
use ratewright_core::quota::{Algorithm, Leak, Refill};
use ratewright_core::store::Outcome;

use super::World;
use crate::generate::{cost, quotas_of, starts, visits};
use crate::world::{Gate, take};

/// Tokens, and when they were counted.
struct Textbook {
    tokens: BigRational,
    counted_at: u64,
}

impl Textbook {
    fn earn(&mut self, quota: &Quota, now: u64) {
        let rate = BigRational::new(quota.units().into(), quota.window().as_micros().into());
        let earned = rate * BigRational::from(BigInt::from(now - self.counted_at));
        self.tokens = (&self.tokens + earned).min(whole(quota.capacity().get()));
        self.counted_at = now;
    }

    fn take(&mut self, cost: u32) -> bool {
        let fits = whole(cost) <= self.tokens;
        if fits {
            self.tokens -= whole(cost);
        }
        fits
    }

    fn remaining(&self) -> BigInt {
        self.tokens.floor().to_integer()
    }

    /// Microseconds until so many tokens are there, rounded up.
    fn until(&self, quota: &Quota, tokens: u32) -> BigInt {
        let missing = whole(tokens) - &self.tokens;
        let per_token = BigRational::new(quota.window().as_micros().into(), quota.units().into());
        (missing * per_token).ceil().to_integer().max(0.into())
    }
}

fn whole(n: u32) -> BigRational {
    BigRational::from(BigInt::from(n))
}

fn buckets() -> impl Strategy<Value = Quota> {
    let smooth = Just(Algorithm::TokenBucket(Refill::Smooth));
    prop_oneof![smooth, Just(Algorithm::LeakyBucket(Leak::Meter))].prop_flat_map(quotas_of)
}

proptest! {
    #![proptest_config(super::config())]

    /// Every standing of a token bucket and of a leaky meter is the textbook's, to the microsecond and unit.
    #[test]
    fn buckets_agree_with_the_textbook(quota in buckets(), start in starts(), visits in visits(150)) {
        let (world, gate) = (World::at(start), Gate::new("g", quota));
        let mut now = start.as_micros();
        let mut textbook = Textbook { tokens: whole(gate.capacity()), counted_at: now };
        for (gap, share) in visits {
            if !world.pass(gap, &[&gate]) { break }
            now += gap.micros(&gate.quota);
            let cost = cost(share, &gate.quota);
            let standing = world.apply(&gate, take(cost));
            textbook.earn(&gate.quota, now);
            let expected = if textbook.take(cost) { "paid" } else { "not" };
            let got = match standing.outcome {
                Outcome::Charged(_) => "paid",
                Outcome::Denied { retry_after } => {
                    let wait = textbook.until(&gate.quota, cost);
                    prop_assert_eq!(BigInt::from(retry_after.as_micros()), wait);
                    "not"
                }
                Outcome::Never => "not",
                Outcome::WouldPass | Outcome::Unknown => "neither",
            };
            prop_assert_eq!(got, expected);
            prop_assert_eq!(BigInt::from(standing.remaining), textbook.remaining());
            let full = textbook.until(&gate.quota, gate.capacity());
            prop_assert_eq!(BigInt::from(standing.reset_after.as_micros()), full);
        }
    }
}
