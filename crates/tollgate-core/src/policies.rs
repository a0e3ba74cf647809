//! One whole rule set, and which of its policies a query falls under.
//!
//! It is built once, checked as a whole, then only read; a reload builds another and swaps it in.
//!
//! Selecting costs what is selected, not what exists: policies that are asked for by name are found by
//! name, and those that cover a query are found by an index, so ten thousand of them cost about as much as ten.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::charge::{Charge, Charges, Paid};
use crate::key::{Key, Part};
use crate::policy::{Limit, Missing, Mode, Policy, Terms, is_name};
use crate::query::{AttributeName, Query, Select};
use crate::quota::Quota;
use crate::selector::{Condition, Index, Selector};

/// The number of the rule set that was built last.
static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

/// One whole rule set.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    generation: u64,
    policies: Vec<Policy>,
    /// The number of each policy's group.
    groups: Vec<Option<u32>>,
    index: Index,
    named: HashMap<String, u32>,
    exempt: Vec<Condition>,
    needs: Arc<[AttributeName<String>]>,
}

/// Which limit of which policy, within one rule set, and whether it was enforced for the query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LimitId {
    policy: u32,
    limit: u32,
    mode: Mode,
}

/// A policy that denies because the query lacks what it is to be counted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    policy: u32,
}

/// Why policies do not make a rule set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// The name cannot stand in a key.
    #[error("{name:?} is no name for a policy or a quota; use 1 to {} of a-z 0-9 . _ -", Policy::NAME_MAX)]
    Name {
        /// The name.
        name: String,
    },
    /// Two policies have the same name, and would share buckets.
    #[error("there are two policies named {name:?}; give each its own name")]
    Twice {
        /// The name.
        name: String,
    },
    /// Two quotas of a policy have the same name, and would share buckets.
    #[error("policy {name:?} has two quotas of the same name; give each its own name")]
    QuotaTwice {
        /// The policy's name.
        name: String,
    },
    /// There are more than can be numbered.
    #[error("{n} policies are too many; use at most {}", Policies::MAX)]
    TooMany {
        /// How many.
        n: usize,
    },
}

impl LimitId {
    /// The number of the policy: below [`Policies::n_policies`] of its rule set.
    #[inline(always)]
    pub fn policy(self) -> usize {
        self.policy as usize
    }

    /// Whether the limit was enforced.
    #[inline]
    pub fn mode(self) -> Mode {
        self.mode
    }
}

impl Policies {
    /// The most policies in a rule set.
    pub const MAX: usize = 1_000_000;

    /// A rule set of these policies.
    ///
    /// # Errors
    /// If two have the same name, or there are too many.
    pub fn new(policies: Vec<Policy>) -> Result<Self, PolicyError> {
        if policies.len() > Self::MAX {
            return Err(PolicyError::TooMany { n: policies.len() });
        }
        let mut named = HashMap::with_capacity(policies.len());
        let mut groups: HashMap<&str, u32> = HashMap::new();
        for (number, policy) in (0u32..).zip(&policies) {
            if named.insert(policy.name().to_owned(), number).is_some() {
                return Err(PolicyError::Twice { name: policy.name().to_owned() });
            }
            policy.limit_sets().try_for_each(|limits| check_names(policy, limits))?;
            if let Some(group) = policy.group() {
                groups.entry(group).or_insert(number);
            }
        }
        let groups = policies.iter().map(|policy| groups.get(policy.group()?).copied()).collect();
        let index = Index::new((0..).zip(&policies).filter_map(|(number, policy)| match policy.selector() {
            Selector::When(condition) => Some((number, condition)),
            Selector::Named => None,
        }));
        let generation = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
        let mut set = Self { generation, groups, index, named, ..Self::default() };
        set.need(policies.iter().flat_map(Policy::attributes));
        set.policies = policies;
        Ok(set)
    }

    /// Exempts the queries for which one of these holds: they fall under no policy.
    #[must_use]
    pub fn exempting(mut self, exempt: Vec<Condition>) -> Self {
        self.need(exempt.iter().flat_map(Condition::attributes));
        self.exempt = exempt;
        self
    }

    /// The conditions of which one is enough for a query to fall under no policy.
    pub fn exempt(&self) -> &[Condition] {
        &self.exempt
    }

    /// The attributes that a query must tell to be judged by these policies. Others need not be found out.
    pub fn needs(&self) -> &Arc<[AttributeName<String>]> {
        &self.needs
    }

    /// A number that grows with every rule set that is built in this process; of a copy, the original's.
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How many policies there are.
    pub fn n_policies(&self) -> usize {
        self.policies.len()
    }

    /// All policies, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }

    /// The policy of that name.
    pub fn named(&self, name: &str) -> Option<&Policy> {
        self.at(*self.named.get(name)?)
    }

    /// The limit of that number, with its policy.
    pub fn limit(&self, id: LimitId) -> Option<(&Policy, &Limit)> {
        let policy = self.at(id.policy)?;
        Some((policy, policy.all_limits().get(id.limit as usize)?))
    }

    /// The policy that refused, with what the query lacks of its partition.
    pub fn refused(&self, refused: Refused) -> Option<(&Policy, &[Part])> {
        self.at(refused.policy).map(|policy| (policy, policy.partition()))
    }

    /// The charges that a query brings about: of the policies that cover it, then of those it names. A
    /// policy charges once, however often it is named. If one of them refuses the query there are none.
    #[inline(always)]
    pub fn select<'a>(&'a self, query: &Query<'a>, charges: &mut Charges<'a>) -> Option<Refused> {
        let refused = match query.select {
            Select::Named(names) => self.select_named(names, query, charges),
            Select::Covering(names) | Select::CoveringAnyway(names) => {
                self.select_covering(names, query, charges)
            }
        };
        if refused.is_some() {
            charges.clear();
        }
        refused
    }

    #[inline(always)]
    fn select_named<'a>(
        &'a self,
        names: &[&str],
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        let mut refused = None;
        for (n, name) in names.iter().enumerate() {
            if let Some(&index) = self.named.get(*name)
                && !names[..n].contains(name)
                && !charges.iter().any(|charge| charge.limit.policy == index)
            {
                refused = refused.or(self.charge(index, query, charges));
            }
        }
        refused
    }

    #[inline(always)]
    fn select_covering<'a>(
        &'a self,
        names: &[&str],
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        if self.exempts(query) {
            return None;
        }
        let refused = match self.index.always() {
            Some(always) => self.select_first(always, query, charges),
            None => self.select_first(&self.index.propose(query), query, charges),
        };
        if names.is_empty() { refused } else { refused.or(self.select_named(names, query, charges)) }
    }

    #[inline(always)]
    fn exempts(&self, query: &Query<'_>) -> bool {
        let counts = |condition: &Condition| match query.select {
            Select::Covering(_) => true,
            Select::CoveringAnyway(_) => !condition.attributes().any(|name| *name == AttributeName::Path),
            Select::Named(_) => false,
        };
        self.exempt.iter().any(|condition| condition.holds(query) && counts(condition))
    }

    /// Charges those of the proposed policies that cover the query; of each group only the first.
    #[inline(always)]
    fn select_first<'a>(
        &'a self,
        proposed: &[u32],
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        let mut refused = None;
        let mut groups: SmallVec<[u32; 4]> = SmallVec::new();
        for &index in proposed {
            let (Some(policy), Some(group)) = (self.at(index), self.groups.get(index as usize)) else {
                continue;
            };
            if group.is_some_and(|group| groups.contains(&group)) {
                continue;
            }
            match policy.selector() {
                Selector::When(condition) if condition.holds(query) => {}
                Selector::When(_) | Selector::Named => continue,
            }
            groups.extend(*group);
            refused = refused.or(self.charge(index, query, charges));
        }
        refused
    }

    /// Adds the charges that a query brings about under one policy.
    #[inline(always)]
    fn charge<'a>(&'a self, index: u32, query: &Query<'a>, charges: &mut Charges<'a>) -> Option<Refused> {
        let policy = self.at(index)?;
        let Terms { first, limits, mode } = policy.terms(query);
        let act = policy.act(query, mode)?;
        for (n, limit) in (first..).zip(limits) {
            let Some(key) = Key::new(limit.name(), query.attributes) else {
                let denies = policy.missing() == Missing::Deny && mode == Mode::Enforce;
                return denies.then_some(Refused { policy: index });
            };
            let id = LimitId { policy: index, limit: u32::try_from(n).unwrap_or(u32::MAX), mode };
            let (quota, on_failure, patience) = (limit.quota(), policy.on_failure(), query.patience);
            charges.push(Charge { limit: id, key, quota, act, patience, on_failure });
        }
        None
    }

    /// The bucket that a query meets under that limit, if `current` has the same limit.
    pub(crate) fn key<'a>(
        &'a self,
        id: LimitId,
        query: &Query<'a>,
        current: &Policies,
    ) -> Option<(Key<'a>, &'a Quota)> {
        let (policy, limit) = self.limit(id)?;
        let same = |other: &Limit| other.name() == limit.name() && other.quota() == limit.quota();
        current.named(policy.name())?.all_limits().iter().find(|other| same(other))?;
        Some((Key::new(limit.name(), query.attributes)?, limit.quota()))
    }

    /// Notes attributes that are needed, each once.
    fn need<'a>(&mut self, names: impl Iterator<Item = &'a AttributeName<String>>) {
        let mut needs = self.needs.to_vec();
        let mut known: HashSet<_> = needs.iter().cloned().collect();
        needs.extend(names.filter(|name| known.insert((*name).clone())).cloned());
        self.needs = needs.into();
    }

    /// The bucket with these values, under the limit of that name and quota, if there still is one.
    pub(crate) fn bucket<'a>(&'a self, paid: &Paid<'_>) -> Option<&'a Limit> {
        let is_same = |limit: &&Limit| {
            limit.name().quota() == paid.quota
                && limit.quota().rate() == paid.rate
                && limit.quota().capacity() == paid.capacity
        };
        self.named(paid.policy)?.all_limits().iter().find(is_same)
    }

    #[inline(always)]
    fn at(&self, index: u32) -> Option<&Policy> {
        self.policies.get(index as usize)
    }
}

/// Checks the names of quotas that apply together.
fn check_names(policy: &Policy, limits: &[Limit]) -> Result<(), PolicyError> {
    for (n, limit) in limits.iter().enumerate() {
        let quota = limit.name().quota();
        if let Some(name) = quota.filter(|name| !is_name(name)) {
            return Err(PolicyError::Name { name: name.to_owned() });
        }
        if limits[..n].iter().any(|other| other.name().quota() == quota) {
            return Err(PolicyError::QuotaTwice { name: policy.name().to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charge::Act;
    use crate::pattern::Pattern;
    use crate::policy::Cost;
    use crate::quantity::Micros;
    use crate::query::{Ask, Attribute};
    use crate::quota::{Algorithm, Refill};

    fn policy(name: &str) -> Policy {
        let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/s".parse().unwrap()).unwrap();
        Policy::new(name, quota).unwrap()
    }

    fn query<'a>(select: Select<'a>, attributes: &'a [Attribute<'a>]) -> Query<'a> {
        let address = None;
        Query { select, attributes, address, ask: Ask::Look(1), patience: Micros::ZERO }
    }

    fn keys(policies: Vec<Policy>, named: &[&str], attributes: &[Attribute<'_>]) -> Vec<String> {
        let policies = Policies::new(policies).unwrap();
        let query = query(Select::Covering(named), attributes);
        let mut charges = Charges::new();
        policies.select(&query, &mut charges);
        charges.iter().map(|c| format!("{:?}", c.key)).collect()
    }

    #[test]
    fn a_query_meets_every_policy_that_covers_it_and_those_it_names() {
        let policies = || {
            vec![
                policy("all"),
                policy("each").by(&[AttributeName::Ip]),
                policy("other").covering(Selector::Named),
                policy("asked")
                    .covering(Selector::Named)
                    .by(&[AttributeName::Ip, AttributeName::Named("route")]),
                policy("off").in_mode(Mode::Off),
            ]
        };
        let client = Attribute { name: AttributeName::Ip, value: "c" };
        let route = Attribute { name: AttributeName::Named("route"), value: "r" };
        assert_eq!(keys(policies(), &[], &[client]), ["all[]", r#"each["c"]"#]);
        assert_eq!(
            keys(policies(), &["asked", "nobody"], &[route, client]),
            ["all[]", r#"each["c"]"#, r#"asked["c", "r"]"#]
        );
        assert_eq!(
            keys(policies(), &["asked"], &[route]),
            ["all[]"],
            "a missing attribute: the policy is skipped"
        );
    }

    #[test]
    fn several_quotas_of_a_policy_have_several_buckets() {
        let quota = Quota::new(Algorithm::SlidingWindow, "10/min".parse().unwrap()).unwrap();
        assert_eq!(keys(vec![policy("login").and("minute", quota)], &[], &[]), ["login[]", "login.minute[]"]);
    }

    #[test]
    fn names_are_checked() {
        for bad in ["", "Login", "a b", "a:b", "a{b", &"x".repeat(65)] {
            let quota = policy("x").limits()[0].quota().clone();
            assert!(matches!(Policy::new(bad, quota), Err(PolicyError::Name { .. })), "{bad:?}");
        }
        let quota = policy("x").limits()[0].quota().clone();
        let shared = Policies::new(vec![policy("a").and("s", quota.clone()).and("s", quota)]).unwrap_err();
        assert_eq!(
            shared.to_string(),
            "policy \"a\" has two quotas of the same name; give each its own name"
        );
        let other = Quota::new(Algorithm::SlidingWindow, "10/min".parse().unwrap()).unwrap();
        let quota = policy("x").limits()[0].quota().clone();
        let differing = policy("a").and("s", quota.clone()).and("s", other);
        assert!(matches!(Policies::new(vec![differing]), Err(PolicyError::QuotaTwice { .. })));
        assert!(matches!(Policies::new(vec![policy("a").and("s:{", quota)]), Err(PolicyError::Name { .. })));
        let twice = Policies::new(vec![policy("a"), policy("a")]).unwrap_err();
        assert_eq!(twice.to_string(), "there are two policies named \"a\"; give each its own name");
    }

    fn on(path: &str) -> Selector {
        let patterns = vec![Pattern::new(path, Some(b'/')).unwrap()];
        Selector::When(Condition::default().and_fits(AttributeName::Path, patterns))
    }

    fn path(value: &str) -> Attribute<'_> {
        Attribute { name: AttributeName::Path, value }
    }

    #[test]
    fn b3_of_a_group_the_first_match_decides() {
        let policies = || {
            vec![
                policy("login").covering(on("**/login**")).grouped("endpoint"),
                policy("recovery").covering(on("**/reset**")).grouped("endpoint").in_mode(Mode::Off),
                policy("all"),
                policy("default").grouped("endpoint"),
            ]
        };
        assert_eq!(keys(policies(), &[], &[path("/api/login")]), ["login[]", "all[]"]);
        assert_eq!(keys(policies(), &[], &[path("/x")]), ["all[]", "default[]"]);
        assert_eq!(
            keys(policies(), &[], &[path("/reset")]),
            ["all[]"],
            "one that is off is still the first match"
        );
        assert_eq!(
            keys(policies(), &["login"], &[path("/login")]),
            ["login[]", "all[]"],
            "once, also if named"
        );
    }

    #[test]
    fn b4_an_exempt_query_falls_under_no_policy() {
        let Selector::When(health) = on("/health**") else { unreachable!() };
        let policies = Policies::new(vec![policy("all")]).unwrap().exempting(vec![health]);
        assert_eq!(**policies.needs(), [AttributeName::Path]);
        let [healthz, other] = [[path("/healthz")], [path("/x")]];
        let mut charges = Charges::new();
        policies.select(&query(Select::Covering(&["all"]), &healthz), &mut charges);
        assert_eq!(charges.len(), 0);
        policies.select(&query(Select::Covering(&[]), &other), &mut charges);
        assert_eq!(charges.len(), 1);
    }

    #[test]
    fn b4_a_path_that_could_be_read_in_two_ways_exempts_nobody() {
        let Selector::When(health) = on("/health**") else { unreachable!() };
        let options = vec![Pattern::new("OPTIONS", None).unwrap()];
        let options = Condition::default().and_fits(AttributeName::Method, options);
        let within = Condition::default().and_within(vec!["10.1.2.0/24".parse().unwrap()]);
        let policies = Policies::new(vec![policy("all")]).unwrap().exempting(vec![health, options, within]);
        let n_charges = |select, method, address: &str| {
            let attributes = [path("/health"), Attribute { name: AttributeName::Method, value: method }];
            let mut charges = Charges::new();
            let query = Query { address: Some(address.parse().unwrap()), ..query(select, &attributes) };
            policies.select(&query, &mut charges);
            charges.len()
        };
        let [plain, odd] = [Select::Covering(&[]), Select::CoveringAnyway(&[])];
        assert_eq!([plain, odd].map(|select| n_charges(select, "GET", "192.0.2.1")), [0, 1]);
        assert_eq!(n_charges(odd, "OPTIONS", "192.0.2.1"), 0, "the method says the same in any reading");
        assert_eq!(n_charges(odd, "GET", "10.1.2.3"), 0, "so does the address");
        assert_eq!(n_charges(Select::CoveringAnyway(&["all"]), "GET", "192.0.2.1"), 1, "once, also if named");
    }

    #[test]
    fn who_names_policies_meets_no_others() {
        let policies = Policies::new(vec![policy("all"), policy("login").covering(on("/login"))]).unwrap();
        let mut charges = Charges::new();
        policies.select(&query(Select::Named(&["login"]), &[]), &mut charges);
        assert_eq!(charges.len(), 1, "also if its selector does not cover the query");
    }

    #[test]
    fn overrides_are_other_terms_on_the_same_bucket() {
        let quota = |rate: &str| Quota::new(Algorithm::SlidingWindowCounter, rate.parse().unwrap()).unwrap();
        let user = |text: &str| {
            Condition::default().and_fits(AttributeName::User, vec![Pattern::new(text, None).unwrap()])
        };
        let per_user = Policy::new("per-user", quota("250/min"))
            .unwrap()
            .by(&[AttributeName::User])
            .overridden(user("batch-*"), vec![(None, quota("2500/min"))], None)
            .overridden(user("batch-x"), vec![], Some(Mode::Off))
            .overridden(user("admin"), vec![], Some(Mode::Shadow))
            .overridden(user("root"), vec![], Some(Mode::Off));
        let policies = Policies::new(vec![per_user]).unwrap();
        let of = |value| {
            let attributes = [Attribute { name: AttributeName::User, value }];
            let mut charges = Charges::new();
            policies.select(&query(Select::Covering(&[]), &attributes), &mut charges);
            charges.iter().map(|c| format!("{:?} {} {:?}", c.key, c.quota.rate(), c.act)).collect::<Vec<_>>()
        };
        assert_eq!(of("anna"), [r#"per-user["anna"] 250/min Look(1)"#]);
        assert_eq!(of("batch-x"), [r#"per-user["batch-x"] 2500/min Look(1)"#], "the first that holds");
        assert_eq!(of("admin"), [r#"per-user["admin"] 250/min Look(0)"#]);
        assert_eq!(of("root"), [""; 0]);
    }

    #[test]
    fn a_query_without_what_it_is_counted_by_is_skipped_or_refused() {
        let of = |missing, mode| {
            let by_user = policy("by-user").by(&[AttributeName::User]).lacking(missing).in_mode(mode);
            let policies = Policies::new(vec![policy("all"), by_user]).unwrap();
            let mut charges = Charges::new();
            let refused = policies.select(&query(Select::Covering(&[]), &[]), &mut charges);
            (refused.and_then(|refused| Some(policies.refused(refused)?.0.name().to_owned())), charges.len())
        };
        assert_eq!(of(Missing::Skip, Mode::Enforce), (None, 1));
        assert_eq!(of(Missing::Deny, Mode::Enforce), (Some("by-user".to_owned()), 0));
        assert_eq!(of(Missing::Deny, Mode::Shadow), (None, 1));
    }

    #[test]
    fn the_cost_of_a_policy_multiplies() {
        let act = |cost: Cost, ask, attributes: &[Attribute<'_>]| {
            let policies = Policies::new(vec![policy("p").costing(cost)]).unwrap();
            let mut charges = Charges::new();
            let query = Query { ask, ..query(Select::Covering(&[]), attributes) };
            policies.select(&query, &mut charges);
            charges.first().map(|charge| charge.act)
        };
        let spend = |n: u32| Ask::Spend(n.try_into().unwrap());
        let take = |n: u32| Some(Act::Take(n.try_into().unwrap()));
        assert_eq!(act(Cost::Fixed(3), spend(2), &[]), take(6));
        assert_eq!(act(Cost::Fixed(u32::MAX), spend(2), &[]), take(u32::MAX));
        assert_eq!(act(Cost::Fixed(0), spend(2), &[]), None);
        let header = AttributeName::Header("x-cost".to_owned());
        for (text, cost) in [("7", 7), ("0", 1), ("-3", 1), ("much", 1), ("99999999999", 1)] {
            let attribute = Attribute { name: AttributeName::Header("x-cost"), value: text };
            assert_eq!(act(Cost::Of(header.clone()), spend(1), &[attribute]), take(cost), "{text}");
        }
        let by_method =
            Cost::ByMethod { costs: vec![("GET".to_owned(), 0), ("POST".to_owned(), 5)], others: 2 };
        for (method, expected) in [("GET", None), ("POST", take(5)), ("PUT", take(2))] {
            let attribute = Attribute { name: AttributeName::Method, value: method };
            assert_eq!(act(by_method.clone(), spend(1), &[attribute]), expected, "{method}");
        }
    }
}
