//! The door's answers.

use http::{Response, StatusCode};
use serde::Serialize;
use tollgate_core::{Basis, Decision, Timestamp, Verdict};
use tollgate_http::{FieldStyle, Fields, Problem};

use super::Asked;
use crate::answer::json;

/// The answer to `check`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checked<'a> {
    allowed: bool,
    key: &'a str,
    algorithm: &'static str,
    remaining: u32,
    reset_after_seconds: u64,
    retry_after_seconds: u64,
    message: &'static str,
    basis: &'static str,
}

/// The answer to `remaining`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Looked<'a> {
    key: &'a str,
    algorithm: &'static str,
    remaining: u32,
    reset_after_seconds: u64,
    basis: &'static str,
}

/// The answer to `reset`.
#[derive(Serialize)]
struct Forgotten<'a> {
    key: &'a str,
    algorithm: &'static str,
    message: &'static str,
    basis: &'static str,
}

/// Renders what was decided. Asking for more than there can ever be is the asker's mistake, not a denial.
pub(super) fn checked(
    asked: &Asked,
    decision: &Decision,
    now: Timestamp,
) -> Result<Response<String>, Problem> {
    let level = Level::of(asked, decision, now)?;
    if decision.retry_after().is_none() {
        let (permits, name, capacity) =
            (asked.permits, asked.algorithm.name(), level.fields.tightest().capacity);
        let detail =
            format!("permits is {permits}, and {name} never has more than {capacity}; use 1 to {capacity}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("permits"));
    }
    let verdict = decision.verdict();
    let allowed = verdict == Verdict::Allow;
    let body = Checked {
        allowed,
        key: &asked.key,
        algorithm: asked.algorithm.name(),
        remaining: level.fields.tightest().remaining,
        reset_after_seconds: level.fields.reset_after(),
        retry_after_seconds: level.fields.retry_after().unwrap_or(0),
        message: match (verdict, decision.basis()) {
            (Verdict::Allow, _) => "Request allowed",
            (Verdict::Deny, Some(Basis::FailClosed)) => "Rate limits cannot be checked",
            (Verdict::Deny, _) => "Rate limit exceeded",
        },
        basis: level.basis,
    };
    Ok(render(Fields::status(verdict), &body, Some(level.fields)))
}

/// Renders how a key stands.
pub(super) fn looked(
    asked: &Asked,
    decision: &Decision,
    now: Timestamp,
) -> Result<Response<String>, Problem> {
    let level = Level::of(asked, decision, now)?;
    let body = Looked {
        key: &asked.key,
        algorithm: asked.algorithm.name(),
        remaining: level.fields.tightest().remaining,
        reset_after_seconds: level.fields.reset_after(),
        basis: level.basis,
    };
    Ok(render(StatusCode::OK, &body, Some(level.fields)))
}

/// Renders that a key was forgotten.
pub(super) fn forgotten(asked: &Asked, basis: Basis) -> Response<String> {
    let (key, algorithm) = (asked.key.as_str(), asked.algorithm.name());
    let body = Forgotten { key, algorithm, message: "Rate limit reset", basis: basis.name() };
    render(StatusCode::OK, &body, None)
}

/// What a decision says of the one limit that was asked about.
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
        let policy = asked.algorithm.policy().first().and_then(|name| decision.policies().named(name));
        let limit = policy.and_then(|policy| policy.limits().first()).ok_or_else(|| {
            let detail = format!("no limit is configured for {}", asked.algorithm.name());
            Problem::new(StatusCode::NOT_FOUND, detail)
        })?;
        Ok(Self { fields: Fields::untouched(limit, now), basis: "off" })
    }
}

fn render(status: StatusCode, body: &impl Serialize, fields: Option<Fields<'_>>) -> Response<String> {
    let mut response = json(status, body);
    if let Some(fields) = fields {
        fields.render(FieldStyle::default(), response.headers_mut());
    }
    response
}
