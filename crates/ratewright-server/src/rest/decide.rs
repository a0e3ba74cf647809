//! Decisions under the policy file, for callers that ask on behalf of their clients.
//!
//! ```text
//!   {"attributes": {"ip": "192.0.2.7", "method": "POST", "path": "/api/login",
//!                   "headers": {"X-Api-Key": "k"}},
//!    "cost": 1}
//! ```
//!
//! The caller is authorized, so its statements about the client are trusted; only a token is still verified. Policies
//! are selected as in any other entrypoint.

mod client_facts;
mod explain;

use std::borrow::Cow;
use std::convert::Infallible;
use std::num::NonZeroU32;

use futures_util::future::join_all;
use http::{HeaderValue, Response, StatusCode, header};
use ratewright_core::decision::Observe;
use ratewright_core::policy::{Limit, LoadedPolicies};
use ratewright_core::query::{Ask, AttributeName, Entrypoint, RequestId};
use ratewright_core::quota::Algorithm;
use ratewright_core::store::{Outcome, Standing};
use ratewright_core::{Decision, Limiter, Micros, Policies, Policy, Query, Store, Timestamp, Verdict};
use ratewright_http::{Problem, ProblemContext, RateLimitHeaders};
use serde::{Deserialize, Serialize};

use super::receipt;
use super::wire::{CORRELATION_ID, message};
use crate::body::{self, Object};
use crate::response::json;
use crate::settings::ServerSettings;
use crate::url::unknown_policy_detail;
pub(super) use client_facts::ClientFacts;
#[cfg(test)]
pub(super) use explain::Explanation;
pub use explain::{CountInFlight, FindRoute, FoundRoute, GatewayView};

/// The most queries in a batch, and how many are decided at once.
const BATCH_MAX: usize = 1_000;
const AT_ONCE: usize = 50;

/// Asks whether a client's request is allowed.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DecideRequest<'a> {
    /// What is known about the request.
    #[serde(borrow, default)]
    attributes: Object<ClientFacts<'a>>,
    /// Units that the request costs. Default: 1.
    #[serde(default = "one")]
    #[cfg_attr(test, schemars(range(min = 1, max = 4_294_967_295_u32)))]
    cost: NonZeroU32,
    /// Policies that apply in addition to those that cover the request.
    #[serde(borrow, default)]
    #[cfg_attr(test, schemars(inner(regex(pattern = crate::rest::openapi::NAME))))]
    policies: Vec<Cow<'a, str>>,
    /// True to see the limits without spending.
    #[serde(default)]
    look: bool,
    /// True to get a receipt, with which the charge can be refunded.
    #[serde(default)]
    receipt: bool,
}

/// Asks whether several requests are allowed.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct BatchRequest<'a> {
    /// At most 1,000.
    #[serde(borrow)]
    #[cfg_attr(test, schemars(length(max = 1000)))]
    queries: Vec<Object<DecideRequest<'a>>>,
}

/// The decision on a query.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct DecideResponse<'a> {
    /// Whether the request is allowed.
    allowed: bool,
    /// The decision in words.
    message: &'static str,
    /// The basis of the decision: `shared`, `local`, `fail_open`, `fail_closed`, or `none` if no limit applies.
    basis: &'static str,
    /// Seconds after which the request would be allowed: 0 if it is, missing if it never will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
    /// Every limit that applies.
    limits: Vec<LimitState<'a>>,
    /// The receipt, with which the charge can be refunded.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
}

/// The state of one limit.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitState<'a> {
    /// The policy.
    policy: &'a str,
    /// The override that the bucket belongs to: its name, or a digest of its `match`.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    override_name: Option<&'a str>,
    /// The quota's own name, if the policy has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<&'a str>,
    /// `enforce` or `shadow`.
    mode: &'static str,
    /// `charged`, `would_pass`, `denied`, `never` or `unknown`.
    outcome: &'static str,
    /// The units that it holds when full.
    limit: u32,
    /// Units left, rounded down.
    remaining: u32,
    /// Seconds until a bucket is full again, or until a window or its oldest entry ends.
    reset_after_seconds: u64,
    /// Seconds after which the request would be allowed: 0 if it is, missing if it never will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
    /// The basis of this limit: `shared`, `local`, `fail_open` or `fail_closed`.
    basis: &'static str,
}

/// One decision of a batch.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct BatchDecision<'a> {
    /// 200, 429, 403 or 400, as for a single query.
    status: u16,
    #[serde(flatten)]
    response_body: DecideResponse<'a>,
}

/// The decisions of a batch, in the order of its queries.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct BatchResponse<'a> {
    /// One for each query.
    decisions: Vec<BatchDecision<'a>>,
}

/// A denial: the problem and the decision.
#[derive(Serialize)]
struct DenialResponse<'a> {
    #[serde(flatten)]
    problem: &'a Problem,
    #[serde(flatten)]
    response_body: &'a DecideResponse<'a>,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// Parses one query.
///
/// # Errors
/// If it is not valid JSON, or has unknown members.
pub fn parse(body: &[u8]) -> Result<DecideRequest<'_>, Problem> {
    body::parse(body)
}

/// Parses a batch.
pub(super) fn parse_batch(body: &[u8]) -> Result<Vec<DecideRequest<'_>>, Problem> {
    let BatchRequest { queries } = body::parse(body)?;
    if queries.len() > BATCH_MAX {
        let detail = format!("the batch has {} queries; send at most {BATCH_MAX} at once", queries.len());
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    Ok(queries.into_iter().map(|Object(query)| query).collect())
}

/// Decides queries.
pub(super) struct RestDecider<'a, S, O> {
    pub(super) limiter: &'a Limiter<S, O>,
    pub(super) settings: &'a ServerSettings,
    pub(super) now: Timestamp,
    /// The id of the call.
    pub(super) id: Option<&'a str>,
}

/// A decision with its path and receipt.
pub(super) struct DecidedQuery {
    decision: Decision,
    path: Option<String>,
    receipt: Option<String>,
}

impl<S, O> RestDecider<'_, S, O>
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    /// Decides one query.
    pub(super) async fn decide(&self, request: &DecideRequest<'_>) -> Result<DecidedQuery, Problem> {
        let policies = self.limiter.load();
        request.check(&policies, self.settings, "")?;
        Ok(self.decide_under(policies, request).await)
    }

    /// Decides a batch under one rule set, or rejects all of it. Decisions run concurrently, so that the store can batch its
    /// calls.
    pub(super) async fn decide_all(
        &self,
        requests: &[DecideRequest<'_>],
    ) -> Result<Vec<DecidedQuery>, Problem> {
        let policies = self.limiter.policies();
        for (n, request) in requests.iter().enumerate() {
            request.check(&policies, self.settings, &format!("queries[{n}]: "))?;
        }
        let decide = |request| self.decide_under((&policies).into(), request);
        let mut outcomes = Vec::with_capacity(requests.len());
        for some in requests.chunks(AT_ONCE) {
            outcomes.extend(join_all(some.iter().map(decide)).await);
            // The memory store never waits, so other tasks run only if this one yields.
            tokio::task::yield_now().await;
        }
        Ok(outcomes)
    }

    async fn decide_under(&self, policies: LoadedPolicies, request: &DecideRequest<'_>) -> DecidedQuery {
        let needs = policies.needs().clone();
        let facts = request.attributes.0.facts(self.settings, &needs, self.now);
        self.settings.http_settings.report_unknown_key(&facts);
        if let Some(cause) = facts.token_error {
            tracing::debug!(%cause, "token rejected: its user and claims are ignored");
        }
        let id = self.id.or_else(|| request.given_id());
        let attributes = facts.attributes();
        let also: Vec<&str> = request.policies.iter().map(AsRef::as_ref).collect();
        let query = Query {
            select: facts.select(&also),
            attributes: &attributes,
            address: facts.address,
            ask: if request.look { Ask::Look(request.cost.get()) } else { Ask::Spend(request.cost) },
            patience: Micros::ZERO,
            id: id.as_ref().map(|id| id as &dyn RequestId),
            entrypoint: Entrypoint::Rest,
        };
        let decision = self.limiter.decide_under(policies, &query).await;
        let receipt = if request.receipt { receipt::of(&decision, &query) } else { None };
        let path = facts.value(AttributeName::Path).map(str::to_owned);
        DecidedQuery { path, decision, receipt }
    }
}

impl DecideRequest<'_> {
    /// The id of the client's request, if its headers have one.
    pub(super) fn given_id(&self) -> Option<&str> {
        self.attributes.0.given_id()
    }

    /// Rejects a path that is too long, and unknown policies; `location` is the query's position in a batch.
    fn check(&self, policies: &Policies, settings: &ServerSettings, location: &str) -> Result<(), Problem> {
        self.attributes.0.check(&settings.http_settings.rules, location)?;
        let is_known = |name: &str| policies.named(name).is_some() && Algorithm::named(name).is_none();
        let Some(unknown) = self.policies.iter().find(|name| !is_known(name)) else { return Ok(()) };
        let detail = format!("{location}{}", unknown_policy_detail(unknown, Some(policies)));
        Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("policies"))
    }
}

/// Renders the decisions of a batch.
pub(super) fn render_all(outcomes: &[DecidedQuery]) -> Response<String> {
    let decisions = outcomes.iter().map(|outcome| BatchDecision {
        status: RateLimitHeaders::status(&outcome.decision).as_u16(),
        response_body: DecideResponse::of(&outcome.decision, outcome.receipt.clone()),
    });
    json(StatusCode::OK, &BatchResponse { decisions: decisions.collect() })
}

impl DecidedQuery {
    /// Renders the decision, with the request's id.
    pub(super) fn render(self, settings: &ServerSettings, now: Timestamp, id: &str) -> Response<String> {
        let response_body = DecideResponse::of(&self.decision, self.receipt);
        let mut response = match self.decision.verdict() {
            Verdict::Allow => json(StatusCode::OK, &response_body),
            Verdict::Deny => {
                let context = ProblemContext {
                    kind: &settings.http_settings.problem_type,
                    instance: self.path.as_deref(),
                    correlation_id: id,
                    now,
                };
                let problem = &Problem::denial(&self.decision, &context);
                let mut response = json(
                    RateLimitHeaders::status(&self.decision),
                    &DenialResponse { problem, response_body: &response_body },
                );
                let kind = HeaderValue::from_static("application/problem+json");
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
        };
        let headers = response.headers_mut();
        if let Some(fields) = RateLimitHeaders::of(&self.decision, now) {
            fields.render(settings.http_settings.headers, headers);
        }
        if let Ok(id) = HeaderValue::from_str(id) {
            headers.insert(CORRELATION_ID, id);
        }
        response
    }
}

impl<'a> DecideResponse<'a> {
    fn of(decision: &'a Decision, receipt: Option<String>) -> Self {
        let seconds = |wait: Micros| wait.as_secs_ceil();
        Self {
            allowed: decision.verdict() == Verdict::Allow,
            message: message(decision),
            basis: decision.basis().map_or("none", |basis| basis.name()),
            retry_after_seconds: decision.retry_after().map(seconds),
            limits: decision.standings().map(LimitState::of).collect(),
            receipt,
        }
    }
}

impl<'a> LimitState<'a> {
    /// Marks that one more request would be denied, were the policy enforced.
    pub(super) fn set_denied(&mut self, retry_after: Micros) {
        (self.outcome, self.retry_after_seconds) = ("denied", Some(retry_after.as_secs_ceil().max(1)));
    }

    /// True if some of it is spent.
    pub(super) fn is_used(&self) -> bool {
        self.remaining < self.limit
    }

    pub(super) fn of((policy, limit, standing): (&'a Policy, &'a Limit, &'a Standing)) -> Self {
        Self {
            policy: policy.name(),
            override_name: limit.name().override_name(),
            quota: limit.name().quota(),
            mode: standing.limit.mode().name(),
            outcome: match standing.outcome {
                Outcome::Charged(_) => "charged",
                Outcome::WouldPass => "would_pass",
                Outcome::Denied { .. } => "denied",
                Outcome::Never => "never",
                Outcome::Unknown => "unknown",
            },
            limit: standing.capacity(limit).get(),
            remaining: standing.remaining,
            reset_after_seconds: standing.reset_after.as_secs_ceil(),
            retry_after_seconds: standing.retry_after().map(Micros::as_secs_ceil),
            basis: standing.basis.name(),
        }
    }
}
