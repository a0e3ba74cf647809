//! Why a request is limited, or not: `POST /api/v1/explain` takes the body of `decide`, and spends nothing.
//!
//! ```text
//!   body ─► facts, and where each comes from
//!        ─► every policy: does it apply, and if not, which test failed on which value
//!        ─► the buckets as they are, and what would be decided and sent
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::Guard;
use http::{HeaderMap, Response, StatusCode};
use ratewright_core::{
    Ask, AttributeName, Decision, Entrypoint, Explained, Finding, Key, Micros, Mode, Observe, Policies,
    Policy, Query, Standing, Store, Verdict,
};
use ratewright_http::{Facts, Fields, Problem, explain};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Decide, Deciding, LimitState};
use crate::answer::json;
use crate::key::Escaped;
use crate::rest::in_flight;

/// Finds the route of a request, by host, path and method.
pub type FindRoute = dyn Fn(Option<&str>, &str, &str) -> FoundRoute + Send + Sync;

/// Counts what a key has in flight. None: the gateway is not open.
pub type CountInFlight = dyn Fn(&Key<'_>) -> Option<u32> + Send + Sync;

/// What the gateway adds to a request before policies are selected. Without a gateway, nothing.
pub struct Gateway {
    /// Finds the route of a request.
    pub route: Box<FindRoute>,
    /// The limits on requests in flight.
    pub permits: Box<dyn Fn() -> Arc<Policies> + Send + Sync>,
    /// How much of a key of these is in flight.
    pub in_flight: Box<CountInFlight>,
}

/// What the gateway does with a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum FoundRoute {
    /// There are no routes, and so no gateway.
    #[default]
    NoRoutes,
    /// No route matches: it answers 404.
    Nowhere,
    /// Routes match, but not with this method: it answers 405.
    WrongMethod,
    /// This route.
    Route {
        /// Its id.
        id: String,
        /// The policies that it names.
        policies: Vec<String>,
    },
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            route: Box::new(|_, _, _| FoundRoute::NoRoutes),
            permits: Box::new(Arc::default),
            in_flight: Box::new(|_| None),
        }
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

/// Why a request is limited, or not.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::rest) struct Explanation {
    /// Whether it would be allowed now.
    allowed: bool,
    /// The status of a denial, or 200.
    status: u16,
    /// On what ground: `shared`, `local`, `fail_open`, `fail_closed`, or `none` if no limit applies.
    basis: &'static str,
    /// One sentence that says which policy decides, or why none does.
    summary: String,
    /// The route of the gateway, or why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    /// What is known about the request, and where it comes from.
    attributes: Vec<KnownAttribute>,
    /// Every policy, in the order of the file.
    policies: Vec<ExplainedPolicy>,
    /// The rate limit headers that the response would carry.
    headers: BTreeMap<String, String>,
}

/// An attribute of the request.
#[derive(Serialize, JsonSchema)]
pub(super) struct KnownAttribute {
    /// As policies write it.
    name: String,
    /// Its values, if there are any: several if upstreams may read several.
    values: Vec<String>,
    /// Where it comes from, or why it is missing.
    from: String,
}

/// What one policy makes of the request.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExplainedPolicy {
    policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Whether the request is charged under it.
    applies: bool,
    /// `applies`, `refused`, `exempt`, `not_named`, `not_covered`, `group_taken`, `missing`, `off` or `free`.
    result: &'static str,
    /// Why, in words.
    why: String,
    /// The override whose terms count: its name, or a digest of its `match`.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    override_name: Option<String>,
    /// `enforce`, `shadow` or `off`.
    mode: &'static str,
    /// The key of its bucket, as `ratewright inspect` takes it: `POLICY:KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Its buckets, as they are now.
    limits: Vec<OwnedLimitState>,
}

/// How one bucket stands.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OwnedLimitState {
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    /// `fits`, `short`, `never` or `unknown`: whether the request fits.
    outcome: &'static str,
    /// What it holds when full.
    limit: u32,
    remaining: u32,
    reset_after_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
    basis: &'static str,
}

impl<S, O> Deciding<'_, S, O>
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    /// Explains one query. Nothing is spent.
    pub(in crate::rest) async fn explain(
        &self,
        asked: &Decide<'_>,
        gateway: &Gateway,
    ) -> Result<Explanation, Problem> {
        let (policies, permits) = (self.limiter.policies(), (gateway.permits)());
        asked.check(&policies, self.settings, "")?;
        let told = &asked.attributes.0;
        let route = match told.is_routed() {
            true => FoundRoute::NoRoutes,
            false => told.place(|host, path, method| (gateway.route)(host, path, method)),
        };
        let mut needs = policies.needs().to_vec();
        needs.extend(permits.needs().iter().filter(|name| !policies.needs().contains(name)).cloned());
        let mut facts = told.facts(self.settings, &needs, self.now);
        let length = AttributeName::Header("content-length");
        let is_known = facts.attributes().iter().any(|attribute| attribute.name.is(&length));
        if policies.counts_bytes() && !is_known && asked.cost == NonZeroU32::MIN {
            facts.tell(length, "0"); // as the gateway takes a request that names no length
        }
        let mut also: Vec<&str> = asked.policies.iter().map(AsRef::as_ref).collect();
        if let FoundRoute::Route { id, policies } = &route {
            facts.tell(AttributeName::Route, id.as_str());
            also.extend(policies.iter().map(String::as_str));
        }
        let attributes = facts.attributes();
        let query = Query {
            select: facts.select(&also),
            attributes: &attributes,
            address: facts.address,
            ask: Ask::Look(asked.cost.get()),
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Rest,
        };
        let decision = self.limiter.decide_under(Guard::from_inner(policies.clone()), &query).await;
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
        if let Some(fields) = Fields::of(&decision, self.now) {
            fields.render(self.settings.dialect.fields, &mut headers);
        }
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let verdict = decision.verdict();
        let status = match (verdict, &full) {
            (_, Some(_)) => 429, // the gateway asks for a permit first
            (Verdict::Allow, None) => 200,
            (Verdict::Deny, None) => Fields::status(&decision).as_u16(),
        };
        Ok(Explanation {
            allowed: status == 200,
            status,
            basis: decision.basis().map_or("none", |basis| basis.name()),
            summary: full.unwrap_or_else(|| summary(&decision, &policies)),
            route: route_words(&route),
            attributes: told.known(&facts, &needs, self.settings),
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
    let (verdict, tightest) = (decision.verdict(), decision.tightest().map(|(policy, ..)| policy));
    let refused = decision.refused();
    let applying: Vec<_> = policies.iter().filter(|policy| policy.applies).collect();
    match (refused, tightest) {
        (Some((policy, why)), _) => {
            format!("denied by {}: {}", policy.name(), explain::why(policy, &Finding::Refused(why)))
        }
        (None, Some(policy)) if verdict == Verdict::Deny => {
            format!("denied by {}: its bucket does not have enough units", policy.name())
        }
        (None, Some(policy)) => {
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

fn route_words(route: &FoundRoute) -> Option<String> {
    match route {
        FoundRoute::NoRoutes => None,
        FoundRoute::Nowhere => Some("no route matches; the gateway answers 404".to_owned()),
        FoundRoute::WrongMethod => {
            Some("routes match, but not with this method; the gateway answers 405".to_owned())
        }
        FoundRoute::Route { id, .. } => Some(id.clone()),
    }
}

impl ExplainedPolicy {
    fn of(
        explained: &Explained<'_>,
        query: &Query<'_>,
        standings: &[(&Policy, &ratewright_core::Limit, &Standing)],
    ) -> Self {
        let policy = explained.policy;
        let own = standings.iter().filter(|(other, ..)| other.name() == policy.name());
        let limits = own.map(|standing| OwnedLimitState::of(LimitState::of(*standing))).collect();
        Self::with(explained, query, limits)
    }

    /// The same for a policy on requests in flight, and the summary of a denial if as many are in flight as may be.
    fn in_flight(explained: &Explained<'_>, query: &Query<'_>, gateway: &Gateway) -> (Self, Option<String>) {
        let mut told = Self::with(explained, query, Vec::new());
        if !told.applies {
            return (told, None);
        }
        let Some(n) = in_flight::count(explained.policy, query.attributes, gateway) else {
            told.why.push_str("; requests in flight are counted only by a running gateway");
            return (told, None);
        };
        let limits = in_flight::limits(explained.policy, n);
        let limit = limits.iter().find(|limit| limit.override_name == told.override_name.as_deref());
        let Some(max) = limit.or(limits.first()).map(|limit| limit.max) else { return (told, None) };
        told.why.push_str(&format!("; {n} of {max} requests are in flight"));
        let is_full = n >= max && told.mode == Mode::Enforce.name();
        let full = is_full.then(|| format!("denied by {}: {n} of {max} requests are in flight", told.policy));
        (told, full)
    }

    fn with(explained: &Explained<'_>, query: &Query<'_>, limits: Vec<OwnedLimitState>) -> Self {
        let policy = explained.policy;
        let (result, why, override_name, mode) = match explain::most_telling(explained) {
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
            key: key.filter(|_| applies).map(|key| key_words(&key)),
            limits,
        }
    }

    /// True for those behind ad hoc keys, which no request falls under.
    fn is_ad_hoc(&self) -> bool {
        ratewright_core::Algorithm::named(&self.policy).is_some()
    }
}

impl OwnedLimitState {
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

/// A key as people ask for it. Secrets are left out.
fn key_words(key: &Key<'_>) -> String {
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
    /// What is known of an attribute.
    pub(super) fn of(name: AttributeName<&str>, facts: &Facts<'_>, from: String) -> Self {
        let shown = |value: &str| match value {
            ratewright_core::Attribute::UNREADABLE => "(cannot be read)".to_owned(),
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
