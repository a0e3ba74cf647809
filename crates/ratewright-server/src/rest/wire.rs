//! The answers of `check`, `remaining`, `reset` and `refund`.

use http::{HeaderName, Response, StatusCode};
use ratewright_core::{Basis, Decision, Limit, Timestamp, Verdict};
use ratewright_http::{FieldStyle, Fields, Problem};
use schemars::JsonSchema;
use serde::Serialize;

use super::asked::Asked;
use super::decide::LimitState;
use super::params::{self, Which};
use crate::answer::{BODY_USUAL, json, of_text, push_number, push_quoted};

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

impl Checked<'_> {
    /// What serde would write, which looks for what needs an escape in every name and word.
    fn write(&self) -> String {
        let mut json = String::with_capacity(BODY_USUAL);
        json.push_str(if self.allowed { r#"{"allowed":true,"key":"# } else { r#"{"allowed":false,"key":"# });
        push_quoted(&mut json, self.key);
        json.push_str(r#","algorithm":""#);
        json.push_str(self.algorithm);
        if let Some(policy) = self.policy {
            json.push_str(r#"","policy":"#);
            push_quoted(&mut json, policy);
            json.push_str(r#","remaining":"#);
        } else {
            json.push_str(r#"","remaining":"#);
        }
        push_number(&mut json, self.remaining.into());
        json.push_str(r#","resetAfterSeconds":"#);
        push_number(&mut json, self.reset_after_seconds);
        json.push_str(r#","retryAfterSeconds":"#);
        push_number(&mut json, self.retry_after_seconds);
        json.push_str(r#","message":""#);
        json.push_str(self.message);
        json.push_str(r#"","basis":""#);
        json.push_str(self.basis);
        json.push_str(r#""}"#);
        json
    }
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
    /// Charges that were given back. 0: the receipt was used before, its limit has changed, or another instance issued it.
    refunded: usize,
    /// The same in words.
    message: &'static str,
}

impl Refunded {
    pub(super) fn of(refunded: usize) -> Self {
        let message = match refunded {
            0 => {
                "nothing to refund: the receipt was used before, its limit has changed, or another instance issued it"
            }
            _ => "Refunded, as far as time has not repaid it",
        };
        Self { refunded, message }
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
    asked: &Asked<'_>,
    decision: &Decision,
    level: &Level<'_>,
    style: FieldStyle,
) -> Result<Response<String>, Problem> {
    if let (None, Some(fields)) = (decision.retry_after(), &level.fields) {
        let (permits, name, capacity) = (asked.permits, asked.name(), fields.tightest().capacity);
        let detail =
            format!("permits is {permits}, and {name} never has more than {capacity}; use 1 to {capacity}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("permits"));
    }
    let body = Checked {
        allowed: decision.verdict() == Verdict::Allow,
        key: &asked.key,
        algorithm: level.algorithm.name(),
        policy: asked.policy(),
        remaining: level.remaining,
        reset_after_seconds: level.reset_after_seconds,
        retry_after_seconds: level.fields.as_ref().and_then(Fields::retry_after).unwrap_or(0),
        message: message(decision),
        basis: level.basis,
    };
    Ok(with_fields(of_text(Fields::status(decision), body.write()), level.fields.as_ref(), style))
}

/// Renders how a key stands.
pub(super) fn looked(
    asked: &Asked<'_>,
    decision: &Decision,
    now: Timestamp,
    style: FieldStyle,
) -> Result<Response<String>, Problem> {
    let level = Level::of(asked, decision, now)?;
    Ok(with_fields(json(StatusCode::OK, &Looked::of(asked, &level)), level.fields.as_ref(), style))
}

/// Renders how a key stands under each quota, to those who run it.
pub(super) fn inspected(
    asked: &Asked<'_>,
    decision: &Decision,
    now: Timestamp,
) -> Result<Response<String>, Problem> {
    let looked = Looked::of(asked, &Level::of(asked, decision, now)?);
    let limits = decision.standings().map(LimitState::of).collect();
    Ok(json(StatusCode::OK, &Inspected { looked, limits }))
}

impl<'a> Looked<'a> {
    fn of(asked: &'a Asked<'_>, level: &Level<'_>) -> Self {
        Self {
            key: &asked.key,
            algorithm: level.algorithm.name(),
            policy: asked.policy(),
            remaining: level.remaining,
            reset_after_seconds: level.reset_after_seconds,
            basis: level.basis,
        }
    }
}

/// Renders that a key was forgotten.
pub(super) fn forgotten(asked: &Asked<'_>, basis: Basis) -> Response<String> {
    let algorithm = match asked.which {
        Which::AdHoc(algorithm) => Some(algorithm.name()),
        Which::Policy(_) => None,
    };
    let (key, policy) = (&*asked.key, asked.policy());
    json(
        StatusCode::OK,
        &Forgotten { key, algorithm, policy, message: "Rate limit reset", basis: basis.name() },
    )
}

impl Asked<'_> {
    fn policy(&self) -> Option<&str> {
        match self.which {
            Which::AdHoc(_) => None,
            Which::Policy(name) => Some(name),
        }
    }

    /// The limit, in words.
    fn name(&self) -> &str {
        match self.which {
            Which::AdHoc(algorithm) => algorithm.name(),
            Which::Policy(name) => name,
        }
    }
}

/// What a decision says of the limit that was asked about.
pub(super) struct Level<'a> {
    remaining: u32,
    reset_after_seconds: u64,
    pub(super) algorithm: params::Algorithm,
    basis: &'static str,
    /// What the answer carries of it. Nothing, if it is in shadow mode.
    fields: Option<Fields<'a>>,
}

impl<'a> Level<'a> {
    /// Without a standing, because limits are switched off, everything is there. If no policy has the
    /// algorithm's name there is nothing to decide by, and letting the caller through would be a guess.
    pub(super) fn of(asked: &Asked<'_>, decision: &'a Decision, now: Timestamp) -> Result<Self, Problem> {
        let algorithm = |limit: &Limit| match asked.which {
            Which::AdHoc(algorithm) => *algorithm,
            Which::Policy(_) => params::Algorithm::of(limit.quota().algorithm()),
        };
        if let Some((_, limit, standing)) = decision.tightest() {
            let fields = Fields::about(decision, limit, standing, now);
            return Ok(Self::told(fields, algorithm(limit), standing.basis.name()));
        }
        // In shadow mode the one with the least left.
        let shadow = decision.standings().min_by_key(|(_, _, standing)| standing.remaining);
        if let Some((_, limit, standing)) = shadow {
            return Ok(Self {
                remaining: standing.remaining,
                reset_after_seconds: standing.reset_after.as_secs_ceil(),
                algorithm: algorithm(limit),
                basis: standing.basis.name(),
                fields: None,
            });
        }
        let policy = decision.policies().named(asked.which.policy());
        let limit = policy.and_then(|policy| policy.limits().first()).ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, format!("no limit is configured for {}", asked.name()))
        })?;
        Ok(Self::told(Fields::untouched(limit, now), algorithm(limit), "off"))
    }

    fn told(fields: Fields<'a>, algorithm: params::Algorithm, basis: &'static str) -> Self {
        let (remaining, reset_after_seconds) = (fields.tightest().remaining, fields.reset_after());
        Self { remaining, reset_after_seconds, algorithm, basis, fields: Some(fields) }
    }
}

fn with_fields(
    mut response: Response<String>,
    fields: Option<&Fields<'_>>,
    style: FieldStyle,
) -> Response<String> {
    if let Some(fields) = fields {
        fields.render(style, response.headers_mut());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the key, what is written is what serde writes.
        #[test]
        fn a_check_is_written_as_serde_would(
            (allowed, key, policy) in (any::<bool>(), any::<String>(), any::<Option<String>>()),
            (remaining, reset_after_seconds, retry_after_seconds) in any::<(u32, u64, u64)>(),
        ) {
            let (key, policy) = (key.as_str(), policy.as_deref());
            let (algorithm, message, basis) = ("TOKEN_BUCKET", "Request allowed", "local");
            let checked = Checked {
                allowed, key, algorithm, policy, remaining, reset_after_seconds, retry_after_seconds, message, basis,
            };
            prop_assert_eq!(checked.write(), serde_json::to_string(&checked).unwrap());
        }
    }
}
