//! `in_flight`: how many requests may be in flight at once.
//!
//! A policy with `in_flight` selects requests and partitions them like any other, but counts only current requests, in
//! this process. Settings about time, the store or the response have no effect with it and are errors.

use ratewright_core::policy::AfterAbort;
use ratewright_core::quota::{Algorithm, Rate, WindowStart};
use ratewright_core::{Micros, Quota};

use crate::file;
use crate::quotas::Quotas;
use crate::raw_value::RawValue;
use crate::reader::Reader;
use crate::values::InFlight;

impl Reader<'_> {
    /// How much a policy with `in_flight` allows.
    pub(crate) fn in_flight(
        &mut self,
        path: &str,
        raw: &RawValue<InFlight>,
        policy: &file::Policy,
    ) -> Option<Quotas> {
        if let Some(quota) = &policy.quota {
            self.quotas(&format!("{path}.quota"), quota, None); // only to report its errors
            let problem = format!("{path} has a quota and in_flight; write two policies, one with each");
            self.error(quota.position.max(raw.position), problem);
        }
        if let Some(on_failure) = &policy.on_failure {
            let problem = format!(
                "{path}.on_failure has no effect with in_flight, which does not use Redis; remove it"
            );
            self.error(on_failure.position, problem);
        }
        if let Some(count) = &policy.count {
            let problem = format!(
                "{path}.count has no effect with in_flight, which counts every request, whatever its response; remove it"
            );
            self.error(count.position, problem);
        }
        self.permits(&format!("{path}.in_flight"), raw)
    }

    /// When a permit is released whose client has disconnected.
    pub(crate) fn after_abort(&mut self, path: &str, policy: &file::Policy) -> Option<AfterAbort> {
        let raw = policy.after_abort.as_ref()?;
        if policy.in_flight.is_none() {
            let problem = format!("{path}.after_abort has no effect without in_flight; remove it");
            self.error(raw.position, problem);
        }
        self.read(&format!("{path}.after_abort"), raw)
    }

    /// A quota whose capacity is the most requests in flight. Its window is not used.
    pub(crate) fn permits(&mut self, path: &str, raw: &RawValue<InFlight>) -> Option<Quotas> {
        let InFlight(n) = self.read(path, raw)?;
        let rate = Rate::new(n, Micros::from_secs(1));
        let rate = rate.map_err(|error| self.error(raw.position, format!("{path}: {error}"))).ok()?;
        let quota = Quota::new(Algorithm::FixedWindow(WindowStart::default()), rate);
        let quota = quota.map_err(|error| self.error(raw.position, format!("{path}: {error}"))).ok()?;
        Some(vec![(None, quota)])
    }
}
