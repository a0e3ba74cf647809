//! All settings of a file by path, with environment variables replaced, so that two files can be compared.
//!
//! ```text
//!   headers.retry_after              false
//!   policies.login.quota.rate        10/min
//!   policies.login.when.path         /login, /signin       a list, in any order
//!   api.tokens                       …                     a secret: compared, never shown
//! ```
//!
//! `settings_by_path/sections.rs` has the settings of each section; the compiler reports one that is missing there.

mod sections;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ratewright_telemetry::{has_credentials, sounds_secret};

use crate::file::{
    By, Condition, Cors, Cost, CostEntry, File, Listener, Override, Policy, Quota, Route, Upstream,
};
use crate::raw_value::{ConfigValue, Located, RawList, RawValue, Sections};
use crate::values::UpstreamUrl;

/// All settings in the files, without defaults.
#[derive(Clone, PartialEq, Default)]
pub struct Outline(BTreeMap<SettingPath, OutlineValue>);

/// The path of a setting: the names that lead to it, each followed by `SEPARATOR`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SettingPath(String);

/// Between names. A dot would not do: those of policies may have dots in them.
const SEPARATOR: char = '\u{1f}';

/// The value of a setting.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutlineValue {
    /// One text, or those of a list in the order of the alphabet.
    pub texts: Vec<String>,
    /// True if the setting is a list.
    pub is_list: bool,
    /// True if the texts must not be shown.
    pub is_secret: bool,
}

/// Builds an outline.
pub struct Outliner<'a> {
    expand: &'a mut dyn FnMut(&str) -> String,
    path: SettingPath,
    outline: Outline,
}

/// A section or value with settings.
pub trait Outlined {
    /// Adds its settings.
    fn outline(&self, into: &mut Outliner<'_>);
}

impl Outline {
    /// The settings of a file. `expand` replaces variables of the environment.
    pub fn of(file: &File, expand: &mut dyn FnMut(&str) -> String) -> Self {
        let mut into = Outliner { expand, path: SettingPath::default(), outline: Self::default() };
        file.outline(&mut into);
        // Their presence alone has an effect.
        into.inside("envoy", &file.envoy.as_ref().map(|_| Present));
        let redis = file.store.as_ref().and_then(|store| store.redis.as_ref());
        into.inside("store.redis", &redis.map(|_| Present));
        into.outline
    }

    /// The value of a setting.
    pub fn get(&self, path: &SettingPath) -> Option<&OutlineValue> {
        self.0.get(path)
    }

    /// The settings below a path, each with the rest of its own.
    fn inside(&self, section: &[&str]) -> impl Iterator<Item = (&str, &OutlineValue)> + use<'_> {
        let section = SettingPath::of(section);
        let from = self.0.range(section.clone()..);
        from.map_while(move |(at, value)| Some((at.0.strip_prefix(section.0.as_str())?, value)))
    }

    /// The settings below a path, by their paths from there.
    pub fn below(&self, section: &[&str]) -> Self {
        let inside = self.inside(section);
        Self(inside.map(|(at, value)| (SettingPath(at.to_owned()), value.clone())).collect())
    }

    /// All of it but these sections.
    pub fn without(&self, sections: &[&str]) -> Self {
        let others = self.0.iter().filter(|(at, _)| !sections.iter().any(|name| at.starts_with(&[name])));
        Self(others.map(|(at, value)| (at.clone(), value.clone())).collect())
    }

    /// The names directly below a path, sorted.
    pub fn names(&self, section: &[&str]) -> BTreeSet<&str> {
        let inside = self.inside(section);
        inside.filter_map(|(at, _)| at.split(SEPARATOR).next().filter(|name| !name.is_empty())).collect()
    }

    /// The settings one by one.
    pub fn into_settings(self) -> Vec<(SettingPath, OutlineValue)> {
        self.0.into_iter().collect()
    }

    /// The paths of either outline, each once.
    pub fn paths<'a>(&'a self, other: &'a Self) -> BTreeSet<&'a SettingPath> {
        self.0.keys().chain(other.0.keys()).collect()
    }
}

impl OutlineValue {
    /// The value for people; secrets are not shown.
    pub fn shown(&self) -> String {
        match self.texts.as_slice() {
            _ if self.is_secret => "a secret".to_owned(),
            [] => "an empty list".to_owned(),
            texts => texts.join(", "),
        }
    }
}

impl SettingPath {
    /// The path of these names.
    pub fn of(names: &[&str]) -> Self {
        let mut path = Self::default();
        names.iter().for_each(|name| path.push(name));
        path
    }

    fn push(&mut self, name: &str) {
        self.0.push_str(name);
        self.0.push(SEPARATOR);
    }

    /// True for the values of a condition on a header, cookie or parameter that may hold a secret.
    fn sounds_secret(&self) -> bool {
        let last = self.0.split_terminator(SEPARATOR).next_back();
        last.and_then(|name| name.split_once(':')).is_some_and(|(_, name)| sounds_secret(name))
    }

    /// True if the path begins with these names.
    pub fn starts_with(&self, names: &[&str]) -> bool {
        self.0.starts_with(&Self::of(names).0)
    }
}

impl fmt::Display for SettingPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.split_terminator(SEPARATOR).collect();
        f.write_str(&names.join("."))
    }
}

impl Outliner<'_> {
    /// Adds the settings below a name.
    pub fn inside(&mut self, name: &str, outlined: &impl Outlined) {
        let n_before = self.path.0.len();
        self.path.push(name);
        outlined.outline(self);
        self.path.0.truncate(n_before);
    }

    fn put(&mut self, texts: Vec<String>, is_list: bool, is_secret: bool) {
        let is_secret =
            is_secret || self.path.sounds_secret() || texts.iter().any(|text| has_credentials(text));
        self.outline.0.insert(self.path.clone(), OutlineValue { texts, is_list, is_secret });
    }

    fn put_text(&mut self, text: &str) {
        let text = (self.expand)(text);
        self.put(vec![text], false, false);
    }

    fn text<T: ConfigValue>(&mut self, raw: &RawValue<T>) -> String {
        T::canonical((self.expand)(&raw.text))
    }

    /// Things of one kind, each under its name.
    fn each<'a, T: Outlined + 'a>(&mut self, items: impl Iterator<Item = (String, &'a T)>) {
        for (name, item) in items {
            let name = (self.expand)(&name);
            self.inside(&name, item);
        }
    }
}

impl<T: Outlined> Outlined for Option<T> {
    fn outline(&self, into: &mut Outliner<'_>) {
        self.iter().for_each(|raw| raw.outline(into));
    }
}

impl<T: Outlined> Outlined for Located<T> {
    fn outline(&self, into: &mut Outliner<'_>) {
        self.value.outline(into);
    }
}

impl<T: Outlined> Outlined for Box<T> {
    fn outline(&self, into: &mut Outliner<'_>) {
        self.as_ref().outline(into);
    }
}

impl<T: ConfigValue> Outlined for RawValue<T> {
    fn outline(&self, into: &mut Outliner<'_>) {
        let text = into.text(self);
        into.put(vec![text], false, T::IS_SECRET_IF_VALID);
    }
}

impl<T: ConfigValue> Outlined for RawList<T> {
    fn outline(&self, into: &mut Outliner<'_>) {
        let mut texts: Vec<_> = self.items.iter().map(|item| into.text(item)).collect();
        texts.sort();
        texts.dedup();
        into.put(texts, true, T::IS_SECRET_IF_VALID);
    }
}

impl<T: Outlined> Outlined for BTreeMap<String, T> {
    fn outline(&self, into: &mut Outliner<'_>) {
        into.each(self.iter().map(|(name, value)| (name.clone(), value)));
    }
}

impl Outlined for Condition {
    fn outline(&self, into: &mut Outliner<'_>) {
        self.0.outline(into);
    }
}

/// One quota has no name in its path; several have.
impl Outlined for Sections<Quota> {
    fn outline(&self, into: &mut Outliner<'_>) {
        if let [quota] = self.items.as_slice() {
            return quota.outline(into);
        }
        let name =
            |quota: &Quota| quota.name.as_ref().map_or("(unnamed)".to_owned(), |name| name.text.clone());
        into.each(self.items.iter().map(|quota| (name(&quota.value), quota)));
    }
}

impl Outlined for Vec<Located<Policy>> {
    fn outline(&self, into: &mut Outliner<'_>) {
        let name = |policy: &Policy| policy.name.as_ref().map(|name| name.text.clone()).unwrap_or_default();
        into.each(self.iter().map(|policy| (name(&policy.value), policy)));
    }
}

impl Outlined for Vec<Located<Route>> {
    fn outline(&self, into: &mut Outliner<'_>) {
        let name = |route: &Route| route.id.as_ref().map(|id| id.text.clone()).unwrap_or_default();
        into.each(self.iter().map(|route| (name(&route.value), route)));
    }
}

/// Each override is listed by its name or its condition. The first match applies, so the order is a setting too.
impl Outlined for Vec<Located<Override>> {
    fn outline(&self, into: &mut Outliner<'_>) {
        let name = |other: &Override| match (&other.name, &other.condition) {
            (Some(name), _) => name.text.clone(),
            (None, Some(Condition(tests))) => {
                let test = |(name, values): (&String, &RawList<String>)| {
                    let values: Vec<_> = values.items.iter().map(|value| value.text.as_str()).collect();
                    match name.split_once(':') {
                        Some((_, header)) if sounds_secret(header) => {
                            format!("{name} #{:08x}", digest(&values))
                        }
                        _ if values.len() == 1 => format!("{name} {}", values[0]),
                        _ => format!("{name} {values:?}"),
                    }
                };
                tests.iter().map(test).collect::<Vec<_>>().join(" ")
            }
            (None, None) => String::new(),
        };
        let names: Vec<_> = self.iter().map(|other| name(&other.value)).collect();
        into.each(names.iter().cloned().zip(self));
        if names.len() > 1 {
            into.inside("order", &RawValue::<String>::without_position(&names.join(", ")));
        }
    }
}

/// Tells values from others without showing them.
fn digest(values: &[&str]) -> u32 {
    use std::hash::BuildHasher as _;
    static KEYS: std::sync::LazyLock<std::hash::RandomState> = std::sync::LazyLock::new(Default::default);
    #[expect(clippy::cast_possible_truncation, reason = "half of it tells them apart")]
    let digest = KEYS.hash_one(values) as u32;
    digest
}

impl Outlined for By {
    fn outline(&self, into: &mut Outliner<'_>) {
        into.put_text(&by(self));
    }
}

fn by(raw: &By) -> String {
    match raw {
        By::One(name) => name.clone(),
        By::FirstOf(names) => {
            let names: Vec<_> = names.iter().map(|name| name.text.as_str()).collect();
            format!("{{first_of: [{}]}}", names.join(", "))
        }
        By::All(parts) => {
            let parts: Vec<_> = parts.iter().map(|part| by(&part.value)).collect();
            format!("[{}]", parts.join(", "))
        }
    }
}

impl Outlined for Cost {
    fn outline(&self, into: &mut Outliner<'_>) {
        match self {
            Self::Fixed(text) => into.put_text(text),
            Self::Table(table) => table.outline(into),
        }
    }
}

impl Outlined for CostEntry {
    fn outline(&self, into: &mut Outliner<'_>) {
        match self {
            Self::One(raw) => raw.outline(into),
            Self::Paths(costs) => costs.outline(into),
        }
    }
}

impl Outlined for Listener {
    fn outline(&self, into: &mut Outliner<'_>) {
        match self {
            Self::Address(text) => into.inside("address", &RawValue::<String>::without_position(text)),
            Self::Section(section) => section.outline(into),
        }
    }
}

impl Outlined for Cors {
    fn outline(&self, into: &mut Outliner<'_>) {
        match self {
            Self::Text(text) => into.put_text(text),
            Self::Section(section) => section.outline(into),
        }
    }
}

/// Urls are the servers of a section that says nothing else.
impl Outlined for Upstream {
    fn outline(&self, into: &mut Outliner<'_>) {
        fn urls(upstream: &Upstream, found: &mut Vec<String>) {
            match upstream {
                Upstream::Url(text) => found.push(text.clone()),
                Upstream::All(all) => all.iter().for_each(|one| urls(&one.value, found)),
                Upstream::Section(_) => {}
            }
        }
        if let Self::Section(section) = self {
            return section.outline(into);
        }
        let mut servers = Vec::new();
        urls(self, &mut servers);
        let items = servers.iter().map(|server| RawValue::without_position(server)).collect();
        into.inside("servers", &RawList::<UpstreamUrl> { items, position: None });
    }
}

/// Marks a section whose presence alone has an effect.
pub struct Present;

impl Outlined for Present {
    fn outline(&self, into: &mut Outliner<'_>) {
        into.put(vec!["set".to_owned()], false, false);
    }
}
