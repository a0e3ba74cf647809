//! What stands under `api.defaults`: the policies behind ad hoc keys.

use std::num::NonZeroU32;

use ratewright_core::{Algorithm, AttributeName, Mode, Policy, Selector};

use super::file;
use super::policies::Whole;
use super::reader::Reader;
use super::written::{At, Written};

impl Reader<'_> {
    /// The policies behind ad hoc keys: one for each algorithm, under the algorithm's name.
    pub(super) fn ad_hoc(&mut self, written: file::Defaults, whole: Whole<'_>) -> Vec<Policy> {
        let bucket: fn() -> At<file::Quota> = || file::Quota::of("10/s", Some(100));
        let window: fn() -> At<file::Quota> = || file::Quota::of("100/60s", None);
        let quotas = written.each().into_iter().zip([bucket, bucket, window, window, window]);
        let policies = quotas
            .map(|((name, written), default)| (name, written.cloned().unwrap_or_else(default)))
            .filter_map(|(name, quota)| self.ad_hoc_policy(name, &quota, whole));
        policies.collect()
    }

    fn ad_hoc_policy(&mut self, name: &str, written: &At<file::Quota>, whole: Whole<'_>) -> Option<Policy> {
        let path = format!("api.defaults.{name}");
        if let Some(algorithm) = &written.value.algorithm {
            self.wrong(algorithm.place, format!("{path}.algorithm is {name} already; leave it out"));
            return None;
        }
        let quota = self.quota(&path, &written.value, written.place, Algorithm::named(name))?;
        let policy =
            Policy::new(name, quota).map_err(|error| self.wrong(written.place, error.to_string())).ok()?;
        let mode = if whole.enabled { Mode::Enforce } else { Mode::Off };
        Some(
            policy
                .covering(Selector::Named)
                .by(&[AttributeName::Key])
                .in_mode(mode)
                .with_on_failure(whole.on_failure),
        )
    }
}

impl file::Quota {
    /// A quota that nobody wrote.
    fn of(rate: &str, burst: Option<u32>) -> At<Self> {
        let burst = burst.and_then(NonZeroU32::new).map(|burst| Written::unwritten(&burst.to_string()));
        At { value: Self { rate: Some(Written::unwritten(rate)), burst, ..Self::default() }, place: None }
    }
}
