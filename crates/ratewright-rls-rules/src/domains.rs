//! All domains: descriptors become trees, and requests are matched against them.

use std::collections::HashMap;

use ratewright_core::Policy;
use smallvec::SmallVec;

use crate::descriptor::Descriptor;
use crate::error::{DescriptorError, DescriptorErrorKind, DescriptorField};
use crate::matched::Matched;
use crate::rule::{Rule, TreePosition};
use crate::tree_level::{DescriptorLevel, DescriptorNode, Entry, EntryText, MatchKind};

/// All domains with their descriptors.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    domains: HashMap<String, DescriptorLevel>,
    policies: Vec<Policy>,
    has_values_in_metrics: bool,
}

/// What happens if a domain is added again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DuplicateDomains {
    /// It is an error.
    #[default]
    Reject,
    /// Its descriptors are appended.
    Merge,
}

impl Domains {
    /// The most levels of nested descriptors.
    pub const DEPTH_MAX: usize = 32;

    /// Adds the descriptors of a domain.
    ///
    /// # Errors
    /// All errors in them. The valid descriptors may have been added.
    pub fn add(
        &mut self,
        domain: &str,
        descriptors: &[Descriptor],
        duplicates: DuplicateDomains,
    ) -> Result<(), Vec<DescriptorError>> {
        let error = if domain.is_empty() {
            Some(DescriptorErrorKind::EmptyDomain)
        } else if duplicates == DuplicateDomains::Reject && self.domains.contains_key(domain) {
            Some(DescriptorErrorKind::DuplicateDomain { domain: domain.to_owned() })
        } else {
            None
        };
        let mut builder = TreeBuilder {
            path: vec![domain.to_owned()],
            indices: Vec::new(),
            partition: Vec::new(),
            policies: Vec::new(),
            errors: Vec::new(),
        };
        if let Some(error) = error {
            builder.report(DescriptorField::Domain, error);
            builder.add_all(&mut DescriptorLevel::default(), descriptors); // reports the other errors too
        } else {
            builder.add_all(self.domains.entry(domain.to_owned()).or_default(), descriptors);
            self.policies.append(&mut builder.policies);
            self.has_values_in_metrics |= descriptors.iter().any(Descriptor::has_values_in_metrics);
        }
        if builder.errors.is_empty() { Ok(()) } else { Err(builder.errors) }
    }

    /// The policies of all descriptors with limits. Queries select them by name: see [`Rule::policy`].
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// True if some [`metric_name`](Self::metric_name) contains values of requests. Otherwise it is the [`Rule::path`].
    pub fn has_values_in_metrics(&self) -> bool {
        self.has_values_in_metrics
    }

    /// The names of all domains, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    /// True if the domain exists. Requests to other domains match no rule.
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// All rules of a domain, in the order of the file.
    pub fn rules(&self, domain: &str) -> Vec<&Rule> {
        fn collect<'a>(level: &'a DescriptorLevel, rules: &mut Vec<&'a Rule>) {
            for node in level.iter() {
                rules.extend(&node.rule);
                collect(&node.nested, rules);
            }
        }
        let mut rules = Vec::new();
        self.domains.get(domain).into_iter().for_each(|level| collect(level, &mut rules));
        rules
    }

    /// True if a descriptor, with a limit or without, matches the entries.
    pub fn has_descriptor(&self, domain: &str, entries: &[Entry<'_>]) -> bool {
        self.walk(domain, entries, |_, _, _| {}).is_some()
    }

    /// True if there are no domains.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// A text that is equal for equal domains, to compare them.
    pub fn outline(&self) -> String {
        fn write_level(level: &DescriptorLevel, text: &mut String) {
            for DescriptorNode {
                text: name,
                shares_bucket,
                is_partitioned,
                value_to_metric,
                rule,
                nested,
                ..
            } in level.iter()
            {
                text.push_str(&format!(
                    "{name:?} {shares_bucket} {is_partitioned} {value_to_metric} {rule:?} ["
                ));
                write_level(nested, text);
                text.push(']');
            }
        }
        let mut domains: Vec<_> = self.domains.iter().collect();
        domains.sort_unstable_by_key(|(name, _)| *name);
        let mut text = String::new();
        for (name, level) in domains {
            text.push_str(&format!("{name:?} "));
            write_level(level, &mut text);
        }
        text
    }

    /// The rule that matches a request's descriptor.
    pub fn find<'a>(&'a self, domain: &str, entries: &[Entry<'a>]) -> Matched<'a> {
        let mut values = SmallVec::new();
        let node = self.walk(domain, entries, |node, _, entry| {
            if node.is_partitioned {
                values.push(node.value(entry));
            }
        });
        node.and_then(|node| node.rule.as_ref()).map_or(Matched::Nothing, |rule| Matched::of(rule, values))
    }

    /// Descends the tree, entry by entry, to the node that matches the last entry. None: an entry has no match.
    pub(crate) fn walk<'a, 'e>(
        &'a self,
        domain: &str,
        entries: &[Entry<'e>],
        mut visit: impl FnMut(&'a DescriptorNode, MatchKind, Entry<'e>),
    ) -> Option<&'a DescriptorNode> {
        let mut level = self.domains.get(domain)?;
        let mut text_buffer = EntryText::new();
        let mut last = None;
        for entry in entries {
            let (node, kind) = level.find(*entry, &mut text_buffer)?;
            visit(node, kind, *entry);
            level = &node.nested;
            last = Some(node);
        }
        last
    }
}

/// Builds a domain's tree, and tracks the position in it.
struct TreeBuilder {
    /// The domain, then the text of each level.
    path: Vec<String>,
    /// The index of the descriptor at each level.
    indices: Vec<usize>,
    partition: Vec<String>,
    policies: Vec<Policy>,
    errors: Vec<DescriptorError>,
}

impl TreeBuilder {
    fn add_all(&mut self, level: &mut DescriptorLevel, descriptors: &[Descriptor]) {
        for (index, descriptor) in descriptors.iter().enumerate() {
            self.indices.push(index);
            self.path.push(descriptor.composite());
            let n_parts = self.partition.len();
            if let Some(node) = self.node(level, descriptor) {
                level.push(node);
            }
            self.partition.truncate(n_parts);
            self.path.pop();
            self.indices.pop();
        }
    }

    /// The node of one descriptor, with its nested descriptors.
    fn node(&mut self, level: &DescriptorLevel, descriptor: &Descriptor) -> Option<DescriptorNode> {
        let text = descriptor.composite();
        let error = if descriptor.key.is_empty() {
            Some(DescriptorErrorKind::EmptyKey)
        } else if level.has(&text) {
            Some(DescriptorErrorKind::DuplicateKey { path: self.path.join(".") })
        } else if self.indices.len() > Domains::DEPTH_MAX {
            Some(DescriptorErrorKind::TooDeep)
        } else {
            None
        };
        if let Some(error) = error {
            self.report(DescriptorField::Key, error);
            return None;
        }
        if descriptor.share_threshold && !text.contains('*') {
            self.report(
                DescriptorField::ShareThreshold,
                DescriptorErrorKind::ShareWithoutWildcard { key: text },
            );
        }
        let mut node = DescriptorNode::new(descriptor);
        if node.is_partitioned {
            self.partition.push(self.attribute(&node));
        }
        node.rule = self.rule(descriptor);
        self.add_all(&mut node.nested, &descriptor.descriptors);
        Some(node)
    }

    fn rule(&mut self, descriptor: &Descriptor) -> Option<Rule> {
        if descriptor.rate_limits.is_empty() {
            return None;
        }
        let position = TreePosition { path: &self.path, partition: &self.partition };
        let (errors, indices) = (&mut self.errors, &self.indices);
        let report = &mut |field, kind| errors.push(DescriptorError { path: indices.clone(), field, kind });
        let (rule, policy) = Rule::new(descriptor, position, report)?;
        self.policies.extend(policy);
        Some(rule)
    }

    /// The name of the attribute that this level is partitioned by. A repeated key gets a number.
    fn attribute(&self, node: &DescriptorNode) -> String {
        let name = if node.key.contains('*') { &node.text } else { &node.key };
        let is_free = |name: &String| !self.partition.contains(name);
        let numbered = (2..).map(|n| format!("{name}.{n}"));
        std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or_default()
    }

    fn report(&mut self, field: DescriptorField, kind: DescriptorErrorKind) {
        self.errors.push(DescriptorError { path: self.indices.clone(), field, kind });
    }
}
