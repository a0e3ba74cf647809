//! Token buckets of Spring's limits, as quotas.

use std::num::NonZeroU32;

use ratewright_core::quota::{Algorithm, Quota, QuotaError, Rate, Refill};

use super::properties::{SpringProperty, is_same};
use super::reader::{A_NAME, DraftDuration, DraftNumber, SpringReader};
use crate::convert::policy_file_draft::quoted;

/// A token bucket of a Spring file.
#[derive(Clone, Debug)]
pub(super) struct DraftBucket {
    pub(super) units: DraftNumber,
    pub(super) period: DraftDuration,
    pub(super) capacity: DraftNumber,
    pub(super) refill: Refill,
}

impl SpringReader<'_> {
    /// A token bucket as a quota. If Ratewright cannot express it, the nearest stricter one.
    pub(super) fn bucket_quota(&mut self, property: &SpringProperty, bucket: &DraftBucket) -> String {
        let DraftBucket { units, period, capacity, refill } = bucket;
        let mut burst = capacity.text.clone();
        let known = || {
            let rate = Rate::new(NonZeroU32::new(units.value?)?, period.value?).ok()?;
            Some((rate, NonZeroU32::new(capacity.value?)?))
        };
        if let Some((rate, capacity)) = known() {
            let quota = Quota::new(Algorithm::TokenBucket(*refill), rate)
                .and_then(|quota| quota.with_burst(capacity));
            if let Err(QuotaError::TooSlow { .. }) = quota {
                let window = u128::from(rate.window().as_micros());
                // Rounded down: the bucket must refill within 100 years.
                let most = u128::from(Rate::WINDOW_MAX.as_micros()) * u128::from(rate.units().get()) / window;
                burst = most.max(1).to_string();
                self.warn(
                    property,
                    &format!("{capacity} tokens take over 100 years to refill; lowered to {burst}"),
                );
            }
        }
        let stepped = if *refill == Refill::Stepped { ", refill: stepped" } else { "" };
        format!("{{ rate: {}, burst: {}{stepped} }}", rate_text(units, period), quoted(&burst))
    }

    /// The refill by its name in Bucket4j: greedy, or intervally.
    pub(super) fn refill(&mut self, property: Option<&SpringProperty>) -> Refill {
        const STEPPED: [&str; 4] = ["intervally", "interval", "refill-intervally", "intervally-aligned"];
        let Some(property) = property else { return Refill::Smooth };
        let name = self.fixed(property, A_NAME).unwrap_or_default();
        if STEPPED.iter().any(|known| is_same(known, &name)) {
            return Refill::Stepped;
        }
        if !["greedy", "refill-greedy"].iter().any(|known| is_same(known, &name)) {
            self.assume(
                property,
                "greedy: this refill is not known, and tokens come back evenly. Or write refill: stepped",
            );
        }
        Refill::Smooth
    }
}

/// A rate in YAML.
pub(super) fn rate_text(units: &DraftNumber, period: &DraftDuration) -> String {
    let period =
        match period.text.strip_prefix('1').filter(|unit| unit.starts_with(|c: char| c.is_alphabetic())) {
            Some(unit) => unit,
            None => &period.text,
        };
    quoted(&format!("{}/{period}", units.text))
}
