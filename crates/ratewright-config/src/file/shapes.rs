//! What may be written in more than one way: a text, or a section, or a list.

use std::fmt;
use std::marker::PhantomData;

use ratewright_core::query::AttributeName;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor, value};

use super::{By, Cors, Cost, CostEntry, Listener, Upstream};
use crate::raw_value::{Located, RawValue};
use crate::yaml_tree::erased;

/// What is a single text, or something else.
trait TextOr<'d>: Sized {
    const EXPECTED: &'static str;
    fn from_text(text: &str) -> Self;
    fn from_map<A: MapAccess<'d>>(map: A) -> Result<Self, A::Error>;
    fn from_list(_: Vec<Located<Self>>) -> Option<Self> {
        None
    }
}

/// Reads what is a single text, or something else.
fn text_or<'d, T: TextOr<'d> + Deserialize<'d>, D: Deserializer<'d>>(deserializer: D) -> Result<T, D::Error> {
    struct Visit<T>(PhantomData<fn() -> T>);
    impl<'d, T: TextOr<'d> + Deserialize<'d>> Visitor<'d> for Visit<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(T::EXPECTED)
        }
        fn visit_str<E>(self, text: &str) -> Result<T, E> {
            Ok(T::from_text(text))
        }
        fn visit_map<A: MapAccess<'d>>(self, map: A) -> Result<T, A::Error> {
            T::from_map(map)
        }
        fn visit_seq<A: serde::de::SeqAccess<'d>>(self, mut items: A) -> Result<T, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                all.push(item);
            }
            T::from_list(all).ok_or_else(|| serde::de::Error::invalid_type(serde::de::Unexpected::Seq, &self))
        }
    }
    erased::written(deserializer, Visit(PhantomData))
}

impl<'d> TextOr<'d> for Listener {
    const EXPECTED: &'static str = "an address, or {address: …, tls: …, proxy_protocol: …}";
    fn from_text(text: &str) -> Self {
        Self::Address(text.to_owned())
    }
    fn from_map<A: MapAccess<'d>>(map: A) -> Result<Self, A::Error> {
        let section = Deserialize::deserialize(value::MapAccessDeserializer::new(map));
        section.map(|section| Self::Section(Box::new(section)))
    }
}

impl<'d> TextOr<'d> for Cors {
    const EXPECTED: &'static str = "off, or a section such as {origins: [https://app.example.com]}";
    fn from_text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
    fn from_map<A: MapAccess<'d>>(map: A) -> Result<Self, A::Error> {
        let section = Deserialize::deserialize(value::MapAccessDeserializer::new(map));
        section.map(|section| Self::Section(Box::new(section)))
    }
}

impl<'d> TextOr<'d> for By {
    const EXPECTED: &'static str = "an attribute such as ip, a list of them, or {first_of: [user, ip]}";
    fn from_text(text: &str) -> Self {
        Self::One(text.to_owned())
    }
    fn from_map<A: MapAccess<'d>>(map: A) -> Result<Self, A::Error> {
        let FirstOf { first_of } = Deserialize::deserialize(value::MapAccessDeserializer::new(map))?;
        Ok(Self::FirstOf(first_of))
    }
    fn from_list(items: Vec<Located<Self>>) -> Option<Self> {
        Some(Self::All(items))
    }
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct FirstOf {
    /// The attributes to try, in this order.
    first_of: Vec<RawValue<AttributeName<String>>>,
}

impl<'d> TextOr<'d> for Cost {
    const EXPECTED: &'static str = "a number, {header: NAME}, a number for each method, or {path: …}";
    fn from_text(text: &str) -> Self {
        Self::Fixed(text.to_owned())
    }
    fn from_map<A: MapAccess<'d>>(map: A) -> Result<Self, A::Error> {
        Deserialize::deserialize(value::MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl<'d> TextOr<'d> for Upstream {
    const EXPECTED: &'static str = "a url such as http://127.0.0.1:3000, a list of them, or {servers: […]}";
    fn from_text(text: &str) -> Self {
        Self::Url(text.to_owned())
    }
    fn from_map<A: MapAccess<'d>>(map: A) -> Result<Self, A::Error> {
        Deserialize::deserialize(value::MapAccessDeserializer::new(map)).map(Self::Section)
    }
    fn from_list(items: Vec<Located<Self>>) -> Option<Self> {
        Some(Self::All(items))
    }
}

impl<'d> Deserialize<'d> for Upstream {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        text_or(deserializer)
    }
}

impl<'d> Deserialize<'d> for Listener {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        text_or(deserializer)
    }
}

impl<'d> Deserialize<'d> for Cors {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        text_or(deserializer)
    }
}

impl<'d> Deserialize<'d> for By {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        text_or(deserializer)
    }
}

impl<'d> Deserialize<'d> for CostEntry {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        let Located { value, position } = Located::<EntryShape>::deserialize(deserializer)?;
        Ok(match value {
            EntryShape::Text(text) => {
                let mut one = RawValue::without_position(&text);
                one.position = position;
                Self::One(one)
            }
            EntryShape::Paths(paths) => Self::Paths(paths),
        })
    }
}

/// An entry without its place.
enum EntryShape {
    Text(String),
    Paths(std::collections::BTreeMap<String, RawValue<String>>),
}

impl<'d> TextOr<'d> for EntryShape {
    const EXPECTED: &'static str = "a number, or under path a number for each pattern";
    fn from_text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
    fn from_map<A: MapAccess<'d>>(map: A) -> Result<Self, A::Error> {
        Deserialize::deserialize(value::MapAccessDeserializer::new(map)).map(Self::Paths)
    }
}

impl<'d> Deserialize<'d> for EntryShape {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        text_or(deserializer)
    }
}

impl<'d> Deserialize<'d> for Cost {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        text_or(deserializer)
    }
}

#[cfg(test)]
mod schema;
