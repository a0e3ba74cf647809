//! Named rules, and which of them a query falls under.
//!
//! A policy says which queries it covers (selector), who gets a bucket of their own (partition), how
//! much (one or more limits) and whether it is enforced (mode). [`Policies`] is one whole rule set. It
//! is built once, checked as a whole, then only read; a reload builds another and swaps it in.
//!
//! Selecting costs what is selected, not what exists: policies that are asked for by name are found by
//! name, so ten thousand of them cost no more than ten.

use std::collections::HashMap;

use crate::charge::{Act, Charge, Charges, OnFailure};
use crate::key::{BucketName, Key};
use crate::query::{Ask, AttributeName, Query};
use crate::quota::Quota;

/// A named rule.
#[derive(Clone, Debug)]
pub struct Policy {
    name: String,
    selector: Selector,
    limits: Vec<Limit>,
    mode: Mode,
    on_failure: OnFailure,
}

/// One quota of a policy, and the name of its buckets.
#[derive(Clone, Debug)]
pub struct Limit {
    name: BucketName,
    quota: Quota,
}

/// Which limit of which policy, within one rule set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LimitId {
    policy: u32,
    limit: u32,
}

/// Which queries a policy covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selector {
    /// All.
    Every,
    /// Those that ask for it by name.
    Named,
}

/// Whether a policy is enforced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// It counts, and denies.
    #[default]
    Enforce,
    /// It counts what it would allow, and never denies.
    Shadow,
    /// It does nothing.
    Off,
}

/// One whole rule set.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    policies: Vec<Policy>,
    every: Vec<u32>,
    named: HashMap<String, u32>,
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

impl Policy {
    /// The longest name, in bytes.
    pub const NAME_MAX: usize = 64;

    /// A policy that covers every query and enforces one quota for all queries together.
    ///
    /// # Errors
    /// If the name has other characters than `a-z 0-9 . _ -`, is empty or too long.
    pub fn new(name: &str, quota: Quota) -> Result<Self, PolicyError> {
        if !is_name(name) {
            return Err(PolicyError::Name { name: name.to_owned() });
        }
        let limits = vec![Limit { name: BucketName::new(name, None, &quota, Vec::new()), quota }];
        let name = name.to_owned();
        Ok(Self {
            name,
            selector: Selector::Every,
            limits,
            mode: Mode::default(),
            on_failure: OnFailure::default(),
        })
    }

    /// Gives each combination of values of these attributes a bucket of its own. A query that lacks one of
    /// them does not fall under the policy.
    #[must_use]
    pub fn by(mut self, attributes: &[AttributeName<&str>]) -> Self {
        for limit in &mut self.limits {
            let partition = attributes.iter().map(AttributeName::to_owned).collect();
            limit.name = BucketName::new(&self.name, limit.name.quota(), &limit.quota, partition);
        }
        self
    }

    /// Covers only queries that fit the selector.
    #[must_use]
    pub fn covering(mut self, selector: Selector) -> Self {
        self.selector = selector;
        self
    }

    /// Adds a second quota, which must be met too. Its name tells its buckets apart.
    #[must_use]
    pub fn and(mut self, quota_name: &str, quota: Quota) -> Self {
        let partition = self.limits.first().map(|first| first.name.partition().to_vec()).unwrap_or_default();
        let name = BucketName::new(&self.name, Some(quota_name), &quota, partition);
        self.limits.push(Limit { name, quota });
        self
    }

    /// Sets the mode.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets what happens when the store gives no answer.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if it may deny.
    pub fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// The quotas, all of which must be met.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// What a query asks of this policy's buckets; nothing if the policy is off.
    #[inline(always)]
    fn act(&self, ask: Ask) -> Option<Act> {
        match (self.mode, ask) {
            (Mode::Off, _) => None,
            (Mode::Enforce, Ask::Spend(cost)) => Some(Act::Take(cost)),
            (Mode::Shadow, Ask::Spend(cost)) => Some(Act::Try(cost)),
            (_, Ask::Record(cost)) => Some(Act::Record(cost)),
            (Mode::Enforce, Ask::Look(cost)) => Some(Act::Look(cost)),
            (Mode::Shadow, Ask::Look(_)) => Some(Act::Look(0)),
        }
    }
}

/// True if a text can stand in a key as a name.
fn is_name(text: &str) -> bool {
    let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
    (1..=Policy::NAME_MAX).contains(&text.len()) && text.bytes().all(known)
}

impl Limit {
    /// The name of its buckets.
    pub fn name(&self) -> &BucketName {
        &self.name
    }

    /// How much.
    pub fn quota(&self) -> &Quota {
        &self.quota
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
        let n = policies.len();
        if n > Self::MAX {
            return Err(PolicyError::TooMany { n });
        }
        let mut set = Self { policies: Vec::with_capacity(n), ..Self::default() };
        for (index, policy) in (0u32..).zip(policies) {
            if set.named.insert(policy.name.clone(), index).is_some() {
                return Err(PolicyError::Twice { name: policy.name });
            }
            for (n, limit) in policy.limits.iter().enumerate() {
                let quota = limit.name.quota();
                if quota.is_some_and(|quota| !is_name(quota)) {
                    return Err(PolicyError::Name { name: quota.unwrap_or_default().to_owned() });
                }
                if policy.limits[..n].iter().any(|other| other.name.quota() == quota) {
                    return Err(PolicyError::QuotaTwice { name: policy.name });
                }
            }
            match policy.selector {
                Selector::Every => set.every.push(index),
                Selector::Named => {}
            }
            set.policies.push(policy);
        }
        Ok(set)
    }

    /// The policy of that name.
    pub fn named(&self, name: &str) -> Option<&Policy> {
        self.at(*self.named.get(name)?)
    }

    /// The charges that a query brings about: of the policies that cover it, then of those it names. A
    /// policy charges once, however often it is named.
    #[inline(always)]
    pub fn select<'a>(&'a self, query: &Query<'a>, charges: &mut Charges<'a>) {
        for &index in &self.every {
            self.charge(index, query, charges);
        }
        for (n, name) in query.policies.iter().enumerate() {
            if let Some(&index) = self.named.get(*name)
                && self.at(index).is_some_and(|policy| policy.selector == Selector::Named)
                && !query.policies[..n].contains(name)
            {
                self.charge(index, query, charges);
            }
        }
    }

    /// The limit of that number, with its policy.
    pub fn limit(&self, id: LimitId) -> Option<(&Policy, &Limit)> {
        let policy = self.at(id.policy)?;
        Some((policy, policy.limits.get(id.limit as usize)?))
    }

    /// The bucket that a query meets under that limit, if `current` has the same limit.
    pub(crate) fn key<'a>(
        &'a self,
        id: LimitId,
        query: &Query<'a>,
        current: &Policies,
    ) -> Option<(Key<'a>, &'a Quota)> {
        let (policy, limit) = self.limit(id)?;
        let same = |other: &Limit| other.name == limit.name && other.quota == limit.quota;
        current.named(&policy.name)?.limits.iter().find(|other| same(other))?;
        Some((Key::new(&limit.name, query.attributes)?, &limit.quota))
    }

    /// Adds the charges that a query brings about under one policy.
    #[inline(always)]
    fn charge<'a>(&'a self, index: u32, query: &Query<'a>, charges: &mut Charges<'a>) {
        let Some(policy) = self.at(index) else { return };
        let Some(act) = policy.act(query.ask) else { return };
        for (n, limit) in (0..).zip(&policy.limits) {
            if let Some(key) = Key::new(&limit.name, query.attributes) {
                let id = LimitId { policy: index, limit: n };
                let (quota, on_failure, patience) = (&limit.quota, policy.on_failure, query.patience);
                charges.push(Charge { limit: id, key, quota, act, patience, on_failure });
            }
        }
    }

    #[inline(always)]
    fn at(&self, index: u32) -> Option<&Policy> {
        self.policies.get(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Micros;
    use crate::query::Attribute;
    use crate::quota::{Algorithm, Refill};

    fn policy(name: &str) -> Policy {
        let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/s".parse().unwrap()).unwrap();
        Policy::new(name, quota).unwrap()
    }

    fn keys(policies: Vec<Policy>, named: &[&str], attributes: &[Attribute<'_>]) -> Vec<String> {
        let policies = Policies::new(policies).unwrap();
        let ask = Ask::Look(0);
        let query = Query { policies: named, attributes, ask, patience: Micros::ZERO };
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
                policy("off").mode(Mode::Off),
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
}
