//! Descriptors as in the file, before any check.

use ratewright_core::quota::{Algorithm, WindowStart};

/// One node of a domain's tree: the entries that it matches, and their limits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptor {
    /// The entry's key.
    pub key: String,
    /// The entry's value, in which `*` matches any text. Empty: matches every value.
    pub value: String,
    /// The limits, all of which apply. Empty: no limit at this level.
    pub rate_limits: Vec<RateLimit>,
    /// Counts and never denies.
    pub shadow_mode: bool,
    /// A request is denied only if all of its descriptors in this mode are over their limits.
    pub quota_mode: bool,
    /// Counts even past the limit: for requests that have already happened.
    pub record_mode: bool,
    /// The metric's name contains all values of the request.
    pub detailed_metric: bool,
    /// The metric's name, also that of nested descriptors, contains the request's value at this level.
    pub value_to_metric: bool,
    /// All values that match the wildcard share one bucket.
    pub share_threshold: bool,
    /// Metadata for responses, a JSON object. Not interpreted.
    pub metadata: Option<String>,
    /// Nested descriptors, for requests with further entries.
    pub descriptors: Vec<Descriptor>,
}

/// A limit as in the file: requests in a unit of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// The unit's name, case-insensitive.
    pub unit: String,
    /// How many requests. 0 denies all.
    pub requests_per_unit: u32,
    /// No limit; excludes a unit.
    pub unlimited: bool,
    /// The name in responses and in [`RateLimit::replaces`]. Empty: none.
    pub name: String,
    /// The names of limits that this one replaces if both match a request.
    pub replaces: Vec<String>,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The burst, for buckets. Default: `requests_per_unit`.
    pub burst: Option<u32>,
    /// The window in units.
    pub unit_multiplier: u32,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            unit: String::new(),
            requests_per_unit: 0,
            unlimited: false,
            name: String::new(),
            replaces: Vec::new(),
            algorithm: Algorithm::FixedWindow(WindowStart::Epoch),
            burst: None,
            unit_multiplier: 1,
        }
    }
}

impl Descriptor {
    /// True if names of metrics contain values of requests, here or in nested descriptors.
    pub(crate) fn has_values_in_metrics(&self) -> bool {
        self.detailed_metric
            || self.value_to_metric
            || self.descriptors.iter().any(Self::has_values_in_metrics)
    }

    /// The text that matches a request's entry: `key_value`, or `key` alone.
    pub fn composite(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}_{}", self.key, self.value) }
    }
}
