//! Limits that requests bring along, in place of those that are configured.
//!
//! Their buckets are told apart by the domain and by all entries, and each unit has its own: a policy for each unit, whose quota is
//! the request's.

use ratewright_core::{Algorithm, AttributeName, Part, Policy, Quota, Rate, Selector, WindowStart};
use ratewright_rls_rules::{Entry, Unit};

use crate::wire::{RateLimitOverride, RateLimitUnit};

/// The attributes that tell buckets apart.
pub(crate) const DOMAIN: &str = "domain";
pub(crate) const ENTRIES: &str = "entries";

/// Windows as the original has them.
const ALGORITHM: Algorithm = Algorithm::FixedWindow(WindowStart::Epoch);

/// A limit that a request brought along.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: Unit,
    /// Nothing for a limit of zero.
    pub(crate) quota: Option<Quota>,
    /// All entries in one text.
    pub(crate) entries: String,
}

impl Brought {
    /// Nothing if the unit is none: then what is configured counts.
    pub(crate) fn new(limit: &RateLimitOverride, entries: &[Entry<'_>]) -> Option<Self> {
        let unit = match RateLimitUnit::try_from(limit.unit).ok()? {
            RateLimitUnit::Unknown => return None,
            RateLimitUnit::Second => Unit::Second,
            RateLimitUnit::Minute => Unit::Minute,
            RateLimitUnit::Hour => Unit::Hour,
            RateLimitUnit::Day => Unit::Day,
            RateLimitUnit::Month => Unit::Month,
            RateLimitUnit::Year => Unit::Year,
        };
        let quota = quota(limit.requests_per_unit, unit);
        let mut text = String::new();
        for Entry { key, value } in entries {
            text.extend([key, "_", value, "_"]);
        }
        Some(Self { requests_per_unit: limit.requests_per_unit, unit, quota, entries: text })
    }

    /// The policy that counts it.
    pub(crate) fn policy(&self) -> &'static str {
        name(self.unit)
    }
}

fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Second => "envoy..brought.second",
        Unit::Minute => "envoy..brought.minute",
        Unit::Hour => "envoy..brought.hour",
        Unit::Day => "envoy..brought.day",
        Unit::Week => "envoy..brought.week",
        Unit::Month => "envoy..brought.month",
        Unit::Year => "envoy..brought.year",
    }
}

fn quota(requests_per_unit: u32, unit: Unit) -> Option<Quota> {
    let units = requests_per_unit.try_into().ok()?;
    Quota::new(ALGORITHM, Rate::new(units, unit.length()).ok()?).ok()
}

/// The policies that a rule set must have for limits that requests bring along. No domain is empty, so none of a domain has such a
/// name.
pub fn policies() -> Vec<Policy> {
    let partition =
        || [DOMAIN, ENTRIES].map(|name| Part::one(AttributeName::Named(name.to_owned()))).to_vec();
    let policy = |unit: Unit| {
        let policy = Policy::new(name(unit), quota(1, unit)?).ok()?;
        Some(policy.covering(Selector::Named).partitioned(partition()))
    };
    Unit::ALL.into_iter().filter_map(policy).collect()
}

/// True if it is one of them, and no rule that somebody wrote.
pub fn is_brought(policy: &Policy) -> bool {
    Unit::ALL.into_iter().any(|unit| name(unit) == policy.name())
}
