//! A rule set: all policies, and the selection of those that apply to a query.
//!
//! A rule set is built and checked once, then only read. A reload builds another and swaps it in.
//!
//! The cost of a selection depends on the policies that apply, not on all: policies are found by name or through an index, so ten
//! thousand cost about as much as ten.

mod ambiguous_queries;

pub(crate) use ambiguous_queries::views;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::charge::{Act, Charge, Charges, PaidCharge};
use crate::key::Key;
use crate::policy::{Cost, Limit, Missing, Mode, Policy, QueryTerms, is_name};
use crate::query::{AttributeName, Query, Select};
use crate::quota::Quota;
use crate::selector::{Condition, ConditionMatch, Index, Selector};

/// The most policies that are charged only because a value cannot be read. Without a bound, one invalid byte would be charged under every
/// policy of a file that names a thousand customers.
pub(crate) const UNSURE_MAX: u32 = 8;

/// The number of the rule set that was built last.
static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

/// A rule set: policies that were checked together.
///
/// ```
/// use ratewright_core::query::AttributeName;
/// use ratewright_core::{Policies, Policy, Quota};
///
/// # fn main() -> Result<(), ratewright_core::policy::PolicyError> {
/// let login = Policy::new("login", Quota::per_minute(5))?.by(&[AttributeName::Ip]);
/// let policies = Policies::new(vec![login.clone()])?;
/// assert!(policies.named("login").is_some());
/// assert!(Policies::new(vec![login.clone(), login]).is_err(), "two policies would share buckets");
/// # Ok(())
/// # }
/// ```
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
    counts_by_response: bool,
    counts_bytes: bool,
}

/// Which limit of which policy, within one rule set, and whether it was enforced for the query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LimitId {
    policy: u32,
    limit: u32,
    mode: Mode,
    reading: u8,
}

/// A policy that denies because the query cannot be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    policy: u32,
    why: UncountableReason,
}

/// Why a query cannot be counted under a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UncountableReason {
    /// The attribute to count by is missing.
    Missing,
    /// An attribute that must be unique was sent more than once.
    Repeated,
    /// The query has too many values or readings.
    TooMany,
}

/// Why policies cannot form a rule set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// The name has characters that a key cannot have, is empty or too long.
    #[error(
        "{name:?} cannot name a policy, an override or a quota; use 1 to {} characters of a-z 0-9 . _ -",
        Policy::NAME_MAX
    )]
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
    /// Two overrides of a policy have the same name or the same condition, and would share buckets.
    #[error(
        "policy {name:?} has two overrides named {override_name:?}, or two unnamed ones with the same match; rename or remove one"
    )]
    OverrideTwice {
        /// The policy's name.
        name: String,
        /// The override's name, or the digest of its condition.
        override_name: String,
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

    /// Which reading of the query was charged, where an attribute could be read in several ways.
    pub(crate) fn reading(self) -> u8 {
        self.reading
    }
}

impl Policies {
    /// The most policies in a rule set.
    pub const MAX: usize = 1_000_000;

    /// The most buckets that a policy charges for one query: at most 15 values (4 as sent, with up to 2 other spellings each, and 3 that
    /// only some parsers read), and the client's address.
    pub const READINGS_MAX: u8 = 16;

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
            check_overrides(policy)?;
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
        set.counts_bytes = policies.iter().any(|policy| *policy.cost() == Cost::RequestBytes);
        set.counts_by_response = policies.iter().any(|policy| !policy.count().is_everything());
        set.policies = policies;
        Ok(set)
    }

    /// Exempts queries that meet one of these conditions from all policies.
    #[must_use]
    pub fn with_exempt(mut self, exempt: Vec<Condition>) -> Self {
        self.need(exempt.iter().flat_map(Condition::attributes));
        self.exempt = exempt;
        self
    }

    /// The conditions for exempt queries: one is enough.
    pub fn exempt(&self) -> &[Condition] {
        &self.exempt
    }

    /// The attributes that these policies use. A query needs no others.
    pub fn needs(&self) -> &Arc<[AttributeName<String>]> {
        &self.needs
    }

    /// True if some policy counts the bytes of requests.
    pub fn counts_bytes(&self) -> bool {
        self.counts_bytes
    }

    /// True if some policy counts only some responses.
    pub(crate) fn counts_by_response(&self) -> bool {
        self.counts_by_response
    }

    /// A number that grows with every rule set built in this process. A copy has the number of its original.
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

    /// The policy that refused, and why.
    pub fn refused(&self, refused: Refused) -> Option<(&Policy, UncountableReason)> {
        self.at(refused.policy).map(|policy| (policy, refused.why))
    }

    /// Adds the charges of a query: of the policies that cover it, then of those it names. A policy charges once, however often it is
    /// named. If a policy refuses the query, there are no charges.
    #[inline(always)]
    pub fn select<'a>(&'a self, query: &Query<'a>, charges: &mut Charges<'a>) -> Option<Refused> {
        let refused = match query.select {
            Select::Named(names) => self.select_named::<false>(names, query, query, charges),
            Select::Covering(names) => self.select_covering::<false>(names, query, query, charges),
            Select::CoveringReadings(names) => self.select_readings(names, query, charges),
            Select::EveryBucket(name) => self.select_buckets(name, query, charges),
        };
        if refused.is_some() {
            charges.clear();
        }
        refused
    }

    /// Charges these policies. `seen` is the query in one reading, `query` all of it; they are the same unless it has several.
    /// `SEVERAL` is a constant, so a query with one reading pays nothing for the others.
    #[inline(always)]
    fn select_named<'a, const SEVERAL: bool>(
        &'a self,
        names: &[&str],
        seen: &Query<'_>,
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        let mut refused = None;
        for (n, name) in names.iter().enumerate() {
            if let Some(&index) = self.named.get(*name)
                && !names[..n].contains(name)
                && (SEVERAL || !charges.iter().any(|charge| charge.limit.policy == index))
            {
                refused = refused.or(self.charge::<SEVERAL>(index, seen, query, charges));
            }
        }
        refused
    }

    /// The charges of one policy, then a look at each other bucket that it has for the same values.
    #[inline(never)]
    fn select_buckets<'a>(
        &'a self,
        name: &str,
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        let &index = self.named.get(name)?;
        let policy = self.at(index)?;
        let refused = self.charge::<false>(index, query, query, charges);
        let (mode, on_failure, patience) = (policy.mode(), policy.on_failure(), query.patience);
        for (n, limit) in (0..).zip(policy.all_limits()).filter(|_| mode != Mode::Off) {
            let id = LimitId { policy: index, limit: n, mode, reading: 0 };
            let is_new = !charges.iter().any(|charge| charge.limit.limit == n);
            let key = Key::new(limit.name(), query.attributes).filter(|_| is_new);
            let (quota, act) = (limit.quota(), Act::Look(0));
            charges.extend(key.map(|key| Charge { limit: id, key, quota, act, patience, on_failure }));
        }
        refused
    }

    #[inline(always)]
    fn select_covering<'a, const SEVERAL: bool>(
        &'a self,
        names: &[&str],
        seen: &Query<'_>,
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        if self.exempt.iter().any(|condition| condition.spares(seen)) {
            return None;
        }
        let refused = match self.index.always() {
            Some(always) => self.select_first::<SEVERAL>(always, seen, query, charges),
            None => self.select_first::<SEVERAL>(&self.index.propose(seen), seen, query, charges),
        };
        if names.is_empty() {
            refused
        } else {
            refused.or(self.select_named::<SEVERAL>(names, seen, query, charges))
        }
    }

    /// Charges those of the proposed policies that cover the query; of each group only the first.
    #[inline(always)]
    fn select_first<'a, const SEVERAL: bool>(
        &'a self,
        proposed: &[u32],
        seen: &Query<'_>,
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        let (mut refused, mut n_unsure) = (None, 0);
        let mut groups: SmallVec<[u32; 4]> = SmallVec::new();
        for (n, &index) in proposed.iter().enumerate() {
            let (Some(policy), Some(group)) = (self.at(index), self.groups.get(index as usize)) else {
                continue;
            };
            if group.is_some_and(|group| groups.contains(&group)) {
                continue;
            }
            let fit = match policy.selector() {
                // A policy that is off keeps the others of its group from applying, so it must match for sure.
                Selector::When(condition) if policy.mode() == Mode::Off => {
                    if condition.spares(seen) {
                        ConditionMatch::Yes
                    } else {
                        ConditionMatch::No
                    }
                }
                Selector::When(condition) => condition.fit(seen, || policy.is_by_client()),
                Selector::Named => ConditionMatch::No,
            };
            match fit {
                ConditionMatch::No => continue,
                ConditionMatch::Maybe if n_unsure == UNSURE_MAX => continue,
                ConditionMatch::Maybe => n_unsure += 1,
                ConditionMatch::Yes => {}
            }
            if let Some(group) = group {
                if self.is_head_of_another(policy, &proposed[n + 1..], seen) {
                    continue;
                }
                // A policy whose key attribute is missing does not apply, and leaves its group to the next. The same holds if the
                // client's address stands in for an unreadable value: a refused token must not choose the members' quota.
                let is_sure = fit == ConditionMatch::Yes && (!SEVERAL || !policy.looks_at_too_many(seen));
                if is_sure && !policy.is_skipped(seen) && !policy.stands_in(seen) {
                    groups.push(*group);
                }
            }
            refused = refused.or(self.charge::<SEVERAL>(index, seen, query, charges));
        }
        refused
    }

    /// True if a policy covers a HEAD request only because it covers GET, while a later one of its group names HEAD.
    pub(crate) fn is_head_of_another(&self, policy: &Policy, later: &[u32], query: &Query<'_>) -> bool {
        let Selector::When(condition) = policy.selector() else { return false };
        condition.takes_head_for_get(query)
            && later.iter().filter_map(|&index| self.at(index)).any(|other| match other.selector() {
                Selector::When(condition) => {
                    other.group() == policy.group()
                        && other.mode() != Mode::Off
                        && condition.names_head(query)
                        && !other.is_skipped(query)
                }
                Selector::Named => false,
            })
    }

    /// Adds the charges of one policy for one reading of a query.
    #[inline(always)]
    fn charge<'a, const SEVERAL: bool>(
        &'a self,
        index: u32,
        seen: &Query<'_>,
        query: &Query<'a>,
        charges: &mut Charges<'a>,
    ) -> Option<Refused> {
        let policy = self.at(index)?;
        let QueryTerms { first, limits, mode } = policy.terms(seen);
        let refuse = |why| (mode == Mode::Enforce).then_some(Refused { policy: index, why });
        if SEVERAL && policy.looks_at_too_many(seen) {
            // The override that would apply is unknown, so the terms are not used.
            let why = UncountableReason::TooMany;
            return policy.is_ever_enforced().then_some(Refused { policy: index, why });
        }
        if policy.missing() == Missing::Deny && policy.is_missing(seen) {
            return refuse(UncountableReason::Missing);
        }
        let act = policy.act(seen, mode)?;
        let mut reading = 0;
        if SEVERAL {
            if let Some(why) = policy.uncountable(query) {
                return refuse(why);
            }
            reading = policy.reading(seen, query)?;
        }
        for (n, limit) in (first..).zip(limits) {
            let id = LimitId { policy: index, limit: u32::try_from(n).unwrap_or(u32::MAX), mode, reading };
            let key = Key::read(limit.name(), query.attributes, reading)?;
            let (quota, on_failure, patience) = (limit.quota(), policy.on_failure(), query.patience);
            let act = if !SEVERAL && n > first { act.of_further_quota() } else { act };
            let charge = Charge { limit: id, key, quota, act, patience, on_failure };
            if SEVERAL { ambiguous_queries::merge(charges, charge) } else { charges.push(charge) }
        }
        None
    }

    /// All buckets that the policies of a query have for its values, those of overrides that do not apply now too.
    pub(crate) fn keys<'a>(&'a self, query: &Query<'a>) -> Vec<Key<'a>> {
        let mut charges = Charges::new();
        self.select(query, &mut charges);
        let mut policies: Vec<u32> = charges.iter().map(|charge| charge.limit.policy).collect();
        // A policy that is off or refuses has charged nothing, but may have buckets.
        policies.extend(query.select.names().iter().filter_map(|name| self.named.get(*name)));
        policies.sort_unstable();
        policies.dedup();
        let limits = policies.into_iter().filter_map(|index| self.at(index)).flat_map(Policy::all_limits);
        limits.filter_map(|limit| Key::new(limit.name(), query.attributes)).collect()
    }

    /// The bucket of a query under a limit, if `current` has the same limit.
    pub(crate) fn key<'a>(
        &'a self,
        id: LimitId,
        query: &Query<'a>,
        current: &Policies,
    ) -> Option<(Key<'a>, &'a Quota)> {
        let (policy, limit) = self.limit(id)?;
        let same = |other: &Limit| other.name() == limit.name() && other.quota() == limit.quota();
        current.named(policy.name())?.all_limits().iter().find(|other| same(other))?;
        Some((query.key(limit.name(), id)?, limit.quota()))
    }

    /// Adds attributes to those that queries need, each once.
    fn need<'a>(&mut self, names: impl Iterator<Item = &'a AttributeName<String>>) {
        let mut needs = self.needs.to_vec();
        let mut known: HashSet<_> = needs.iter().cloned().collect();
        needs.extend(names.filter(|name| known.insert((*name).clone())).cloned());
        self.needs = needs.into();
    }

    /// The bucket with these values, under the limit of that name and quota, if there still is one.
    pub(crate) fn bucket<'a>(&'a self, paid: &PaidCharge<'_>) -> Option<&'a Limit> {
        let is_same = |limit: &&Limit| {
            limit.name().override_name() == paid.override_name
                && limit.name().quota() == paid.quota
                && limit.quota().rate() == paid.rate
                && limit.quota().kind() == paid.kind
                && limit.quota().capacity() == paid.capacity
        };
        self.named(paid.policy)?.all_limits().iter().find(is_same)
    }

    #[inline(always)]
    fn at(&self, index: u32) -> Option<&Policy> {
        self.policies.get(index as usize)
    }
}

/// Checks the names of overrides.
fn check_overrides(policy: &Policy) -> Result<(), PolicyError> {
    let mut known = HashSet::new();
    for other in policy.overrides() {
        if !is_name(other.name) {
            return Err(PolicyError::Name { name: other.name.to_owned() });
        }
        if !known.insert(other.name) {
            let (name, override_name) = (policy.name().to_owned(), other.name.to_owned());
            return Err(PolicyError::OverrideTwice { name, override_name });
        }
    }
    Ok(())
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
mod tests;
