//! The responses of `check`, `remaining`, `reset` and `refund`.

use http::{HeaderName, Response, StatusCode};
use ratewright_core::policy::Limit;
use ratewright_core::store::Basis;
use ratewright_core::{Decision, Timestamp, Verdict};
use ratewright_http::{HeaderStyle, Problem, RateLimitHeaders};
use serde::Serialize;

use super::bucket_target::BucketTarget;
use super::decide::LimitState;
use super::params::{self, PolicyRef};
use crate::response::{BODY_CAPACITY, json, json_text, push_number, push_quoted};

/// The header with the request's id.
pub(super) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// The response of `check`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct CheckResponse<'a> {
    /// Whether the request is allowed.
    allowed: bool,
    /// The bucket.
    key: &'a str,
    /// The algorithm of the bucket.
    algorithm: &'static str,
    /// The policy, if the call named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    /// Units left, rounded down.
    remaining: u32,
    /// Seconds until a bucket is full again, or until a window or its oldest entry ends.
    reset_after_seconds: u64,
    /// Seconds after which the request would be allowed; 0 if it is.
    retry_after_seconds: u64,
    /// The decision in words.
    message: &'static str,
    /// The basis of the decision: `shared`, `local`, `fail_open`, `fail_closed`, or `off`.
    basis: &'static str,
}

impl CheckResponse<'_> {
    /// The same text as serde's, but faster: serde checks every string for escapes.
    fn write(&self) -> String {
        let mut json = String::with_capacity(BODY_CAPACITY);
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

/// The state of a key.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct RemainingResponse<'a> {
    /// The bucket.
    key: &'a str,
    /// The algorithm of the bucket.
    algorithm: &'static str,
    /// The policy, if the call named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    /// Units left, rounded down.
    remaining: u32,
    /// Seconds until a bucket is full again, or until a window or its oldest entry ends.
    reset_after_seconds: u64,
    /// Where the bucket is: `shared`, `local`, `fail_open`, `fail_closed`, or `off`.
    basis: &'static str,
}

/// The state of a key under each quota.
#[derive(Serialize)]
struct KeyUsage<'a> {
    #[serde(flatten)]
    remaining_response: RemainingResponse<'a>,
    /// Empty if the policy is off.
    limits: Vec<LimitState<'a>>,
}

/// The response of `reset`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ResetResponse<'a> {
    /// The bucket.
    key: &'a str,
    /// The algorithm of the bucket, if the call named no policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    /// The policy, if the call named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a str>,
    /// The result in words.
    message: &'static str,
    /// `shared` if the bucket was reset for all instances, `local` if for this one only.
    basis: &'static str,
}

/// The response of `refund`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RefundResponse {
    /// Refunded charges. 0: the receipt was used before, its limit has changed, or another instance issued it.
    refunded: usize,
    /// The same in words.
    message: &'static str,
}

impl RefundResponse {
    pub(super) fn of(refunded: usize) -> Self {
        let message = match refunded {
            0 => {
                "nothing to refund: the receipt was used before, its limit has changed, or another instance issued it"
            }
            _ => "Refunded, except for units that were refilled since",
        };
        Self { refunded, message }
    }
}

/// The decision in words.
pub(super) fn message(decision: &Decision) -> &'static str {
    let basis = decision.tightest().map(|(.., standing)| standing.basis);
    match (decision.verdict(), basis) {
        (Verdict::Allow, _) => "Request allowed",
        (Verdict::Deny, _) if decision.refused().is_some() => "Request cannot be counted",
        (Verdict::Deny, Some(Basis::FailClosed)) => "Rate limits cannot be checked",
        (Verdict::Deny, _) => "Rate limit exceeded",
    }
}

/// Renders a decision. Asking for more than the capacity is an error of the caller, not a denial.
pub(super) fn check_response(
    target: &BucketTarget<'_>,
    decision: &Decision,
    limit_status: &LimitStatus<'_>,
    style: HeaderStyle,
) -> Result<Response<String>, Problem> {
    let capacities = decision.enforced().map(|(_, limit, _)| limit.quota().capacity());
    if let (None, Some(capacity)) = (decision.retry_after(), capacities.min()) {
        let (permits, name) = (target.permits, target.name());
        let detail =
            format!("permits is {permits}, and {name} never has more than {capacity}; use 1 to {capacity}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("permits"));
    }
    let body = CheckResponse {
        allowed: decision.verdict() == Verdict::Allow,
        key: &target.key,
        algorithm: limit_status.algorithm.name(),
        policy: target.policy(),
        remaining: limit_status.remaining,
        reset_after_seconds: limit_status.reset_after_seconds,
        retry_after_seconds: limit_status
            .headers
            .as_ref()
            .and_then(RateLimitHeaders::retry_after)
            .unwrap_or(0),
        message: message(decision),
        basis: limit_status.basis,
    };
    Ok(with_headers(
        json_text(RateLimitHeaders::status(decision), body.write()),
        limit_status.headers.as_ref(),
        style,
    ))
}

/// Renders the state of a key.
pub(super) fn remaining_response(
    target: &BucketTarget<'_>,
    decision: &Decision,
    now: Timestamp,
    style: HeaderStyle,
) -> Result<Response<String>, Problem> {
    let limit_status = LimitStatus::of(target, decision, now)?;
    Ok(with_headers(
        json(StatusCode::OK, &RemainingResponse::of(target, &limit_status)),
        limit_status.headers.as_ref(),
        style,
    ))
}

/// Renders the state of a key under each quota, for operators.
pub(super) fn inspect_response(
    target: &BucketTarget<'_>,
    decision: &Decision,
    now: Timestamp,
) -> Result<Response<String>, Problem> {
    let remaining_response = RemainingResponse::of(target, &LimitStatus::of(target, decision, now)?);
    let limits = decision.standings().map(LimitState::of).collect();
    Ok(json(StatusCode::OK, &KeyUsage { remaining_response, limits }))
}

impl<'a> RemainingResponse<'a> {
    fn of(target: &'a BucketTarget<'_>, limit_status: &LimitStatus<'_>) -> Self {
        Self {
            key: &target.key,
            algorithm: limit_status.algorithm.name(),
            policy: target.policy(),
            remaining: limit_status.remaining,
            reset_after_seconds: limit_status.reset_after_seconds,
            basis: limit_status.basis,
        }
    }
}

/// Renders a reset.
pub(super) fn reset_response(target: &BucketTarget<'_>, basis: Basis) -> Response<String> {
    let algorithm = match target.policy_ref {
        PolicyRef::AdHoc(algorithm) => Some(algorithm.name()),
        PolicyRef::Policy(_) => None,
    };
    let (key, policy) = (&*target.key, target.policy());
    json(
        StatusCode::OK,
        &ResetResponse { key, algorithm, policy, message: "Rate limit reset", basis: basis.name() },
    )
}

impl BucketTarget<'_> {
    fn policy(&self) -> Option<&str> {
        match self.policy_ref {
            PolicyRef::AdHoc(_) => None,
            PolicyRef::Policy(name) => Some(name),
        }
    }

    /// The name of the policy or algorithm.
    fn name(&self) -> &str {
        match self.policy_ref {
            PolicyRef::AdHoc(algorithm) => algorithm.name(),
            PolicyRef::Policy(name) => name,
        }
    }
}

/// The state of the limit that a call concerns.
pub(super) struct LimitStatus<'a> {
    remaining: u32,
    reset_after_seconds: u64,
    pub(super) algorithm: params::ApiAlgorithm,
    basis: &'static str,
    /// Its rate limit headers. `None` in shadow mode.
    headers: Option<RateLimitHeaders<'a>>,
}

impl<'a> LimitStatus<'a> {
    /// Without a standing, because the policy is off, the limit is full. If no policy has the algorithm's name, the call fails
    /// rather than allow an unlimited caller.
    pub(super) fn of(
        target: &BucketTarget<'_>,
        decision: &'a Decision,
        now: Timestamp,
    ) -> Result<Self, Problem> {
        let algorithm = |limit: &Limit| match target.policy_ref {
            PolicyRef::AdHoc(algorithm) => *algorithm,
            PolicyRef::Policy(_) => params::ApiAlgorithm::of(limit.quota().algorithm()),
        };
        if let Some((_, limit, standing)) = decision.tightest() {
            let headers = RateLimitHeaders::about(decision, limit, standing, now);
            return Ok(Self::from_headers(headers, algorithm(limit), standing.basis.name()));
        }
        // In shadow mode, the limit with the least left.
        let shadow = decision.standings().min_by_key(|(_, _, standing)| standing.remaining);
        if let Some((_, limit, standing)) = shadow {
            return Ok(Self {
                remaining: standing.remaining,
                reset_after_seconds: standing.reset_after.as_secs_ceil(),
                algorithm: algorithm(limit),
                basis: standing.basis.name(),
                headers: None,
            });
        }
        let policy = decision.policies().named(target.policy_ref.policy());
        let limit = policy.and_then(|policy| policy.limits().first()).ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, format!("no limit is configured for {}", target.name()))
        })?;
        Ok(Self::from_headers(RateLimitHeaders::untouched(limit, now), algorithm(limit), "off"))
    }

    fn from_headers(
        headers: RateLimitHeaders<'a>,
        algorithm: params::ApiAlgorithm,
        basis: &'static str,
    ) -> Self {
        let (remaining, reset_after_seconds) = (headers.tightest().remaining, headers.reset_after());
        Self { remaining, reset_after_seconds, algorithm, basis, headers: Some(headers) }
    }
}

fn with_headers(
    mut response: Response<String>,
    headers: Option<&RateLimitHeaders<'_>>,
    style: HeaderStyle,
) -> Response<String> {
    if let Some(headers) = headers {
        headers.render(style, response.headers_mut());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For any key, the text is the same as serde's.
        #[test]
        fn a_check_response_is_the_same_as_serdes(
            (allowed, key, policy) in (any::<bool>(), any::<String>(), any::<Option<String>>()),
            (remaining, reset_after_seconds, retry_after_seconds) in any::<(u32, u64, u64)>(),
        ) {
            let (key, policy) = (key.as_str(), policy.as_deref());
            let (algorithm, message, basis) = ("TOKEN_BUCKET", "Request allowed", "local");
            let check_response = CheckResponse {
                allowed, key, algorithm, policy, remaining, reset_after_seconds, retry_after_seconds, message, basis,
            };
            prop_assert_eq!(check_response.write(), serde_json::to_string(&check_response).unwrap());
        }
    }
}
