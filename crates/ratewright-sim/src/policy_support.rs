//! Decides which policies can be simulated from the attributes that the logs record.
//!
//! A policy that needs more than the logs record is not simulated: a guess would look like a result.

use std::collections::BTreeSet;

use ratewright_core::Policies;
use ratewright_core::policy::{Condition, Cost, Limit, Mode, Part, Policy, PolicyError, Selector};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Leak};

use crate::format::Format;
use crate::logs::RecordedFormat;
use crate::replay::Routes;

/// The attributes that the logs of a simulation record.
pub(crate) struct RecordedAttributes<'a> {
    /// The formats of the logs.
    pub(crate) formats: Vec<RecordedFormat>,
    /// Attributes that no request has, unless the log records it: the user says so.
    pub(crate) absent: &'a [AttributeName<String>],
    /// The gateway's routes.
    pub(crate) routes: Option<&'a dyn Routes>,
    /// True if the gateway delays requests that must wait.
    pub(crate) can_wait: bool,
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
            || (*name == AttributeName::Route && self.routes.is_some())
            || self.formats.iter().all(|recorded| recorded.format.has(name) && recorded.shows(name))
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
        let have = |has: fn(&Format) -> bool| self.formats.iter().all(|recorded| has(&recorded.format));
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
        if self.routes.is_some_and(Routes::match_hosts) && !self.have(&AttributeName::Host) {
            let problem = "routes match by host, which the log does not record; \
                 if requests never have host, add --assume-absent host";
            return Some(problem.to_owned());
        }
        let lacking: Vec<_> = self.missing_for(policy).into_iter().collect();
        (!lacking.is_empty()).then(|| {
            let is_unseen = |name: &&String| {
                let name = AttributeName::parse(name);
                name.is_some_and(|name| self.formats.iter().all(|recorded| recorded.format.has(&name)))
            };
            let (unseen, unrecorded): (Vec<&String>, Vec<&String>) = lacking.iter().partition(is_unseen);
            let list =
                |names: &[&String]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            let mut texts = Vec::new();
            if !unrecorded.is_empty() {
                texts.push(format!("the log does not record {}", list(&unrecorded)));
            }
            if !unseen.is_empty() {
                texts.push(format!("no request in the first lines of the log has {}", list(&unseen)));
            }
            let mut text = texts.join(", and ");
            // Every request has a method and a path, and logs without them have a field map.
            for name in lacking.iter().filter(|name| matches!(name.as_str(), "method" | "path")) {
                text.push_str(&format!("; map it with --fields {name}=NAME"));
            }
            let may_be_absent = |name: &&String| {
                AttributeName::parse(name)
                    .is_some_and(|name| !matches!(name, AttributeName::Method | AttributeName::Path))
            };
            if let Some(name) = lacking.iter().find(may_be_absent) {
                let condition = if unseen.contains(&name) {
                    "if requests without it in the log really have none".to_owned()
                } else {
                    format!("if requests never have {name}")
                };
                text.push_str(&format!("; {condition}, add --assume-absent {name}"));
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
            let waits = |limit: &Limit| limit.quota().algorithm() == Algorithm::LeakyBucket(Leak::Queue);
            if obstacle.is_none() && !self.can_wait && policy.limits().iter().any(waits) {
                texts.push(
                    "requests that would have to wait count as denied: the file has no gateway routes"
                        .to_owned(),
                );
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

impl RecordedFormat {
    /// True unless requests may lack the attribute, and those in the first lines all do: then the log may not record it at all. nginx
    /// writes no users of tokens, and Traefik and Caddy leave out headers. The columns of CSV are known by their header.
    fn shows(&self, name: &AttributeName<String>) -> bool {
        let is_mapped = matches!(self.format, Format::Csv(_));
        let is_optional = matches!(
            name,
            AttributeName::User
                | AttributeName::Header(_)
                | AttributeName::Cookie(_)
                | AttributeName::Claim(_)
        );
        is_mapped || !is_optional || self.seen.contains(name)
    }
}
