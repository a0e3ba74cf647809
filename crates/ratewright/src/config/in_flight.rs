//! What stands under `in_flight`: how many requests may be under way at once.
//!
//! Such a policy selects and tells apart as any other does, but it counts what is under way, here and now. So what is said of
//! time, of the store or of the answer means nothing beside it, and is told of rather than passed over.

use ratewright_core::{Algorithm, Micros, Quota, Rate, WindowStart};

use super::file;
use super::quotas::Quotas;
use super::raw_value::RawValue;
use super::reader::Reader;
use super::values::InFlight;

impl Reader<'_> {
    /// How much a policy with `in_flight` allows.
    pub(super) fn in_flight(
        &mut self,
        path: &str,
        raw: &RawValue<InFlight>,
        policy: &file::Policy,
    ) -> Option<Quotas> {
        if let Some(quota) = &policy.quota {
            self.quotas(&format!("{path}.quota"), quota, None); // only to tell what is wrong with it
            let problem = format!("{path} has a quota and in_flight; write two policies, one with each");
            self.error(quota.position.max(raw.position), problem);
        }
        if let Some(on_failure) = &policy.on_failure {
            let problem = format!(
                "{path}.on_failure means nothing with in_flight, which is counted without Redis; leave it out"
            );
            self.error(on_failure.position, problem);
        }
        if let Some(count) = &policy.count {
            let problem = format!(
                "{path}.count means nothing with in_flight: a request is under way whatever its answer will be; leave it out"
            );
            self.error(count.position, problem);
        }
        self.permits(&format!("{path}.in_flight"), raw)
    }

    /// The quota whose capacity is the most that may be under way. Its window says nothing.
    pub(super) fn permits(&mut self, path: &str, raw: &RawValue<InFlight>) -> Option<Quotas> {
        let InFlight(n) = self.read(path, raw)?;
        let rate = Rate::new(n, Micros::from_secs(1));
        let rate = rate.map_err(|error| self.error(raw.position, format!("{path}: {error}"))).ok()?;
        let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), rate);
        let quota = quota.map_err(|error| self.error(raw.position, format!("{path}: {error}"))).ok()?;
        Some(vec![(None, quota)])
    }
}
