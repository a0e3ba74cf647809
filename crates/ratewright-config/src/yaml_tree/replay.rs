//! Replays a recorded tree: passes the recorded values to a type again.

use std::slice;

use super::erased::{Entries, Error, Items, LocatedSource, Request, Scalar, Seed, Target, ValueSource};
use super::{LocatedNode, Node};
use crate::raw_value::Position;

impl ValueSource for &Node {
    /// The tree was recorded for the same type, so each node has the requested kind. Only options need a wrapper.
    fn read(&mut self, request: Request, target: &mut dyn Target) -> Result<(), Error> {
        let node = *self;
        match (request, node) {
            (Request::Option, Node::Null) => target.scalar(Scalar::None),
            (Request::Option, _) => target.some(self),
            (_, Node::Null) => target.scalar(Scalar::Null),
            (_, Node::Bool(value)) => target.scalar(Scalar::Bool(*value)),
            (_, Node::Unsigned(value)) => target.scalar(Scalar::Unsigned(*value)),
            (_, Node::Signed(value)) => target.scalar(Scalar::Signed(*value)),
            (_, Node::Float(value)) => target.scalar(Scalar::Float(*value)),
            (_, Node::Text(text)) => target.scalar(Scalar::Text(text)),
            (_, Node::List(items)) => target.list(&mut items.iter()),
            (_, Node::Table(entries) | Node::Section(entries)) => {
                target.table(&mut NodeEntries { left: entries.iter(), value: &Node::Null })
            }
            (_, Node::Located(located)) => target.located(&mut &**located),
        }
    }
}

impl Items for slice::Iter<'_, Node> {
    fn next(&mut self, seed: &mut dyn Seed) -> Result<bool, Error> {
        let Some(mut item) = Iterator::next(self) else { return Ok(false) };
        seed.read(&mut item)?;
        Ok(true)
    }
}

/// The entries of a table or section. A name's value comes after the name.
struct NodeEntries<'n> {
    left: slice::Iter<'n, (String, Node)>,
    value: &'n Node,
}

impl Entries for NodeEntries<'_> {
    fn next_name(&mut self, seed: &mut dyn Seed) -> Result<bool, Error> {
        let Some((name, value)) = self.left.next() else { return Ok(false) };
        self.value = value;
        seed.read(&mut Name(name))?;
        Ok(true)
    }
    fn next_value(&mut self, seed: &mut dyn Seed) -> Result<(), Error> {
        seed.read(&mut self.value)
    }
}

/// The name of an entry.
struct Name<'n>(&'n str);

impl ValueSource for Name<'_> {
    fn read(&mut self, _: Request, target: &mut dyn Target) -> Result<(), Error> {
        target.scalar(Scalar::Text(self.0))
    }
}

impl LocatedSource for &LocatedNode {
    fn read(&mut self, seed: &mut dyn Seed) -> Result<Option<Position>, Error> {
        seed.read(&mut &self.node)?;
        Ok(self.position)
    }
}
