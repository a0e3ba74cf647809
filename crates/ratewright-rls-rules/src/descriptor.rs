//! Descriptors as they are written. Nothing here is checked yet.

use ratewright_core::{Algorithm, WindowStart};

/// One level of a tree: which entries it is for, and what becomes of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptor {
    /// The entry's key.
    pub key: String,
    /// The entry's value, with any number of stars for any text. Empty for every value.
    pub value: String,
    /// What is allowed. Several all apply; none means that there is no limit here.
    pub rate_limits: Vec<RateLimit>,
    /// Counted, and never denied.
    pub shadow_mode: bool,
    /// A request is denied only if all of its descriptors in this mode are over their limits.
    pub quota_mode: bool,
    /// Counted even past the limit: for what has happened already when it is told.
    pub record_mode: bool,
    /// The metric of this descriptor has all values of the request.
    pub detailed_metric: bool,
    /// The metric of this descriptor, and of those below it, has the request's value.
    pub value_to_metric: bool,
    /// All values that fit the stars share one bucket.
    pub share_threshold: bool,
    /// What is told to whoever asks, a JSON object. Not understood here.
    pub metadata: Option<String>,
    /// What is for requests with further entries.
    pub descriptors: Vec<Descriptor>,
}

/// So many requests in a unit of time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// The unit's name, in any case.
    pub unit: String,
    /// How many. With none, all are denied.
    pub requests_per_unit: u32,
    /// Without a limit, and without a unit.
    pub unlimited: bool,
    /// What answers and [`RateLimit::replaces`] call it. Empty for no name.
    pub name: String,
    /// The names of limits that do not count in a request that meets this one.
    pub replaces: Vec<String>,
    /// How it is counted.
    pub algorithm: Algorithm,
    /// How many at once, for a bucket. Otherwise as many as in a window.
    pub burst: Option<u32>,
    /// How many units make a window.
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
    /// True if metrics have values of requests in their names, here or below.
    pub(crate) fn has_values_in_metrics(&self) -> bool {
        self.detailed_metric
            || self.value_to_metric
            || self.descriptors.iter().any(Self::has_values_in_metrics)
    }

    /// The text that a request's entry is compared with: `key_value`, or `key` alone.
    pub fn composite(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}_{}", self.key, self.value) }
    }
}
