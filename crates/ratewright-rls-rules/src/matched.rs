//! The rule that matches a request's descriptor.

use std::borrow::Cow;

use ratewright_core::query::{Attribute, AttributeName};
use smallvec::SmallVec;

use crate::rule::{Rule, RuleKind};

/// The rule that matches a request's descriptor.
#[derive(Clone, Debug)]
pub enum Matched<'a> {
    /// No rule: the domain is unknown, no descriptor matches, or the matching one has no limits.
    Nothing,
    /// A rule without a limit.
    Unlimited(&'a Rule),
    /// A limit of zero: every request is over it, and nothing is counted.
    Blocked(&'a Rule),
    /// A rule with limits to be charged.
    Limited(Limited<'a>),
}

/// A rule with limits, and the values that name the request's buckets.
#[derive(Clone, Debug)]
pub struct Limited<'a> {
    rule: &'a Rule,
    policy: &'a str,
    values: PartitionValues<'a>,
}

/// The values of the partition, in its order.
pub(crate) type PartitionValues<'a> = SmallVec<[Cow<'a, str>; 4]>;

impl<'a> Matched<'a> {
    pub(crate) fn of(rule: &'a Rule, values: PartitionValues<'a>) -> Self {
        match &rule.kind {
            RuleKind::Unlimited => Self::Unlimited(rule),
            RuleKind::Blocked(_) => Self::Blocked(rule),
            RuleKind::Limited(policy) => Self::Limited(Limited { rule, policy, values }),
        }
    }

    /// The rule, if there is one.
    pub fn rule(&self) -> Option<&'a Rule> {
        match self {
            Self::Nothing => None,
            Self::Unlimited(rule) | Self::Blocked(rule) => Some(rule),
            Self::Limited(limited) => Some(limited.rule),
        }
    }

    /// True if another rule of the same request replaces it. An unlimited rule cannot be replaced.
    fn is_replaced(&self, replaced: &[&str]) -> bool {
        let rule = match self {
            Self::Nothing | Self::Unlimited(_) => return false,
            Self::Blocked(rule) => rule,
            Self::Limited(limited) => limited.rule,
        };
        rule.names().iter().any(|name| replaced.contains(&name.as_str()))
    }
}

impl<'a> Limited<'a> {
    /// The rule.
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// The name of the policy to select.
    pub fn policy(&self) -> &'a str {
        self.policy
    }

    /// The attributes of the query.
    pub fn attributes(&self) -> SmallVec<[Attribute<'_>; 4]> {
        let parts = self.rule.partition.iter().zip(&self.values);
        parts.map(|(name, value)| Attribute { name: AttributeName::Named(name), value }).collect()
    }
}

/// Removes every rule that another descriptor of the same request names in `replaces`. For a rule with several limits,
/// one name is enough.
pub fn replace(matched: &mut [Matched<'_>]) {
    let rules = matched.iter().filter_map(Matched::rule);
    let replaced: SmallVec<[&str; 4]> = rules.flat_map(Rule::replaces).map(String::as_str).collect();
    if replaced.is_empty() {
        return;
    }
    for one in matched.iter_mut().filter(|one| one.is_replaced(&replaced)) {
        *one = Matched::Nothing;
    }
}
