//! A manifest as a tree, each value with its place. Manifests have more kinds and fields than we know, so nothing is rejected here.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::config::Position;

/// A value, and where it stands.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Option<Position>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Null,
    /// A text, a number or a switch, as text.
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The value under a name. What is null is not there.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let (_, node) = self.entries().iter().find(|(known, _)| known == name)?;
        (!matches!(node.value, Value::Null)).then_some(node)
    }

    /// The value under several names, one within the other: `spec.template.spec`.
    pub(super) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, name| node.get(name))
    }

    /// The text under several names.
    pub(super) fn text_at(&self, path: &str) -> Option<&str> {
        self.at(path)?.text()
    }

    /// The number under several names. Nothing, if it is no whole number.
    pub(super) fn number_at(&self, path: &str) -> Option<u64> {
        self.text_at(path)?.parse().ok()
    }

    /// The items of the list under several names; none, if there is no list.
    pub(super) fn items_at(&self, path: &str) -> &[Self] {
        self.at(path).map(Self::items).unwrap_or_default()
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    pub(super) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            Value::Null | Value::Scalar(_) | Value::Map(_) => &[],
        }
    }

    pub(super) fn entries(&self) -> &[(String, Self)] {
        match &self.value {
            Value::Map(entries) => entries,
            Value::Null | Value::Scalar(_) | Value::List(_) => &[],
        }
    }

    /// The items of the list under a name, taken out.
    pub(super) fn into_items(self, name: &str) -> Vec<Self> {
        let Value::Map(entries) = self.value else { return Vec::new() };
        let node = entries.into_iter().find(|(known, _)| known == name);
        match node.map(|(_, node)| node.value) {
            Some(Value::List(items)) => items,
            Some(Value::Null | Value::Scalar(_) | Value::Map(_)) | None => Vec::new(),
        }
    }

    /// The words of a list of texts.
    pub(super) fn words(&self) -> Vec<&str> {
        self.items().iter().filter_map(Self::text).collect()
    }
}

impl<'d> Deserialize<'d> for Node {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { place: Position::of(referenced), value })
    }
}

impl<'d> Deserialize<'d> for Value {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'d> Visitor<'d> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'d>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Scalar(text.to_owned()))
    }
    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(Value::Scalar(String::from_utf8_lossy(bytes).into_owned()))
    }
    fn visit_seq<A: SeqAccess<'d>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::List(all))
    }
    fn visit_map<A: MapAccess<'d>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(Value::Map(all))
    }
}
