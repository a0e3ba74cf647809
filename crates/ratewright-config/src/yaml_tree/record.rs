//! Records the values that a source passes to a type. Recording changes neither the value of the type nor its errors.

use std::fmt;

use super::erased::{Entries, Error, Items, LocatedSource, Request, Scalar, Seed, Target, ValueSource};
use super::{LocatedNode, Node};
use crate::raw_value::Position;

/// A source, a target or a seed that records what passes through it.
pub(super) struct Recorder<'n, T: ?Sized> {
    pub(super) inner: &'n mut T,
    pub(super) node: &'n mut Node,
}

impl ValueSource for Recorder<'_, dyn ValueSource + '_> {
    fn read(&mut self, request: Request, target: &mut dyn Target) -> Result<(), Error> {
        self.inner.read(request, &mut Recorder { inner: target, node: self.node })?;
        if let (Request::Section, Node::Table(settings)) = (request, &mut *self.node) {
            *self.node = Node::Section(std::mem::take(settings));
        }
        Ok(())
    }
}

impl Seed for Recorder<'_, dyn Seed + '_> {
    fn read(&mut self, source: &mut dyn ValueSource) -> Result<(), Error> {
        self.inner.read(&mut Recorder { inner: source, node: self.node })
    }
}

impl Target for Recorder<'_, dyn Target + '_> {
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }
    fn scalar(&mut self, scalar: Scalar<'_>) -> Result<(), Error> {
        *self.node = match scalar {
            Scalar::Null | Scalar::None => Node::Null,
            Scalar::Bool(value) => Node::Bool(value),
            Scalar::Unsigned(value) => Node::Unsigned(value),
            Scalar::Signed(value) => Node::Signed(value),
            Scalar::Float(value) => Node::Float(value),
            Scalar::Text(text) => Node::Text(text.to_owned()),
        };
        self.inner.scalar(scalar)
    }
    fn some(&mut self, source: &mut dyn ValueSource) -> Result<(), Error> {
        self.inner.some(&mut Recorder { inner: source, node: self.node })
    }
    fn list(&mut self, items: &mut dyn Items) -> Result<(), Error> {
        let mut nodes = Vec::new();
        self.inner.list(&mut ListRecorder { inner: items, nodes: &mut nodes })?;
        *self.node = Node::List(nodes);
        Ok(())
    }
    fn table(&mut self, entries: &mut dyn Entries) -> Result<(), Error> {
        let mut nodes = Vec::new();
        self.inner.table(&mut TableRecorder { inner: entries, nodes: &mut nodes })?;
        *self.node = Node::Table(nodes);
        Ok(())
    }
    fn located(&mut self, value: &mut dyn LocatedSource) -> Result<(), Error> {
        self.inner.located(&mut LocatedRecorder { inner: value, node: self.node })
    }
}

struct ListRecorder<'n> {
    inner: &'n mut dyn Items,
    nodes: &'n mut Vec<Node>,
}

impl Items for ListRecorder<'_> {
    fn next(&mut self, seed: &mut dyn Seed) -> Result<bool, Error> {
        let mut node = Node::Null;
        let is_item = self.inner.next(&mut Recorder { inner: seed, node: &mut node })?;
        self.nodes.extend(is_item.then_some(node));
        Ok(is_item)
    }
}

struct TableRecorder<'n> {
    inner: &'n mut dyn Entries,
    nodes: &'n mut Vec<(String, Node)>,
}

impl Entries for TableRecorder<'_> {
    fn next_name(&mut self, seed: &mut dyn Seed) -> Result<bool, Error> {
        let mut name = Node::Null;
        let is_name = self.inner.next_name(&mut Recorder { inner: seed, node: &mut name })?;
        if is_name {
            self.nodes.push((name.text().unwrap_or_default().to_owned(), Node::Null));
        }
        Ok(is_name)
    }
    fn next_value(&mut self, seed: &mut dyn Seed) -> Result<(), Error> {
        let mut node = Node::Null;
        self.inner.next_value(&mut Recorder { inner: seed, node: &mut node })?;
        if let Some((_, last)) = self.nodes.last_mut() {
            *last = node;
        }
        Ok(())
    }
}

struct LocatedRecorder<'n> {
    inner: &'n mut dyn LocatedSource,
    node: &'n mut Node,
}

impl LocatedSource for LocatedRecorder<'_> {
    fn read(&mut self, seed: &mut dyn Seed) -> Result<Option<Position>, Error> {
        let mut node = Node::Null;
        let position = self.inner.read(&mut Recorder { inner: seed, node: &mut node })?;
        *self.node = Node::Located(Box::new(LocatedNode { position, node }));
        Ok(position)
    }
}
