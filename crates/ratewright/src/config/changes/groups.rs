//! Policies that come and go. In a group the first policy that matches counts, so others begin or cease to apply with it.

use std::collections::BTreeMap;

use ratewright_core::Policy;
use ratewright_core::policy::Mode;

use super::super::explain;
use super::policies::{Renamed, Side, covered, subject};
use super::{Change, Compared, Contents, Effect, Kind};

/// The members of each group that are in both files, each with its place in one of them. Groups of rates and of requests in flight are apart.
pub(super) struct KeptMembers<'a>(BTreeMap<(String, bool), Vec<(usize, &'a str)>>);

impl Contents {
    fn kept_members(&self, is_lasting: impl Fn(&Policy) -> bool) -> KeptMembers<'_> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (at, policy) in self.policies.iter().enumerate().filter(|(_, policy)| is_lasting(policy)) {
            if let Some(group) = policy.group() {
                groups.entry((group.to_owned(), at >= self.n_rates)).or_default().push((at, policy.name()));
            }
        }
        KeptMembers(groups)
    }
}

impl KeptMembers<'_> {
    /// Those that come after a policy in its group.
    fn after(&self, side: &Side<'_>, at: usize) -> &[(usize, &str)] {
        let members = side.policy.group().and_then(|group| self.0.get(&(group.to_owned(), side.is_permit)));
        members.map_or(&[], |members| members.split_at(members.partition_point(|(other, _)| *other <= at)).1)
    }
}

/// The first few names, and how many more.
fn some(names: &[(usize, &str)]) -> String {
    const NAMED_MAX: usize = 3;
    let first = names.iter().take(NAMED_MAX).map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first,
        n_more => format!("{first} and {n_more} more"),
    }
}

impl<'a> Compared<'a> {
    /// The members of groups that were there before, as the new file orders them.
    pub(super) fn kept_in_new(&self, renamed: &Renamed<'_>) -> KeptMembers<'a> {
        self.new.kept_members(|policy| {
            let before = self.old.policy(renamed.name_before(policy.name()));
            before.is_some_and(|before| before.group() == policy.group())
        })
    }

    /// The members of groups that stay, as the old file orders them.
    pub(super) fn kept_in_old(&self, renamed: &Renamed<'_>) -> KeptMembers<'a> {
        self.old.kept_members(|policy| {
            let after = self.new.policy(policy.name());
            after.is_some_and(|after| after.group() == policy.group()) || renamed.is_renamed(policy.name())
        })
    }

    pub(super) fn added(&self, name: &str, side: &Side<'_>, kept_members: &KeptMembers<'_>) -> Change {
        let partition = explain::partition(side.policy.partition());
        let mode = match side.mode() {
            Mode::Enforce => "",
            Mode::Shadow => " in shadow",
            Mode::Off => " switched off",
        };
        let mut words = format!("added{mode}: {}, {partition}, on {}", side.limits(), covered(side.policy));
        let mut effect = if side.mode() == Mode::Enforce { Effect::Stricter } else { Effect::Other };
        let later = kept_members.after(side, self.new.position(name));
        if let (Some(group), false) = (side.policy.group(), later.is_empty()) {
            words.push_str(&format!("; it comes before {} in group {group}", some(later)));
            words.push_str(if later.len() == 1 {
                ", which no longer applies to these requests"
            } else {
                ", which no longer apply to these requests"
            });
            effect = Effect::Other;
        }
        Change::of(Kind::Added, subject(name), name, words).with(effect)
    }

    pub(super) fn removed(&self, name: &str, side: &Side<'_>, kept_members: &KeptMembers<'_>) -> Change {
        let (words, mut effect) = match side.mode() {
            Mode::Enforce => ("removed; it no longer limits anybody", Effect::Softer),
            Mode::Shadow => ("removed; it was in shadow and denied nobody", Effect::Other),
            Mode::Off => ("removed; it was switched off", Effect::Other),
        };
        let mut words = words.to_owned();
        let later = kept_members.after(side, self.old.position(name));
        if let (Some(group), false) = (side.policy.group(), later.is_empty()) {
            let apply = if later.len() == 1 { "now applies" } else { "now apply" };
            words.push_str(&format!("; {} of group {group} {apply} to its requests", some(later)));
            effect = Effect::Other;
        }
        Change::of(Kind::Removed, subject(name), name, words).with(effect)
    }

    /// Of a group the first that matches counts, so its order does too.
    pub(super) fn group_orders(&self, renamed: &Renamed<'_>) -> Vec<Change> {
        let (old, new) = (self.kept_in_old(renamed).0, self.kept_in_new(renamed).0);
        let is_reordered = |key: &&(String, bool)| {
            let names = |members: Option<&Vec<(usize, &'a str)>>| {
                members.into_iter().flatten().map(|(_, name)| *name).collect::<Vec<_>>()
            };
            let after = names(new.get(*key)).into_iter().map(|name| renamed.name_before(name));
            names(old.get(*key)) != after.collect::<Vec<_>>()
        };
        let orders = new.iter().filter(|(key, _)| is_reordered(key)).map(|((group, _), members)| {
            let words = format!("tries its policies in another order: {}", some(members));
            Change::of(Kind::Changed, format!("group {group}"), group, words)
        });
        orders.collect()
    }
}
