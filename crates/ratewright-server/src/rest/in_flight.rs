//! Requests in flight, for operators: how many a key has, and how many it may have.
//!
//! The gateway counts them. Entrypoints do not depend on each other, so the program passes the count as
//! [`CountInFlight`](super::CountInFlight).

use std::sync::Arc;

use http::{Response, StatusCode};
use ratewright_core::policy::Mode;
use ratewright_core::query::Attribute;
use ratewright_core::store::{Basis, Key};
use ratewright_core::{Policies, Policy};
use ratewright_http::Problem;
use serde::Serialize;

use super::bucket_target::BucketTarget;
use super::decide::GatewayView;
use super::params::PolicyRef;
use crate::response::json;
use crate::url::unknown_policy;

/// How many requests of a key are in flight.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InFlightUsage<'a> {
    key: &'a str,
    policy: &'a str,
    in_flight: u32,
    /// The policy's own maximum. An override may have another.
    pub(super) max: u32,
    /// `local`, or `off`: the gateway counts in its own memory.
    basis: &'static str,
    /// Always empty: requests in flight have no quotas.
    limits: [(); 0],
    /// The policy's own limit, then those of its overrides. Empty if the policy is off.
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
    policy_ref: &PolicyRef<'_>,
    policies: &Policies,
    gateway: &GatewayView,
) -> Option<Arc<Policies>> {
    match policy_ref {
        PolicyRef::Policy(name) if policies.named(name).is_none() => {
            Some((gateway.permits)()).filter(|permits| permits.named(name).is_some())
        }
        PolicyRef::Policy(_) | PolicyRef::AdHoc(_) => None,
    }
}

/// Renders how many requests of a key are in flight.
pub(super) fn inspect_response(
    target: &BucketTarget<'_>,
    permits: &Policies,
    gateway: &GatewayView,
) -> Result<Response<String>, Problem> {
    let name = target.policy_ref.policy();
    let policy = permits.named(name).ok_or_else(|| unknown_policy(name, Some(permits)))?;
    let in_flight = count(policy, &target.attributes(), gateway).ok_or_else(|| gateway_not_running(name))?;
    let max = policy.limits().first().map_or(0, |limit| limit.quota().capacity().get());
    let (limits, in_flight_limits) = ([], limits(policy, in_flight));
    let key = &*target.key;
    let basis = if policy.mode() == Mode::Off { "off" } else { Basis::Local.name() };
    let inspect_response =
        InFlightUsage { key, policy: name, in_flight, max, basis, limits, in_flight_limits };
    Ok(json(StatusCode::OK, &inspect_response))
}

/// How many requests of the key with these attributes are in flight. `None`: the gateway is not running, or an attribute is
/// missing.
pub(super) fn count(policy: &Policy, attributes: &[Attribute<'_>], gateway: &GatewayView) -> Option<u32> {
    (gateway.in_flight)(&Key::new(policy.limits().first()?.name(), attributes)?)
}

/// The policy's own limit, then those of its overrides. Empty if the policy is off.
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

fn gateway_not_running(policy: &str) -> Problem {
    let detail = format!(
        "policy \"{policy}\": requests in flight are not counted because the gateway is not running; add routes to the policy file and restart"
    );
    Problem::new(StatusCode::CONFLICT, detail).about("policy")
}

/// The problem of a reset of requests in flight.
pub(super) fn cannot_reset(policy: &str) -> Problem {
    let detail =
        format!("policy \"{policy}\" cannot be reset: it limits requests in flight, which end by themselves");
    Problem::new(StatusCode::BAD_REQUEST, detail).about("policy")
}
