//! Describes the differences between two configurations, for `ratewright diff` and for the log of a reload.
//!
//! ```text
//!   Config ─► Contents ┐                                   ┌ policies, by their meaning
//!                      ├─► changes: a line for each setting ┤
//!   Config ─► Contents ┘                                   └ the rest, by the outline: every setting is compared
//! ```
//!
//! Settings with the same meaning are not reported: an explicit default, `60s` and `1min`, a list in another order.

mod groups;
mod policies;
mod zero_rules;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ratewright_core::Policy;
use ratewright_core::policy::Mode;
use ratewright_core::quota::Algorithm;
use serde::Serialize;
use serde_json::Value;

use ratewright_config::FileKind;

use super::referenced_files::ReferencedFiles;
use super::{Config, EnvoyConfig};
use ratewright_config::program_api::raw_value::ConfigValue as _;
use ratewright_config::program_api::schema::documented;
use ratewright_config::program_api::settings_by_path::{Outline, OutlineValue, SettingPath};

/// The part of a configuration that is compared.
#[derive(Clone, Default)]
pub(crate) struct Contents {
    outline: Outline,
    /// In their order; those on requests in flight last.
    policies: Vec<Policy>,
    /// The index of each policy, by its name.
    positions: BTreeMap<String, usize>,
    /// How many policies come before those on requests in flight.
    n_rates: usize,
    is_enabled: bool,
    /// The rules for Envoy with a limit of zero, which have no policies: the names that these would have, and the mode.
    blocked: BTreeMap<String, Mode>,
    /// How many policies each file lists, of the files that have the section.
    listing: BTreeMap<PathBuf, usize>,
    /// The rules for Envoy, in a text that is the same for the same.
    rules: String,
    referenced: ReferencedFiles,
}

/// One thing that changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    /// `policy login`, `route orders`, or a setting: `headers.retry_after`.
    pub(crate) subject: String,
    /// What is different.
    pub(crate) words: String,
    /// For clients.
    pub(crate) effect: Effect,
    /// Whether counts are kept (true) or start anew (false). None where a change does not concern counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keeps_counts: Option<bool>,
    /// True if a reload does not put it in force.
    pub(crate) needs_restart: bool,
    /// As logs name it: `+login`, `~login`, `-login`.
    #[serde(skip)]
    short: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Added,
    Removed,
    Renamed,
    Changed,
}

/// What a change means for clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effect {
    /// More requests pass.
    Softer,
    /// Fewer requests pass.
    Stricter,
    /// Neither, or it depends.
    Other,
}

impl Config {
    /// The part of a configuration that is compared.
    pub(crate) fn contents(&self) -> Contents {
        let is_named = |policy: &&Policy| Algorithm::named(policy.name()).is_none(); // those are in api.defaults
        let mut policies: Vec<_> = self.policies.iter().filter(is_named).cloned().collect();
        let n_rates = policies.len();
        policies.extend(self.permits.iter().cloned());
        let positions = policies.iter().enumerate().map(|(at, policy)| (policy.name().to_owned(), at));
        Contents {
            outline: self.outline.clone(),
            positions: positions.collect(),
            n_rates,
            policies,
            is_enabled: self.is_enabled,
            blocked: self.envoy.iter().flat_map(EnvoyConfig::blocked).collect(),
            listing: self.listing.clone(),
            rules: self.envoy.as_ref().map(|envoy| envoy.domains.outline()).unwrap_or_default(),
            referenced: self.fingerprint.referenced.clone(),
        }
    }
}

impl Change {
    /// A change of a policy, a route or a rule.
    fn of(kind: Kind, subject: String, short: &str, words: String) -> Self {
        let mark = match kind {
            Kind::Added => '+',
            Kind::Removed => '-',
            Kind::Renamed | Kind::Changed => '~',
        };
        let short = format!("{mark}{short}");
        Self { kind, subject, words, effect: Effect::Other, keeps_counts: None, needs_restart: false, short }
    }

    fn with(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    fn counting(self, keeps_counts: bool) -> Self {
        Self { keeps_counts: Some(keeps_counts), ..self }
    }

    /// The change as JSON, with its line of text.
    pub(crate) fn to_json(&self) -> Value {
        let mut json = serde_json::to_value(self).unwrap_or_default(); // texts and words only
        json["line"] = self.line().into();
        json
    }

    /// One line.
    pub(crate) fn line(&self) -> String {
        let Self { subject, words, .. } = self;
        let counts = match self.keeps_counts {
            Some(true) => "; counts are kept",
            Some(false) => "; counts start anew",
            None => "",
        };
        let restart = if self.needs_restart { "; needs a restart" } else { "" };
        format!("{subject}: {words}{counts}{restart}")
    }
}

/// All differences.
pub(crate) fn changes(old: &Contents, new: &Contents) -> Vec<Change> {
    let defaults = documented().into_iter().filter_map(|it| Some((it.path, it.default?))).collect();
    let compared = Compared { old, new, defaults: &defaults };
    let mut changes = compared.switch();
    let policies = compared.policies();
    let rules = compared.rules(&policies);
    changes.extend(policies);
    changes.extend(rules);
    changes.extend(compared.routes());
    changes.extend(compared.others());
    changes.extend(compared.referenced_files());
    changes
}

/// The first few changes by their names, and how many more.
pub(crate) fn short(changes: &[Change]) -> String {
    const NAMED_MAX: usize = 10;
    let mut names: Vec<&str> = Vec::new();
    for change in changes {
        if !names.contains(&change.short.as_str()) {
            names.push(&change.short);
        }
    }
    let n_more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let mut text = if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    if n_more > 0 {
        text.push_str(&format!(" and {n_more} more"));
    }
    text
}

/// Two configurations, and the defaults of all settings.
struct Compared<'a> {
    old: &'a Contents,
    new: &'a Contents,
    defaults: &'a BTreeMap<String, String>,
}

/// Sections that are not reported setting by setting.
const REPORTED_SEPARATELY: [&[&str]; 3] = [&["enabled"], &["policies"], &["routes"]];

impl Compared<'_> {
    /// The switch for everything.
    fn switch(&self) -> Vec<Change> {
        let of = |words: &str, effect| {
            let (subject, words) = ("enabled".to_owned(), words.to_owned());
            vec![Change::of(Kind::Changed, subject, "enabled", words).with(effect)]
        };
        match (self.old.is_enabled, self.new.is_enabled) {
            (true, false) => {
                of("everything is switched off; every request passes, uncounted", Effect::Softer)
            }
            (false, true) => of("everything is switched on again; limits apply", Effect::Stricter),
            (true, true) | (false, false) => Vec::new(),
        }
    }

    fn routes(&self) -> Vec<Change> {
        let (old, new) = (&self.old.outline, &self.new.outline);
        let (before, after) = (old.names(&["routes"]), new.names(&["routes"]));
        let mut changes = Vec::new();
        for id in &after {
            let (subject, short) = (format!("route {id}"), format!("route {id}"));
            if !before.contains(id) {
                let servers = new.get(&SettingPath::of(&["routes", id, "upstream", "servers"]));
                let to = servers.map_or(String::new(), |servers| format!(", to {}", servers.shown()));
                let change = Change::of(Kind::Added, subject, &short, format!("added{to}"));
                // The first routes open the gateway's listener.
                changes.push(Change { needs_restart: before.is_empty(), ..change });
                continue;
            }
            let path = ["routes", id];
            for words in self.settings(&old.below(&path), &new.below(&path), "routes") {
                changes.push(Change::of(Kind::Changed, subject.clone(), &short, words));
            }
        }
        for id in before.difference(&after) {
            let words = "removed; its requests go to a less specific route, or get 404".to_owned();
            changes.push(Change::of(Kind::Removed, format!("route {id}"), &format!("route {id}"), words));
        }
        changes
    }

    /// All settings outside policies and routes.
    fn others(&self) -> Vec<Change> {
        let (old, new) = (&self.old.outline, &self.new.outline);
        let paths = old.paths(new).into_iter();
        let paths = paths.filter(|path| !REPORTED_SEPARATELY.iter().any(|section| path.starts_with(section)));
        let mut changes = Vec::new();
        for path in paths {
            let name = path.to_string();
            let (before, after) = (old.get(path), new.get(path));
            let Some(words) = self.setting(before, after, &name) else { continue };
            let words = match (name.as_str(), after.map(OutlineValue::shown).as_deref()) {
                ("headers.retry_after", Some("false")) => "denials no longer carry Retry-After".to_owned(),
                ("headers.retry_after", _) => "denials carry Retry-After again".to_owned(),
                _ => words,
            };
            let change = Change::of(Kind::Changed, name.clone(), &name, words);
            // A listener takes another certificate, but does not begin or end to have one.
            let is_renewed =
                name.starts_with("listen.") && name.contains(".tls.") && before.is_some() && after.is_some();
            // The first rules for Envoy open its listener.
            let opens_listener = name.starts_with("envoy.") && old.names(&["envoy"]).is_empty();
            let needs_restart = (needs_restart(&name) || opens_listener) && !is_renewed;
            changes.push(Change { needs_restart, ..change });
        }
        changes
    }

    /// Keys and certificates that were replaced under their names.
    fn referenced_files(&self) -> Vec<Change> {
        let change = |(path, _): (&std::path::Path, FileKind)| {
            let path = path.display().to_string();
            let words = "its content has changed".to_owned();
            Change::of(Kind::Changed, format!("file {path}"), &path, words)
        };
        let changed = self.old.referenced.changed(&self.new.referenced);
        changed.filter(|(_, kind)| *kind == FileKind::Key).map(change).collect()
    }

    /// What rules for Envoy say beside their limits.
    fn rules(&self, policies: &[Change]) -> Option<Change> {
        let is_reported = policies.iter().any(|change| change.subject.starts_with(policies::RULE));
        let words =
            if is_reported { "rules have changed" } else { "rules have changed, but none of their limits" };
        let is_changed = self.old.rules != self.new.rules;
        is_changed.then(|| Change::of(Kind::Changed, "envoy".to_owned(), "envoy", words.to_owned()))
    }

    /// What is different among the settings of one thing. `section` is the path of their defaults.
    fn settings(&self, old: &Outline, new: &Outline, section: &str) -> Vec<String> {
        let mut words = Vec::new();
        for path in old.paths(new) {
            let change = self.setting(old.get(path), new.get(path), &format!("{section}.{path}"));
            words.extend(change.map(|words| format!("{path}: {words}")));
        }
        words
    }

    /// The difference between two values of a setting, if there is one.
    fn setting(&self, old: Option<&OutlineValue>, new: Option<&OutlineValue>, name: &str) -> Option<String> {
        let default = self.default_of(name, old.or(new).is_some_and(|value| value.is_list));
        let value_type = |value: Option<&OutlineValue>| value.cloned().or_else(|| default.clone());
        let (before, after) = (value_type(old), value_type(new));
        match (before, after) {
            (before, after) if before.as_ref().map(|it| &it.texts) == after.as_ref().map(|it| &it.texts) => {
                None
            }
            (Some(before), Some(after)) if before.is_secret || after.is_secret => {
                Some(if before.is_list { count_changes(&before, &after) } else { "changed".to_owned() })
            }
            (Some(before), Some(after)) if before.is_list && after.is_list => {
                Some(added_and_removed(&before, &after))
            }
            (Some(before), Some(after)) => Some(format!("{} instead of {}", after.shown(), before.shown())),
            (None, Some(after)) => Some(format!("{}, was not set", after.shown())),
            (Some(before), None) => Some(format!("no longer set, was {}", before.shown())),
            (None, None) => None,
        }
    }

    /// The default of a setting, if its documentation names one.
    fn default_of(&self, name: &str, is_list: bool) -> Option<OutlineValue> {
        let documented = |name: &str| self.defaults.get(name);
        let text = documented(name).or_else(|| documented(name.strip_suffix(".address")?))?;
        let list = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).filter(|_| is_list);
        let mut texts: Vec<_> = match list {
            Some(items) => items.split(", ").map(str::to_owned).collect(),
            None => vec![ratewright_core::Micros::canonical(text.clone())],
        };
        texts.sort();
        Some(OutlineValue { texts, is_list, is_secret: false })
    }
}

fn added_and_removed(old: &OutlineValue, new: &OutlineValue) -> String {
    let without = |some: &OutlineValue, others: &OutlineValue| {
        let some = some.texts.iter().filter(|text| !others.texts.contains(text)).cloned();
        some.collect::<Vec<_>>().join(", ")
    };
    match (without(new, old).as_str(), without(old, new).as_str()) {
        (added, "") => format!("{added} added"),
        ("", removed) => format!("{removed} removed"),
        (added, removed) => format!("{added} added; {removed} removed"),
    }
}

/// Secrets are counted, and not shown.
fn count_changes(old: &OutlineValue, new: &OutlineValue) -> String {
    let n_without = |some: &OutlineValue, others: &OutlineValue| {
        some.texts.iter().filter(|text| !others.texts.contains(text)).count()
    };
    match (n_without(new, old), n_without(old, new)) {
        (added, 0) => format!("{added} added"),
        (0, removed) => format!("{removed} removed"),
        (added, removed) => format!("{added} added, {removed} removed"),
    }
}

/// True if a reload does not put a setting in force: what listeners and the store are made of.
fn needs_restart(name: &str) -> bool {
    const ALL: [&str; 11] = [
        "listen",
        "store.redis",
        "store.local",
        "stop_delay",
        "drain_timeout",
        "metrics.labels",
        "log.format",
        "log.denials",
        "envoy.keep_alive",
        "envoy.connection_",
        "traces",
    ];
    ALL.iter().any(|all| name.starts_with(all))
}

#[cfg(test)]
mod tests;
