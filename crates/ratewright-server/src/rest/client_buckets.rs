//! All buckets of one client, for operators: `GET /api/v1/admin/client?ip=192.0.2.7`, or `POST` with its attributes, which may be
//! secrets and so are not in the URL. Nothing is spent.
//!
//! ```text
//!   by: ip                        the bucket 192.0.2.7
//!   by: {first_of: [user, ip]}    the bucket ip:192.0.2.7, for requests without a user
//!   no by                         the one bucket for all clients
//!   by: user                      needs user; and the bucket ip:192.0.2.7, if it was used because a user was unreadable
//! ```
//!
//! Every policy is listed: if the attributes do not name a bucket, the response says what is missing. Nothing searches
//! the store for keys that contain them.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use http::{Response, StatusCode};
use ratewright_core::decision::Observe;
use ratewright_core::policy::{Missing, Mode, Part};
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Key, Standing};
use ratewright_core::{Decision, Limiter, Micros, Policies, Policy, Query, Quota, Store, Timestamp};
use ratewright_http::{Facts, IdentityRules, Problem};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::decide::{ClientFacts, GatewayView, LimitState};
use super::in_flight::{self, InFlightLimit};
use crate::body::{self, Object};
use crate::key::Escaped;
use crate::response::json;
use crate::settings::ServerSettings;
use crate::url::{bad, decode, once, pairs, quoted, unknown};

/// Whether a policy is in the policy file.
pub type IsListed = fn(&Policy) -> bool;

/// How many policies are read at once.
const LOOKUPS_AT_ONCE: usize = 50;

/// The client to look up.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientRequest<'a> {
    /// What is known about its requests.
    #[serde(borrow, default)]
    attributes: Object<ClientFacts<'a>>,
    /// An ad hoc key.
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
}

/// A client.
pub(super) struct ClientLookup<'a> {
    facts: Facts<'a>,
}

/// The response.
#[derive(Serialize)]
struct ClientUsage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ip: Option<IpAddr>,
    /// Its name in bucket keys: for IPv6 a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    /// Every policy, in the order of the file; those with `in_flight` last.
    policies: Vec<PolicyUsage<'a>>,
}

/// The buckets of one policy for the client.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyUsage<'a> {
    policy: &'a str,
    mode: &'static str,
    /// As `ratewright inspect` takes it; empty for the one bucket for all clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The parts of the key that are not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    needs: Vec<String>,
    /// A remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    limits: Vec<ClientLimit<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    in_flight_limits: Vec<InFlightLimit<'a>>,
}

/// One bucket.
#[derive(Serialize)]
struct ClientLimit<'a> {
    #[serde(flatten)]
    state: LimitState<'a>,
    refill: RefillForecast,
}

/// How a bucket becomes full again.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RefillForecast {
    /// `smooth`: units return one by one, evenly. `steps`: `units` return together every `windowMs`. `at_once`: all return
    /// together. `by_age`: each returns `windowMs` after it was spent; the first at `firstAfterMs`.
    shape: &'static str,
    units: u32,
    window_ms: u64,
    /// When all have returned; of `by_age`, at the latest.
    full_after_ms: u64,
    /// When the next unit returns.
    first_after_ms: u64,
}

impl RefillForecast {
    fn of(quota: &Quota, standing: &Standing) -> Self {
        let ms = |time: Micros| time.as_micros().div_ceil(1_000);
        let (reset_after, window) = (ms(standing.reset_after), ms(quota.window()));
        let n_missing = u64::from(quota.capacity().get().saturating_sub(standing.remaining));
        let unit = window / u64::from(quota.units().max(1));
        let (shape, full_after_ms, first_after_ms) = match quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => {
                ("smooth", reset_after, reset_after.saturating_sub(n_missing.saturating_sub(1) * unit))
            }
            Algorithm::TokenBucket(Refill::Stepped) => ("steps", reset_after, reset_after % window.max(1)),
            // The oldest unit returns first; the newest was spent now at the latest.
            Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter if n_missing > 0 => {
                ("by_age", window, reset_after)
            }
            Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter => ("by_age", 0, 0),
            Algorithm::FixedWindow(_) => ("at_once", reset_after, reset_after),
        };
        Self { shape, units: quota.units(), window_ms: window, full_after_ms, first_after_ms }
    }
}

/// Remarks.
const OFF: &str = "the policy is off";
const GATEWAY_NOT_RUNNING: &str =
    "the gateway is not running, and only the gateway counts requests in flight";
const COUNTED_BY_ADDRESS: &str = "also counted by address: requests whose value cannot be read";

/// Parses the parameters.
pub(super) fn parse(query: &str) -> Result<IpAddr, Problem> {
    let mut ip = None;
    for (name, value) in pairs(query) {
        match name {
            "ip" => once(&mut ip, parse_ip(&decode("ip", value)?)?, "ip")?,
            _ => return Err(unknown(name, "ip")),
        }
    }
    ip.ok_or_else(|| bad("ip", "ip is missing; send the client's address, for example ip=192.0.2.7"))
}

fn parse_ip(text: &str) -> Result<IpAddr, Problem> {
    text.parse().map_err(|_| {
        let detail = format!(
            "ip is {}; use one address, for example 192.0.2.7 or 2001:db8::7; for a network, any of its addresses",
            quoted(text)
        );
        bad("ip", detail)
    })
}

/// Parses the body of a lookup.
pub(super) fn parse_request(body: &[u8]) -> Result<ClientRequest<'_>, Problem> {
    body::parse(body)
}

impl<'a> ClientRequest<'a> {
    /// The client, by the attributes that these policies need.
    pub(super) fn client(
        &'a self,
        settings: &ServerSettings,
        needs: &'a [AttributeName<String>],
        now: Timestamp,
    ) -> Result<ClientLookup<'a>, Problem> {
        let Object(given) = &self.attributes;
        given.check(&settings.http_settings.rules, "")?;
        let mut facts = given.facts(settings, needs, now);
        if let Some(key) = &self.key {
            facts.set(AttributeName::Key, key.as_ref());
        }
        Ok(ClientLookup::new(facts))
    }
}

impl ClientLookup<'static> {
    /// The client with this address.
    pub(super) fn of_address(ip: IpAddr, rules: &IdentityRules) -> Self {
        let mut facts = Facts::default();
        facts.set_address(ip, rules);
        Self::new(facts)
    }
}

impl<'f> ClientLookup<'f> {
    fn new(facts: Facts<'f>) -> Self {
        Self { facts }
    }

    /// Shows the buckets of the client, under every policy.
    pub(super) async fn inspect<S, O>(
        &self,
        limiter: &Limiter<S, O>,
        gateway: &GatewayView,
        is_listed: IsListed,
    ) -> Response<String>
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let (policies, permits) = (limiter.policies(), (gateway.permits)());
        // The policies of ad hoc keys are not in the file.
        let is_keyed = |policy: &Policy| {
            let has_key = self.facts.value(AttributeName::Key).is_some();
            has_key && Algorithm::named(policy.name()).is_some()
        };
        let listed: Vec<_> = policies.iter().filter(|policy| is_listed(policy) || is_keyed(policy)).collect();
        let mut decisions = Vec::with_capacity(listed.len());
        for some in listed.chunks(LOOKUPS_AT_ONCE) {
            let looks = some.iter().map(|policy| self.look(limiter, &policies, policy));
            decisions.extend(join_all(looks).await);
        }
        let rates =
            listed.iter().zip(&decisions).map(|(policy, decision)| self.usage(policy, decision.as_ref()));
        let in_flight = permits.iter().map(|policy| self.in_flight_usage(policy, gateway));
        let client = self.facts.value(AttributeName::Ip);
        let policies = rates.chain(in_flight).collect();
        json(StatusCode::OK, &ClientUsage { ip: self.facts.address, client, policies })
    }

    /// Reads all buckets of a policy for the client, and whether one more request would be allowed. `None`: it has no
    /// bucket.
    async fn look<S, O>(
        &self,
        limiter: &Limiter<S, O>,
        policies: &Arc<Policies>,
        policy: &Policy,
    ) -> Option<Decision>
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let attributes = self.attributes(policy)?;
        let query = Query {
            select: Select::EveryBucket(policy.name()),
            attributes: &attributes,
            address: self.facts.address,
            ask: Ask::Look(1),
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Rest,
        };
        Some(limiter.decide_under(policies, &query).await)
    }

    /// The attributes that name a bucket of the policy. If the policy counts by another attribute, those of a request in which
    /// that attribute is unreadable, which the policy counts by address.
    fn attributes<'a>(&'a self, policy: &'a Policy) -> Option<SmallVec<[Attribute<'a>; 4]>> {
        let mut attributes = SmallVec::from_iter(self.facts.attributes().iter().copied());
        for part in self.needed(policy) {
            let may_fall_back = part.may_be_unreadable() && policy.missing() != Missing::Deny;
            let name = part.names().next().filter(|_| may_fall_back)?.as_deref();
            attributes.push(Attribute { name, value: Attribute::UNREADABLE });
        }
        Some(attributes)
    }

    fn usage<'a>(&self, policy: &'a Policy, decision: Option<&'a Decision>) -> PolicyUsage<'a> {
        let mut usage = self.empty_usage(policy);
        let limits = decision.into_iter().flat_map(|decision| decision.standings());
        let limits = limits.map(|(policy, limit, standing)| {
            let refill = RefillForecast::of(&standing.quota_in_force(limit.quota()), standing);
            let mut state = LimitState::of((policy, limit, standing));
            // A look at a bucket in shadow mode asks for nothing, so it never says that a request would be denied.
            if standing.limit.mode() == Mode::Shadow && standing.remaining == 0 {
                state.set_denied(Micros::from_millis(refill.first_after_ms));
            }
            ClientLimit { state, refill }
        });
        usage.limits = limits.collect();
        if usage.needs.is_empty() {
            return usage;
        }
        if usage.limits.iter().any(|limit| limit.state.is_used()) {
            usage.note = Some(COUNTED_BY_ADDRESS);
        } else {
            (usage.key, usage.limits) = (None, Vec::new());
        }
        usage
    }

    fn in_flight_usage<'a>(&self, policy: &'a Policy, gateway: &GatewayView) -> PolicyUsage<'a> {
        let mut usage = self.empty_usage(policy);
        let Some(attributes) = self.attributes(policy).filter(|_| policy.mode() != Mode::Off) else {
            return usage;
        };
        match in_flight::count(policy, &attributes, gateway) {
            None => usage.note = Some(GATEWAY_NOT_RUNNING),
            Some(0) if !usage.needs.is_empty() => usage.key = None,
            Some(n) => {
                usage.in_flight_limits = in_flight::limits(policy, n);
                usage.note = (!usage.needs.is_empty()).then_some(COUNTED_BY_ADDRESS);
            }
        }
        usage
    }

    /// The parts of a policy's key that are not known.
    fn needed<'a>(&self, policy: &'a Policy) -> impl Iterator<Item = &'a Part> {
        let is_known = |part: &&Part| part.names().any(|name| self.facts.value(name.as_deref()).is_some());
        policy.partition().iter().filter(move |part| !is_known(part))
    }

    /// A policy and its key, without buckets.
    fn empty_usage<'a>(&self, policy: &'a Policy) -> PolicyUsage<'a> {
        let attributes = self.attributes(policy);
        let limit = policy.limits().first();
        let key = attributes.as_deref().zip(limit).and_then(|(known, limit)| Key::new(limit.name(), known));
        PolicyUsage {
            policy: policy.name(),
            mode: policy.mode().name(),
            key: key.as_ref().map(key_text),
            needs: self.needed(policy).map(part_names).collect(),
            note: (policy.mode() == Mode::Off).then_some(OFF),
            limits: Vec::new(),
            in_flight_limits: Vec::new(),
        }
    }
}

/// A part as in policy files.
fn part_names(part: &Part) -> String {
    part.names().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// A key as `ratewright inspect` takes it.
fn key_text(key: &Key<'_>) -> String {
    let mut text = String::new();
    for (n, value) in key.values().enumerate() {
        text.push_str(if n > 0 { "|" } else { "" });
        let _ = write!(Escaped(&mut text), "{value}"); // writing to a string cannot fail
    }
    text
}
