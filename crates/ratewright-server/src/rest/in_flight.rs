//! Requests in flight, for operators: how many a key has, and how many it may have.
//!
//! The gateway counts them, and entrypoints do not know each other, so the program passes the count as
//! [`CountInFlight`](super::CountInFlight).

use std::sync::Arc;

use http::{Response, StatusCode};
use ratewright_core::{Attribute, Basis, Key, Mode, Policies, Policy};
use ratewright_http::Problem;
use serde::Serialize;

use super::asked::Asked;
use super::decide::Gateway;
use super::params::Which;
use crate::answer::json;
use crate::url::no_policy;

/// How many requests of a key are in flight.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inspected<'a> {
    key: &'a str,
    policy: &'a str,
    in_flight: u32,
    /// The policy's own maximum. An override may have another.
    pub(super) max: u32,
    /// `local`, or `off`: the gateway counts in its own memory.
    basis: &'static str,
    /// None: requests in flight have no quotas.
    limits: [(); 0],
    /// The policy's own limit, then those of its overrides. None, if the policy is off.
    in_flight_limits: Vec<InFlightLimit<'a>>,
}

/// How many requests are in flight under one limit. Overrides share the policy's count and have their own maximum.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InFlightLimit<'a> {
    policy: &'a str,
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    pub(super) override_name: Option<&'a str>,
    mode: &'static str,
    pub(super) in_flight: u32,
    pub(super) max: u32,
}

/// The limits on requests in flight, if the policy is one of them.
pub(super) fn policies_of(
    which: &Which<'_>,
    policies: &Policies,
    gateway: &Gateway,
) -> Option<Arc<Policies>> {
    match which {
        Which::Policy(name) if policies.named(name).is_none() => {
            Some((gateway.permits)()).filter(|permits| permits.named(name).is_some())
        }
        Which::Policy(_) | Which::AdHoc(_) => None,
    }
}

/// Renders how many requests of a key are in flight.
pub(super) fn inspected(
    asked: &Asked<'_>,
    permits: &Policies,
    gateway: &Gateway,
) -> Result<Response<String>, Problem> {
    let name = asked.which.policy();
    let policy = permits.named(name).ok_or_else(|| no_policy(name))?;
    let in_flight = count(policy, &asked.attributes(), gateway).ok_or_else(|| not_open(name))?;
    let max = policy.limits().first().map_or(0, |limit| limit.quota().capacity().get());
    let (limits, in_flight_limits) = ([], limits(policy, in_flight));
    let key = &*asked.key;
    let basis = if policy.mode() == Mode::Off { "off" } else { Basis::Local.name() };
    let inspected = Inspected { key, policy: name, in_flight, max, basis, limits, in_flight_limits };
    Ok(json(StatusCode::OK, &inspected))
}

/// How much of the key with these attributes is in flight. None: the gateway is not open, or an attribute is missing.
pub(super) fn count(policy: &Policy, attributes: &[Attribute<'_>], gateway: &Gateway) -> Option<u32> {
    (gateway.in_flight)(&Key::new(policy.limits().first()?.name(), attributes)?)
}

/// The policy's own limit, then those of its overrides. None, if the policy is off.
pub(super) fn limits(policy: &Policy, in_flight: u32) -> Vec<InFlightLimit<'_>> {
    if policy.mode() == Mode::Off {
        return Vec::new();
    }
    let own = (None, Some(policy.limits()), policy.mode());
    let others =
        policy.overrides().map(|other| (Some(other.name), other.limits, other.mode.unwrap_or(policy.mode())));
    let limits = std::iter::once(own).chain(others).filter(|(_, _, mode)| *mode != Mode::Off);
    let limits = limits.filter_map(|(override_name, limits, mode)| {
        let max = limits?.first()?.quota().capacity().get();
        Some(InFlightLimit { policy: policy.name(), override_name, mode: mode.name(), in_flight, max })
    });
    limits.collect()
}

fn not_open(policy: &str) -> Problem {
    let detail = format!(
        "policy \"{policy}\": requests in flight are not counted because the gateway is not running; add routes to the policy file and restart"
    );
    Problem::new(StatusCode::CONFLICT, detail).about("policy")
}

/// A reset of requests in flight.
pub(super) fn not_reset(policy: &str) -> Problem {
    let detail =
        format!("policy \"{policy}\" cannot be reset: it limits requests in flight, which end by themselves");
    Problem::new(StatusCode::BAD_REQUEST, detail).about("policy")
}
