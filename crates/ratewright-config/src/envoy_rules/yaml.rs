//! A rule file of envoyproxy/ratelimit before it is interpreted.
//!
//! envoyproxy/ratelimit accepts a known key anywhere, and ignores it where it has no effect. Such keys are collected, so that `check`
//! can report them.

use std::fmt;
use std::marker::PhantomData;

use ratewright_core::quota::Algorithm;
use ratewright_rls_rules::Domains;
#[cfg(test)]
use schemars::{Schema, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::raw_value::{ConfigValue, Located, RawValue, Sections};
use crate::yaml_tree;

/// All names, ours last.
pub(crate) const NAMES: [&str; 20] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "algorithm",
    "burst",
    "unit_multiplier",
    "record_mode",
];

/// How deep YAML may be nested: a list and a section for each descriptor, and the content of the last.
const DEPTH_MAX: usize = 2 * Domains::DEPTH_MAX + 32;

#[derive(Default)]
pub(crate) struct Root {
    pub(crate) domain: Option<RawValue<String>>,
    pub(crate) descriptors: Option<Vec<Located<Descriptor>>>,
    pub(crate) unknown_keys: Vec<RawValue<String>>,
}

#[derive(Default)]
pub(crate) struct Descriptor {
    pub(crate) key: Option<RawValue<String>>,
    pub(crate) value: Option<RawValue<String>>,
    pub(crate) rate_limit: Option<Sections<RateLimit>>,
    pub(crate) shadow_mode: Option<RawValue<Switch>>,
    pub(crate) quota_mode: Option<RawValue<Switch>>,
    pub(crate) record_mode: Option<RawValue<Switch>>,
    pub(crate) detailed_metric: Option<RawValue<Switch>>,
    pub(crate) value_to_metric: Option<RawValue<Switch>>,
    pub(crate) share_threshold: Option<RawValue<Switch>>,
    pub(crate) metadata: Option<Located<serde_json::Value>>,
    pub(crate) descriptors: Option<Vec<Located<Descriptor>>>,
    pub(crate) unknown_keys: Vec<RawValue<String>>,
}

#[derive(Default)]
pub(crate) struct RateLimit {
    pub(crate) unit: Option<RawValue<String>>,
    pub(crate) requests_per_unit: Option<RawValue<u32>>,
    pub(crate) unlimited: Option<RawValue<Switch>>,
    pub(crate) name: Option<RawValue<String>>,
    pub(crate) replaces: Option<Vec<Located<Replaced>>>,
    pub(crate) algorithm: Option<RawValue<Algorithm>>,
    pub(crate) burst: Option<RawValue<u32>>,
    pub(crate) unit_multiplier: Option<RawValue<u32>>,
    pub(crate) unknown_keys: Vec<RawValue<String>>,
}

#[derive(Default)]
pub(crate) struct Replaced {
    pub(crate) name: Option<RawValue<String>>,
    pub(crate) unknown_keys: Vec<RawValue<String>>,
}

/// True or false, in all words that YAML once had for it.
#[derive(Clone, Copy)]
pub(crate) struct Switch(pub bool);

/// Reads a file's text.
pub(crate) fn parse(text: &str) -> Result<Root, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
    };
    yaml_tree::parse::<Option<Root>>(text, options).map(Option::unwrap_or_default)
}

/// True if a text is a rule file, and not a policy file of Ratewright. A text that is not valid YAML is classified by
/// its lines.
pub fn is_rules_file(text: &str) -> bool {
    match yaml_tree::parse::<Option<Names>>(text, serde_saphyr::Options::default()) {
        Ok(names) => names.is_some_and(|Names(names)| names.iter().any(|name| is_rules_key(name))),
        Err(_) => text.lines().any(|line| line.split_once(':').is_some_and(|(name, _)| is_rules_key(name))),
    }
}

/// A key that policy files do not have.
fn is_rules_key(name: &str) -> bool {
    matches!(name, "domain" | "descriptors")
}

/// The names of a file's sections.
struct Names(Vec<String>);

impl<'d> Deserialize<'d> for Names {
    fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'d> Visitor<'d> for Visit {
            type Value = Names;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section")
            }
            fn visit_map<A: MapAccess<'d>>(self, mut map: A) -> Result<Names, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = map.next_entry::<RawValue<String>, _>()? {
                    names.push(name.text);
                }
                Ok(Names(names))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

/// A section that takes the names that it knows.
trait Section<'d>: Default {
    /// Reads the value of a name, if it knows it.
    fn take<A: MapAccess<'d>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;

    /// Keeps a name that it does not know.
    fn keep(&mut self, name: RawValue<String>);
}

fn section<'d, T: Section<'d>, D: Deserializer<'d>>(deserializer: D) -> Result<T, D::Error> {
    struct Visit<T>(PhantomData<fn() -> T>);
    impl<'d, T: Section<'d>> Visitor<'d> for Visit<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a section of names and values")
        }
        fn visit_map<A: MapAccess<'d>>(self, mut map: A) -> Result<T, A::Error> {
            let mut section = T::default();
            while let Some(name) = map.next_key::<RawValue<String>>()? {
                if !section.take(&name.text, &mut map)? {
                    map.next_value::<IgnoredAny>()?;
                    section.keep(name);
                }
            }
            Ok(section)
        }
    }
    deserializer.deserialize_map(Visit(PhantomData))
}

macro_rules! section {
    ($section:ty { $($name:ident),+ }) => {
        impl<'d> Section<'d> for $section {
            fn take<A: MapAccess<'d>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
                match name {
                    $(stringify!($name) => self.$name = map.next_value()?,)+
                    _ => return Ok(false),
                }
                Ok(true)
            }
            fn keep(&mut self, name: RawValue<String>) {
                self.unknown_keys.push(name);
            }
        }
        impl<'d> Deserialize<'d> for $section {
            fn deserialize<D: Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
                section(deserializer)
            }
        }
    };
}

section!(Root { domain, descriptors });
section!(Descriptor {
    key,
    value,
    rate_limit,
    shadow_mode,
    quota_mode,
    record_mode,
    detailed_metric,
    value_to_metric,
    share_threshold,
    metadata,
    descriptors
});
section!(RateLimit { unit, requests_per_unit, unlimited, name, replaces, algorithm, burst, unit_multiplier });
section!(Replaced { name });

impl ConfigValue for Switch {
    fn from_text(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Ok(Self(true)),
            "false" | "no" | "off" | "n" => Ok(Self(false)),
            _ => Err("use true or false".to_owned()),
        }
    }
    #[cfg(test)]
    fn schema() -> Schema {
        json_schema!({ "type": "boolean" })
    }
}
