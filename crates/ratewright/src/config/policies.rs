//! The section `policies`: which limits there are, and for whom.

use std::collections::{BTreeMap, BTreeSet};

use ratewright_core::{
    Algorithm, AttributeName, Condition, Cost, Counted, Micros, Missing, Mode, OnFailure, Part, Policies,
    Policy, Selector,
};
use ratewright_http::path::Case;

use super::file::{self, By};
use super::meaning::{Name, OnMissing};
use super::never::{Placed, Untold};
use super::quotas::Quotas;
use super::reader::Reader;
use super::written::{At, Place, Written};

/// What holds for all policies.
#[derive(Clone, Copy)]
pub(super) struct Whole<'a> {
    pub(super) enabled: bool,
    pub(super) on_failure: OnFailure,
    pub(super) case: Case,
    /// The policies of other rules, which are asked for by name.
    pub(super) others: &'a [Policy],
    /// The policies that routes name. Without a condition of their own they apply there, and nowhere else.
    pub(super) routed: &'a BTreeSet<String>,
}

/// The rule sets, by what they count.
pub(super) struct RuleSets {
    /// What is spent. The store knows.
    pub(super) policies: Policies,
    /// What is under way. This process knows.
    pub(super) permits: Policies,
}

/// What a policy counts, and with it its overrides.
#[derive(Clone, Copy)]
enum Counts {
    /// What is spent; by this algorithm, unless an override names another.
    Spent(Option<Algorithm>),
    /// What is under way.
    InFlight,
}

/// An override: its name, for whom, how much, and whether it is enforced.
type Other = (Option<String>, Condition, Quotas, Option<Mode>);

/// Everything about a policy that is a single value.
struct Terms {
    mode: Mode,
    on_failure: OnFailure,
    retry_after: Micros,
    group: Option<String>,
    missing: Missing,
    cost: Cost,
    counted: Counted,
}

impl Whole<'_> {
    /// What holds for all policies, for one that says nothing of it.
    fn apply(self, policy: Policy) -> Policy {
        let mode = if self.enabled { policy.mode() } else { Mode::Off };
        policy.in_mode(mode).with_on_failure(self.on_failure)
    }
}

impl Terms {
    fn apply(self, policy: Policy) -> Policy {
        let policy = policy
            .in_mode(self.mode)
            .with_on_failure(self.on_failure)
            .with_retry_after_min(self.retry_after)
            .with_missing(self.missing)
            .costing(self.cost)
            .with_count(self.counted);
        match self.group {
            Some(group) => policy.grouped(&group),
            None => policy,
        }
    }
}

/// The names of policies as they are written, also of those that are wrong in something else.
pub(super) fn written_names(written: Option<&[At<file::Policy>]>) -> BTreeSet<String> {
    let names = written.unwrap_or_default().iter().filter_map(|policy| policy.value.name.as_ref());
    names.map(|name| name.text.clone()).collect()
}

impl Reader<'_> {
    /// The rule sets: the policies, those behind ad hoc keys, and what is exempt.
    pub(super) fn rule_sets(
        &mut self,
        written: Option<Vec<At<file::Policy>>>,
        defaults: file::Defaults,
        exempt: file::Exempt,
        whole: Whole<'_>,
    ) -> RuleSets {
        let exempt = self.exempt(exempt, whole.case);
        let mut places: BTreeMap<String, Option<Place>> = BTreeMap::new();
        let mut groups = BTreeMap::new();
        let mut placed = Vec::new();
        let (mut policies, mut permits) = (self.ad_hoc(defaults, whole), Vec::new());
        policies.extend(whole.others.iter().map(|policy| whole.apply(policy.clone())));
        for policy in written.unwrap_or_default() {
            let place = policy.value.name.as_ref().and_then(|name| name.place).or(policy.place);
            let group_place = policy.value.group.as_ref().and_then(|group| group.place);
            let is_in_flight = policy.value.in_flight.is_some();
            let by_place = policy.value.by.as_ref().and_then(|by| by.place);
            let Some(policy) = self.policy(policy, whole) else { continue };
            if let Some(first) = places.insert(policy.name().to_owned(), place) {
                let (name, other) = (policy.name(), self.whereabouts(first, place));
                self.wrong(
                    place,
                    format!("there is another policy named {name:?} {other}; give each its own name"),
                );
                continue;
            }
            if let Some(group) = policy.group() {
                let (is_first_in_flight, first) =
                    *groups.entry(group.to_owned()).or_insert((is_in_flight, place));
                if is_in_flight != is_first_in_flight {
                    let (name, other) = (policy.name(), self.whereabouts(first, place));
                    self.wrong(
                        group_place,
                        format!(
                            "policies.{name}.group is also that of the policy {other}, but only one of the two has in_flight, \
                             and these are judged apart; give each kind its own group"
                        ),
                    );
                }
            }
            placed.push((policy.clone(), place, by_place));
            if is_in_flight { &mut permits } else { &mut policies }.push(policy);
        }
        let placed: Vec<_> =
            placed.iter().map(|(policy, name, by)| Placed { policy, name: *name, by: *by }).collect();
        self.check_all(&placed);
        RuleSets {
            policies: self.rule_set(policies, exempt.clone()),
            permits: self.rule_set(permits, exempt),
        }
    }

    fn rule_set(&mut self, policies: Vec<Policy>, exempt: Vec<Condition>) -> Policies {
        match Policies::new(policies) {
            Ok(policies) => policies.exempting(exempt),
            Err(error) => {
                self.wrong(None, error.to_string());
                Policies::default()
            }
        }
    }

    fn policy(&mut self, written: At<file::Policy>, whole: Whole<'_>) -> Option<Policy> {
        let At { value: written, place } = written;
        let name_place = written.name.as_ref().map_or(place, |name| name.place);
        let name = self.name(written.name.as_ref(), place);
        let path = match &written.name {
            Some(written) => format!("policies.{}", name.as_deref().unwrap_or(&written.text)),
            None => "policies".to_owned(),
        };
        // Everything is read before anything is given up, so that all that is wrong is told.
        let (quotas, counts) = match (&written.quota, &written.in_flight) {
            (None, None) => {
                self.no_quota(&path, name_place);
                return None;
            }
            (Some(quota), None) => {
                let quotas = self.quotas(&format!("{path}.quota"), quota, None);
                let algorithm = quotas.as_ref().and_then(|quotas| Some(quotas.first()?.1.algorithm()));
                (quotas, Counts::Spent(algorithm))
            }
            (_, Some(in_flight)) => (self.in_flight(&path, in_flight, &written), Counts::InFlight),
        };
        let missing = self.read_if(&format!("{path}.missing"), &written.missing);
        let parts = self.partition(&format!("{path}.by"), written.by.as_ref(), missing);
        let selector = match &written.when {
            Some(when) => self.condition(&format!("{path}.when"), when, whole.case).map(Selector::When),
            None if name.as_ref().is_some_and(|name| whole.routed.contains(name)) => Some(Selector::Named),
            None => Some(Selector::every()),
        };
        for part in parts.iter().flatten() {
            let place = written.by.as_ref().and_then(|by| by.place);
            if selector == Some(Selector::Named)
                && part.names().all(|name| matches!(name, AttributeName::Named(_)))
            {
                let problem = format!(
                    "{path}.by is an attribute that only callers of /api/v1/decide tell, but the policy applies on routes of the gateway \
                     only, so it would never act; use header:NAME or another one"
                );
                self.wrong(place, problem);
            } else {
                let denies = matches!(missing, Some(OnMissing::Otherwise(Missing::Deny)));
                let effect = if denies { Untold::Denied } else { Untold::Ignored };
                self.check_told(&format!("{path}.by"), part.names(), place, effect);
            }
        }
        let terms = self.terms(&path, &written, missing, whole);
        let overrides = written.overrides.unwrap_or_default();
        let places: Vec<_> = overrides.iter().map(|other| other.place).collect();
        let overrides = (0..)
            .zip(overrides)
            .map(|(n, other)| self.other_terms(&format!("{path}.overrides[{n}]"), other, counts, whole.case));
        let overrides: Vec<_> = overrides.collect();
        self.check_twice(&path, &overrides, &places);

        let mut quotas = quotas?.into_iter();
        let (_, first) = quotas.next()?;
        let policy =
            Policy::new(&name?, first).map_err(|error| self.wrong(name_place, error.to_string())).ok()?;
        let policy = policy.partitioned(parts?).covering(selector?);
        let policy =
            quotas.fold(policy, |policy, (name, quota)| policy.and(&name.unwrap_or_default(), quota));
        overrides.into_iter().try_fold(terms.apply(policy), |policy, other| {
            let (name, condition, quotas, mode) = other?;
            Some(policy.overridden(name.as_deref(), condition, quotas, mode))
        })
    }

    /// Notes that nothing says how much a policy allows.
    fn no_quota(&mut self, path: &str, place: Option<Place>) {
        const WRITE: &str =
            "write quota: {rate: 10/s}, or in_flight: 10 to limit how many are under way at once";
        let file = place.and_then(|place| self.files.get(place.file));
        let problem = if file.is_some_and(|file| file.is_profile) {
            format!(
                "{path} has no quota, and no file under this one has a policy of that name to be changed; \
                 mend the name, or {WRITE}"
            )
        } else {
            format!("{path} has no quota; {WRITE}")
        };
        self.wrong(place, problem);
    }

    fn name(&mut self, written: Option<&Written<Name>>, place: Option<Place>) -> Option<String> {
        let Some(written) = written else {
            self.wrong(place, "a policy has no name; write name: login".to_owned());
            return None;
        };
        let Name(name) = self.read("policies.name", written)?;
        if Algorithm::named(&name).is_some() {
            let problem =
                format!("policies.{name}: the names of algorithms are reserved for ad hoc keys; use another");
            self.wrong(written.place, problem);
            return None;
        }
        if name.starts_with(ratewright_rls_rules::PREFIX) {
            let problem = format!(
                "policies.{name}: names that begin with {} are those of the section envoy; use another",
                ratewright_rls_rules::PREFIX
            );
            self.wrong(written.place, problem);
            return None;
        }
        Some(name)
    }

    /// Everything about a policy that is a single value.
    fn terms(
        &mut self,
        path: &str,
        written: &file::Policy,
        missing: Option<OnMissing>,
        whole: Whole<'_>,
    ) -> Terms {
        let mode = self.read_if(&format!("{path}.mode"), &written.mode).unwrap_or_default();
        // What means nothing with in_flight is told of there.
        let (on_failure, counted) = match &written.in_flight {
            Some(_) => (OnFailure::Local, Counted::default()),
            None => {
                let on_failure = self.read_if(&format!("{path}.on_failure"), &written.on_failure);
                let counted = self.counted(&format!("{path}.count"), written.count.as_ref());
                (on_failure.unwrap_or(whole.on_failure), counted)
            }
        };
        let cost = written
            .cost
            .as_ref()
            .map(|cost| (cost.place, self.cost(&format!("{path}.cost"), cost, whole.case)));
        if let Some((place, Some(Cost::RequestBytes))) = cost
            && !counted.is_everything()
        {
            let problem = format!(
                "{path}: cost by bytes and count do not go together, since bytes are counted before the response; leave one out"
            );
            self.wrong(place, problem);
        }
        let others = written.overrides.iter().flatten().filter_map(|other| other.value.quota.as_ref());
        let mut quotas = written.quota.iter().chain(others).flat_map(|quotas| &quotas.items);
        let is_queue =
            |quota: &At<file::Quota>| quota.value.leak.as_ref().is_some_and(|leak| leak.text == "queue");
        if let (Some((place, Some(Cost::RequestBytes))), true) = (&cost, quotas.any(is_queue)) {
            let problem = format!(
                "{path}: cost: {{bytes: request}} and leak: queue cannot be combined, since a body cannot wait piece by piece; leave leak out"
            );
            self.wrong(*place, problem);
        }
        Terms {
            mode: if whole.enabled { mode } else { Mode::Off },
            on_failure,
            retry_after: self
                .read_if(&format!("{path}.retry_after"), &written.retry_after)
                .unwrap_or(Micros::ZERO),
            group: self.read_if(&format!("{path}.group"), &written.group).map(|Name(group)| group),
            missing: match missing {
                Some(OnMissing::Otherwise(missing)) => missing,
                Some(OnMissing::Ip) | None => Missing::Skip,
            },
            cost: cost.and_then(|(_, cost)| cost).unwrap_or(Cost::Fixed(1)),
            counted,
        }
    }

    /// Other terms for some: for whom, and which.
    fn other_terms(
        &mut self,
        path: &str,
        written: At<file::Override>,
        counts: Counts,
        case: Case,
    ) -> Option<Other> {
        let At { value: written, place } = written;
        let Some(condition) = written.condition.as_ref().filter(|condition| !condition.0.is_empty()) else {
            self.wrong(
                place,
                format!("{path} has no match; say whom it is for, for example match: {{user: \"batch-*\"}}"),
            );
            return None;
        };
        if written.quota.is_none() && written.in_flight.is_none() && written.mode.is_none() {
            let what = match counts {
                Counts::Spent(_) => "a quota",
                Counts::InFlight => "in_flight",
            };
            self.wrong(place, format!("{path} changes nothing; give it {what} or a mode"));
        }
        let condition = self.condition(&format!("{path}.match"), condition, case);
        let quotas = self.other_quotas(path, &written, counts);
        let mode = self.read_if(&format!("{path}.mode"), &written.mode);
        let name = self.read_if(&format!("{path}.name"), &written.name).map(|Name(name)| name);
        Some((name, condition?, quotas?, mode))
    }

    /// Notes overrides that would share buckets.
    fn check_twice(&mut self, path: &str, overrides: &[Option<Other>], places: &[Option<Place>]) {
        let mut known: BTreeMap<String, Option<Place>> = BTreeMap::new();
        for (other, &place) in overrides.iter().zip(places) {
            let Some((name, condition, ..)) = other else { continue };
            let bucket = name.clone().unwrap_or_else(|| condition.digest());
            if let Some(first) = known.insert(bucket, place) {
                let first = self.whereabouts(first, place);
                let problem = match name {
                    Some(name) => format!("{path} has another override named {name:?} {first}; rename one"),
                    None => format!(
                        "{path} has another override with the same match {first}, and only the first one applies; remove one"
                    ),
                };
                self.wrong(place, problem);
            }
        }
    }

    /// How much an override allows; an empty list if it says nothing of it.
    fn other_quotas(&mut self, path: &str, written: &file::Override, counts: Counts) -> Option<Quotas> {
        match (counts, &written.quota, &written.in_flight) {
            (_, None, None) => Some(Vec::new()),
            (Counts::Spent(algorithm), Some(quota), None) => {
                self.quotas(&format!("{path}.quota"), quota, algorithm)
            }
            (Counts::InFlight, None, Some(n)) => self.permits(&format!("{path}.in_flight"), n),
            (Counts::Spent(_), _, Some(n)) => {
                let problem =
                    format!("{path} has in_flight, but its policy has a quota; write quota: {{rate: 10/s}}");
                self.wrong(n.place, problem);
                None
            }
            (Counts::InFlight, Some(quota), _) => {
                let problem =
                    format!("{path} has a quota, but its policy has in_flight; write in_flight: 10");
                self.wrong(quota.place, problem);
                None
            }
        }
    }

    /// The attributes of a partition.
    fn partition(
        &mut self,
        path: &str,
        written: Option<&At<By>>,
        missing: Option<OnMissing>,
    ) -> Option<Vec<Part>> {
        let Some(by) = written else { return Some(Vec::new()) };
        let parts = match &by.value {
            By::All(parts) if parts.is_empty() => {
                self.wrong(
                    by.place,
                    format!("{path} is an empty list; leave it out for one bucket for everybody"),
                );
                return None;
            }
            By::All(parts) => parts.iter().map(|part| self.part(path, part)).collect::<Vec<_>>(),
            By::One(_) | By::FirstOf(_) => vec![self.part(path, by)],
        };
        let parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
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

    /// The attributes of one part, at least one.
    fn part(&mut self, path: &str, written: &At<By>) -> Option<Vec<AttributeName<String>>> {
        match &written.value {
            By::One(text) => {
                let mut one = Written::unwritten(text);
                one.place = written.place;
                self.read(path, &one).map(|name| vec![name])
            }
            By::FirstOf(names) if names.is_empty() => {
                self.wrong(written.place, format!("{path}.first_of is empty; name the attributes to try"));
                None
            }
            By::FirstOf(names) => {
                names.iter().map(|name| self.read(&format!("{path}.first_of"), name)).collect()
            }
            By::All(_) => {
                self.wrong(
                    written.place,
                    format!("{path} has a list in a list; use {{first_of: […]}} for one of several"),
                );
                None
            }
        }
    }
}
