//! Records what a deserializer passes to a type. The type and its errors are the same as without.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Location;

use super::{LocatedNode, Node};
use crate::raw_value::Position;

/// A value, and the tree that it was read from.
pub(crate) struct Recorded<T> {
    pub(crate) value: T,
    pub(crate) node: Node,
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for Recorded<T> {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let mut node = Node::Null;
        let value = T::deserialize(Recorder { inner: deserializer, node: &mut node })?;
        Ok(Self { value, node })
    }
}

/// A deserializer, or a seed, or a visitor, that records what passes through it.
struct Recorder<'n, T> {
    inner: T,
    node: &'n mut Node,
}

macro_rules! record {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {
        $(fn $method<V: Visitor<'d>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($argument,)* Recorder { inner: visitor, node: self.node })
        })*
    };
}

impl<'d, D: Deserializer<'d>> Deserializer<'d> for Recorder<'_, D> {
    type Error = D::Error;

    record! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(n: usize);
        deserialize_tuple_struct(name: &'static str, n: usize);
        deserialize_map();
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_struct<V: Visitor<'d>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Recorder { inner: visitor, node: &mut *self.node };
        let value = self.inner.deserialize_struct(name, fields, visitor)?;
        if let Node::Table(settings) = self.node {
            *self.node = Node::Section(std::mem::take(settings));
        }
        Ok(value)
    }

    /// Only the parser's `Spanned` is a newtype here.
    fn deserialize_newtype_struct<V: Visitor<'d>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let mut located = Box::new(LocatedNode { position: None, node: Node::Null });
        let visitor = SpannedRecorder { inner: visitor, located: &mut located };
        let value = self.inner.deserialize_newtype_struct(name, visitor)?;
        *self.node = Node::Located(located);
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'d>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, D::Error> {
        Err(D::Error::custom(format!("the enum {name} cannot be recorded; read it as a text")))
    }
}

impl<'d, V: Visitor<'d>> Visitor<'d> for Recorder<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        *self.node = Node::Bool(value);
        self.inner.visit_bool(value)
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        *self.node = Node::Unsigned(value);
        self.inner.visit_u64(value)
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        *self.node = Node::Signed(value);
        self.inner.visit_i64(value)
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        *self.node = Node::Float(value);
        self.inner.visit_f64(value)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        *self.node = Node::Text(text.to_owned());
        self.inner.visit_str(text)
    }
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }
    fn visit_some<D: Deserializer<'d>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Recorder { inner: deserializer, node: self.node })
    }
    fn visit_seq<A: SeqAccess<'d>>(self, items: A) -> Result<V::Value, A::Error> {
        let mut nodes = Vec::new();
        let value = self.inner.visit_seq(ListRecorder { inner: items, nodes: &mut nodes })?;
        *self.node = Node::List(nodes);
        Ok(value)
    }
    fn visit_map<A: MapAccess<'d>>(self, entries: A) -> Result<V::Value, A::Error> {
        let mut nodes = Vec::new();
        let value = self.inner.visit_map(TableRecorder { inner: entries, nodes: &mut nodes })?;
        *self.node = Node::Table(nodes);
        Ok(value)
    }
}

impl<'d, S: DeserializeSeed<'d>> DeserializeSeed<'d> for Recorder<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'d>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Recorder { inner: deserializer, node: self.node })
    }
}

struct ListRecorder<'n, A> {
    inner: A,
    nodes: &'n mut Vec<Node>,
}

impl<'d, A: SeqAccess<'d>> SeqAccess<'d> for ListRecorder<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let mut node = Node::Null;
        let item = self.inner.next_element_seed(Recorder { inner: seed, node: &mut node })?;
        self.nodes.extend(item.is_some().then_some(node));
        Ok(item)
    }
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

struct TableRecorder<'n, A> {
    inner: A,
    nodes: &'n mut Vec<(String, Node)>,
}

impl<'d, A: MapAccess<'d>> MapAccess<'d> for TableRecorder<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let mut name = Node::Null;
        let key = self.inner.next_key_seed(Recorder { inner: seed, node: &mut name })?;
        if key.is_some() {
            self.nodes.push((name.text().unwrap_or_default().to_owned(), Node::Null));
        }
        Ok(key)
    }
    fn next_value_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let mut node = Node::Null;
        let value = self.inner.next_value_seed(Recorder { inner: seed, node: &mut node })?;
        if let Some((_, last)) = self.nodes.last_mut() {
            *last = node;
        }
        Ok(value)
    }
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// Passes `Spanned` on, a map of names and values. Records the `value`, and the position that is its `referenced`.
struct SpannedRecorder<'n, T> {
    inner: T,
    located: &'n mut LocatedNode,
}

impl<'d, V: Visitor<'d>> Visitor<'d> for SpannedRecorder<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }
    fn visit_newtype_struct<D: Deserializer<'d>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(SpannedRecorder { inner: deserializer, located: self.located })
    }
    fn visit_map<A: MapAccess<'d>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(SpannedEntries { inner: entries, located: self.located, name: String::new() })
    }
}

impl<'d, D: Deserializer<'d>> Deserializer<'d> for SpannedRecorder<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'d>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(SpannedRecorder { inner: visitor, located: self.located })
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'d>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct SpannedEntries<'n, A> {
    inner: A,
    located: &'n mut LocatedNode,
    name: String,
}

impl<'d, A: MapAccess<'d>> MapAccess<'d> for SpannedEntries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let Some(name) = self.inner.next_key::<String>()? else { return Ok(None) };
        self.name = name;
        seed.deserialize(self.name.as_str().into_deserializer()).map(Some)
    }
    fn next_value_seed<S: DeserializeSeed<'d>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.name.as_str() {
            "value" => self.inner.next_value_seed(Recorder { inner: seed, node: &mut self.located.node }),
            "referenced" => {
                let location: Location = self.inner.next_value()?;
                self.located.position = Position::of(location);
                let location = [("line", location.line()), ("column", location.column())];
                seed.deserialize(MapDeserializer::new(location.into_iter()))
            }
            _ => self.inner.next_value_seed(seed),
        }
    }
}
