//! One level of a tree, and how an entry finds its way.
//!
//! Finding costs what the entry's text costs, not what siblings there are, but for those with stars: they are tried one by one.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;

use crate::descriptor::Descriptor;
use crate::rule::Rule;
use crate::wildcard::Wildcard;

/// One entry of a request's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// What it is about.
    pub key: &'a str,
    /// What it is.
    pub value: &'a str,
}

/// How an entry found its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// By its whole text.
    Text,
    /// By stars.
    Wildcard,
    /// By its key.
    Key,
}

/// Descriptors beside each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    nodes: Vec<Node>,
    /// By what they are written with: `key_value`, or `key`. Stars count as text here.
    by_text: HashMap<Box<[u8]>, usize>,
    /// Those with stars, as they are written one after the other.
    wildcards: Vec<(Wildcard, usize)>,
}

/// One descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) key: String,
    /// `key_value`, or `key`.
    pub(crate) text: String,
    /// True if all values that fit its stars share a bucket.
    pub(crate) shares: bool,
    /// True if entries with other values have other buckets.
    pub(crate) varies: bool,
    pub(crate) value_to_metric: bool,
    pub(crate) rule: Option<Rule>,
    pub(crate) below: Level,
}

/// An entry's text. Most fit on the stack.
pub(crate) type Joined = SmallVec<[u8; 128]>;

impl Level {
    /// True if a descriptor is written with that text.
    pub(crate) fn has(&self, text: &str) -> bool {
        self.by_text.contains_key(text.as_bytes())
    }

    /// Adds a descriptor, after all others.
    pub(crate) fn push(&mut self, node: Node) {
        let number = self.nodes.len();
        self.by_text.insert(node.text.as_bytes().into(), number);
        self.wildcards.extend(Wildcard::new(&node.text).map(|wildcard| (wildcard, number)));
        self.nodes.push(node);
    }

    /// The descriptor for an entry. `joined` is room for its text.
    pub(crate) fn find(&self, entry: Entry<'_>, joined: &mut Joined) -> Option<(&Node, By)> {
        joined.clear();
        joined.extend_from_slice(entry.key.as_bytes());
        joined.push(b'_');
        joined.extend_from_slice(entry.value.as_bytes());
        let by_text = |text: &[u8]| self.by_text.get(text).copied();
        let by_wildcard = || {
            let mut fitting = self.wildcards.iter().filter(|(wildcard, _)| wildcard.fits(joined));
            fitting.next().map(|(_, number)| *number)
        };
        let found = by_text(joined).map(|number| (number, By::Text));
        let found = found.or_else(|| by_wildcard().map(|number| (number, By::Wildcard)));
        let found = found.or_else(|| by_text(entry.key.as_bytes()).map(|number| (number, By::Key)));
        let (number, by) = found?;
        Some((self.nodes.get(number)?, by))
    }

    /// All descriptors, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }
}

impl Node {
    /// A descriptor with nothing below it as yet.
    pub(crate) fn new(written: &Descriptor) -> Self {
        let text = written.composite();
        let is_exact = !written.value.is_empty() && !text.contains('*');
        Self {
            key: written.key.clone(),
            shares: written.share_threshold,
            varies: !is_exact && !written.share_threshold,
            value_to_metric: written.value_to_metric,
            rule: None,
            below: Level::default(),
            text,
        }
    }

    /// What tells an entry from others that come here. That is its value, but for an entry whose text is split elsewhere: it has the
    /// bucket of whoever has the same text.
    pub(crate) fn value<'a>(&self, entry: Entry<'a>) -> Cow<'a, str> {
        let is_open = self.key.contains('*');
        if entry.key == self.key && !is_open {
            return Cow::Borrowed(entry.value);
        }
        let n_known = if is_open { 0 } else { self.key.len() + 1 };
        match n_known.checked_sub(entry.key.len() + 1) {
            Some(n) => Cow::Borrowed(entry.value.get(n..).unwrap_or_default()),
            None => {
                let text = format!("{}_{}", entry.key, entry.value);
                Cow::Owned(text.get(n_known..).unwrap_or_default().to_owned())
            }
        }
    }
}
