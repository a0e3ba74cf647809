//! The report: what a simulation found. Plain data; `text`, `html` and JSON show it.

mod client_row;
mod escape;
mod html;
pub(crate) mod number;
mod report_table;
#[cfg(test)]
mod schema_tests;
mod sparkline;
pub mod suggestion;
mod svg;
#[cfg(test)]
mod test_reports;
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
    /// Lines without a request: comments, and connections that sent no valid request.
    pub lines_without_request: u64,
    /// Requests that were not replayed because they are too far out of order: more than a minute, or some 100 MB of records.
    pub out_of_order: u64,
    /// Requests replayed.
    pub requests: u64,
    /// Requests that no enforced policy denies.
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
    pub logged_decisions: Option<LoggedDecisionsReport>,
    /// Requests with status 429 in the log. Without them, the clients might have sent more.
    pub status_429: u64,
    /// The comparison with another policy file.
    pub against: Option<ComparisonReport>,
    /// The first lines that could not be read.
    pub unreadable_lines: Vec<UnreadableLine>,
    /// Caveats that apply to the numbers.
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

/// The simulated result of one policy.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct PolicyReport {
    /// Its name.
    pub policy: String,
    /// `enforce`, `shadow` or `off`, as simulated.
    pub mode: &'static str,
    /// Its quotas as readable text; not meant to be parsed.
    pub limit: String,
    /// What it counts by: the attributes of its partition. Empty: all requests together.
    pub by: Vec<String>,
    /// Requests that it applied to.
    pub requests: u64,
    /// Requests that it let pass; another policy may have denied them.
    pub allowed: u64,
    /// Requests that it denied, or would have denied in shadow mode.
    pub denied: u64,
    /// Requests that it let pass with less than 20% of a limit left.
    pub near_misses: u64,
    /// Clients that it applied to: combinations of the values that it counts by. If it counts all requests together,
    /// client addresses.
    pub clients: u64,
    /// Clients with at least one denied request.
    pub clients_denied: u64,
    /// The first denial.
    pub first_denial: Option<RequestSummary>,
    /// The clients that were denied most.
    pub most_denied: Vec<DeniedClient>,
    /// Requests per interval.
    pub timeline: Timeline,
    /// Why it was not simulated, or what the log does not record about it.
    pub notes: Vec<String>,
    /// False if it was not simulated: it is off, or the log does not record what it needs.
    pub is_simulated: bool,
}

/// A request, in short.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RequestSummary {
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
    pub first_denied_at: Timestamp,
    /// The last denial.
    #[serde(serialize_with = "rfc3339")]
    pub last_denied_at: Timestamp,
}

/// Requests per interval. The n-th interval begins `n × interval_seconds` after `from`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Timeline {
    /// Where the first interval begins.
    #[serde(serialize_with = "optional_rfc3339")]
    pub from: Option<Timestamp>,
    /// The length of an interval.
    pub interval_seconds: u64,
    /// Allowed requests in each interval.
    pub allowed: Vec<u64>,
    /// Denied requests in each interval.
    pub denied: Vec<u64>,
}

/// The log's own decisions, compared with the simulated ones.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct LoggedDecisionsReport {
    /// Requests with a decision in the log.
    pub requests: u64,
    /// Denied in the log.
    pub denied: u64,
    /// Denied in the log, allowed in the simulation.
    pub denied_only_in_log: u64,
    /// Allowed in the log, denied in the simulation.
    pub denied_only_in_simulation: u64,
    /// The first request whose simulated decision differs from the logged one.
    pub first_difference: Option<DecisionDifference>,
}

/// A request whose simulated decision differs from the logged one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DecisionDifference {
    /// The request.
    #[serde(flatten)]
    pub request: RequestSummary,
    /// Where it was denied: `log` or `simulation`.
    pub denied_in: &'static str,
}

/// How the decisions of two policy files differ.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ComparisonReport {
    /// The name of the other file.
    pub file: String,
    /// Requests that the other file denies.
    pub denied: u64,
    /// Denied by the new file only.
    pub newly_denied: u64,
    /// Denied by the other file only.
    pub newly_allowed: u64,
    /// Client addresses with at least one newly denied request.
    pub clients_newly_denied: u64,
    /// Client addresses with at least one newly allowed request.
    pub clients_newly_allowed: u64,
    /// The clients with the most newly denied requests.
    pub most_newly_denied: Vec<ClientChange>,
    /// The clients with the most newly allowed requests.
    pub most_newly_allowed: Vec<ClientChange>,
}

/// A client for which the decisions of two policy files differ.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClientChange {
    /// The client's address.
    pub client: String,
    /// Its requests.
    pub requests: u64,
    /// Its newly denied or newly allowed requests.
    pub changed: u64,
    /// The time of the first of them.
    #[serde(serialize_with = "rfc3339")]
    pub first_at: Timestamp,
    /// The time of the last of them.
    #[serde(serialize_with = "rfc3339")]
    pub last_at: Timestamp,
}

/// A line that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct UnreadableLine {
    /// The log.
    pub log: String,
    /// The number of the line, from 1.
    pub line: u64,
    /// Why.
    pub reason: String,
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
