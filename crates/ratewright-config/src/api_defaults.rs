//! The section `api.defaults`: the policies of ad hoc keys.

use std::num::NonZeroU32;

use ratewright_core::Policy;
use ratewright_core::policy::{Mode, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::Algorithm;

use crate::file;
use crate::policies::PolicyContext;
use crate::raw_value::{Located, RawValue};
use crate::reader::Reader;

impl Reader<'_> {
    /// The policies of ad hoc keys: one for each algorithm, under the algorithm's name.
    pub(crate) fn ad_hoc(&mut self, raw: file::Defaults, context: PolicyContext<'_>) -> Vec<Policy> {
        let bucket: fn() -> Located<file::Quota> = || file::Quota::of("10/s", Some(100));
        let window: fn() -> Located<file::Quota> = || file::Quota::of("100/60s", None);
        let defaults: [_; Algorithm::NAMES.len()] = [bucket, bucket, window, window, window];
        let quotas = raw.each().into_iter().zip(defaults);
        let policies = quotas
            .map(|((name, raw), default)| (name, raw.cloned().unwrap_or_else(default)))
            .filter_map(|(name, quota)| self.ad_hoc_policy(name, &quota, context));
        policies.collect()
    }

    fn ad_hoc_policy(
        &mut self,
        name: &str,
        raw: &Located<file::Quota>,
        context: PolicyContext<'_>,
    ) -> Option<Policy> {
        let path = format!("api.defaults.{name}");
        if let Some(algorithm) = &raw.value.algorithm {
            self.error(algorithm.position, format!("{path}.algorithm is always {name}; remove it"));
            return None;
        }
        let quota = self.quota(&path, &raw.value, raw.position, Algorithm::named(name))?;
        let policy =
            Policy::new(name, quota).map_err(|error| self.error(raw.position, error.to_string())).ok()?;
        let mode = if context.enabled { Mode::Enforce } else { Mode::Off };
        Some(
            policy
                .with_selector(Selector::Named)
                .by(&[AttributeName::Key])
                .with_mode(mode)
                .with_on_failure(context.on_failure),
        )
    }
}

impl file::Quota {
    /// A default quota.
    fn of(rate: &str, burst: Option<u32>) -> Located<Self> {
        let burst =
            burst.and_then(NonZeroU32::new).map(|burst| RawValue::without_position(&burst.to_string()));
        Located {
            value: Self { rate: Some(RawValue::without_position(rate)), burst, ..Self::default() },
            position: None,
        }
    }
}
