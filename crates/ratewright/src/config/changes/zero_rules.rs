//! Rules for Envoy with a limit of zero. They deny everything and count nothing, so they have no policies; a change from or to
//! a limit of zero is a change all the same.

use ratewright_core::policy::Mode;

use super::policies::{Side, subject, switched};
use super::{Change, Compared, Effect, Kind};

/// A rule whose limit has become zero.
pub(super) fn blocked(name: &str, before: &Side<'_>, mode: Mode) -> Change {
    let effect = match (before.mode(), mode) {
        (_, Mode::Enforce) => Effect::Stricter,
        (Mode::Enforce, Mode::Shadow) => Effect::Softer,
        (Mode::Shadow | Mode::Off, Mode::Shadow) | (_, Mode::Off) => Effect::Other,
    };
    let words = format!("{}denies everything{} instead of {}", how(effect), shadow(mode), before.limits());
    Change::of(Kind::Changed, subject(name), name, words).with(effect)
}

/// A rule whose limit is no longer zero.
pub(super) fn unblocked(name: &str, mode: Mode, after: &Side<'_>) -> Change {
    let effect = match (mode, after.mode()) {
        (Mode::Enforce, _) => Effect::Softer,
        (Mode::Shadow, Mode::Enforce) => Effect::Stricter,
        (Mode::Shadow, Mode::Shadow | Mode::Off) | (Mode::Off, _) => Effect::Other,
    };
    let words = format!("{}{} instead of denying everything{}", how(effect), after.limits(), shadow(mode));
    Change::of(Kind::Changed, subject(name), name, words).with(effect)
}

fn how(effect: Effect) -> &'static str {
    match effect {
        Effect::Softer => "softer: ",
        Effect::Stricter => "stricter: ",
        Effect::Other => "",
    }
}

fn shadow(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce | Mode::Off => "",
        Mode::Shadow => " in shadow",
    }
}

impl Compared<'_> {
    /// Rules with a limit of zero that come, go, or change their mode.
    pub(super) fn zero_rules(&self) -> Vec<Change> {
        let (old, new) = (self.old, self.new);
        let is_switched = old.is_enabled != new.is_enabled; // then all are off on one side, and that is reported
        let mut changes = Vec::new();
        for (name, mode) in &new.blocked {
            let of = |words: String| Change::of(Kind::Changed, subject(name), name, words);
            match old.blocked.get(name) {
                Some(before) if before != mode && !is_switched => changes.push(switched(&of, *before, *mode)),
                Some(_) => {}
                None if old.positions.contains_key(name) => {} // the limit was another
                None => {
                    let effect = if *mode == Mode::Enforce { Effect::Stricter } else { Effect::Other };
                    let words = format!("added{}: denies everything", shadow(*mode));
                    changes.push(Change::of(Kind::Added, subject(name), name, words).with(effect));
                }
            }
        }
        let is_gone = |name: &String| !new.blocked.contains_key(name) && !new.positions.contains_key(name);
        for (name, mode) in old.blocked.iter().filter(|(name, _)| is_gone(name)) {
            let (words, effect) = match mode {
                Mode::Enforce => ("removed; it no longer denies everything", Effect::Softer),
                Mode::Shadow | Mode::Off => ("removed; it denied nobody", Effect::Other),
            };
            changes.push(Change::of(Kind::Removed, subject(name), name, words.to_owned()).with(effect));
        }
        changes
    }
}
