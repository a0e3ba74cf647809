//! The report: what a simulation found. Plain data; `text`, `html` and JSON show it.

mod escape;
mod html;
mod number;
mod report_table;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod schema_tests;
mod sparkline;
pub mod suggestion;
mod svg;
mod text;
mod time;
mod timeline;

pub use suggestion::{BurstSuggestion, CurvePoint, Suggestion};

use ratewright_core::Timestamp;
use serde::{Serialize, Serializer};

/// The JSON Schema of a [`Report`] as JSON.
pub const SCHEMA: &str = include_str!("../schema/report.json");

/// The JSON Schema of a [`Suggestion`] as JSON.
pub const SUGGESTION_SCHEMA: &str = include_str!("../schema/suggestion.json");

/// What a replay of logs against a policy file found.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The first and the last request, if there was one.
    pub period: Option<Period>,
    /// The logs, in the order in which they begin.
    pub logs: Vec<LogReport>,
    /// Lines read, without empty ones.
    pub lines: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Lines that are not about a request: comments, and connections without a valid request.
    pub not_requests: u64,
    /// Requests that were not replayed because they are more than a minute out of order.
    pub out_of_order: u64,
    /// Requests replayed.
    pub requests: u64,
    /// Requests that all enforced policies together allow.
    pub allowed: u64,
    /// Requests that at least one enforced policy denies.
    pub denied: u64,
    /// Client addresses (an IPv6 network is one).
    pub clients: u64,
    /// Client addresses with at least one denied request.
    pub clients_denied: u64,
    /// Requests per interval.
    pub timeline: Timeline,
    /// Every policy of the file, in its order.
    pub policies: Vec<PolicyReport>,
    /// The log's own decisions, if it has some.
    pub logged: Option<LoggedReport>,
    /// Requests that were answered with 429 in the log: it does not show how often these clients would have come.
    pub logged_429: u64,
    /// The comparison with another policy file.
    pub against: Option<AgainstReport>,
    /// The first lines that could not be read.
    pub unreadable_lines: Vec<UnreadableLine>,
    /// What a reader must know to trust the numbers.
    pub notes: Vec<String>,
}

/// A period of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Period {
    /// The first request.
    #[serde(serialize_with = "rfc3339")]
    pub from: Timestamp,
    /// The last request.
    #[serde(serialize_with = "rfc3339")]
    pub to: Timestamp,
}

/// One log.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LogReport {
    /// The name of the file.
    pub log: String,
    /// The name of its format.
    pub format: String,
    /// Lines read, without empty ones.
    pub lines: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Why the rest of it was not read, if it was not.
    pub error: Option<String>,
}

/// What one policy would have done.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct PolicyReport {
    /// Its name.
    pub policy: String,
    /// `enforce`, `shadow` or `off`, as simulated.
    pub mode: &'static str,
    /// Its quotas, as `check` describes them.
    pub limit: String,
    /// What it counts by: the attributes of its partition. Empty: all requests together.
    pub by: Vec<String>,
    /// Requests that it applied to.
    pub requests: u64,
    /// Requests that it let pass; another policy may have denied them.
    pub allowed: u64,
    /// Requests that it denied, or would have denied in shadow mode.
    pub denied: u64,
    /// Requests that it let pass with less than 20 % of a limit left.
    pub near_misses: u64,
    /// Clients that it applied to: combinations of the values that it counts by. If it counts all requests together,
    /// client addresses.
    pub clients: u64,
    /// Clients with at least one denied request.
    pub clients_denied: u64,
    /// The first denial.
    pub first_denial: Option<FirstDenial>,
    /// The clients that were denied most.
    pub most_denied: Vec<DeniedClient>,
    /// Requests per interval.
    pub timeline: Timeline,
    /// Why it was not simulated, or what the log does not tell about it.
    pub notes: Vec<String>,
    /// False if it was not simulated: it is off, or the log does not have what it needs.
    pub is_simulated: bool,
}

/// The first denial of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FirstDenial {
    /// When.
    #[serde(serialize_with = "rfc3339")]
    pub at: Timestamp,
    /// The client.
    pub client: String,
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
}

/// A client that was denied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DeniedClient {
    /// The values that the policy counts by.
    pub client: String,
    /// Its requests.
    pub requests: u64,
    /// Its denied requests.
    pub denied: u64,
    /// The first denial.
    #[serde(serialize_with = "rfc3339")]
    pub first: Timestamp,
    /// The last denial.
    #[serde(serialize_with = "rfc3339")]
    pub last: Timestamp,
}

/// Requests per interval. The n-th interval begins `n × step_seconds` after `from`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Timeline {
    /// Where the first interval begins.
    #[serde(serialize_with = "optional_rfc3339")]
    pub from: Option<Timestamp>,
    /// The length of an interval.
    pub step_seconds: u64,
    /// Allowed requests in each interval.
    pub allowed: Vec<u64>,
    /// Denied requests in each interval.
    pub denied: Vec<u64>,
}

/// The log's own decisions, compared with the simulated ones.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LoggedReport {
    /// Requests with a decision in the log.
    pub requests: u64,
    /// Denied in the log.
    pub denied: u64,
    /// Denied in the log, allowed in the simulation.
    pub only_logged: u64,
    /// Allowed in the log, denied in the simulation.
    pub only_simulated: u64,
    /// The first request with another decision than in the log.
    pub first_difference: Option<FirstDenial>,
}

/// How the decisions of two policy files differ.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct AgainstReport {
    /// The name of the other file.
    pub file: String,
    /// Requests that the other file denies.
    pub denied: u64,
    /// Denied by the new file only.
    pub newly_denied: u64,
    /// Denied by the other file only.
    pub newly_allowed: u64,
    /// Client addresses with at least one newly denied request.
    pub clients_losing: u64,
    /// Client addresses with at least one newly allowed request.
    pub clients_gaining: u64,
    /// The clients with the most newly denied requests; `denied` counts these.
    pub losing_most: Vec<DeniedClient>,
    /// The clients with the most newly allowed requests; `denied` counts those that the other file denied.
    pub gaining_most: Vec<DeniedClient>,
}

/// A line that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct UnreadableLine {
    /// The log.
    pub log: String,
    /// The number of the line, from 1.
    pub line: u64,
    /// Why.
    pub why: String,
    /// Its beginning, with invalid UTF-8 replaced.
    pub text: String,
}

/// A timestamp as text, in UTC with milliseconds.
fn rfc3339<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&ratewright_http::problem::iso(*at))
}

#[expect(clippy::ref_option, reason = "serde requires this signature")]
fn optional_rfc3339<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => rfc3339(at, serializer),
        None => serializer.serialize_none(),
    }
}
