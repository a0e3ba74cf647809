//! A policy file as a tree of nodes, so that files can be merged before they are typed.
//!
//! ```text
//!   text ─► YAML parser ─► record ─► File: names and shapes checked, with the parser's errors
//!                            │
//!                            └────► Node ─► merge ─► replay ─► File of all files
//! ```
//!
//! A node holds the value that the parser passed to a type. YAML reads `burst: 010` as a number, but the type of the setting asks for text, so the
//! node holds the text `010`. A type that takes a list or a section as well asks for the text too, by [`erased::written`]. Replaying a tree therefore gives the same value. The parser's limits on depth and size apply to the tree too.
//!
//! The type also decides how a setting is merged. A struct becomes a [`Node::Section`], which is merged setting by setting. A type with a
//! position, such as [`RawValue`](crate::raw_value::RawValue), becomes a [`Node::Located`], which is replaced as a whole.
//!
//! The parser, the recorder and the tree are [`erased::ValueSource`]s, so each type is compiled for one deserializer only.

pub(crate) mod erased;
mod parser;
mod record;
mod replay;

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::de::value::Error as ReplayError;

use crate::raw_value::Position;
use erased::{Seed, SeedSlot};
use record::Recorder;

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

/// A value, and the tree that it was read from.
pub(crate) struct Recorded<T> {
    pub(crate) value: T,
    pub(crate) node: Node,
}

/// Reads a value from a text.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    options: serde_saphyr::Options,
) -> Result<T, serde_saphyr::Error> {
    let mut slot = SeedSlot::new(PhantomData);
    parser::read(text, options, &mut slot)?;
    Ok(slot.value.expect(WAS_READ))
}

/// Reads a value from a text, and keeps the tree.
pub(crate) fn parse_recorded<T: DeserializeOwned>(
    text: &str,
    options: serde_saphyr::Options,
) -> Result<Recorded<T>, serde_saphyr::Error> {
    let (mut slot, mut node) = (SeedSlot::new(PhantomData), Node::Null);
    let recorder: &mut Recorder<'_, dyn Seed> = &mut Recorder { inner: &mut slot, node: &mut node };
    parser::read(text, options, recorder)?;
    Ok(Recorded { value: slot.value.expect(WAS_READ), node })
}

/// Reads a value from a tree.
pub(crate) fn replay<T: DeserializeOwned>(mut node: &Node) -> Result<T, ReplayError> {
    let mut slot = SeedSlot::new(PhantomData);
    slot.read(&mut node).map_err(|error| error.raise(None))?;
    Ok(slot.value.expect(WAS_READ))
}

const WAS_READ: &str = "a seed that does not fail has a value";

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
