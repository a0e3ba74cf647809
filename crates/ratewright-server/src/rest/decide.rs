//! Decisions under the policy file, for others who ask on behalf of their clients.
//!
//! ```text
//!   {"attributes": {"ip": "192.0.2.7", "method": "POST", "path": "/api/login",
//!                   "headers": {"X-Api-Key": "k"}},
//!    "cost": 1}
//! ```
//!
//! Who asks is trusted (`entrust`), so what it says of its client counts; only a token is verified all the same. Policies
//! are chosen by their selectors, as in any other door.

mod explain;
mod told;

use std::borrow::Cow;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::Guard;
use futures_util::future::join_all;
use http::{HeaderValue, Response, StatusCode, header};
use ratewright_core::{
    Algorithm, Ask, AttributeName, Decision, Entrypoint, Limit, Limiter, Micros, Observe, Outcome, Policies,
    Policy, Query, RequestId, Standing, Store, Timestamp, Verdict,
};
use ratewright_http::{Fields, Occasion, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body::{self, Object};
use super::openapi;
use super::receipt;
use super::wire::{CORRELATION_ID, message};
use crate::answer::json;
use crate::settings::Settings;
pub(super) use explain::Explanation;
pub use explain::{CountInFlight, FindRoute, FoundRoute, Gateway};
use told::Told;

/// The most queries in a batch, and how many of them are decided at once.
const BATCH_MAX: usize = 1_000;
const AT_ONCE: usize = 50;

/// Asks whether a request of a client may go on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide<'a> {
    /// What is known about the request.
    #[serde(borrow, default)]
    attributes: Object<Told<'a>>,
    /// Units that it costs. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    cost: NonZeroU32,
    /// Policies that apply too, besides those that cover the request.
    #[serde(borrow, default)]
    #[schemars(inner(regex(pattern = openapi::NAME)))]
    policies: Vec<Cow<'a, str>>,
    /// True to learn how things stand and spend nothing.
    #[serde(default)]
    look: bool,
    /// True to be told a receipt, with which the charge can be given back.
    #[serde(default)]
    receipt: bool,
}

/// Asks about several requests at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch<'a> {
    /// At most 1,000.
    #[serde(borrow)]
    #[schemars(length(max = 1000))]
    queries: Vec<Object<Decide<'a>>>,
}

/// What came of a query.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Decided<'a> {
    /// Whether it may go on.
    allowed: bool,
    message: &'static str,
    /// On what ground: `shared`, `local`, `fail_open`, `fail_closed`, or `none` if no limit applies.
    basis: &'static str,
    /// Seconds after which it would be allowed: 0 if it is, missing if it never will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
    /// Every limit that applies.
    limits: Vec<LimitState<'a>>,
    /// With it the charge can be given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
}

/// How one limit stands.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LimitState<'a> {
    policy: &'a str,
    /// The override whose bucket it is: its name, or a digest of its `match`.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    override_name: Option<&'a str>,
    /// The quota's own name, if the policy has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<&'a str>,
    /// `enforce` or `shadow`.
    mode: &'static str,
    /// `paid`, `fits`, `short`, `never` or `unknown`.
    outcome: &'static str,
    /// What it holds when full.
    limit: u32,
    remaining: u32,
    reset_after_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
    basis: &'static str,
}

/// One decision of a batch.
#[derive(Serialize, JsonSchema)]
pub(super) struct InBatch<'a> {
    /// 200, 429 or 403, as if it had been asked alone.
    status: u16,
    #[serde(flatten)]
    decided: Decided<'a>,
}

/// The decisions of a batch, in the order of its queries.
#[derive(Serialize, JsonSchema)]
pub(super) struct Batched<'a> {
    decisions: Vec<InBatch<'a>>,
}

/// A denial with all that is known of it.
#[derive(Serialize)]
struct Denied<'a> {
    #[serde(flatten)]
    problem: &'a Problem,
    #[serde(flatten)]
    decided: &'a Decided<'a>,
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// Reads one query.
///
/// # Errors
/// If it is no JSON, or has what nobody knows.
pub fn parse(body: &[u8]) -> Result<Decide<'_>, Problem> {
    body::parse(body)
}

/// Reads a batch.
pub(super) fn parse_batch(body: &[u8]) -> Result<Vec<Decide<'_>>, Problem> {
    let Batch { queries } = body::parse(body)?;
    if queries.len() > BATCH_MAX {
        let detail = format!("the batch has {} queries; send at most {BATCH_MAX} at once", queries.len());
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    Ok(queries.into_iter().map(|Object(query)| query).collect())
}

/// What decides.
pub(super) struct Deciding<'a, S, O> {
    pub(super) limiter: &'a Limiter<S, O>,
    pub(super) settings: &'a Settings,
    pub(super) now: Timestamp,
    /// The id of the call.
    pub(super) id: Option<&'a str>,
}

/// A decision, and what it was about.
pub(super) struct Outcomes {
    decision: Decision,
    path: Option<String>,
    receipt: Option<String>,
}

impl<S, O> Deciding<'_, S, O>
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    /// Decides one query.
    pub(super) async fn decide(&self, asked: &Decide<'_>) -> Result<Outcomes, Problem> {
        let policies = self.limiter.load();
        asked.check(&policies, self.settings, "")?;
        Ok(self.decide_under(policies, asked).await)
    }

    /// Decides a batch, all of it under one rule set, or nothing of it. Decisions are made together, so that a store can
    /// take several in one call.
    pub(super) async fn decide_all(&self, asked: &[Decide<'_>]) -> Result<Vec<Outcomes>, Problem> {
        let policies = self.limiter.policies();
        for (n, asked) in asked.iter().enumerate() {
            asked.check(&policies, self.settings, &format!("queries[{n}]: "))?;
        }
        let decide = |asked| self.decide_under(Guard::from_inner(policies.clone()), asked);
        let mut outcomes = Vec::with_capacity(asked.len());
        for some in asked.chunks(AT_ONCE) {
            outcomes.extend(join_all(some.iter().map(decide)).await);
            // In memory nothing ever waits, and others have their turn only if they are given it.
            tokio::task::yield_now().await;
        }
        Ok(outcomes)
    }

    async fn decide_under(&self, policies: Guard<Arc<Policies>>, asked: &Decide<'_>) -> Outcomes {
        let needs = policies.needs().clone();
        let facts = asked.attributes.0.facts(self.settings, &needs, self.now);
        self.settings.dialect.heed(&facts);
        if let Some(cause) = facts.refused_token {
            tracing::debug!(%cause, "token refused: it gives no user and no claims");
        }
        let id = self.id.or_else(|| asked.given_id());
        let attributes = facts.attributes();
        let also: Vec<&str> = asked.policies.iter().map(AsRef::as_ref).collect();
        let query = Query {
            select: facts.select(&also),
            attributes: &attributes,
            address: facts.address,
            ask: if asked.look { Ask::Look(asked.cost.get()) } else { Ask::Spend(asked.cost) },
            patience: Micros::ZERO,
            id: id.as_ref().map(|id| id as &dyn RequestId),
            entrypoint: Entrypoint::Rest,
        };
        let decision = self.limiter.decide_under(policies, &query).await;
        let receipt = if asked.receipt { receipt::of(&decision, &query) } else { None };
        let path = facts.value(AttributeName::Path).map(str::to_owned);
        Outcomes { path, decision, receipt }
    }
}

impl Decide<'_> {
    /// The id of the client's request, if its headers have one.
    pub(super) fn given_id(&self) -> Option<&str> {
        self.attributes.0.given_id()
    }

    /// Refuses a path without end, and names of policies that nobody has; `place` says where the query stands.
    fn check(&self, policies: &Policies, settings: &Settings, place: &str) -> Result<(), Problem> {
        self.attributes.0.check(&settings.dialect.rules, place)?;
        let is_known = |name: &str| policies.named(name).is_some() && Algorithm::named(name).is_none();
        let Some(unknown) = self.policies.iter().find(|name| !is_known(name)) else { return Ok(()) };
        let unknown = crate::url::quoted(unknown);
        let detail = format!("{place}there is no policy {unknown}; the policy file has the names");
        Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("policies"))
    }
}

/// Renders the decisions of a batch.
pub(super) fn render_all(outcomes: &[Outcomes]) -> Response<String> {
    let decisions = outcomes.iter().map(|outcome| InBatch {
        status: Fields::status(&outcome.decision).as_u16(),
        decided: Decided::of(&outcome.decision, outcome.receipt.clone()),
    });
    json(StatusCode::OK, &Batched { decisions: decisions.collect() })
}

impl Outcomes {
    /// Renders the decision, under the request's id.
    pub(super) fn render(self, settings: &Settings, now: Timestamp, id: &str) -> Response<String> {
        let decided = Decided::of(&self.decision, self.receipt);
        let mut response = match self.decision.verdict() {
            Verdict::Allow => json(StatusCode::OK, &decided),
            Verdict::Deny => {
                let occasion = Occasion {
                    kind: &settings.dialect.problem_type,
                    instance: self.path.as_deref(),
                    correlation_id: id,
                    now,
                };
                let problem = &Problem::denial(&self.decision, &occasion);
                let mut response =
                    json(Fields::status(&self.decision), &Denied { problem, decided: &decided });
                let kind = HeaderValue::from_static("application/problem+json");
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                response
            }
        };
        let headers = response.headers_mut();
        if let Some(fields) = Fields::of(&self.decision, now) {
            fields.render(settings.dialect.fields, headers);
        }
        if let Ok(id) = HeaderValue::from_str(id) {
            headers.insert(CORRELATION_ID, id);
        }
        response
    }
}

impl<'a> Decided<'a> {
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
    /// True if less is left than it holds.
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
                Outcome::Paid(_) => "paid",
                Outcome::Fits => "fits",
                Outcome::Short { .. } => "short",
                Outcome::Never => "never",
                Outcome::Unknown => "unknown",
            },
            limit: limit.quota().capacity().get(),
            remaining: standing.remaining,
            reset_after_seconds: standing.reset_after.as_secs_ceil(),
            retry_after_seconds: standing.retry_after().map(Micros::as_secs_ceil),
            basis: standing.basis.name(),
        }
    }
}
