//! One level of a tree, and how an entry is matched in it.
//!
//! The cost depends on the length of the entry, not on the number of descriptors, except those with wildcards: they are
//! tried one by one.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;

use crate::descriptor::Descriptor;
use crate::rule::Rule;
use crate::wildcard::Wildcard;

/// One entry of a request's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The entry's key.
    pub key: &'a str,
    /// The entry's value.
    pub value: &'a str,
}

/// How an entry matched its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MatchKind {
    /// Its whole text is equal.
    Text,
    /// A wildcard matches.
    Wildcard,
    /// Its key is equal, and the descriptor has no value.
    Key,
}

/// Sibling descriptors.
#[derive(Clone, Debug, Default)]
pub(crate) struct DescriptorLevel {
    nodes: Vec<DescriptorNode>,
    /// By text: `key_value`, or `key`. A `*` is a character like any other here.
    by_text: HashMap<Box<[u8]>, usize>,
    /// Those with wildcards, in the order of the file.
    wildcards: Vec<(Wildcard, usize)>,
}

/// One descriptor.
#[derive(Clone, Debug)]
pub(crate) struct DescriptorNode {
    pub(crate) key: String,
    /// `key_value`, or `key`.
    pub(crate) text: String,
    /// True if all values that match its wildcard share a bucket.
    pub(crate) shares_bucket: bool,
    /// True if each value has its own bucket.
    pub(crate) is_partitioned: bool,
    pub(crate) value_to_metric: bool,
    pub(crate) rule: Option<Rule>,
    pub(crate) nested: DescriptorLevel,
}

/// An entry as `key_value`. Most fit on the stack.
pub(crate) type EntryText = SmallVec<[u8; 128]>;

impl DescriptorLevel {
    /// True if a descriptor has this text.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.by_text.contains_key(text.as_bytes())
    }

    /// Appends a descriptor.
    pub(crate) fn push(&mut self, node: DescriptorNode) {
        let index = self.nodes.len();
        self.by_text.insert(node.text.as_bytes().into(), index);
        self.wildcards.extend(Wildcard::new(&node.text).map(|wildcard| (wildcard, index)));
        self.nodes.push(node);
    }

    /// The descriptor that matches an entry. `text_buffer` holds its text.
    pub(crate) fn find(
        &self,
        entry: Entry<'_>,
        text_buffer: &mut EntryText,
    ) -> Option<(&DescriptorNode, MatchKind)> {
        text_buffer.clear();
        text_buffer.extend_from_slice(entry.key.as_bytes());
        text_buffer.push(b'_');
        text_buffer.extend_from_slice(entry.value.as_bytes());
        let by_text = |text: &[u8]| self.by_text.get(text).copied();
        let by_wildcard = || {
            let mut matching = self.wildcards.iter().filter(|(wildcard, _)| wildcard.matches(text_buffer));
            matching.next().map(|(_, index)| *index)
        };
        let found = by_text(text_buffer).map(|index| (index, MatchKind::Text));
        let found = found.or_else(|| by_wildcard().map(|index| (index, MatchKind::Wildcard)));
        let found = found.or_else(|| by_text(entry.key.as_bytes()).map(|index| (index, MatchKind::Key)));
        let (index, kind) = found?;
        Some((self.nodes.get(index)?, kind))
    }

    /// All descriptors, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DescriptorNode> {
        self.nodes.iter()
    }
}

impl DescriptorNode {
    /// A descriptor without its nested descriptors.
    pub(crate) fn new(descriptor: &Descriptor) -> Self {
        let text = descriptor.composite();
        let is_exact = !descriptor.value.is_empty() && !text.contains('*');
        Self {
            key: descriptor.key.clone(),
            shares_bucket: descriptor.share_threshold,
            is_partitioned: !is_exact && !descriptor.share_threshold,
            value_to_metric: descriptor.value_to_metric,
            rule: None,
            nested: DescriptorLevel::default(),
            text,
        }
    }

    /// The value that names an entry's bucket: the entry's own, unless its text is split at another `_`. Then it is the
    /// rest of the text after the descriptor's key, so that entries with the same text share a bucket.
    pub(crate) fn value<'a>(&self, entry: Entry<'a>) -> Cow<'a, str> {
        let is_wildcard = self.key.contains('*');
        if entry.key == self.key && !is_wildcard {
            return Cow::Borrowed(entry.value);
        }
        let n_skipped = if is_wildcard { 0 } else { self.key.len() + 1 };
        match n_skipped.checked_sub(entry.key.len() + 1) {
            Some(n) => Cow::Borrowed(entry.value.get(n..).unwrap_or_default()),
            None => {
                let text = format!("{}_{}", entry.key, entry.value);
                Cow::Owned(text.get(n_skipped..).unwrap_or_default().to_owned())
            }
        }
    }
}
