//! Policies that come and go. In a group the first policy that matches counts, so others begin or cease to apply with it.

use std::collections::BTreeSet;

use ratewright_core::{Mode, Policy};

use super::super::words;
use super::policies::{Side, covered, subject};
use super::{Change, Compared, Contents, Effect, Kind};

impl Contents {
    /// The policies that come after a policy in its group.
    fn after_in_group(&self, side: &Side<'_>) -> Vec<&str> {
        let is_member = |policy: &&Policy| {
            let is_permit = || self.side(policy.name()).map(|other| other.is_permit);
            side.policy.group().is_some()
                && policy.group() == side.policy.group()
                && is_permit() == Some(side.is_permit)
        };
        let members = self.policies.iter().filter(is_member).map(Policy::name);
        members.skip_while(|name| *name != side.policy.name()).skip(1).collect()
    }
}

impl Compared<'_> {
    pub(super) fn added(&self, name: &str, side: &Side<'_>) -> Change {
        let partition = words::partition(side.policy.partition());
        let mode = match side.mode() {
            Mode::Enforce => "",
            Mode::Shadow => " in shadow",
            Mode::Off => " switched off",
        };
        let mut words = format!("added{mode}: {}, {partition}, on {}", side.limits(), covered(side.policy));
        let mut effect = if side.mode() == Mode::Enforce { Effect::Stricter } else { Effect::Other };
        let later = self.new.after_in_group(side);
        if let (Some(group), false) = (side.policy.group(), later.is_empty()) {
            words.push_str(&format!("; it comes before {} in group {group}", later.join(", ")));
            words.push_str(if later.len() == 1 {
                ", which no longer applies to these requests"
            } else {
                ", which no longer apply to these requests"
            });
            effect = Effect::Other;
        }
        Change::of(Kind::Added, subject(name), name, words).with(effect)
    }

    pub(super) fn removed(&self, name: &str, side: &Side<'_>) -> Change {
        let (words, mut effect) = match side.mode() {
            Mode::Enforce => ("removed; it no longer limits anybody", Effect::Softer),
            Mode::Shadow => ("removed; it was in shadow and denied nobody", Effect::Other),
            Mode::Off => ("removed; it was switched off", Effect::Other),
        };
        let mut words = words.to_owned();
        let stays = |name: &&str| {
            let group = self.new.side(name).and_then(|other| other.policy.group());
            group == side.policy.group()
        };
        let later: Vec<_> = self.old.after_in_group(side).into_iter().filter(stays).collect();
        if let (Some(group), false) = (side.policy.group(), later.is_empty()) {
            let apply = if later.len() == 1 { "now applies" } else { "now apply" };
            words.push_str(&format!("; {} of group {group} {apply} to its requests", later.join(", ")));
            effect = Effect::Other;
        }
        Change::of(Kind::Removed, subject(name), name, words).with(effect)
    }

    /// Of a group the first that matches counts, so its order does too.
    pub(super) fn group_orders(&self) -> Vec<Change> {
        let members = |contents: &Contents, group: &str| -> Vec<String> {
            let members = contents.policies.iter().filter(|policy| policy.group() == Some(group));
            members.map(|policy| policy.name().to_owned()).collect()
        };
        let groups: BTreeSet<_> = self.new.policies.iter().filter_map(Policy::group).collect();
        let mut changes = Vec::new();
        for group in groups {
            let (old, new) = (members(self.old, group), members(self.new, group));
            let both = |some: &[String], others: &[String]| -> Vec<String> {
                some.iter().filter(|name| others.contains(name)).cloned().collect()
            };
            if both(&old, &new) != both(&new, &old) {
                let words = format!("tries its policies in another order: {}", new.join(", "));
                changes.push(Change::of(Kind::Changed, format!("group {group}"), group, words));
            }
        }
        changes
    }
}
