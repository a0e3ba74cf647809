//! All buckets of one client address, for operators: `GET /api/v1/admin/client?ip=192.0.2.7`. Nothing is spent.
//!
//! ```text
//!   by: ip                        the bucket 192.0.2.7
//!   by: {first_of: [user, ip]}    the bucket ip:192.0.2.7, for requests without a user
//!   no by                         the one bucket for everybody
//!   by: user                      needs user; and the bucket ip:192.0.2.7, if it was used because a user was unreadable
//! ```
//!
//! A policy is never left out without a word: if the address alone does not name a bucket, the response says what is missing.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::Guard;
use futures_util::future::join_all;
use http::{Response, StatusCode};
use ratewright_core::{
    Ask, Attribute, AttributeName, Decision, Entrypoint, Key, Limiter, Micros, Missing, Mode, Observe, Part,
    Policies, Policy, Query, Select, Store,
};
use ratewright_http::{Facts, Problem, Rules};
use serde::Serialize;
use smallvec::SmallVec;

use super::decide::{Gateway, LimitState};
use super::in_flight::{self, InFlightLimit};
use crate::answer::json;
use crate::key::Escaped;
use crate::url::{bad, decode, once, pairs, quoted, unknown};

/// Whether a policy is one of those that operators wrote.
pub type IsListed = fn(&Policy) -> bool;

/// How many policies are looked at together.
const AT_ONCE: usize = 50;

/// A client address.
pub(super) struct Client {
    ip: IpAddr,
    facts: Facts<'static>,
}

/// The response.
#[derive(Serialize)]
struct Inspected<'a> {
    ip: IpAddr,
    /// The name that buckets have for it: of IPv6 a network.
    client: &'a str,
    /// Every policy, in the order of the file; those with `in_flight` last.
    policies: Vec<Row<'a>>,
}

/// What one policy has for the address.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    policy: &'a str,
    mode: &'static str,
    /// As `ratewright inspect` takes it; empty for the one bucket for everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// What the policy counts by that an address does not tell, one text for each part of the key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    needs: Vec<String>,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    limits: Vec<LimitState<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    in_flight_limits: Vec<InFlightLimit<'a>>,
}

/// What the policies say of it.
const OFF: &str = "the policy is off";
const NOT_OPEN: &str = "the gateway is not open, and only the gateway counts requests in flight";
const STAND_IN: &str = "also counted by address: requests whose value cannot be read";

/// Reads the parameters.
pub(super) fn parse(query: &str) -> Result<IpAddr, Problem> {
    let mut ip = None;
    for (name, value) in pairs(query) {
        match name {
            "ip" => once(&mut ip, parse_ip(&decode("ip", value)?)?, "ip")?,
            _ => return Err(unknown(name, "ip")),
        }
    }
    ip.ok_or_else(|| bad("ip", "ip is missing; give the client's address, for example ip=192.0.2.7"))
}

fn parse_ip(text: &str) -> Result<IpAddr, Problem> {
    text.parse().map_err(|_| {
        let detail = format!(
            "ip is {}; use one address, for example 192.0.2.7 or 2001:db8::7; of a network any of its addresses",
            quoted(text)
        );
        bad("ip", detail)
    })
}

impl Client {
    pub(super) fn new(ip: IpAddr, rules: &Rules) -> Self {
        let mut facts = Facts::default();
        facts.tell_address(ip, rules);
        Self { ip, facts }
    }

    /// Shows the buckets of the address, under every policy.
    pub(super) async fn inspect<S, O>(
        &self,
        limiter: &Limiter<S, O>,
        gateway: &Gateway,
        is_listed: IsListed,
    ) -> Response<String>
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let (policies, permits) = (limiter.policies(), (gateway.permits)());
        let listed: Vec<_> = policies.iter().filter(|policy| is_listed(policy)).collect();
        let mut decisions = Vec::with_capacity(listed.len());
        for some in listed.chunks(AT_ONCE) {
            let looks = some.iter().map(|policy| self.look(limiter, &policies, policy));
            decisions.extend(join_all(looks).await);
        }
        let rates =
            listed.iter().zip(&decisions).map(|(policy, decision)| self.row(policy, decision.as_ref()));
        let in_flight = permits.iter().map(|policy| self.in_flight_row(policy, gateway));
        let client = self.facts.value(AttributeName::Ip).unwrap_or_default();
        let policies = rates.chain(in_flight).collect();
        json(StatusCode::OK, &Inspected { ip: self.ip, client, policies })
    }

    /// Looks at all buckets that a policy has for the address. None: it has none.
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
            ask: Ask::Look(0),
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Rest,
        };
        Some(limiter.decide_under(Guard::from_inner(Arc::clone(policies)), &query).await)
    }

    /// The attributes that name a bucket of the policy. Where the policy counts by something else, those of a request on which that
    /// cannot be read, which the policy counts by address.
    fn attributes<'a>(&'a self, policy: &'a Policy) -> Option<SmallVec<[Attribute<'a>; 4]>> {
        let mut attributes = SmallVec::from_iter(self.facts.attributes().iter().copied());
        for part in needed(policy) {
            let may_stand_in = part.may_be_unreadable() && policy.missing() != Missing::Deny;
            let name = part.names().next().filter(|_| may_stand_in)?.as_deref();
            attributes.push(Attribute { name, value: Attribute::UNREADABLE });
        }
        Some(attributes)
    }

    fn row<'a>(&self, policy: &'a Policy, decision: Option<&'a Decision>) -> Row<'a> {
        let mut row = self.bare_row(policy);
        let limits = decision.into_iter().flat_map(|decision| decision.standings().map(LimitState::of));
        row.limits = limits.collect();
        if row.needs.is_empty() {
            return row;
        }
        if row.limits.iter().any(LimitState::is_used) {
            row.note = Some(STAND_IN);
        } else {
            (row.key, row.limits) = (None, Vec::new());
        }
        row
    }

    fn in_flight_row<'a>(&self, policy: &'a Policy, gateway: &Gateway) -> Row<'a> {
        let mut row = self.bare_row(policy);
        let Some(attributes) = self.attributes(policy).filter(|_| policy.mode() != Mode::Off) else {
            return row;
        };
        match in_flight::count(policy, &attributes, gateway) {
            None => row.note = Some(NOT_OPEN),
            Some(0) if !row.needs.is_empty() => row.key = None,
            Some(n) => {
                row.in_flight_limits = in_flight::limits(policy, n);
                row.note = (!row.needs.is_empty()).then_some(STAND_IN);
            }
        }
        row
    }

    /// A policy, and the name of its bucket.
    fn bare_row<'a>(&self, policy: &'a Policy) -> Row<'a> {
        let attributes = self.attributes(policy);
        let limit = policy.limits().first();
        let key = attributes.as_deref().zip(limit).and_then(|(known, limit)| Key::new(limit.name(), known));
        Row {
            policy: policy.name(),
            mode: policy.mode().name(),
            key: key.as_ref().map(written),
            needs: needed(policy).map(words).collect(),
            note: (policy.mode() == Mode::Off).then_some(OFF),
            limits: Vec::new(),
            in_flight_limits: Vec::new(),
        }
    }
}

/// The parts of a policy's key that an address does not tell.
fn needed(policy: &Policy) -> impl Iterator<Item = &Part> {
    policy.partition().iter().filter(|part| part.names().all(|name| *name != AttributeName::Ip))
}

/// A part as policy files write it.
fn words(part: &Part) -> String {
    part.names().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// A key as `ratewright inspect` takes it.
fn written(key: &Key<'_>) -> String {
    let mut text = String::new();
    for (n, value) in key.values().enumerate() {
        text.push_str(if n > 0 { "|" } else { "" });
        let _ = write!(Escaped(&mut text), "{value}"); // writing to a string cannot fail
    }
    text
}
