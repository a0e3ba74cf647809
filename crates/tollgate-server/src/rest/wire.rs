//! The answers of `check`, `remaining`, `reset` and `refund`.

use http::{HeaderName, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::{Basis, Decision, Timestamp, Verdict};
use tollgate_http::{FieldStyle, Fields, Problem};

use super::asked::Asked;
use super::decide::LimitState;
use super::params::{self, Which};
use crate::answer::json;

/// Under which name requests and answers carry their id.
pub(super) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// What came of a check.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Checked<'a> {
    /// Whether it may go on.
    allowed: bool,
    /// The bucket.
    key: &'a str,
    algorithm: &'static str,
    /// The policy, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    /// Whole units that are left.
    remaining: u32,
    /// Seconds until a bucket is full again, or until a window or its oldest entry leaves.
    reset_after_seconds: u64,
    /// Seconds after which it would be allowed; 0 if it is.
    retry_after_seconds: u64,
    message: &'static str,
    /// On what ground: `shared`, `local`, `fail_open`, `fail_closed`, or `off`.
    basis: &'static str,
}

/// How a key stands.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Looked<'a> {
    key: &'a str,
    algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    remaining: u32,
    reset_after_seconds: u64,
    basis: &'static str,
}

/// How a key stands, under each quota.
#[derive(Serialize)]
struct Inspected<'a> {
    #[serde(flatten)]
    looked: Looked<'a>,
    /// None, if the policy is off.
    limits: Vec<LimitState<'a>>,
}

/// That a key was forgotten, and where.
#[derive(Serialize, JsonSchema)]
pub(super) struct Forgotten<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    message: &'static str,
    basis: &'static str,
}

/// How many charges were given back.
#[derive(Serialize, JsonSchema)]
pub(super) struct Refunded {
    /// Charges whose limit is still in force.
    refunded: usize,
    message: &'static str,
}

impl Refunded {
    pub(super) fn of(refunded: usize) -> Self {
        Self { refunded, message: "Refunded, as far as time has not repaid it" }
    }
}

/// What an answer says in words.
pub(super) fn message(decision: &Decision) -> &'static str {
    match (decision.verdict(), decision.basis()) {
        (Verdict::Allow, _) => "Request allowed",
        (Verdict::Deny, _) if decision.refused().is_some() => "Request cannot be counted",
        (Verdict::Deny, Some(Basis::FailClosed)) => "Rate limits cannot be checked",
        (Verdict::Deny, _) => "Rate limit exceeded",
    }
}

/// Renders what was decided. Asking for more than there can ever be is the asker's mistake, not a denial.
pub(super) fn checked(
    asked: &Asked,
    decision: &Decision,
    now: Timestamp,
    style: FieldStyle,
) -> Result<Response<String>, Problem> {
    let level = Level::of(asked, decision, now)?;
    if decision.retry_after().is_none() {
        let (permits, name, capacity) = (asked.permits, asked.name(), level.fields.tightest().capacity);
        let detail =
            format!("permits is {permits}, and {name} never has more than {capacity}; use 1 to {capacity}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("permits"));
    }
    let body = Checked {
        allowed: decision.verdict() == Verdict::Allow,
        key: &asked.key,
        algorithm: asked.algorithm_name(decision),
        policy: asked.policy(),
        remaining: level.fields.tightest().remaining,
        reset_after_seconds: level.fields.reset_after(),
        retry_after_seconds: level.fields.retry_after().unwrap_or(0),
        message: message(decision),
        basis: level.basis,
    };
    Ok(render(Fields::status(decision), &body, &level.fields, style))
}

/// Renders how a key stands.
pub(super) fn looked(
    asked: &Asked,
    decision: &Decision,
    now: Timestamp,
    style: FieldStyle,
) -> Result<Response<String>, Problem> {
    let level = Level::of(asked, decision, now)?;
    Ok(render(StatusCode::OK, &Looked::of(asked, decision, &level), &level.fields, style))
}

/// Renders how a key stands under each quota, in shadow too, to those who run it.
pub(super) fn inspected(
    asked: &Asked,
    decision: &Decision,
    now: Timestamp,
) -> Result<Response<String>, Problem> {
    let mut looked = Looked::of(asked, decision, &Level::of(asked, decision, now)?);
    let shadow = decision.standings().min_by_key(|(_, _, standing)| standing.remaining);
    if let (None, Some((_, _, standing))) = (decision.tightest(), shadow) {
        looked.remaining = standing.remaining;
        looked.reset_after_seconds = standing.reset_after.as_secs_ceil();
        looked.basis = standing.basis.name();
    }
    let limits = decision.standings().map(LimitState::of).collect();
    Ok(json(StatusCode::OK, &Inspected { looked, limits }))
}

impl<'a> Looked<'a> {
    fn of(asked: &'a Asked, decision: &Decision, level: &Level<'_>) -> Self {
        Self {
            key: &asked.key,
            algorithm: asked.algorithm_name(decision),
            policy: asked.policy(),
            remaining: level.fields.tightest().remaining,
            reset_after_seconds: level.fields.reset_after(),
            basis: level.basis,
        }
    }
}

/// Renders that a key was forgotten.
pub(super) fn forgotten(asked: &Asked, basis: Basis) -> Response<String> {
    let algorithm = match &asked.which {
        Which::AdHoc(algorithm) => Some(algorithm.name()),
        Which::Policy(_) => None,
    };
    let (key, policy) = (asked.key.as_str(), asked.policy());
    json(
        StatusCode::OK,
        &Forgotten { key, algorithm, policy, message: "Rate limit reset", basis: basis.name() },
    )
}

impl Asked {
    fn policy(&self) -> Option<&str> {
        match &self.which {
            Which::AdHoc(_) => None,
            Which::Policy(name) => Some(name),
        }
    }

    /// The limit, in words.
    fn name(&self) -> &str {
        match &self.which {
            Which::AdHoc(algorithm) => algorithm.name(),
            Which::Policy(name) => name,
        }
    }

    fn algorithm_name(&self, decision: &Decision) -> &'static str {
        match &self.which {
            Which::AdHoc(algorithm) => algorithm.name(),
            Which::Policy(_) => params::Algorithm::of(self.algorithm(decision)).name(),
        }
    }
}

/// What a decision says of the limit that was asked about.
struct Level<'a> {
    fields: Fields<'a>,
    basis: &'static str,
}

impl<'a> Level<'a> {
    /// Without a standing, because limits are switched off, everything is there. If no policy has the
    /// algorithm's name there is nothing to decide by, and letting the caller through would be a guess.
    fn of(asked: &Asked, decision: &'a Decision, now: Timestamp) -> Result<Self, Problem> {
        if let (Some((_, _, standing)), Some(fields)) = (decision.tightest(), Fields::of(decision, now)) {
            return Ok(Self { fields, basis: standing.basis.name() });
        }
        let name = match &asked.which {
            Which::AdHoc(algorithm) => algorithm.policy().first().copied().unwrap_or_default(),
            Which::Policy(name) => name,
        };
        let policy = decision.policies().named(name);
        let limit = policy.and_then(|policy| policy.limits().first()).ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, format!("no limit is configured for {}", asked.name()))
        })?;
        Ok(Self { fields: Fields::untouched(limit, now), basis: "off" })
    }
}

fn render(
    status: StatusCode,
    body: &impl Serialize,
    fields: &Fields<'_>,
    style: FieldStyle,
) -> Response<String> {
    let mut response = json(status, body);
    fields.render(style, response.headers_mut());
    Fields::expose(response.headers_mut());
    response
}
