//! What a request's descriptor meets.

use std::borrow::Cow;

use ratewright_core::{Attribute, AttributeName};
use smallvec::SmallVec;

use crate::rule::{Kind, Rule};

/// What a request's descriptor meets.
#[derive(Clone, Debug)]
pub enum Matched<'a> {
    /// No limit: the domain is not known, or no descriptor is for it, or one is that says nothing.
    Nothing,
    /// A rule without a limit.
    Unlimited(&'a Rule),
    /// A limit of zero: everything is over it, and nothing is counted.
    Blocked(&'a Rule),
    /// Limits that have to be asked.
    Limited(Limited<'a>),
}

/// A rule, and whose buckets are meant.
#[derive(Clone, Debug)]
pub struct Limited<'a> {
    rule: &'a Rule,
    policy: &'a str,
    values: Values<'a>,
}

/// Values that tell buckets apart, in the order of the partition.
pub(crate) type Values<'a> = SmallVec<[Cow<'a, str>; 4]>;

impl<'a> Matched<'a> {
    pub(crate) fn of(rule: &'a Rule, values: Values<'a>) -> Self {
        match &rule.kind {
            Kind::Unlimited => Self::Unlimited(rule),
            Kind::Blocked(_) => Self::Blocked(rule),
            Kind::Limited(policy) => Self::Limited(Limited { rule, policy, values }),
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

    /// True if another rule of the same request counts in its place. What has no limit cannot be replaced.
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
    /// What the descriptor says.
    pub fn rule(&self) -> &'a Rule {
        self.rule
    }

    /// The policy to ask for.
    pub fn policy(&self) -> &'a str {
        self.policy
    }

    /// The attributes to ask with.
    pub fn attributes(&self) -> SmallVec<[Attribute<'_>; 4]> {
        let parts = self.rule.partition.iter().zip(&self.values);
        parts.map(|(name, value)| Attribute { name: AttributeName::Named(name), value }).collect()
    }
}

/// Takes out what other descriptors of the same request replace: of what all of them meet, every rule that one of them names in
/// `replaces`. Of a rule with several limits, one name is enough.
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
