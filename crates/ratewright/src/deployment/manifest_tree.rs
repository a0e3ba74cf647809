//! A manifest as a tree of values with positions. Accepts any field: Kubernetes has more kinds and fields than this check knows.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::config::Position;

/// A value and its position.
#[derive(Debug)]
pub(super) struct ManifestNode {
    pub(super) place: Option<Position>,
    value: ManifestValue,
}

#[derive(Debug)]
enum ManifestValue {
    Null,
    /// A string, a number or a boolean, as text.
    Scalar(String),
    List(Vec<ManifestNode>),
    Map(Vec<(String, ManifestNode)>),
}

impl ManifestNode {
    /// The value under a name; `None` for null.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let (_, node) = self.entries().iter().find(|(known, _)| known == name)?;
        (!matches!(node.value, ManifestValue::Null)).then_some(node)
    }

    /// The value under a path of names: `spec.template.spec`.
    pub(super) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, name| node.get(name))
    }

    /// The text under a path.
    pub(super) fn text_at(&self, path: &str) -> Option<&str> {
        self.at(path)?.text()
    }

    /// The number under a path; `None` if it is not a whole number.
    pub(super) fn number_at(&self, path: &str) -> Option<u64> {
        self.text_at(path)?.parse().ok()
    }

    /// The items of the list under a path; empty if there is no list.
    pub(super) fn items_at(&self, path: &str) -> &[Self] {
        self.at(path).map(Self::items).unwrap_or_default()
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            ManifestValue::Scalar(text) => Some(text),
            ManifestValue::Null | ManifestValue::List(_) | ManifestValue::Map(_) => None,
        }
    }

    pub(super) fn items(&self) -> &[Self] {
        match &self.value {
            ManifestValue::List(items) => items,
            ManifestValue::Null | ManifestValue::Scalar(_) | ManifestValue::Map(_) => &[],
        }
    }

    pub(super) fn entries(&self) -> &[(String, Self)] {
        match &self.value {
            ManifestValue::Map(entries) => entries,
            ManifestValue::Null | ManifestValue::Scalar(_) | ManifestValue::List(_) => &[],
        }
    }

    /// Moves the items out of the list under a name.
    pub(super) fn into_items(self, name: &str) -> Vec<Self> {
        let ManifestValue::Map(entries) = self.value else { return Vec::new() };
        let node = entries.into_iter().find(|(known, _)| known == name);
        match node.map(|(_, node)| node.value) {
            Some(ManifestValue::List(items)) => items,
            Some(ManifestValue::Null | ManifestValue::Scalar(_) | ManifestValue::Map(_)) | None => Vec::new(),
        }
    }

    /// The texts of a list.
    pub(super) fn words(&self) -> Vec<&str> {
        self.items().iter().filter_map(Self::text).collect()
    }
}

impl<'d> Deserialize<'d> for ManifestNode {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { place: Position::of(referenced), value })
    }
}

impl<'d> Deserialize<'d> for ManifestValue {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'d> Visitor<'d> for AnyValue {
    type Value = ManifestValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Null)
    }
    fn visit_none<E>(self) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Null)
    }
    fn visit_some<D: Deserializer<'d>>(self, deserializer: D) -> Result<ManifestValue, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_bool<E>(self, value: bool) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Scalar(value.to_string()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Scalar(value.to_string()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Scalar(value.to_string()))
    }
    fn visit_i128<E>(self, value: i128) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Scalar(value.to_string()))
    }
    fn visit_u128<E>(self, value: u128) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Scalar(value.to_string()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Scalar(value.to_string()))
    }
    fn visit_str<E>(self, text: &str) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Scalar(text.to_owned()))
    }
    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<ManifestValue, E> {
        Ok(ManifestValue::Scalar(String::from_utf8_lossy(bytes).into_owned()))
    }
    fn visit_seq<A: SeqAccess<'d>>(self, mut items: A) -> Result<ManifestValue, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(ManifestValue::List(all))
    }
    fn visit_map<A: MapAccess<'d>>(self, mut entries: A) -> Result<ManifestValue, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(ManifestValue::Map(all))
    }
}
