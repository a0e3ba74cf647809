//! The suggestion: the lowest rate that denies few enough. Plain data; text and JSON show it.

mod text;

use serde::Serialize;

use super::{DeniedClient, LogReport, Period, UnreadableLine};

/// The lowest rate for each burst that denies at most a given share.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Suggestion {
    /// The first and the last request, if there was one.
    pub period: Option<Period>,
    /// The logs, in the order in which they begin.
    pub logs: Vec<LogReport>,
    /// Lines read, without empty ones.
    pub lines: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Lines without a request: comments, and connections that sent no valid request.
    pub lines_without_request: u64,
    /// Requests that were not replayed because they are too far out of order: more than a minute, or some 100 MB of records.
    pub out_of_order: u64,
    /// Requests that the policy applies to.
    pub requests: u64,
    /// Clients that the policy applies to: combinations of the values that it counts by.
    pub clients: u64,
    /// What the policy counts by. Empty: all requests together.
    pub by: Vec<String>,
    /// What `deny_at_most` is a share of: `requests` or `clients`.
    pub of: &'static str,
    /// The largest share that may be denied, as a percentage, or a fraction if it has more than 6 decimals.
    pub deny_at_most: String,
    /// The suggested rate for each burst.
    pub bursts: Vec<BurstSuggestion>,
    /// The first lines that could not be read.
    pub unreadable_lines: Vec<UnreadableLine>,
    /// Caveats that apply to the numbers.
    pub notes: Vec<String>,
}

/// The lowest rate for one burst.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BurstSuggestion {
    /// The burst.
    pub burst: u32,
    /// The rate, such as `12/min`. None: every rate that was tried denies too many.
    pub rate: Option<String>,
    /// Requests denied at this rate.
    pub denied: u64,
    /// Clients with at least one request denied at this rate.
    pub clients_denied: u64,
    /// The next lower rate, which denies too many.
    pub next_lower: Option<CurvePoint>,
    /// The rates that were tried, ascending.
    pub curve: Vec<CurvePoint>,
    /// The clients that this rate denies most.
    pub most_denied: Vec<DeniedClient>,
    /// The policy in YAML, for a policy file.
    pub policy: Option<String>,
    /// If `rate` is `None`: the smallest burst for which some rate stays within the share, if there is one.
    pub sufficient_burst: Option<u32>,
}

/// Requests and clients denied at one rate.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CurvePoint {
    /// The rate, such as `12/min`.
    pub rate: String,
    /// Requests denied.
    pub denied: u64,
    /// Clients with at least one denied request.
    pub clients_denied: u64,
}
