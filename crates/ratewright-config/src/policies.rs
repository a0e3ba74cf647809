//! The section `policies`: which limits there are, and which requests they cover.

use std::collections::{BTreeMap, BTreeSet};

use ratewright_core::policy::{
    AfterAbort, Condition, Cost, CountedResponses, Missing, Mode, OnFailure, Part, PolicyError, Selector,
};
use ratewright_core::query::AttributeName;
use ratewright_core::quota::Algorithm;
use ratewright_core::{Micros, Policies, Policy};
use ratewright_http::path::Case;

use crate::file::{self, By};
use crate::ineffective_policies::{LocatedPolicy, UnavailableEffect};
use crate::quotas::Quotas;
use crate::raw_value::{Located, Position, RawValue};
use crate::reader::Reader;
use crate::values::{Name, OnMissing};

/// What all policies have in common.
#[derive(Clone, Copy, Debug)]
pub struct PolicyContext<'a> {
    /// False switches all policies off.
    pub enabled: bool,
    /// What decides without Redis.
    pub on_failure: OnFailure,
    /// Whether paths are case-sensitive.
    pub case: Case,
    /// The policies of other rules, which are asked for by name.
    pub others: &'a [Policy],
    /// The policies that routes name. Without a condition of their own they apply there, and nowhere else.
    pub routed: &'a BTreeSet<String>,
}

/// The rule sets, by what they count.
#[derive(Debug)]
pub struct RuleSets {
    /// Rate limits, counted in the store.
    pub policies: Policies,
    /// Limits on requests in flight, counted in this process.
    pub permits: Policies,
}

/// What a policy counts, and with it its overrides.
#[derive(Clone, Copy)]
enum Counts {
    /// Units, by this algorithm unless an override names another.
    Spent(Option<Algorithm>),
    /// Requests in flight.
    InFlight,
}

/// An override: its name, condition, quotas and mode.
type Other = (Option<String>, Condition, Quotas, Option<Mode>);

/// Everything about a policy that is a single value.
struct Terms {
    mode: Mode,
    on_failure: OnFailure,
    retry_after: Micros,
    group: Option<String>,
    missing: Missing,
    cost: Cost,
    counted: CountedResponses,
    after_abort: Option<AfterAbort>,
}

impl PolicyContext<'_> {
    /// Applies the common settings to a policy of other rules.
    fn apply(self, policy: Policy) -> Policy {
        let mode = if self.enabled { policy.mode() } else { Mode::Off };
        policy.with_mode(mode).with_on_failure(self.on_failure)
    }
}

impl Terms {
    fn apply(self, policy: Policy) -> Policy {
        let policy = policy
            .with_mode(self.mode)
            .with_on_failure(self.on_failure)
            .with_retry_after_min(self.retry_after)
            .with_missing(self.missing)
            .with_cost(self.cost)
            .with_count(self.counted);
        let policy = match self.after_abort {
            Some(after_abort) => policy.with_after_abort(after_abort),
            None => policy,
        };
        match self.group {
            Some(group) => policy.with_group(&group),
            None => policy,
        }
    }
}

/// The names of policies as they are written, also of those that are wrong in something else.
pub fn policy_names(raw: Option<&[Located<file::Policy>]>) -> BTreeSet<String> {
    let names = raw.unwrap_or_default().iter().filter_map(|policy| policy.value.name.as_ref());
    names.map(|name| name.text.clone()).collect()
}

impl Reader<'_> {
    /// The rule sets: the policies, those behind ad hoc keys, and what is exempt.
    pub fn rule_sets(
        &mut self,
        raw: Option<Vec<Located<file::Policy>>>,
        defaults: file::Defaults,
        exempt: file::Exempt,
        context: PolicyContext<'_>,
    ) -> RuleSets {
        let exempt = self.exempt(exempt, context.case);
        let mut positions: BTreeMap<String, Option<Position>> = BTreeMap::new();
        let mut groups = BTreeMap::new();
        let mut placed = Vec::new();
        let (mut policies, mut permits) = (self.ad_hoc(defaults, context), Vec::new());
        policies.extend(context.others.iter().map(|policy| context.apply(policy.clone())));
        for policy in raw.unwrap_or_default() {
            let position = policy.value.name.as_ref().and_then(|name| name.position).or(policy.position);
            let group_position = policy.value.group.as_ref().and_then(|group| group.position);
            let is_in_flight = policy.value.in_flight.is_some();
            let by_position = policy.value.by.as_ref().and_then(|by| by.position);
            let Some(policy) = self.policy(policy, context) else { continue };
            if let Some(first) = positions.insert(policy.name().to_owned(), position) {
                let (name, other) = (policy.name(), self.describe_position(first, position));
                self.error(
                    position,
                    format!("duplicate policy name {name:?}, also used {other}; rename one"),
                );
                continue;
            }
            if let Some(group) = policy.group() {
                let (is_first_in_flight, first) =
                    *groups.entry(group.to_owned()).or_insert((is_in_flight, position));
                if is_in_flight != is_first_in_flight {
                    let (name, other) = (policy.name(), self.describe_position(first, position));
                    self.error(
                        group_position,
                        format!(
                            "policies.{name}.group is also used by the policy {other}, but a group cannot mix quota and in_flight; give one of \
                             them another group"
                        ),
                    );
                }
            }
            placed.push((policy.clone(), position, by_position));
            if is_in_flight { &mut permits } else { &mut policies }.push(policy);
        }
        let placed: Vec<_> =
            placed.iter().map(|(policy, name, by)| LocatedPolicy { policy, name: *name, by: *by }).collect();
        self.warn_ineffective(&placed);
        RuleSets {
            policies: self.rule_set(policies, exempt.clone()),
            permits: self.rule_set(permits, exempt),
        }
    }

    fn rule_set(&mut self, policies: Vec<Policy>, exempt: Vec<Condition>) -> Policies {
        match Policies::new(policies) {
            Ok(policies) => policies.with_exempt(exempt),
            // The reader has reported these, with their lines.
            Err(
                PolicyError::Twice { .. }
                | PolicyError::QuotaTwice { .. }
                | PolicyError::OverrideTwice { .. },
            ) if !self.errors.is_empty() => Policies::default(),
            Err(error) => {
                self.error(None, error.to_string());
                Policies::default()
            }
        }
    }

    fn policy(&mut self, raw: Located<file::Policy>, context: PolicyContext<'_>) -> Option<Policy> {
        let Located { value: raw, position } = raw;
        let name_position = raw.name.as_ref().map_or(position, |name| name.position);
        let name = self.name(raw.name.as_ref(), position);
        let path = match &raw.name {
            Some(raw) => format!("policies.{}", name.as_deref().unwrap_or(&raw.text)),
            None => "policies".to_owned(),
        };
        // Everything is read before the first return, so that all errors are reported.
        let (quotas, counts) = match (&raw.quota, &raw.in_flight) {
            (None, None) => {
                self.no_quota(&path, name_position);
                return None;
            }
            (Some(quota), None) => {
                let quotas = self.quotas(&format!("{path}.quota"), quota, None);
                let algorithm = quotas.as_ref().and_then(|quotas| Some(quotas.first()?.1.algorithm()));
                (quotas, Counts::Spent(algorithm))
            }
            (_, Some(in_flight)) => (self.in_flight(&path, in_flight, &raw), Counts::InFlight),
        };
        let missing = self.read_if(&format!("{path}.missing"), &raw.missing);
        let parts = self.partition(&format!("{path}.by"), raw.by.as_ref(), missing);
        let selector = match &raw.when {
            Some(when) => self.condition(&format!("{path}.when"), when, context.case).map(Selector::When),
            None if name.as_ref().is_some_and(|name| context.routed.contains(name)) => Some(Selector::Named),
            None => Some(Selector::every()),
        };
        for part in parts.iter().flatten() {
            let position = raw.by.as_ref().and_then(|by| by.position);
            if selector == Some(Selector::Named)
                && part.names().all(|name| matches!(name, AttributeName::Named(_)))
            {
                let problem = format!(
                    "{path}.by: only callers of /api/v1/decide send this attribute, but the policy applies only to \
                     routes of the gateway, so it never applies; use header:NAME or another attribute"
                );
                self.error(position, problem);
            } else {
                let denies = matches!(missing, Some(OnMissing::Otherwise(Missing::Deny)));
                let effect = if denies { UnavailableEffect::Denied } else { UnavailableEffect::Ignored };
                self.check_available(&format!("{path}.by"), part.names(), position, effect);
            }
        }
        let terms = self.terms(&path, &raw, missing, context);
        let overrides = raw.overrides.unwrap_or_default();
        let positions: Vec<_> = overrides.iter().map(|other| other.position).collect();
        let overrides = (0..).zip(overrides).map(|(n, other)| {
            self.other_terms(&format!("{path}.overrides[{n}]"), other, counts, context.case)
        });
        let overrides: Vec<_> = overrides.collect();
        self.check_duplicate_overrides(&path, &overrides, &positions);

        let mut quotas = quotas?.into_iter();
        let (_, first) = quotas.next()?;
        let policy =
            Policy::new(&name?, first).map_err(|error| self.error(name_position, error.to_string())).ok()?;
        let policy = policy.with_partition(parts?).with_selector(selector?);
        let policy =
            quotas.fold(policy, |policy, (name, quota)| policy.and(&name.unwrap_or_default(), quota));
        overrides.into_iter().try_fold(terms.apply(policy), |policy, other| {
            let (name, condition, quotas, mode) = other?;
            Some(policy.with_override(name.as_deref(), condition, quotas, mode))
        })
    }

    /// Reports a policy without a limit.
    fn no_quota(&mut self, path: &str, position: Option<Position>) {
        const WRITE: &str = "write quota: {rate: 10/s}, or in_flight: 10 to limit requests in flight";
        let file = position.and_then(|position| self.files.get(position.file));
        let problem = if file.is_some_and(|file| file.is_profile) {
            format!(
                "{path} has no quota, and no base file has a policy of that name; \
                 correct the name, or {WRITE}"
            )
        } else {
            format!("{path} has no quota; {WRITE}")
        };
        self.error(position, problem);
    }

    fn name(&mut self, raw: Option<&RawValue<Name>>, position: Option<Position>) -> Option<String> {
        let Some(raw) = raw else {
            self.error(position, "a policy has no name; write name: login".to_owned());
            return None;
        };
        let Name(name) = self.read("policies.name", raw)?;
        if Algorithm::named(&name).is_some() {
            let problem =
                format!("policies.{name}: the names of algorithms are reserved for ad hoc keys; use another");
            self.error(raw.position, problem);
            return None;
        }
        if name.starts_with(ratewright_rls_rules::PREFIX) {
            let problem = format!(
                "policies.{name}: names that begin with {} are reserved for the rules in envoy.files; use another name",
                ratewright_rls_rules::PREFIX
            );
            self.error(raw.position, problem);
            return None;
        }
        Some(name)
    }

    /// Everything about a policy that is a single value.
    fn terms(
        &mut self,
        path: &str,
        raw: &file::Policy,
        missing: Option<OnMissing>,
        context: PolicyContext<'_>,
    ) -> Terms {
        let mode = self.read_if(&format!("{path}.mode"), &raw.mode).unwrap_or_default();
        // `in_flight` reports settings that have no effect with it.
        let (on_failure, counted) = match &raw.in_flight {
            Some(_) => (OnFailure::Local, CountedResponses::default()),
            None => {
                let on_failure = self.read_if(&format!("{path}.on_failure"), &raw.on_failure);
                let counted = self.counted(&format!("{path}.count"), raw.count.as_ref());
                (on_failure.unwrap_or(context.on_failure), counted)
            }
        };
        let cost = raw
            .cost
            .as_ref()
            .map(|cost| (cost.position, self.cost(&format!("{path}.cost"), cost, context.case)));
        if let Some((position, Some(Cost::RequestBytes))) = cost
            && !counted.is_everything()
        {
            let problem = format!(
                "{path}: cost: {{bytes: request}} and count cannot be combined, since bytes are counted before the response; remove one"
            );
            self.error(position, problem);
        }
        let others = raw.overrides.iter().flatten().filter_map(|other| other.value.quota.as_ref());
        let mut quotas = raw.quota.iter().chain(others).flat_map(|quotas| &quotas.items);
        let is_queue =
            |quota: &Located<file::Quota>| quota.value.leak.as_ref().is_some_and(|leak| leak.text == "queue");
        if let (Some((position, Some(Cost::RequestBytes))), true) = (&cost, quotas.any(is_queue)) {
            let problem = format!(
                "{path}: cost: {{bytes: request}} and leak: queue cannot be combined: chunks of a body cannot wait in a queue; remove leak"
            );
            self.error(*position, problem);
        }
        Terms {
            mode: if context.enabled { mode } else { Mode::Off },
            on_failure,
            retry_after: self
                .read_if(&format!("{path}.retry_after"), &raw.retry_after)
                .unwrap_or(Micros::ZERO),
            group: self.read_if(&format!("{path}.group"), &raw.group).map(|Name(group)| group),
            missing: match missing {
                Some(OnMissing::Otherwise(missing)) => missing,
                Some(OnMissing::Ip) | None => Missing::Skip,
            },
            cost: cost.and_then(|(_, cost)| cost).unwrap_or(Cost::Fixed(1)),
            counted,
            after_abort: self.after_abort(path, raw),
        }
    }

    /// Other terms for some: for whom, and which.
    fn other_terms(
        &mut self,
        path: &str,
        raw: Located<file::Override>,
        counts: Counts,
        case: Case,
    ) -> Option<Other> {
        let Located { value: raw, position } = raw;
        let Some(condition) = raw.condition.as_ref().filter(|condition| !condition.0.is_empty()) else {
            self.error(
                position,
                format!("{path} has no match; write a condition, for example match: {{user: \"batch-*\"}}"),
            );
            return None;
        };
        if raw.quota.is_none() && raw.in_flight.is_none() && raw.mode.is_none() {
            let what = match counts {
                Counts::Spent(_) => "a quota",
                Counts::InFlight => "in_flight",
            };
            self.error(position, format!("{path} changes nothing; give it {what} or a mode"));
        }
        let condition = self.condition(&format!("{path}.match"), condition, case);
        let quotas = self.other_quotas(path, &raw, counts);
        let mode = self.read_if(&format!("{path}.mode"), &raw.mode);
        let name = self.read_if(&format!("{path}.name"), &raw.name).map(|Name(name)| name);
        Some((name, condition?, quotas?, mode))
    }

    /// Notes overrides that would share buckets.
    fn check_duplicate_overrides(
        &mut self,
        path: &str,
        overrides: &[Option<Other>],
        positions: &[Option<Position>],
    ) {
        let mut known: BTreeMap<String, Option<Position>> = BTreeMap::new();
        for (other, &position) in overrides.iter().zip(positions) {
            let Some((name, condition, ..)) = other else { continue };
            let bucket = name.clone().unwrap_or_else(|| condition.digest());
            let Some(&first) = known.get(&bucket) else {
                known.insert(bucket, position);
                continue;
            };
            let first = self.describe_position(first, position);
            let problem = match name {
                Some(name) => format!("{path} has another override named {name:?} {first}; rename one"),
                None => format!(
                    "{path} has an override with the same match as the override {first}; this one never applies, remove it"
                ),
            };
            self.error(position, problem);
        }
    }

    /// The quotas of an override; an empty list if it has no quota and no `in_flight`.
    fn other_quotas(&mut self, path: &str, raw: &file::Override, counts: Counts) -> Option<Quotas> {
        match (counts, &raw.quota, &raw.in_flight) {
            (_, None, None) => Some(Vec::new()),
            (Counts::Spent(algorithm), Some(quota), None) => {
                self.quotas(&format!("{path}.quota"), quota, algorithm)
            }
            (Counts::InFlight, None, Some(n)) => self.permits(&format!("{path}.in_flight"), n),
            (Counts::Spent(_), _, Some(n)) => {
                let problem =
                    format!("{path} has in_flight, but its policy has a quota; write quota: {{rate: 10/s}}");
                self.error(n.position, problem);
                None
            }
            (Counts::InFlight, Some(quota), _) => {
                let problem =
                    format!("{path} has a quota, but its policy has in_flight; write in_flight: 10");
                self.error(quota.position, problem);
                None
            }
        }
    }

    /// The attributes of a partition.
    fn partition(
        &mut self,
        path: &str,
        raw: Option<&Located<By>>,
        missing: Option<OnMissing>,
    ) -> Option<Vec<Part>> {
        let Some(by) = raw else { return Some(Vec::new()) };
        let parts = match &by.value {
            By::All(parts) if parts.is_empty() => {
                self.error(
                    by.position,
                    format!("{path} is an empty list; remove it to count all clients in one bucket"),
                );
                return None;
            }
            By::All(parts) => {
                let read: Vec<_> = parts.iter().map(|part| self.part(path, part)).collect();
                let read = read.into_iter().collect::<Option<Vec<_>>>()?;
                let positions = parts.iter().map(|part| part.position);
                self.each_once(path, read.iter().zip(positions)).then_some(read)?
            }
            By::One(_) | By::FirstOf(_) => vec![self.part(path, by)?],
        };
        let or_ip = |names: Vec<AttributeName<String>>| {
            let mut names = names;
            if missing == Some(OnMissing::Ip) && !names.contains(&AttributeName::Ip) {
                names.push(AttributeName::Ip);
            }
            let first = names.remove(0);
            Part::first_of(first, names)
        };
        Some(parts.into_iter().map(or_ip).collect())
    }

    /// False, and an error, if a list has an attribute twice.
    fn each_once<'n>(
        &mut self,
        path: &str,
        parts: impl Iterator<Item = (&'n Vec<AttributeName<String>>, Option<Position>)>,
    ) -> bool {
        let mut known = Vec::new();
        let n_errors = self.errors.len();
        for (names, position) in parts {
            if known.contains(&names) {
                let shown = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let reason = match names.as_slice() {
                    [AttributeName::Header(_)] => " (header names are case-insensitive)",
                    _ => "",
                };
                self.error(position, format!("{path} has {shown} twice{reason}; remove one"));
            }
            known.push(names);
        }
        self.errors.len() == n_errors
    }

    /// The attributes of one part, at least one.
    fn part(&mut self, path: &str, raw: &Located<By>) -> Option<Vec<AttributeName<String>>> {
        match &raw.value {
            By::One(text) => {
                let mut one = RawValue::without_position(text);
                one.position = raw.position;
                self.read(path, &one).map(|name| vec![name])
            }
            By::FirstOf(names) if names.is_empty() => {
                self.error(raw.position, format!("{path}.first_of is empty; name the attributes to try"));
                None
            }
            By::FirstOf(names) => {
                let path = format!("{path}.first_of");
                let read: Vec<_> = names.iter().map(|name| self.read(&path, name)).collect();
                let read = read.into_iter().collect::<Option<Vec<_>>>()?;
                let positions = names.iter().map(|name| name.position);
                let parts: Vec<_> = read.iter().map(|name| vec![name.clone()]).collect();
                self.each_once(&path, parts.iter().zip(positions)).then_some(read)
            }
            By::All(_) => {
                self.error(
                    raw.position,
                    format!("{path} has a list inside a list; to count by the first attribute that a request has, write {{first_of: [user, ip]}}"),
                );
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
