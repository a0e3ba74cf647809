//! A policy file as a tree of nodes, so that files can be merged before they are typed.
//!
//! ```text
//!   text ─► YAML parser ─► record ─► File: names and shapes checked, with the parser's errors
//!                            │
//!                            └────► Node ─► merge ─► replay ─► File of all files
//! ```
//!
//! A node is what the parser passed to a type, not what YAML says: `burst: 010` is the text `010`, because its type asks for a text. So a
//! tree that is replayed gives the same value, and the parser's limits on depth and size hold for the tree.
//!
//! A type also tells how its setting is merged. One that asks for a struct is a [`Node::Section`]. One with a position of its own, such as
//! [`RawValue`](crate::raw_value::RawValue) or [`Located`](crate::raw_value::Located), is a [`Node::Located`].

pub(crate) mod record;
pub(crate) mod replay;

use crate::raw_value::Position;

/// A node of a tree.
#[derive(Default)]
pub(crate) enum Node {
    /// A name without a value.
    #[default]
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// Any names, for example those of metrics labels.
    Table(Vec<(String, Node)>),
    /// The settings of a section.
    Section(Vec<(String, Node)>),
    /// A node with its position.
    Located(Box<LocatedNode>),
}

/// A node with its position.
pub(crate) struct LocatedNode {
    pub(crate) position: Option<Position>,
    pub(crate) node: Node,
}

impl Node {
    /// The position of a node, or of the first inside it.
    pub(crate) fn position(&self) -> Option<Position> {
        match self {
            Self::Located(located) => located.position,
            Self::List(items) => items.first()?.position(),
            Self::Table(entries) | Self::Section(entries) => {
                entries.iter().min_by_key(|(name, _)| name)?.1.position()
            }
            Self::Null
            | Self::Bool(_)
            | Self::Unsigned(_)
            | Self::Signed(_)
            | Self::Float(_)
            | Self::Text(_) => None,
        }
    }

    /// The settings of a section, with or without a position.
    pub(crate) fn settings(&self) -> &[(String, Self)] {
        if let Self::Located(located) = self {
            return located.node.settings();
        }
        if let Self::Section(settings) = self { settings } else { &[] }
    }

    /// The text of a value, with or without a position.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Located(located) = self {
            return located.node.text();
        }
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}
