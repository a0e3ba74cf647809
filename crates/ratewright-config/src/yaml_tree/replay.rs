//! Passes a recorded tree to a type, once more.

use std::slice;

use serde::Deserialize;
use serde::de::value::{Error, SeqDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::{LocatedNode, Node};
use crate::raw_value::{self, Position};

/// Reads a value from a tree.
pub(crate) fn read<'d, T: Deserialize<'d>>(node: &Node) -> Result<T, Error> {
    raw_value::in_nodes(|| T::deserialize(Replay(node)))
}

/// A value and its position, from a node of a tree.
pub(crate) fn located<'d, T: Deserialize<'d>, D: Deserializer<'d>>(
    deserializer: D,
) -> Result<(T, Option<Position>), D::Error> {
    let (place, value) = <([u64; 3], T)>::deserialize(deserializer)?;
    Ok((value, position(place)))
}

/// A position as numbers: its file, line and column. Lines begin with 1; line 0 means: no position.
fn place(position: Option<Position>) -> [u64; 3] {
    position.map_or([0; 3], |Position { file, line, column }| [file as u64, line, column])
}

fn position([file, line, column]: [u64; 3]) -> Option<Position> {
    let file = usize::try_from(file).ok()?;
    (line > 0).then_some(Position { file, line, column })
}

/// A node as a deserializer.
#[derive(Clone, Copy)]
struct Replay<'n>(&'n Node);

impl<'d> Deserializer<'d> for Replay<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'d>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Node::Null => visitor.visit_unit(),
            Node::Bool(value) => visitor.visit_bool(*value),
            Node::Unsigned(value) => visitor.visit_u64(*value),
            Node::Signed(value) => visitor.visit_i64(*value),
            Node::Float(value) => visitor.visit_f64(*value),
            Node::Text(text) => visitor.visit_str(text),
            Node::List(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Replay))),
            Node::Table(entries) | Node::Section(entries) => {
                visitor.visit_map(Entries { left: entries.iter(), value: &Node::Null })
            }
            Node::Located(located) => visitor.visit_seq(LocatedParts { located, n_read: 0 }),
        }
    }

    fn deserialize_option<V: Visitor<'d>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Node::Null = self.0 { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'d>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Replay<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The entries of a table or section. A key's value comes after the key.
struct Entries<'n> {
    left: slice::Iter<'n, (String, Node)>,
    value: &'n Node,
}

impl<'d> MapAccess<'d> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some((name, value)) = self.left.next() else { return Ok(None) };
        self.value = value;
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }
    fn next_value_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(Replay(self.value))
    }
}

/// A position, then the value.
struct LocatedParts<'n> {
    located: &'n LocatedNode,
    n_read: u8,
}

impl<'d> SeqAccess<'d> for LocatedParts<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.n_read += 1;
        match self.n_read {
            1 => {
                let place = place(self.located.position);
                seed.deserialize(SeqDeserializer::new(place.into_iter())).map(Some)
            }
            2 => seed.deserialize(Replay(&self.located.node)).map(Some),
            _ => Ok(None),
        }
    }
}
