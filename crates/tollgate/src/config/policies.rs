//! The sections `policies` and `exempt`: which limits there are, for whom, and what is free.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use ipnet::IpNet;
use tollgate_core::{
    Algorithm, AttributeName, Condition, Cost, Micros, Missing, Mode, OnFailure, Part, Pattern, Policies,
    Policy, Quota, Selector,
};
use tollgate_http::path::Case;

use super::file::{self, By};
use super::meaning::{Name, OnMissing};
use super::reader::Reader;
use super::written::{At, Meaning, Place, Sections, Several, Written};

/// What is never charged, unless the file says otherwise.
const EXEMPT_PATHS: [&str; 7] =
    ["/actuator/**", "/health**", "/metrics**", "/static/**", "/css/**", "/js/**", "/images/**"];
const EXEMPT_METHODS: [&str; 1] = ["OPTIONS"];

/// What holds for all policies.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub(super) enabled: bool,
    pub(super) on_failure: OnFailure,
    pub(super) case: Case,
}

/// Everything about a policy that is a single value.
struct Terms {
    mode: Mode,
    on_failure: OnFailure,
    retry_after: Micros,
    group: Option<String>,
    missing: Missing,
    cost: Cost,
}

impl Terms {
    fn apply(self, policy: Policy) -> Policy {
        let policy = policy
            .in_mode(self.mode)
            .failing(self.on_failure)
            .waiting(self.retry_after)
            .lacking(self.missing)
            .costing(self.cost);
        match self.group {
            Some(group) => policy.grouped(&group),
            None => policy,
        }
    }
}

/// The quotas of a policy, the first without a name.
type Quotas = Vec<(Option<String>, Quota)>;

impl Reader<'_> {
    /// The rule set: the policies, those behind ad hoc keys, and what is exempt.
    pub(super) fn rule_set(
        &mut self,
        written: Option<Vec<At<file::Policy>>>,
        defaults: file::Defaults,
        exempt: file::Exempt,
        whole: Whole,
    ) -> Policies {
        let exempt = self.exempt(exempt, whole.case);
        let mut places: BTreeMap<String, Option<Place>> = BTreeMap::new();
        let mut policies = self.ad_hoc(defaults, whole);
        for policy in written.unwrap_or_default() {
            let place = policy.value.name.as_ref().and_then(|name| name.place).or(policy.place);
            let Some(policy) = self.policy(policy, whole) else { continue };
            if let Some(first) = places.insert(policy.name().to_owned(), place) {
                let (name, other) = (policy.name(), self.whereabouts(first, place));
                self.wrong(
                    place,
                    format!("there is another policy named {name:?} {other}; give each its own name"),
                );
                continue;
            }
            policies.push(policy);
        }
        match Policies::new(policies) {
            Ok(policies) => policies.exempting(exempt),
            Err(error) => {
                self.wrong(None, error.to_string());
                Policies::default()
            }
        }
    }

    fn policy(&mut self, written: At<file::Policy>, whole: Whole) -> Option<Policy> {
        let At { value: written, place } = written;
        let Some(name) = &written.name else {
            self.wrong(place, "a policy has no name; write name: login".to_owned());
            return None;
        };
        let Name(text) = self.read("policies.name", name)?;
        if Algorithm::named(&text).is_some() {
            let problem =
                format!("policies.{text}: the names of algorithms are reserved for ad hoc keys; use another");
            self.wrong(name.place, problem);
            return None;
        }
        let path = format!("policies.{text}");
        let Some(quota) = &written.quota else {
            let file = name.place.and_then(|place| self.files.get(place.file));
            let problem = if file.is_some_and(|file| file.is_profile) {
                format!(
                    "{path} has no quota, and no file under this one has a policy of that name to be changed; \
                     mend the name, or write quota: {{rate: 10/s}}"
                )
            } else {
                format!("{path} has no quota; write quota: {{rate: 10/s}}")
            };
            self.wrong(name.place, problem);
            return None;
        };
        // Everything is read before anything is given up, so that all that is wrong is told.
        let quotas = self.quotas(&format!("{path}.quota"), quota, None);
        let algorithm = quotas.as_ref().and_then(|quotas| Some(quotas.first()?.1.algorithm()));
        let missing = self.read_if(&format!("{path}.missing"), &written.missing);
        let parts = self.partition(&format!("{path}.by"), written.by.as_ref(), missing);
        let selector = self.selector(&format!("{path}.when"), written.when.as_ref(), whole.case);
        let terms = self.terms(&path, &written, missing, whole);
        let overrides = written.overrides.unwrap_or_default();
        let overrides = (0..).zip(overrides).map(|(n, other)| {
            self.other_terms(&format!("{path}.overrides[{n}]"), other, algorithm, whole.case)
        });
        let overrides: Vec<_> = overrides.collect();

        let mut quotas = quotas?.into_iter();
        let (_, first) = quotas.next()?;
        let policy =
            Policy::new(&text, first).map_err(|error| self.wrong(name.place, error.to_string())).ok()?;
        let policy = policy.partitioned(parts?).covering(selector?);
        let policy =
            quotas.fold(policy, |policy, (name, quota)| policy.and(&name.unwrap_or_default(), quota));
        overrides.into_iter().try_fold(terms.apply(policy), |policy, other| {
            let (condition, quotas, mode) = other?;
            Some(policy.overridden(condition, quotas, mode))
        })
    }

    fn selector(&mut self, path: &str, written: Option<&file::Condition>, case: Case) -> Option<Selector> {
        written.map_or(Some(Selector::every()), |when| self.condition(path, when, case).map(Selector::When))
    }

    /// Everything about a policy that is a single value.
    fn terms(
        &mut self,
        path: &str,
        written: &file::Policy,
        missing: Option<OnMissing>,
        whole: Whole,
    ) -> Terms {
        let mode = self.read_if(&format!("{path}.mode"), &written.mode).unwrap_or_default();
        let on_failure = self.read_if(&format!("{path}.on_failure"), &written.on_failure);
        Terms {
            mode: if whole.enabled { mode } else { Mode::Off },
            on_failure: on_failure.unwrap_or(whole.on_failure),
            retry_after: self
                .read_if(&format!("{path}.retry_after"), &written.retry_after)
                .unwrap_or(Micros::ZERO),
            group: self.read_if(&format!("{path}.group"), &written.group).map(|Name(group)| group),
            missing: match missing {
                Some(OnMissing::Otherwise(missing)) => missing,
                Some(OnMissing::Ip) | None => Missing::Skip,
            },
            cost: written
                .cost
                .as_ref()
                .and_then(|cost| self.cost(&format!("{path}.cost"), cost))
                .unwrap_or(Cost::Fixed(1)),
        }
    }

    /// Other terms for some: for whom, and which.
    fn other_terms(
        &mut self,
        path: &str,
        written: At<file::Override>,
        algorithm: Option<Algorithm>,
        case: Case,
    ) -> Option<(Condition, Quotas, Option<Mode>)> {
        let At { value: written, place } = written;
        let Some(condition) = written.condition.as_ref().filter(|condition| !condition.0.is_empty()) else {
            self.wrong(
                place,
                format!("{path} has no match; say whom it is for, for example match: {{user: \"batch-*\"}}"),
            );
            return None;
        };
        if written.quota.is_none() && written.mode.is_none() {
            self.wrong(place, format!("{path} changes nothing; give it a quota or a mode"));
        }
        let condition = self.condition(&format!("{path}.match"), condition, case);
        let quotas = match &written.quota {
            None => Some(Vec::new()),
            Some(quota) => self.quotas(&format!("{path}.quota"), quota, algorithm),
        };
        let mode = self.read_if(&format!("{path}.mode"), &written.mode);
        Some((condition?, quotas?, mode))
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

    /// One or several quotas. All but the first need a name.
    fn quotas(
        &mut self,
        path: &str,
        written: &Sections<file::Quota>,
        inherited: Option<Algorithm>,
    ) -> Option<Quotas> {
        let mut quotas = Vec::new();
        let mut names = BTreeSet::new();
        let mut is_sound = !written.items.is_empty();
        if !is_sound {
            self.wrong(written.place, format!("{path} is an empty list; write {{rate: 10/s}}"));
        }
        for (n, At { value: quota, place }) in written.items.iter().enumerate() {
            let path = if written.items.len() == 1 { path.to_owned() } else { format!("{path}[{n}]") };
            let name = self.read_if(&format!("{path}.name"), &quota.name).map(|Name(name)| name);
            if n > 0 && quota.name.is_none() {
                self.wrong(
                    *place,
                    format!(
                        "{path} has no name; the second quota and later ones need one, for example name: hour"
                    ),
                );
                is_sound = false;
            }
            if name.as_ref().is_some_and(|name| !names.insert(name.clone())) {
                let place = quota.name.as_ref().and_then(|name| name.place);
                self.wrong(
                    place,
                    format!("{path}: another quota of the policy has this name; give each its own"),
                );
                is_sound = false;
            }
            match self.quota(&path, quota, *place, inherited) {
                Some(quota) => quotas.push((if n == 0 { None } else { name }, quota)),
                None => is_sound = false,
            }
        }
        is_sound.then_some(quotas)
    }

    /// One quota.
    pub(super) fn quota(
        &mut self,
        path: &str,
        written: &file::Quota,
        place: Option<Place>,
        inherited: Option<Algorithm>,
    ) -> Option<Quota> {
        let algorithm = self.algorithm(path, written, inherited);
        let Some(rate_written) = &written.rate else {
            self.wrong(place, format!("{path} has no rate; write rate: 10/s"));
            return None;
        };
        let rate = self.read(&format!("{path}.rate"), rate_written);
        let burst =
            written.burst.as_ref().map(|burst| (burst.place, self.read(&format!("{path}.burst"), burst)));
        let (algorithm, rate) = (algorithm?, rate?);
        let wrong = |reader: &mut Self, place, error: tollgate_core::QuotaError| {
            reader.wrong(place, format!("{path}: {error}"))
        };
        let quota =
            Quota::new(algorithm, rate).map_err(|error| wrong(self, rate_written.place, error)).ok()?;
        match burst {
            None => Some(quota),
            Some((place, burst)) => {
                quota.with_burst(burst?.0).map_err(|error| wrong(self, place, error)).ok()
            }
        }
    }

    /// The algorithm with its variant.
    fn algorithm(
        &mut self,
        path: &str,
        written: &file::Quota,
        inherited: Option<Algorithm>,
    ) -> Option<Algorithm> {
        let algorithm = match &written.algorithm {
            None => inherited.unwrap_or(Algorithm::TokenBucket(Default::default())),
            Some(algorithm) => self.read(&format!("{path}.algorithm"), algorithm)?,
        };
        let refill = self.variant(path, "refill", &written.refill, algorithm, "token_bucket")?;
        let leak = self.variant(path, "leak", &written.leak, algorithm, "leaky_bucket")?;
        let start = self.variant(path, "start", &written.start, algorithm, "fixed_window")?;
        Some(match algorithm {
            Algorithm::TokenBucket(default) => Algorithm::TokenBucket(refill.unwrap_or(default)),
            Algorithm::LeakyBucket(default) => Algorithm::LeakyBucket(leak.unwrap_or(default)),
            Algorithm::FixedWindow(default) => Algorithm::FixedWindow(start.unwrap_or(default)),
            Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter => algorithm,
        })
    }

    /// A variant that one algorithm has. The outer nothing says that something is wrong.
    fn variant<T: Meaning>(
        &mut self,
        path: &str,
        what: &str,
        written: &Option<Written<T>>,
        algorithm: Algorithm,
        of: &str,
    ) -> Option<Option<T>> {
        let Some(variant) = written else { return Some(None) };
        if algorithm.name() != of {
            self.wrong(
                variant.place,
                format!("{path}.{what} is for {of} only, and this is {}; leave it out", algorithm.name()),
            );
            return None;
        }
        self.read(&format!("{path}.{what}"), variant).map(Some)
    }

    fn cost(&mut self, path: &str, written: &At<file::Cost>) -> Option<Cost> {
        match &written.value {
            file::Cost::Fixed(text) => {
                let mut fixed = Written::unwritten(text);
                fixed.place = written.place;
                self.read(path, &fixed).map(Cost::Fixed)
            }
            file::Cost::Table(table) => match table.get("header") {
                Some(header) if table.len() == 1 => {
                    let name = self.read(&format!("{path}.header"), &header.meaning::<http::HeaderName>())?;
                    Some(Cost::Of(AttributeName::Header(name.as_str().to_owned())))
                }
                Some(header) => {
                    self.wrong(header.place, format!("{path} has a header and methods; use one of the two"));
                    None
                }
                None => self.method_costs(path, table),
            },
        }
    }

    fn method_costs(&mut self, path: &str, table: &BTreeMap<String, Written<String>>) -> Option<Cost> {
        let mut costs = Vec::new();
        let mut others = 1;
        for (method, cost) in table {
            let cost = self.read(&format!("{path}.{method}"), &cost.meaning::<u32>())?;
            if method == "default" {
                others = cost;
            } else {
                costs.push((method.to_ascii_uppercase(), cost));
            }
        }
        Some(Cost::ByMethod { costs, others })
    }

    /// Tests that must all hold.
    fn condition(&mut self, path: &str, written: &file::Condition, case: Case) -> Option<Condition> {
        let mut condition = Condition::default();
        let mut is_sound = true;
        for (name, patterns) in &written.0 {
            let path = format!("{path}.{name}");
            let added = match AttributeName::understand(name) {
                Err(why) => {
                    self.wrong(patterns.place, format!("{path}: {name:?} is no attribute; {why}"));
                    None
                }
                Ok(_) if patterns.items.is_empty() => {
                    self.wrong(
                        patterns.place,
                        format!("{path} is an empty list, which nothing fits; leave it out"),
                    );
                    None
                }
                Ok(AttributeName::Ip) => {
                    self.networks(&path, patterns).map(|networks| condition.clone().and_within(networks))
                }
                Ok(name) => {
                    let patterns = self.patterns(&path, &name, patterns, case);
                    patterns.map(|patterns| condition.clone().and_fits(name, patterns))
                }
            };
            match added {
                Some(added) => condition = added,
                None => is_sound = false,
            }
        }
        is_sound.then_some(condition)
    }

    fn networks(&mut self, path: &str, written: &Several<String>) -> Option<Vec<IpNet>> {
        written.items.iter().map(|network| self.read(path, &network.meaning())).collect()
    }

    fn patterns(
        &mut self,
        path: &str,
        name: &AttributeName<String>,
        written: &Several<String>,
        case: Case,
    ) -> Option<Vec<Pattern>> {
        let patterns: Vec<_> =
            written.items.iter().map(|pattern| self.pattern(path, name, pattern, case)).collect();
        patterns.into_iter().collect()
    }

    fn pattern(
        &mut self,
        path: &str,
        name: &AttributeName<String>,
        written: &Written<String>,
        case: Case,
    ) -> Option<Pattern> {
        let mut text = self.read(path, written)?;
        match name {
            AttributeName::Method => text = text.to_ascii_uppercase(),
            AttributeName::Host => text = text.to_ascii_lowercase(),
            AttributeName::Path if !text.starts_with(['/', '*']) => {
                let problem = format!("{path} is {text:?}, which no path fits; begin with / or **");
                self.wrong(written.place, problem);
                return None;
            }
            AttributeName::Path if case == Case::Insensitive => text = text.to_ascii_lowercase(),
            AttributeName::Path
            | AttributeName::Ip
            | AttributeName::User
            | AttributeName::Route
            | AttributeName::Key
            | AttributeName::Header(_)
            | AttributeName::Cookie(_)
            | AttributeName::Param(_)
            | AttributeName::Claim(_)
            | AttributeName::Named(_) => {}
        }
        let pattern = Pattern::new(&text, name.separator());
        pattern.map_err(|error| self.wrong(written.place, format!("{path}: {error}"))).ok()
    }

    /// What is never charged: each condition alone is enough.
    fn exempt(&mut self, written: file::Exempt, case: Case) -> Vec<Condition> {
        let unwritten = |texts: &[&str]| Several {
            items: texts.iter().map(|text| Written::unwritten(text)).collect(),
            place: None,
        };
        let paths = written.paths.unwrap_or_else(|| unwritten(&EXEMPT_PATHS));
        let methods = written.methods.unwrap_or_else(|| unwritten(&EXEMPT_METHODS));
        let paths = self.patterns("exempt.paths", &AttributeName::Path, &paths, case).unwrap_or_default();
        let methods =
            self.patterns("exempt.methods", &AttributeName::Method, &methods, case).unwrap_or_default();
        let clients = self.read_all("exempt.clients", &written.clients).unwrap_or_default();
        let conditions = [
            Condition::default().and_fits(AttributeName::Path, paths),
            Condition::default().and_fits(AttributeName::Method, methods),
            Condition::default().and_within(clients),
        ];
        conditions.into()
    }

    /// The policies behind ad hoc keys: one for each algorithm, under the algorithm's name.
    fn ad_hoc(&mut self, written: file::Defaults, whole: Whole) -> Vec<Policy> {
        let bucket: fn() -> At<file::Quota> = || file::Quota::of("10/s", Some(100));
        let window: fn() -> At<file::Quota> = || file::Quota::of("100/60s", None);
        let quotas = written.each().into_iter().zip([bucket, bucket, window, window, window]);
        let policies = quotas
            .map(|((name, written), default)| (name, written.cloned().unwrap_or_else(default)))
            .filter_map(|(name, quota)| self.ad_hoc_policy(name, &quota, whole));
        policies.collect()
    }

    fn ad_hoc_policy(&mut self, name: &str, written: &At<file::Quota>, whole: Whole) -> Option<Policy> {
        let path = format!("api.defaults.{name}");
        if let Some(algorithm) = &written.value.algorithm {
            self.wrong(algorithm.place, format!("{path}.algorithm is {name} already; leave it out"));
            return None;
        }
        let quota = self.quota(&path, &written.value, written.place, Algorithm::named(name))?;
        let policy =
            Policy::new(name, quota).map_err(|error| self.wrong(written.place, error.to_string())).ok()?;
        let mode = if whole.enabled { Mode::Enforce } else { Mode::Off };
        Some(
            policy
                .covering(Selector::Named)
                .by(&[AttributeName::Key])
                .in_mode(mode)
                .failing(whole.on_failure),
        )
    }
}

impl file::Quota {
    /// A quota that nobody wrote.
    fn of(rate: &str, burst: Option<u32>) -> At<Self> {
        let burst = burst.and_then(NonZeroU32::new).map(|burst| Written::unwritten(&burst.to_string()));
        At { value: Self { rate: Some(Written::unwritten(rate)), burst, ..Self::default() }, place: None }
    }
}
