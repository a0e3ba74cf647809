//! Explains why a request is limited or not: `POST /api/v1/explain` takes the body of `decide`, and spends nothing.
//!
//! ```text
//!   body ─► facts, and where each comes from
//!        ─► every policy: does it apply, and if not, which test failed on which value
//!        ─► the current buckets, and the decision and headers that would result
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use ratewright_core::decision::Observe;
use ratewright_core::policy::{Explained, Finding, Mode};
use ratewright_core::query::{Ask, AttributeName, Entrypoint};
use ratewright_core::store::{Key, Outcome, Standing};
use ratewright_core::{Decision, Micros, Policies, Policy, Query, Store, Verdict};
use ratewright_http::{Facts, Problem, RateLimitHeaders, explain};
use serde::Serialize;

use super::{DecideRequest, LimitState, RestDecider};
use crate::key::Escaped;
use crate::response::json;
use crate::rest::in_flight;

/// Finds the route of a request, by host, path and method.
pub type FindRoute = dyn Fn(Option<&str>, &str, &str) -> FoundRoute + Send + Sync;

/// Counts the requests of a key in flight. `None`: the gateway is not running.
pub type CountInFlight = dyn Fn(&Key<'_>) -> Option<u32> + Send + Sync;

/// Read access to the gateway: its routes and its requests in flight. Empty without a gateway.
pub struct GatewayView {
    /// Finds the route of a request.
    pub route: Box<FindRoute>,
    /// The limits on requests in flight.
    pub permits: Box<dyn Fn() -> Arc<Policies> + Send + Sync>,
    /// Counts the requests of a key in flight.
    pub in_flight: Box<CountInFlight>,
}

/// The gateway's route of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum FoundRoute {
    /// There are no routes, and so no gateway.
    #[default]
    NoRoutes,
    /// No route matches: the gateway responds 404.
    Nowhere,
    /// Routes match, but not with this method: the gateway responds 405.
    WrongMethod,
    /// A route matches.
    Route {
        /// Its id.
        id: String,
        /// The policies named by the route.
        policies: Vec<String>,
    },
}

impl Default for GatewayView {
    fn default() -> Self {
        Self {
            route: Box::new(|_, _, _| FoundRoute::NoRoutes),
            permits: Box::new(Arc::default),
            in_flight: Box::new(|_| None),
        }
    }
}

impl std::fmt::Debug for GatewayView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayView").finish_non_exhaustive()
    }
}

/// Why a request is limited or not.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(in crate::rest) struct Explanation {
    /// Whether the request would be allowed now.
    allowed: bool,
    /// The status of a denial, or 200.
    status: u16,
    /// The basis of the decision: `shared`, `local`, `fail_open`, `fail_closed`, or `none` if no limit applies.
    basis: &'static str,
    /// One sentence that says which policy decides, or why none does.
    summary: String,
    /// The gateway's route, or why none matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    /// The request's attributes, and where they come from.
    attributes: Vec<KnownAttribute>,
    /// Every policy, in the order of the file.
    policies: Vec<ExplainedPolicy>,
    /// The rate limit headers that the response would carry.
    headers: BTreeMap<String, String>,
}

/// An attribute of the request.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct KnownAttribute {
    /// As in policies.
    name: String,
    /// Its values: several if upstreams may read it differently.
    values: Vec<String>,
    /// Where it comes from, or why it is missing.
    from: String,
}

/// The result of one policy.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct ExplainedPolicy {
    /// The policy.
    policy: String,
    /// Its group, of which the first policy that matches applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Whether the policy charges the request.
    applies: bool,
    /// `applies`, `refused`, `exempt`, `not_named`, `not_covered`, `group_taken`, `missing`, `off` or `free`.
    result: &'static str,
    /// Why, in words.
    why: String,
    /// The override that applies: its name, or a digest of its `match`.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    override_name: Option<String>,
    /// `enforce`, `shadow` or `off`.
    mode: &'static str,
    /// The key of its bucket, as `ratewright inspect` takes it: `POLICY:KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Its current buckets.
    limits: Vec<BucketState>,
}

/// The state of one bucket.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
struct BucketState {
    /// The quota's own name, if the policy has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    /// Whether the request would pass: `would_pass`, `denied`, `never` or `unknown`.
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

impl<S, O> RestDecider<'_, S, O>
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    /// Explains one query. Nothing is spent.
    pub(in crate::rest) async fn explain(
        &self,
        request: &DecideRequest<'_>,
        gateway: &GatewayView,
    ) -> Result<Explanation, Problem> {
        let (policies, permits) = (self.limiter.policies(), (gateway.permits)());
        request.check(&policies, self.settings, "")?;
        let client_facts = &request.attributes.0;
        let route = match client_facts.is_routed() {
            true => FoundRoute::NoRoutes,
            false => client_facts.find_route(|host, path, method| (gateway.route)(host, path, method)),
        };
        let mut needs = policies.needs().to_vec();
        needs.extend(permits.needs().iter().filter(|name| !policies.needs().contains(name)).cloned());
        let mut facts = client_facts.facts(self.settings, &needs, self.now);
        let length = AttributeName::Header("content-length");
        let is_known = facts.attributes().iter().any(|attribute| attribute.name.is(&length));
        if policies.counts_bytes() && !is_known && request.cost == NonZeroU32::MIN {
            facts.set(length, "0"); // like the gateway for a request without a length
        }
        let mut also: Vec<&str> = request.policies.iter().map(AsRef::as_ref).collect();
        if let FoundRoute::Route { id, policies } = &route {
            facts.set(AttributeName::Route, id.as_str());
            also.extend(policies.iter().map(String::as_str));
        }
        let attributes = facts.attributes();
        let query = Query {
            select: facts.select(&also),
            attributes: &attributes,
            address: facts.address,
            ask: Ask::Look(request.cost.get()),
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Rest,
        };
        let decision = self.limiter.decide_under(&policies, &query).await;
        let standings: Vec<_> = decision.standings().collect();
        let rates = policies.explain(&query);
        let rates = rates.iter().map(|explained| ExplainedPolicy::of(explained, &query, &standings));
        let in_flight = permits.explain(&query);
        let in_flight: Vec<_> = in_flight
            .iter()
            .map(|explained| ExplainedPolicy::in_flight(explained, &query, gateway))
            .collect();
        let full = in_flight.iter().find_map(|(_, full)| full.clone());
        let in_flight = in_flight.into_iter().map(|(policy, _)| policy);
        let policies = rates.chain(in_flight).filter(|policy| !policy.is_ad_hoc()).collect::<Vec<_>>();
        let mut headers = HeaderMap::new();
        if let Some(fields) = RateLimitHeaders::of(&decision, self.now) {
            fields.render(self.settings.http_settings.headers, &mut headers);
        }
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let verdict = decision.verdict();
        let status = match (verdict, &full) {
            (_, Some(_)) => 429, // the gateway asks for a permit first
            (Verdict::Allow, None) => 200,
            (Verdict::Deny, None) => RateLimitHeaders::status(&decision).as_u16(),
        };
        Ok(Explanation {
            allowed: status == 200,
            status,
            basis: decision.basis().map_or("none", |basis| basis.name()),
            summary: full.unwrap_or_else(|| summary(&decision, &policies)),
            route: route_text(&route),
            attributes: client_facts.known_attributes(&facts, &needs, self.settings),
            headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            policies,
        })
    }
}

impl Explanation {
    pub(in crate::rest) fn render(&self) -> Response<String> {
        let mut response = json(StatusCode::OK, self);
        let no_store = http::HeaderValue::from_static("no-store");
        response.headers_mut().insert(http::header::CACHE_CONTROL, no_store);
        response
    }
}

/// Which policy decides, or why none does.
fn summary(decision: &Decision, policies: &[ExplainedPolicy]) -> String {
    let (verdict, tightest) = (decision.verdict(), decision.tightest());
    let refused = decision.refused();
    let applying: Vec<_> = policies.iter().filter(|policy| policy.applies).collect();
    match (refused, tightest) {
        (Some((policy, why)), _) => {
            format!("denied by {}: {}", policy.name(), explain::why(policy, &Finding::Refused(why)))
        }
        (None, Some((policy, limit, standing))) if verdict == Verdict::Deny => {
            let (left, capacity) = (standing.remaining, standing.capacity(limit));
            let why = match (&standing.outcome, left) {
                (Outcome::Unknown, _) => "not enough units left in its bucket".to_owned(),
                (_, 0) => format!("its bucket is empty: 0 of {capacity} left"),
                (_, _) => format!("not enough units left in its bucket: {left} of {capacity}"),
            };
            format!("denied by {}: {why}", policy.name())
        }
        (None, Some((policy, ..))) => {
            format!(
                "allowed; {} of {} policies apply, the tightest is {}",
                applying.len(),
                policies.len(),
                policy.name()
            )
        }
        (None, None) if policies.is_empty() => "allowed: the file has no policies".to_owned(),
        (None, None) if policies.iter().all(|policy| policy.result == "exempt") => {
            format!("allowed: {}", policies[0].why)
        }
        (None, None) if !applying.is_empty() => {
            let names: Vec<_> = applying.iter().map(|policy| policy.policy.as_str()).collect();
            format!(
                "allowed; {} of {} policies apply, and none of them denies: {}",
                names.len(),
                policies.len(),
                names.join(", ")
            )
        }
        (None, None) => format!("allowed: none of {} policies applies", policies.len()),
    }
}

fn route_text(route: &FoundRoute) -> Option<String> {
    match route {
        FoundRoute::NoRoutes => None,
        FoundRoute::Nowhere => Some("no route matches; the gateway responds 404".to_owned()),
        FoundRoute::WrongMethod => {
            Some("routes match, but not with this method; the gateway responds 405".to_owned())
        }
        FoundRoute::Route { id, .. } => Some(id.clone()),
    }
}

impl ExplainedPolicy {
    fn of(
        explained: &Explained<'_>,
        query: &Query<'_>,
        standings: &[(&Policy, &ratewright_core::policy::Limit, &Standing)],
    ) -> Self {
        let policy = explained.policy;
        let own = standings.iter().filter(|(other, ..)| other.name() == policy.name());
        let limits = own.map(|standing| BucketState::of(LimitState::of(*standing))).collect();
        Self::with(explained, query, limits)
    }

    /// The same for a policy on requests in flight, with the summary of a denial if its maximum is reached.
    fn in_flight(
        explained: &Explained<'_>,
        query: &Query<'_>,
        gateway: &GatewayView,
    ) -> (Self, Option<String>) {
        let mut explained_policy = Self::with(explained, query, Vec::new());
        if !explained_policy.applies {
            return (explained_policy, None);
        }
        let Some(n) = in_flight::count(explained.policy, query.attributes, gateway) else {
            explained_policy.why.push_str("; requests in flight are counted only by a running gateway");
            return (explained_policy, None);
        };
        let limits = in_flight::limits(explained.policy, n);
        let limit =
            limits.iter().find(|limit| limit.override_name == explained_policy.override_name.as_deref());
        let Some(max) = limit.or(limits.first()).map(|limit| limit.max) else {
            return (explained_policy, None);
        };
        explained_policy.why.push_str(&format!("; {n} of {max} requests are in flight"));
        let is_full = n >= max && explained_policy.mode == Mode::Enforce.name();
        let full = is_full
            .then(|| format!("denied by {}: {n} of {max} requests are in flight", explained_policy.policy));
        (explained_policy, full)
    }

    fn with(explained: &Explained<'_>, query: &Query<'_>, limits: Vec<BucketState>) -> Self {
        let policy = explained.policy;
        let (result, why, override_name, mode) = match explain::main_finding(explained) {
            None => ("not_covered", String::new(), None, policy.mode()),
            Some(finding) => {
                let (result, why) = (explain::result(finding), explain::why(policy, finding));
                (result, why, explain::override_of(finding), explain::mode_of(policy, finding))
            }
        };
        let applies = result == "applies";
        let key = policy.limits().first().and_then(|limit| Key::new(limit.name(), query.attributes));
        Self {
            policy: policy.name().to_owned(),
            group: policy.group().map(str::to_owned),
            applies,
            result,
            why,
            override_name: override_name.map(str::to_owned),
            mode: mode.name(),
            key: key.filter(|_| applies).map(|key| key_text(&key)),
            limits,
        }
    }

    /// True for a policy behind ad hoc keys, which covers no request.
    fn is_ad_hoc(&self) -> bool {
        ratewright_core::quota::Algorithm::named(&self.policy).is_some()
    }
}

impl BucketState {
    fn of(state: LimitState<'_>) -> Self {
        Self {
            quota: state.quota.map(str::to_owned),
            outcome: state.outcome,
            limit: state.limit,
            remaining: state.remaining,
            reset_after_seconds: state.reset_after_seconds,
            retry_after_seconds: state.retry_after_seconds,
            basis: state.basis,
        }
    }
}

/// A key as `inspect` takes it, without secrets.
fn key_text(key: &Key<'_>) -> String {
    use std::fmt::Write as _;

    let mut text = String::new();
    for (n, (value, attribute)) in key.values().zip(key.attributes()).enumerate() {
        let bar = if n > 0 { "|" } else { "" };
        // Writing to a string cannot fail.
        let _ = if explain::is_secret(&attribute.name) {
            write!(text, "{bar}({})", attribute.name)
        } else {
            text.push_str(bar);
            write!(Escaped(&mut text), "{value}")
        };
    }
    text
}

impl KnownAttribute {
    /// The values and the origin of an attribute.
    pub(super) fn of(name: AttributeName<&str>, facts: &Facts<'_>, from: String) -> Self {
        let shown = |value: &str| match value {
            ratewright_core::query::Attribute::UNREADABLE => "(cannot be read)".to_owned(),
            value if value.starts_with('\0') => "(more than can be counted)".to_owned(),
            _ if explain::is_secret(&name) => "(secret)".to_owned(),
            value => value.to_owned(),
        };
        let attributes = facts.attributes();
        let values = attributes.iter().filter(|attribute| attribute.name.is(&name));
        Self {
            name: name.to_string(),
            values: values.map(|attribute| shown(attribute.value)).collect(),
            from,
        }
    }
}
