//! A YAML file of another program as a tree of values with positions. Accepts any name: Kubernetes has more settings than this
//! program knows.
//!
//! All sizes are bounded: documents, and the nodes that YAML aliases expand to.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::config::{Position, describe_yaml_error, in_file};

const DOCUMENTS_MAX: usize = 20_000;
const NODES_MAX: usize = 1_000_000;

/// A value and its position.
#[derive(Debug)]
pub(crate) struct YamlNode {
    pub(crate) place: Option<Position>,
    value: YamlValue,
}

#[derive(Debug)]
enum YamlValue {
    Null,
    /// A string, a number or a boolean, as text.
    Scalar(String),
    List(Vec<YamlNode>),
    Map(Vec<(String, YamlNode)>),
}

/// Reads the documents of a file. `file` is its index, for positions.
///
/// # Errors
/// The position and the reason of invalid YAML.
pub(crate) fn documents(text: &str, file: usize) -> Result<Vec<YamlNode>, (Position, String)> {
    let options = serde_saphyr::options! {
        // A name such as y or on stays as it is written.
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_documents: DOCUMENTS_MAX,
            max_nodes: NODES_MAX,
            max_events: 4 * NODES_MAX,
        },
    };
    in_file(file, || {
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            let place = error.location().and_then(Position::of);
            (place.unwrap_or(Position { file, line: 1, column: 1 }), describe_yaml_error(&error))
        })
    })
}

impl YamlNode {
    /// The value under a name; `None` for null.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let (_, node) = self.entries().iter().find(|(known, _)| known == name)?;
        (!matches!(node.value, YamlValue::Null)).then_some(node)
    }

    /// The value under a path of names: `spec.template.spec`.
    pub(crate) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, name| node.get(name))
    }

    /// The text under a path.
    pub(crate) fn text_at(&self, path: &str) -> Option<&str> {
        self.at(path)?.text()
    }

    /// The number under a path; `None` if it is not a whole number.
    pub(crate) fn number_at(&self, path: &str) -> Option<u64> {
        self.text_at(path)?.parse().ok()
    }

    /// The items of the list under a path; empty if there is no list.
    pub(crate) fn items_at(&self, path: &str) -> &[Self] {
        self.at(path).map(Self::items).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Scalar(text) => Some(text),
            YamlValue::Null | YamlValue::List(_) | YamlValue::Map(_) => None,
        }
    }

    pub(crate) fn items(&self) -> &[Self] {
        match &self.value {
            YamlValue::List(items) => items,
            YamlValue::Null | YamlValue::Scalar(_) | YamlValue::Map(_) => &[],
        }
    }

    pub(crate) fn entries(&self) -> &[(String, Self)] {
        match &self.value {
            YamlValue::Map(entries) => entries,
            YamlValue::Null | YamlValue::Scalar(_) | YamlValue::List(_) => &[],
        }
    }

    /// Moves the items out of the list under a name.
    pub(crate) fn into_items(self, name: &str) -> Vec<Self> {
        let YamlValue::Map(entries) = self.value else { return Vec::new() };
        let node = entries.into_iter().find(|(known, _)| known == name);
        match node.map(|(_, node)| node.value) {
            Some(YamlValue::List(items)) => items,
            Some(YamlValue::Null | YamlValue::Scalar(_) | YamlValue::Map(_)) | None => Vec::new(),
        }
    }

    /// The texts of a list.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.items().iter().filter_map(Self::text).collect()
    }
}

impl<'d> Deserialize<'d> for YamlNode {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { place: Position::of(referenced), value })
    }
}

impl<'d> Deserialize<'d> for YamlValue {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'d> Visitor<'d> for AnyValue {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }
    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }
    fn visit_some<D: Deserializer<'d>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.to_string()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.to_string()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.to_string()))
    }
    fn visit_i128<E>(self, value: i128) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.to_string()))
    }
    fn visit_u128<E>(self, value: u128) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.to_string()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(value.to_string()))
    }
    fn visit_str<E>(self, text: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(text.to_owned()))
    }
    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(String::from_utf8_lossy(bytes).into_owned()))
    }
    fn visit_seq<A: SeqAccess<'d>>(self, mut items: A) -> Result<YamlValue, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(YamlValue::List(all))
    }
    fn visit_map<A: MapAccess<'d>>(self, mut entries: A) -> Result<YamlValue, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(YamlValue::Map(all))
    }
}
