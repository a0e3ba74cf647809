//! Decides which policies can be simulated from the attributes that the logs record.
//!
//! A policy that needs more than the logs record is not simulated: a guess would look like a result.

use std::collections::BTreeSet;

use ratewright_core::Policies;
use ratewright_core::policy::{Condition, Cost, Mode, Part, Policy, PolicyError, Selector};
use ratewright_core::query::AttributeName;

use crate::format::Format;

/// The attributes that the logs of a simulation record.
#[derive(Debug)]
pub(crate) struct RecordedAttributes<'a> {
    /// The formats of the logs.
    pub(crate) formats: Vec<&'a Format>,
    /// Attributes that no request has: the user says so.
    pub(crate) absent: &'a [AttributeName<String>],
    /// True if routes are found by the policy file's own routes.
    pub(crate) has_routes: bool,
}

/// The policies as they are simulated.
pub(crate) struct SimulatedPolicies {
    pub(crate) policies: Policies,
    /// The notes on each.
    pub(crate) notes: Vec<PolicyNotes>,
    /// Notes on all policies.
    pub(crate) general: Vec<String>,
}

/// Whether a policy is simulated, and what a reader of its numbers must know.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyNotes {
    pub(crate) is_simulated: bool,
    /// Its mode, unless the simulation enforces it.
    pub(crate) mode: Mode,
    pub(crate) texts: Vec<String>,
}

impl RecordedAttributes<'_> {
    /// True if every log records the attribute, or no request has it.
    fn have(&self, name: &AttributeName<String>) -> bool {
        self.absent.contains(name)
            || (*name == AttributeName::Route && self.has_routes)
            || self.formats.iter().all(|format| format.has(name))
    }

    /// What a policy needs and the logs do not record.
    fn missing_for(&self, policy: &Policy) -> BTreeSet<String> {
        let condition = match policy.selector() {
            Selector::When(condition) => Some(condition),
            Selector::Named => None,
        };
        let conditions = condition.into_iter().chain(policy.overrides().map(|other| other.condition));
        let cost = match policy.cost() {
            Cost::Of(name) => Some(name),
            Cost::ByMethod { .. } => Some(&AttributeName::Method),
            Cost::ByPath { .. } => Some(&AttributeName::Path),
            Cost::Fixed(_) | Cost::RequestBytes => None,
        };
        let names = policy.partition().iter().flat_map(Part::names);
        let names = names.chain(conditions.flat_map(Condition::attributes)).chain(cost);
        let mut lacking: BTreeSet<_> =
            names.filter(|name| !self.have(name)).map(ToString::to_string).collect();
        let have = |has: fn(&Format) -> bool| self.formats.iter().all(|format| has(format));
        if *policy.cost() == Cost::RequestBytes && !have(Format::has_request_bytes) {
            lacking.insert("the size of the request body".to_owned());
        }
        if !policy.count().is_everything() && !have(Format::has_status) {
            lacking.insert("the response status".to_owned());
        }
        lacking
    }

    /// Why a policy cannot be simulated, if it cannot.
    fn obstacle(&self, policy: &Policy, is_routed: bool) -> Option<String> {
        if policy.mode() == Mode::Off {
            return Some(format!("mode is off; add --enforce {} to simulate it", policy.name()));
        }
        if *policy.selector() == Selector::Named && !is_routed {
            return Some("applies only to requests that name it, and no route does".to_owned());
        }
        let lacking: Vec<_> = self.missing_for(policy).into_iter().collect();
        (!lacking.is_empty()).then(|| {
            let mut text = format!("the log does not record {}", lacking.join(", "));
            // Every request has a method and a path, and logs without them have a field map.
            for name in lacking.iter().filter(|name| matches!(name.as_str(), "method" | "path")) {
                text.push_str(&format!("; map it with --fields {name}=NAME"));
            }
            let may_be_absent = |name: &&String| {
                AttributeName::parse(name)
                    .is_some_and(|name| !matches!(name, AttributeName::Method | AttributeName::Path))
            };
            if let Some(name) = lacking.iter().find(may_be_absent) {
                text.push_str(&format!("; if requests never have {name}, add --assume-absent {name}"));
            }
            text
        })
    }

    /// Switches off the policies that cannot be simulated, and enforces those named in `enforced` (`*`: all).
    pub(crate) fn select_policies(
        &self,
        policies: &Policies,
        enforced: &[String],
        is_routed: impl Fn(&str) -> bool,
    ) -> Result<SimulatedPolicies, PolicyError> {
        let mut simulated: Vec<Policy> = Vec::new();
        let mut notes: Vec<PolicyNotes> = Vec::new();
        // Groups of policies that could not be simulated.
        let mut left_out: Vec<(String, String)> = Vec::new();
        for policy in policies.iter() {
            let is_enforced = enforced.iter().any(|name| name == policy.name() || name == "*");
            let mode = if is_enforced { Mode::Enforce } else { policy.mode() };
            let policy = policy.clone().with_mode(mode);
            let obstacle = self.obstacle(&policy, is_routed(policy.name()));
            let mut texts: Vec<String> = obstacle.clone().into_iter().collect();
            let group = policy.group().unwrap_or_default();
            let first: Vec<_> = left_out.iter().filter(|(other, _)| other == group).collect();
            if obstacle.is_none() && !first.is_empty() {
                let first: Vec<_> = first.iter().map(|(_, name)| name.as_str()).collect();
                texts.push(format!(
                    "may be too strict: {} precedes it in its group and was not simulated, so this policy received its requests too",
                    first.join(", ")
                ));
            }
            if obstacle.is_some() && mode != Mode::Off && policy.group().is_some() {
                left_out.push((group.to_owned(), policy.name().to_owned()));
            }
            notes.push(PolicyNotes { is_simulated: obstacle.is_none(), mode, texts });
            simulated.push(if obstacle.is_none() { policy } else { policy.with_mode(Mode::Off) });
        }
        let exempt = policies.exempt().iter().flat_map(Condition::attributes);
        let lacking: BTreeSet<_> = exempt.filter(|name| !self.have(name)).map(ToString::to_string).collect();
        let general = (!lacking.is_empty()).then(|| {
            let names: Vec<_> = lacking.into_iter().collect();
            format!(
                "exemptions by {} were ignored: the log does not record it; some requests may have been counted that would be exempt",
                names.join(", ")
            )
        });
        let policies = Policies::new(simulated)?.with_exempt(policies.exempt().to_vec());
        Ok(SimulatedPolicies { policies, notes, general: general.into_iter().collect() })
    }
}
