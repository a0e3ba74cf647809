//! Error bodies of RFC 9457, `application/problem+json`.
//!
//! ```text
//!   {"type":"https://ratewright.example/problems/login","title":"Too Many Requests","status":429,
//!    "detail":"Rate limit \"login\" exceeded. Try again in 60 seconds.","instance":"/api/login",
//!    "correlationId":"4bf92f35","limitType":"login","retryAfter":60,
//!    "timestamp":"2026-11-15T12:00:00.123Z","violated-policies":["login"]}
//! ```
//!
//! `violated-policies` comes from the draft of the rate limit headers, and keeps its spelling.

mod date;

pub use date::iso;

use std::borrow::Cow;

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use ratewright_core::policy::UncountableReason;
use ratewright_core::store::{Basis, Outcome};
use ratewright_core::{Decision, Micros, Policy, Timestamp};
use serde::Serialize;

use crate::headers::{RateLimitHeaders, ShownLimit};

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// An error, for programs and for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    kind: Cow<'static, str>,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'static str>,
    #[serde(flatten)]
    denied: Option<Box<DenialMembers>>,
    #[serde(flatten)]
    occurred: Option<Box<Occurrence>>,
}

/// Which request had the problem, and when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Occurrence {
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    correlation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
}

/// The additional members of a denial.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DenialMembers {
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    correlation_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    timestamp: String,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
}

/// The request that a problem is about, and when it happened.
#[derive(Clone, Copy, Debug)]
pub struct ProblemContext<'a> {
    /// The problem's type, a URI in which `{name}` stands for the policy; [`Problem::BLANK`] if the status says it all.
    pub kind: &'a str,
    /// The path of the request, if it is known.
    pub instance: Option<&'a str>,
    /// The request's id.
    pub correlation_id: &'a str,
    /// The time of day.
    pub now: Timestamp,
}

impl Problem {
    /// The type of a problem that its status describes.
    pub const BLANK: &'static str = "about:blank";

    /// What is wrong, and what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// A problem that its status describes; `detail` says what is wrong, and what to do.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let (kind, title) = (Cow::Borrowed(Self::BLANK), status.canonical_reason().unwrap_or("Error"));
        let (status, detail) = (status.as_u16(), detail.into());
        Self { kind, title, status, detail, parameter: None, denied: None, occurred: None }
    }

    /// The problem of a request that is not valid HTTP/1.1: 400, 414 or 431.
    pub fn unparsed(status: StatusCode) -> Self {
        let detail = match status {
            StatusCode::URI_TOO_LONG => "the request target is too long; send a shorter one",
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                "the request head is too large, or has too many headers; send fewer or shorter headers"
            }
            _ => "the request is not valid HTTP/1.1: its request line or a header cannot be parsed",
        };
        Self::new(status, detail)
    }

    /// The problem of a denied request. It names the limit with the longest wait, and all limits that denied.
    pub fn denial(decision: &Decision, context: &ProblemContext<'_>) -> Self {
        let refused = decision.refused().map(|(policy, _)| policy.name());
        let limit_type = refused.or_else(|| decision.tightest().map(|(policy, _, _)| policy.name()));
        let mut problem = Self::new(RateLimitHeaders::status(decision), detail(decision));
        problem.kind = context.kind.replace("{name}", limit_type.unwrap_or("unknown")).into();
        problem.denied = Some(Box::new(DenialMembers {
            instance: context.instance.map(str::to_owned),
            correlation_id: context.correlation_id.to_owned(),
            limit_type: limit_type.map(str::to_owned),
            retry_after: RateLimitHeaders::seconds_to_wait(decision),
            timestamp: date::iso(context.now),
            violated_policies: violated(decision),
        }));
        problem
    }

    /// Adds the request and the time. The context's `kind` is ignored.
    #[must_use]
    pub fn on(mut self, context: &ProblemContext<'_>) -> Self {
        self.occurred = Some(Box::new(Occurrence {
            instance: context.instance.map(str::to_owned),
            correlation_id: context.correlation_id.to_owned(),
            timestamp: Some(date::iso(context.now)),
        }));
        self
    }

    /// Adds the request, without the time.
    #[must_use]
    pub fn of_request(mut self, instance: Option<&str>, correlation_id: &str) -> Self {
        self.occurred = Some(Box::new(Occurrence {
            instance: instance.map(str::to_owned),
            correlation_id: correlation_id.to_owned(),
            timestamp: None,
        }));
        self
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Prefixes the detail with the location of the problem.
    #[must_use]
    pub fn prefixed(mut self, location: &str) -> Self {
        self.detail.insert_str(0, location);
        self
    }

    /// Names the parameter that is wrong.
    #[must_use]
    pub fn about(mut self, parameter: &'static str) -> Self {
        self.parameter = Some(parameter);
        self
    }

    /// The response. It must not be cached. A 401 says how to authenticate.
    pub fn render(&self) -> Response<String> {
        let body = serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned()); // strings and numbers only
        let mut response = Response::new(body);
        let status = self.status();
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let id = self.occurred.as_ref().map(|occurred| HeaderValue::from_str(&occurred.correlation_id));
        if let Some(Ok(id)) = id.filter(|id| id.as_ref().is_ok_and(|id| !id.is_empty())) {
            headers.insert(CORRELATION_ID, id);
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl Problem {
    /// The last response of an HTTP/1.1 connection, as bytes.
    pub fn render_http1(&self) -> Vec<u8> {
        let (head, body) = self.render().into_parts();
        let mut wire = format!("HTTP/1.1 {} {}\r\n", self.status, self.title).into_bytes();
        for (name, value) in &head.headers {
            wire.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        wire.extend(
            format!("content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into_bytes(),
        );
        wire
    }
}

/// Which limit denied the request, and when to retry.
fn detail(decision: &Decision) -> String {
    if let Some((policy, why)) = decision.refused() {
        return uncountable(policy, why);
    }
    let Some((policy, limit, standing)) = decision.tightest() else {
        return "Rate limit exceeded.".to_owned();
    };
    let name = policy.name();
    let Some(seconds) = RateLimitHeaders::seconds_to_wait(decision) else {
        let capacity = limit.quota().capacity(); // also without Redis: a request that exceeds only the share may pass later
        return format!(
            "Rate limit \"{name}\" never has more than {capacity}, and this request needs more. Trying again does not help."
        );
    };
    let plural = if seconds == 1 { "" } else { "s" };
    if standing.outcome == Outcome::Unknown && standing.basis == Basis::FailClosed {
        return format!("Rate limits cannot be checked. Try again in {seconds} second{plural}.");
    }
    format!("Rate limit \"{name}\" exceeded. Try again in {seconds} second{plural}.")
}

/// Why a limit cannot count a request. The attribute with too many values may be one that the limit does not count by.
fn uncountable(policy: &Policy, why: UncountableReason) -> String {
    let name = policy.name();
    let why = match why {
        UncountableReason::Missing => "the request has no valid value for it",
        UncountableReason::Repeated => "the request sends it more than once; send it once",
        UncountableReason::TooMany => {
            return format!(
                "Rate limit \"{name}\" cannot count this request: it has too many values or interpretations. \
                 Send each header, cookie and parameter once."
            );
        }
    };
    let parts = policy.partition().iter();
    let by: Vec<_> = parts.flat_map(|part| part.names()).map(ToString::to_string).collect();
    format!("Rate limit \"{name}\" counts by {}; {why}.", by.join(", "))
}

/// The limits that denied, by their names in the headers.
fn violated(decision: &Decision) -> Vec<String> {
    let enforced = decision.enforced();
    let violated = enforced.filter(|(_, _, standing)| standing.retry_after() != Some(Micros::ZERO));
    violated
        .take(RateLimitHeaders::LIMITS_MAX)
        .map(|(_, limit, _)| ShownLimit::untouched(limit).to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FRESH, FixedStore, NOW, decide, decide_readings, login, quota, spend, spent};
    use ratewright_core::policy::{Condition, Mode, Pattern, Selector};
    use ratewright_core::query::{Attribute, AttributeName};
    use ratewright_core::quota::Algorithm;

    const CONTEXT: ProblemContext<'_> =
        ProblemContext { kind: Problem::BLANK, instance: None, correlation_id: "c-1", now: NOW };

    fn body(decision: &Decision, context: ProblemContext<'_>) -> String {
        let response = Problem::denial(decision, &context).render();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
        response.into_body()
    }

    #[test]
    fn a_problem_names_what_is_wrong() {
        let problem = Problem::new(StatusCode::BAD_REQUEST, "permits is \"0\"").about("permits");
        let response = problem.render();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(
            response.body(),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"permits is \"0\"","parameter":"permits"}"#
        );
    }

    #[test]
    fn a7_b6_a_denial_names_the_limit_the_wait_and_the_request() {
        let kind = "https://ratewright.example/problems/{name}";
        let context = ProblemContext { kind, instance: Some("/api/login"), ..CONTEXT };
        assert_eq!(
            body(&decide(vec![login()], spent(10), spend(10)), context),
            r#"{"type":"https://ratewright.example/problems/login","title":"Too Many Requests","status":429,"detail":"Rate limit \"login\" exceeded. Try again in 60 seconds.","instance":"/api/login","correlationId":"c-1","limitType":"login","retryAfter":60,"timestamp":"2023-11-14T22:13:20.250Z","violated-policies":["login"]}"#
        );
    }

    #[test]
    fn all_limits_that_denied_are_named_but_none_in_shadow_mode() {
        let minute = quota(Algorithm::SlidingWindow, "10/min", 10);
        let shadow = Policy::new("trial", minute.clone()).unwrap().with_mode(Mode::Shadow);
        let roomy = Policy::new("roomy", quota(Algorithm::SlidingWindow, "100/min", 100)).unwrap();
        let decision = decide(vec![shadow, roomy, login().and("minute", minute)], spent(10), spend(1));
        assert_eq!(
            body(&decision, CONTEXT),
            r#"{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Rate limit \"login\" exceeded. Try again in 60 seconds.","correlationId":"c-1","limitType":"login","retryAfter":60,"timestamp":"2023-11-14T22:13:20.250Z","violated-policies":["login","login.minute"]}"#
        );
    }

    #[test]
    fn when_retrying_never_helps_the_denial_says_so() {
        assert_eq!(
            body(&decide(vec![login()], FRESH, spend(11)), CONTEXT),
            r#"{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Rate limit \"login\" never has more than 10, and this request needs more. Trying again does not help.","correlationId":"c-1","limitType":"login","timestamp":"2023-11-14T22:13:20.250Z","violated-policies":["login"]}"#
        );
    }

    #[test]
    fn c7_when_limits_cannot_be_checked_the_denial_says_so() {
        let closed = FixedStore { basis: Basis::FailClosed, ..FRESH };
        assert_eq!(
            body(&decide(vec![login()], closed, spend(1)), CONTEXT),
            r#"{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Rate limits cannot be checked. Try again in 1 second.","correlationId":"c-1","limitType":"login","retryAfter":1,"timestamp":"2023-11-14T22:13:20.250Z","violated-policies":["login"]}"#
        );
    }

    /// The limit may count by something else, or by nothing.
    #[test]
    fn a_request_with_too_many_values_gets_400_whatever_the_limit_counts_by() {
        let sid = |value| Attribute { name: AttributeName::Cookie("sid"), value };
        let on_sid = Condition::default()
            .and_fits(AttributeName::Cookie("sid".to_owned()), vec![Pattern::new("a", None).unwrap()]);
        let tested = login().with_selector(Selector::When(on_sid));
        let counted = login().by(&[AttributeName::Cookie("sid")]);
        let many =
            ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"].map(sid);
        for (policy, attributes) in [
            (tested.clone(), &[sid("a"), sid(Attribute::TOO_MANY)][..]),
            (tested.by(&[AttributeName::Ip]), &[sid("a"), sid(Attribute::TOO_MANY)]),
            (counted, &many),
        ] {
            let problem = Problem::denial(&decide_readings(vec![policy], attributes), &CONTEXT);
            assert_eq!(problem.status(), 400);
            assert_eq!(
                problem.detail,
                "Rate limit \"login\" cannot count this request: it has too many values or interpretations. \
                 Send each header, cookie and parameter once."
            );
        }
    }

    #[test]
    fn a_repeated_header_is_named() {
        let name = AttributeName::Header("x-api-key");
        let twice = ["a", Attribute::REPEATED].map(|value| Attribute { name, value });
        let problem = Problem::denial(&decide_readings(vec![login().by(&[name])], &twice), &CONTEXT);
        assert_eq!(problem.status(), 400);
        assert_eq!(
            problem.detail,
            "Rate limit \"login\" counts by header:x-api-key; the request sends it more than once; send it once."
        );
    }

    #[test]
    fn a_401_says_how_to_authenticate() {
        let response = Problem::new(StatusCode::UNAUTHORIZED, "a token is needed").render();
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
        let response = Problem::new(StatusCode::FORBIDDEN, "not for you").render();
        assert!(!response.headers().contains_key(header::WWW_AUTHENTICATE));
    }
}
