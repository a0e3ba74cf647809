//! Finds policies that never apply, because an earlier policy of their group matches every request that they match, without
//! comparing all pairs of policies.
//!
//! Condition A includes condition B only if each test of A includes a test of B on the same attribute:
//!
//! - A pattern of A includes a pattern of B only if B's pattern begins with the text before the first star of A's pattern, and
//!   ends with the text after its last star.
//! - A network of A includes a network of B only if B's network lies within A's.
//!
//! So the index files each policy under the anchors of one of its tests. The anchor of a pattern is its literal beginning or its
//! literal end, whichever is rarer in the group. The anchor of a network is the network. For a later policy, the index looks up all
//! beginnings and ends of its patterns, and all networks that contain its networks.
//!
//! The index only proposes; [`Condition::includes`](ratewright_core::policy::Condition::includes) decides, so there are
//! no false reports.

use std::collections::HashMap;

use ipnet::IpNet;
use ratewright_core::Policy;
use ratewright_core::policy::{Condition, Selector};
use ratewright_core::query::AttributeName;

use super::may_skip;

/// The policies of all groups, in their order.
#[derive(Default)]
pub(crate) struct CoverIndex<'a> {
    groups: HashMap<&'a str, Group>,
    policies: Vec<&'a Policy>,
    /// How often two conditions were compared.
    pub(crate) n_compared: usize,
}

/// The policies of one group.
#[derive(Default)]
struct Group {
    /// The first policy that matches everything.
    everything: Option<usize>,
    filed: HashMap<Anchor, Vec<usize>>,
    /// How many policies of the whole group have each anchor.
    frequency: HashMap<Anchor, usize>,
}

/// A property of a condition that every condition included in it also has.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Anchor {
    Begins(String, String),
    Ends(String, String),
    Within(IpNet),
}

impl<'a> CoverIndex<'a> {
    /// An index for these policies, in which none of them is filed yet.
    pub(crate) fn of(policies: impl Iterator<Item = &'a Policy>) -> Self {
        let mut index = Self::default();
        for policy in policies {
            let Some((group, condition)) = member(policy) else { continue };
            let frequency = &mut index.groups.entry(group).or_default().frequency;
            for anchor in tests(condition).flatten().flatten() {
                *frequency.entry(anchor).or_default() += 1;
            }
        }
        index
    }

    /// The first earlier policy that matches every request that `later` matches. Also adds `later` to the index, unless `later`
    /// may skip requests.
    pub(crate) fn first_covering(&mut self, later: &'a Policy) -> Option<&'a Policy> {
        let n = self.policies.len();
        self.policies.push(later);
        let (name, condition) = member(later)?;
        let group = self.groups.entry(name).or_default();
        let candidates = group.candidates(condition);
        if !may_skip(later) {
            group.file(n, condition);
        }
        candidates.into_iter().filter_map(|n| self.policies.get(n).copied()).find(|earlier| {
            self.n_compared += 1;
            member(earlier).is_some_and(|(_, first)| first.includes(condition))
        })
    }
}

impl Group {
    fn file(&mut self, n: usize, condition: &Condition) {
        let frequency = |anchor: &Anchor| self.frequency.get(anchor).copied().unwrap_or_default();
        // Of each pattern, keep the rarer anchor. File the policy under the test whose most frequent anchor is the rarest.
        let rarest = |anchors: Vec<Anchor>| anchors.into_iter().min_by_key(frequency);
        let tests =
            tests(condition).map(|patterns| patterns.into_iter().filter_map(rarest).collect::<Vec<_>>());
        let best = tests.min_by_key(|anchors| anchors.iter().map(frequency).max());
        match best {
            None => self.everything = self.everything.or(Some(n)),
            Some(anchors) => {
                for anchor in anchors {
                    self.filed.entry(anchor).or_default().push(n);
                }
            }
        }
    }

    /// The policies that may include a condition, in their order.
    fn candidates(&self, condition: &Condition) -> Vec<usize> {
        let mut found: Vec<usize> = self.everything.into_iter().collect();
        for (name, values) in condition.tests() {
            // All values of the test must be included, so one of them finds all candidates.
            let Some(first) = values.first() else { continue };
            for anchor in around(&name, first) {
                found.extend(self.filed.get(&anchor).into_iter().flatten());
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// A policy's group and condition, if it can cover or be covered.
fn member(policy: &Policy) -> Option<(&str, &Condition)> {
    match policy.selector() {
        Selector::When(condition) => Some((policy.group()?, condition)),
        Selector::Named => None,
    }
}

/// For each test of a condition and each of its values, the anchors under which it can be filed.
fn tests(condition: &Condition) -> impl Iterator<Item = Vec<Vec<Anchor>>> {
    condition.tests().map(|(name, values)| values.iter().map(|value| own(&name, value)).collect())
}

/// The anchors under which a pattern or network can be filed.
fn own(name: &AttributeName<&str>, value: &str) -> Vec<Anchor> {
    if let Some(network) = network(name, value) {
        return vec![Anchor::Within(network)];
    }
    let is_exact = !value.contains('*');
    let (begin, end) = literals(value);
    // `**` may match nothing, and then needs no separator: `/a/**` matches `/a`.
    let trim = |c: char| !is_exact && matches!(c, '/' | '.');
    let (begin, end) = (begin.strip_suffix(trim).unwrap_or(begin), end.strip_prefix(trim).unwrap_or(end));
    vec![Anchor::Begins(name.to_string(), begin.to_owned()), Anchor::Ends(name.to_string(), end.to_owned())]
}

/// The anchors of everything that may include a pattern or network.
fn around(name: &AttributeName<&str>, value: &str) -> Vec<Anchor> {
    if let Some(network) = network(name, value) {
        let wider = (0..=network.prefix_len()).filter_map(|n| IpNet::new(network.addr(), n).ok());
        return wider.map(|network| Anchor::Within(network.trunc())).collect();
    }
    let (begin, end) = literals(value);
    let begins = (0..=begin.len()).filter_map(|n| begin.get(..n));
    let ends = (0..=end.len()).filter_map(|n| end.get(n..));
    let begins = begins.map(|text| Anchor::Begins(name.to_string(), text.to_owned()));
    begins.chain(ends.map(|text| Anchor::Ends(name.to_string(), text.to_owned()))).collect()
}

fn network(name: &AttributeName<&str>, value: &str) -> Option<IpNet> {
    (*name == AttributeName::Ip).then(|| value.parse().ok())?
}

/// The text before the first star and after the last.
fn literals(pattern: &str) -> (&str, &str) {
    let begin = pattern.split('*').next().unwrap_or_default();
    let end = pattern.rsplit('*').next().unwrap_or_default();
    (begin, end)
}

#[cfg(test)]
mod tests;
