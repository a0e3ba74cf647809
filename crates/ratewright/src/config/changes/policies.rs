//! Differences between policies, by their meaning.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use ratewright_core::policy::{Limit, Mode, Selector};
use ratewright_core::quota::Algorithm;
use ratewright_core::{Policy, Quota};

use super::super::explain;
use super::{Change, Compared, Contents, Effect, Kind, zero_rules};
use ratewright_config::program_api::raw_value::ConfigValue as _;
use ratewright_config::program_api::settings_by_path::{Outline, OutlineValue, SettingPath};

/// A policy on one side of a comparison.
pub(super) struct Side<'a> {
    pub(super) policy: &'a Policy,
    outline: Outline,
    pub(super) is_permit: bool,
}

/// Settings that are reported in words of their own. All others are reported by name.
const DESCRIBED_SEPARATELY: [&str; 5] = ["mode", "quota", "in_flight", "by", "when"];

/// The settings of a policy but its name, to find it under another one.
type UnnamedSettings = Vec<(SettingPath, OutlineValue)>;

impl Contents {
    pub(super) fn side(&self, name: &str) -> Option<Side<'_>> {
        let at = *self.positions.get(name)?;
        let outline = self.outline.below(&["policies", name]);
        Some(Side { policy: self.policies.get(at)?, outline, is_permit: at >= self.n_rates })
    }

    /// The policy of that name.
    pub(super) fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.get(*self.positions.get(name)?)
    }

    /// The index of a policy, or `usize::MAX` if the name is unknown.
    pub(super) fn position(&self, name: &str) -> usize {
        self.positions.get(name).copied().unwrap_or(usize::MAX)
    }

    /// The names of the policies that the file lists.
    pub(crate) fn listed(&self) -> BTreeSet<&str> {
        self.outline.names(&["policies"])
    }

    /// The policies that the file lists and another one does not: those that are there under another name excepted.
    pub(crate) fn dropped_by(&self, new: &Self) -> Vec<&str> {
        let (renamed, listed) = (Renamed::between(self, new), new.listed());
        let is_dropped = |name: &&str| !listed.contains(name) && !renamed.old.contains(name);
        self.listed().into_iter().filter(is_dropped).collect()
    }

    /// The names of the rules for Envoy.
    pub(crate) fn rules(&self) -> BTreeSet<&str> {
        let is_rule = |policy: &&Policy| {
            policy.name().starts_with(ratewright_rls_rules::PREFIX)
                && !ratewright_rls::is_override_policy(policy)
        };
        let counted = self.policies.iter().filter(is_rule).map(Policy::name);
        counted.chain(self.blocked.keys().map(String::as_str)).collect()
    }

    /// The rules for Envoy that another file does not have.
    pub(crate) fn rules_dropped_by(&self, new: &Self) -> Vec<&str> {
        let kept = new.rules();
        self.rules().into_iter().filter(|name| !kept.contains(name)).collect()
    }

    /// True if a file that listed policies is gone, or no longer has the section.
    pub(crate) fn has_lost_list(&self, new: &Self) -> bool {
        self.listing.iter().any(|(path, n_policies)| *n_policies > 0 && !new.listing.contains_key(path))
    }

    /// True if more than one file listed policies.
    pub(crate) fn has_several_lists(&self) -> bool {
        self.listing.len() > 1
    }

    fn terms(&self, name: &str) -> UnnamedSettings {
        self.outline.below(&["policies", name]).without(&["name"]).into_settings()
    }
}

/// Policies that say the same under another name.
#[derive(Default)]
pub(super) struct Renamed<'a> {
    /// Their old names.
    old: BTreeSet<&'a str>,
    /// Their old names by their new ones.
    by_new: BTreeMap<&'a str, &'a str>,
}

impl<'a> Renamed<'a> {
    /// What a policy of the new file was called in the old one.
    pub(super) fn name_before<'b>(&'b self, name: &'b str) -> &'b str {
        self.by_new.get(name).copied().unwrap_or(name)
    }

    /// True for the old name of a policy that has another one now.
    pub(super) fn is_renamed(&self, name: &str) -> bool {
        self.old.contains(name)
    }

    pub(super) fn between(old: &'a Contents, new: &'a Contents) -> Self {
        let (before, after) = (old.listed(), new.listed());
        let mut gone: BTreeMap<UnnamedSettings, Vec<&str>> = BTreeMap::new();
        for name in before.difference(&after) {
            gone.entry(old.terms(name)).or_default().push(name);
        }
        let mut renamed = Self::default();
        for name in after.difference(&before) {
            if let Some(before) = gone.get_mut(&new.terms(name)).and_then(Vec::pop) {
                renamed.old.insert(before);
                renamed.by_new.insert(name, before);
            }
        }
        renamed
    }
}

impl Compared<'_> {
    pub(super) fn policies(&self) -> Vec<Change> {
        let (old, new) = (self.old, self.new);
        let renamed = Renamed::between(old, new);
        let (in_old, in_new) = (self.kept_in_old(&renamed), self.kept_in_new(&renamed));
        let mut changes = Vec::new();
        for policy in &new.policies {
            let name = policy.name();
            let Some(after) = new.side(name) else { continue };
            match (renamed.by_new.get(name), old.side(name)) {
                (Some(before), _) => {
                    let words = format!("the new name of {before}, otherwise unchanged");
                    let change = Change::of(Kind::Renamed, subject(name), name, words).counting(false);
                    changes.push(Change { short: format!("+{name} -{before}"), ..change });
                }
                (None, None) => match old.blocked.get(name) {
                    Some(mode) => changes.push(zero_rules::unblocked(name, *mode, &after)),
                    None => changes.push(self.added(name, &after, &in_new)),
                },
                (None, Some(before)) => changes.extend(self.policy(name, &before, &after)),
            }
        }
        let is_gone = |name: &str| !new.positions.contains_key(name) && !renamed.old.contains(name);
        for name in old.policies.iter().map(Policy::name).filter(|name| is_gone(name)) {
            let Some(before) = old.side(name) else { continue };
            changes.push(match new.blocked.get(name) {
                Some(mode) => zero_rules::blocked(name, &before, *mode),
                None => self.removed(name, &before, &in_old),
            });
        }
        changes.extend(self.zero_rules());
        changes.extend(self.group_orders(&renamed));
        changes
    }

    /// The differences of one policy.
    fn policy(&self, name: &str, before: &Side<'_>, after: &Side<'_>) -> Vec<Change> {
        let (old_mode, mut new_mode) = (before.mode(), after.mode());
        if before.is_rule() && self.old.is_enabled != self.new.is_enabled {
            new_mode = old_mode; // all are off on one side, whatever their files say
        }
        let same_mode = |policy: &Policy| policy.clone().with_mode(Mode::Enforce);
        let is_same = same_mode(before.policy).is_equivalent(&same_mode(after.policy))
            && before.is_permit == after.is_permit;
        if is_same && old_mode == new_mode {
            return Vec::new();
        }
        let of = |words: String| Change::of(Kind::Changed, subject(name), name, words);
        let mut changes = Vec::new();
        if old_mode != new_mode {
            changes.push(switched(&of, old_mode, new_mode));
        }
        if is_same {
            return changes;
        }
        changes.extend(limits(&of, before, after));
        let (old, new) = (before.policy, after.policy);
        if old.partition() != new.partition() {
            let (old, new) = (explain::partition(old.partition()), explain::partition(new.partition()));
            let hint = "rename the policy too, so that equal values do not share a bucket";
            changes.push(of(format!("counts {new} instead of {old}; {hint}")));
        }
        if !old.selector().is_equivalent(new.selector()) {
            let (old, new) = (covered(old), covered(new));
            let is_hidden = old == new; // words do not show everything
            let words = format!("applies to {new} instead of {old}");
            let hidden = "applies to other requests: when has changed";
            changes.push(of(if is_hidden { hidden.to_owned() } else { words }));
        }
        let (old, new) =
            (before.outline.without(&DESCRIBED_SEPARATELY), after.outline.without(&DESCRIBED_SEPARATELY));
        changes.extend(self.settings(&old, &new, "policies").into_iter().map(&of));
        if changes.is_empty() {
            let is_elsewhere = !before.is_rule() && before.outline == after.outline;
            let words = if is_elsewhere { "changed by a setting elsewhere in the file" } else { "changed" };
            changes.push(of(words.to_owned()));
        }
        changes
    }
}

impl Side<'_> {
    /// As it is written: `enabled: false` switches all of them off.
    pub(super) fn mode(&self) -> Mode {
        let raw = self.outline.get(&SettingPath::of(&["mode"])).and_then(|mode| mode.texts.first());
        match raw {
            Some(text) => Mode::from_text(text).unwrap_or_default(),
            None if self.is_rule() => self.policy.mode(),
            None => Mode::Enforce,
        }
    }

    /// True for rules for Envoy.
    fn is_rule(&self) -> bool {
        self.policy.name().starts_with(ratewright_rls_rules::PREFIX)
    }

    fn measure(&self) -> fn(&Quota) -> String {
        if self.is_permit { explain::in_flight_limit } else { explain::quota }
    }

    pub(super) fn limits(&self) -> String {
        explain::limits(self.policy.limits(), self.measure())
    }
}

/// What rules for Envoy are called before their names.
pub(super) const RULE: &str = "rule for Envoy ";

pub(super) fn subject(name: &str) -> String {
    match name.strip_prefix(ratewright_rls_rules::PREFIX) {
        Some(rule) => format!("{RULE}{rule}"),
        None => format!("policy {name}"),
    }
}

pub(super) fn switched(of: &impl Fn(String) -> Change, old: Mode, new: Mode) -> Change {
    let (words, effect) = match (old, new) {
        (Mode::Enforce, Mode::Shadow) => {
            ("switched to shadow: it counts, and no longer denies", Effect::Softer)
        }
        (_, Mode::Shadow) => ("switched to shadow: it counts, and never denies", Effect::Other),
        (Mode::Enforce, _) => ("switched off: it neither counts nor denies", Effect::Softer),
        (_, Mode::Off) => ("switched off: it no longer counts", Effect::Other),
        (_, Mode::Enforce) => ("switched to enforce: it denies", Effect::Stricter),
    };
    of(words.to_owned()).with(effect)
}

/// Which requests it covers.
pub(super) fn covered(policy: &Policy) -> String {
    match policy.selector() {
        Selector::When(condition) if condition.is_empty() => "all requests".to_owned(),
        Selector::When(condition) => format!("requests {}", explain::conditions(condition)),
        Selector::Named => "requests of the routes and callers that name it".to_owned(),
    }
}

/// How the quotas are different: one by one if there are as many, else all at once.
fn limits(of: &impl Fn(String) -> Change, before: &Side<'_>, after: &Side<'_>) -> Vec<Change> {
    let (old, new) = (before.policy.limits(), after.policy.limits());
    if old.len() != new.len() || before.is_permit != after.is_permit {
        let words = format!("{} instead of {}", after.limits(), before.limits());
        let keeps = new.iter().all(|limit| old.iter().any(|old| old.name() == limit.name()));
        return vec![of(words).counting(keeps && before.is_permit == after.is_permit)];
    }
    let mut changes = Vec::new();
    for (old, new) in old.iter().zip(new) {
        let names = [old.name().quota(), new.name().quota()].map(|name| name.unwrap_or("without a name"));
        if old.quota().is_equivalent(new.quota()) {
            let words = format!("the quota is now called {}, was {}", names[1], names[0]);
            changes.extend((names[0] != names[1]).then(|| of(words).counting(false)));
            continue;
        }
        let effect = effect(old.quota(), new.quota());
        let how = match effect {
            Effect::Softer => "softer: ",
            Effect::Stricter => "stricter: ",
            Effect::Other => "",
        };
        let measure = after.measure();
        let words = format!("{how}{} instead of {}", measure(new.quota()), measure(old.quota()));
        let change = of(words).with(effect);
        changes.push(if after.is_permit { change } else { change.counting(keeps_counts(old, new)) });
    }
    changes
}

/// True if buckets keep their counts under another quota. A changed partition is reported separately.
fn keeps_counts(old: &Limit, new: &Limit) -> bool {
    let (own, other) = (old.quota(), new.quota());
    (own.kind() == other.kind()) && old.name().quota() == new.name().quota()
}

fn effect(old: &Quota, new: &Quota) -> Effect {
    if old.algorithm() != new.algorithm() {
        return Effect::Other;
    }
    if !old.algorithm().has_burst() {
        return match (admits_all_of(new, old), admits_all_of(old, new)) {
            (true, false) => Effect::Softer,
            (false, true) => Effect::Stricter,
            (true, true) | (false, false) => Effect::Other,
        };
    }
    let speed =
        |quota: &Quota, other: &Quota| u128::from(quota.units()) * u128::from(other.window().as_micros());
    let rate = speed(new, old).cmp(&speed(old, new));
    match (rate, new.capacity().cmp(&old.capacity())) {
        (Ordering::Greater | Ordering::Equal, Ordering::Greater) | (Ordering::Greater, Ordering::Equal) => {
            Effect::Softer
        }
        (Ordering::Less | Ordering::Equal, Ordering::Less) | (Ordering::Less, Ordering::Equal) => {
            Effect::Stricter
        }
        (Ordering::Greater, Ordering::Less)
        | (Ordering::Less, Ordering::Greater)
        | (Ordering::Equal, Ordering::Equal) => Effect::Other,
    }
}

/// True if a window admits all that another one of its algorithm does: as much as the other can admit in this window's length. Windows at
/// fixed times are compared only if one length is a multiple of the other; otherwise they overlap in changing ways.
fn admits_all_of(quota: &Quota, other: &Quota) -> bool {
    let (own, of_other) = (quota.window().as_micros(), other.window().as_micros());
    let is_log = quota.algorithm() == Algorithm::SlidingWindow;
    let is_multiple = own.is_multiple_of(of_other) || of_other.is_multiple_of(own);
    let n_windows = u128::from(own.div_ceil(of_other));
    (is_log || is_multiple) && u128::from(other.units()) * n_windows <= u128::from(quota.units())
}
