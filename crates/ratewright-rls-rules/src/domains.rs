//! All domains, and how descriptors become a tree.

use std::collections::HashMap;

use ratewright_core::Policy;
use smallvec::SmallVec;

use crate::descriptor::Descriptor;
use crate::error::{Error, Field, Wrong};
use crate::level::{By, Entry, Joined, Level, Node};
use crate::matched::Matched;
use crate::rule::{Rule, Standpoint};

/// All domains with their descriptors.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    domains: HashMap<String, Level>,
    policies: Vec<Policy>,
    has_values_in_metrics: bool,
}

/// What becomes of a domain that is added again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SameDomain {
    /// It is refused.
    #[default]
    Refuse,
    /// Its descriptors come after those that are there.
    Merge,
}

impl Domains {
    /// The most levels of descriptors.
    pub const DEPTH_MAX: usize = 32;

    /// Adds the descriptors of a domain.
    ///
    /// # Errors
    /// Everything that is wrong with them. What is not wrong may have been added.
    pub fn add(
        &mut self,
        domain: &str,
        descriptors: &[Descriptor],
        same: SameDomain,
    ) -> Result<(), Vec<Error>> {
        let wrong = if domain.is_empty() {
            Some(Wrong::EmptyDomain)
        } else if same == SameDomain::Refuse && self.domains.contains_key(domain) {
            Some(Wrong::DuplicateDomain { domain: domain.to_owned() })
        } else {
            None
        };
        let mut growth = Growth {
            path: vec![domain.to_owned()],
            numbers: Vec::new(),
            partition: Vec::new(),
            policies: Vec::new(),
            errors: Vec::new(),
        };
        if let Some(wrong) = wrong {
            growth.wrong(Field::Domain, wrong);
            growth.all(&mut Level::default(), descriptors); // what else is wrong shall be told too
        } else {
            growth.all(self.domains.entry(domain.to_owned()).or_default(), descriptors);
            self.policies.append(&mut growth.policies);
            self.has_values_in_metrics |= descriptors.iter().any(Descriptor::has_values_in_metrics);
        }
        if growth.errors.is_empty() { Ok(()) } else { Err(growth.errors) }
    }

    /// The policies that count, of all descriptors with limits. They are asked for by name: see [`Rule::policy`].
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// True if some [`metric_name`](Self::metric_name) has values of requests in it. Otherwise it is the [`Rule::path`].
    pub fn has_values_in_metrics(&self) -> bool {
        self.has_values_in_metrics
    }

    /// The names of all domains, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    /// True if there is such a domain. Descriptors of others meet nothing.
    pub fn has(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// All rules of a domain, as they are written one after the other.
    pub fn rules(&self, domain: &str) -> Vec<&Rule> {
        fn collect<'a>(level: &'a Level, rules: &mut Vec<&'a Rule>) {
            for node in level.iter() {
                rules.extend(&node.rule);
                collect(&node.below, rules);
            }
        }
        let mut rules = Vec::new();
        self.domains.get(domain).into_iter().for_each(|level| collect(level, &mut rules));
        rules
    }

    /// True if a request's descriptor is written somewhere, with a limit or without.
    pub fn knows(&self, domain: &str, entries: &[Entry<'_>]) -> bool {
        self.walk(domain, entries, |_, _, _| {}).is_some()
    }

    /// True if there are no domains.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// All that is written, in a text that is the same for the same.
    pub fn outline(&self) -> String {
        fn tell(level: &Level, text: &mut String) {
            for Node { text: name, shares, varies, value_to_metric, rule, below, .. } in level.iter() {
                text.push_str(&format!("{name:?} {shares} {varies} {value_to_metric} {rule:?} ["));
                tell(below, text);
                text.push(']');
            }
        }
        let mut domains: Vec<_> = self.domains.iter().collect();
        domains.sort_unstable_by_key(|(name, _)| *name);
        let mut text = String::new();
        for (name, level) in domains {
            text.push_str(&format!("{name:?} "));
            tell(level, &mut text);
        }
        text
    }

    /// What a request's descriptor meets.
    pub fn find<'a>(&'a self, domain: &str, entries: &[Entry<'a>]) -> Matched<'a> {
        let mut values = SmallVec::new();
        let node = self.walk(domain, entries, |node, _, entry| {
            if node.varies {
                values.push(node.value(entry));
            }
        });
        node.and_then(|node| node.rule.as_ref()).map_or(Matched::Nothing, |rule| Matched::of(rule, values))
    }

    /// Goes down the tree, entry by entry. At its end is the descriptor that they meet, if there is one for each.
    pub(crate) fn walk<'a, 'e>(
        &'a self,
        domain: &str,
        entries: &[Entry<'e>],
        mut visit: impl FnMut(&'a Node, By, Entry<'e>),
    ) -> Option<&'a Node> {
        let mut level = self.domains.get(domain)?;
        let mut joined = Joined::new();
        let mut last = None;
        for entry in entries {
            let (node, by) = level.find(*entry, &mut joined)?;
            visit(node, by, *entry);
            level = &node.below;
            last = Some(node);
        }
        last
    }
}

/// A tree that grows, and where in it.
struct Growth {
    /// The domain, then the texts of all levels.
    path: Vec<String>,
    /// The numbers of the descriptors that lead here.
    numbers: Vec<usize>,
    partition: Vec<String>,
    policies: Vec<Policy>,
    errors: Vec<Error>,
}

impl Growth {
    fn all(&mut self, level: &mut Level, descriptors: &[Descriptor]) {
        for (number, descriptor) in descriptors.iter().enumerate() {
            self.numbers.push(number);
            self.path.push(descriptor.composite());
            let n_parts = self.partition.len();
            if let Some(node) = self.one(level, descriptor) {
                level.push(node);
            }
            self.partition.truncate(n_parts);
            self.path.pop();
            self.numbers.pop();
        }
    }

    /// One descriptor with all below it.
    fn one(&mut self, level: &Level, written: &Descriptor) -> Option<Node> {
        let text = written.composite();
        let problem = if written.key.is_empty() {
            Some(Wrong::EmptyKey)
        } else if level.has(&text) {
            Some(Wrong::DuplicateKey { path: self.path.join(".") })
        } else if self.numbers.len() > Domains::DEPTH_MAX {
            Some(Wrong::TooDeep)
        } else {
            None
        };
        if let Some(problem) = problem {
            self.wrong(Field::Key, problem);
            return None;
        }
        if written.share_threshold && !text.contains('*') {
            self.wrong(Field::ShareThreshold, Wrong::NothingToShare { key: text });
        }
        let mut node = Node::new(written);
        if node.varies {
            self.partition.push(self.attribute(&node));
        }
        node.rule = self.rule(written);
        self.all(&mut node.below, &written.descriptors);
        Some(node)
    }

    fn rule(&mut self, written: &Descriptor) -> Option<Rule> {
        if written.rate_limits.is_empty() {
            return None;
        }
        let standpoint = Standpoint { path: &self.path, partition: &self.partition };
        let (errors, numbers) = (&mut self.errors, &self.numbers);
        let wrong = &mut |field, wrong| errors.push(Error { path: numbers.clone(), field, wrong });
        let (rule, policy) = Rule::new(written, standpoint, wrong)?;
        self.policies.extend(policy);
        Some(rule)
    }

    /// The name of the attribute that tells buckets apart here. A key that comes twice on the way gets a number.
    fn attribute(&self, node: &Node) -> String {
        let name = if node.key.contains('*') { &node.text } else { &node.key };
        let is_free = |name: &String| !self.partition.contains(name);
        let numbered = (2..).map(|n| format!("{name}.{n}"));
        std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or_default()
    }

    fn wrong(&mut self, field: Field, wrong: Wrong) {
        self.errors.push(Error { path: self.numbers.clone(), field, wrong });
    }
}
