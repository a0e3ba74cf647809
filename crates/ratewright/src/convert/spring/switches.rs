//! Switches: `enabled` of sections, and true or false in a variable.
//!
//! A policy file has one switch for all limits, and a `mode` for each policy. `mode` takes no true or false, so a variable can
//! switch all sections together, but not one of several.

use std::ops::Range;

use super::properties::SpringProperty;
use super::reader::SpringReader;
use crate::convert::policy_file_draft::quoted;

/// Whether a section's limits apply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SectionSwitch {
    On,
    Off,
    /// A variable decides; this is how a policy file writes it.
    Variable(String),
}

/// A converted section, and the policies made of it.
pub(super) struct SwitchedSection<'a> {
    enabled: Option<&'a SpringProperty>,
    switch: SectionSwitch,
    policies: Range<usize>,
}

impl SwitchedSection<'_> {
    /// True if the section says whether it is on.
    pub(super) fn is_explicit(&self) -> bool {
        self.enabled.is_some()
    }

    pub(super) fn has_policies(&self) -> bool {
        !self.policies.is_empty()
    }
}

impl<'a> SpringReader<'a> {
    /// Remembers a section that has been converted, with the policies from this index on.
    pub(super) fn add_switch(&mut self, enabled: Option<&'a SpringProperty>, first_policy: usize) {
        let text = enabled.and_then(|enabled| self.text(enabled, "true"));
        let switch = match (enabled, text) {
            (Some(_), Some(text)) if text.has_variables() => SectionSwitch::Variable(text.written),
            (Some(enabled), _) if self.is_true(enabled) == Some(false) => SectionSwitch::Off,
            _ => SectionSwitch::On,
        };
        let policies = first_policy..self.n_policies();
        self.switched.push(SwitchedSection { enabled, switch, policies });
    }

    pub(super) fn n_policies(&mut self) -> usize {
        self.draft.section("policies").items.len()
    }

    /// Switches limits off: all of them if no section is on, otherwise the policies of the sections that are off.
    pub(super) fn apply_switches(&mut self) {
        let sections = std::mem::take(&mut self.switched);
        let is_counted = |section: &SwitchedSection<'_>| section.is_explicit() || section.has_policies();
        let sections: Vec<_> = sections.into_iter().filter(is_counted).collect();
        let Some(first) = sections.first() else { return };
        if sections.iter().all(|section| section.switch == first.switch) {
            self.draft.enabled = match &first.switch {
                SectionSwitch::On => None,
                SectionSwitch::Off => Some("false".to_owned()),
                SectionSwitch::Variable(text) => Some(quoted(text)),
            };
            return;
        }
        for SwitchedSection { enabled, switch, policies } in sections {
            let comment = match switch {
                SectionSwitch::On => continue,
                SectionSwitch::Off => None,
                SectionSwitch::Variable(_) => {
                    let advice =
                        "other limits do not depend on this variable, so it has no effect here; assumed true";
                    enabled.into_iter().for_each(|enabled| self.warn(enabled, advice));
                    Some(
                        "assumed: enabled; the variable of its section has no effect. To switch it off: mode: off",
                    )
                }
            };
            let items = self.draft.section("policies").items.get_mut(policies).unwrap_or_default();
            for policy in items {
                match comment {
                    Some(comment) => policy.comment(comment),
                    None if policy.sets("mode") => {}
                    None => policy.set("mode", "off"),
                }
            }
        }
    }

    /// A switch of a limit. A policy file has no variable for it, so that one with a variable is as strict as possible.
    pub(super) fn switch(&mut self, property: &SpringProperty, stricter: bool) -> Option<bool> {
        let text = self.text(property, "true")?;
        if text.has_variables() {
            self.assume(property, &format!("{stricter}; a policy file has no variable for it"));
            return Some(stricter);
        }
        self.is_true(property)
    }

    /// True or false. A variable counts as its default, which is reported.
    pub(super) fn is_true(&mut self, property: &SpringProperty) -> Option<bool> {
        let text = self.text(property, "true")?;
        let is_true = match text.value.as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "yes" | "on" | "1") => true,
            Some("false" | "no" | "off" | "0") => false,
            Some(_) => {
                self.error(property, "this is neither true nor false; write one of them");
                return None;
            }
            None => {
                self.error(property, "a policy file has no variable for this; write true or false");
                return None;
            }
        };
        if text.has_variables() {
            self.assume(property, &format!("{is_true}; a policy file has no variable for it"));
        }
        Some(is_true)
    }

    /// The value of a text for which a policy file has no variable: its default, which is reported.
    pub(super) fn fixed(&mut self, property: &SpringProperty, stand_in: &'static str) -> Option<String> {
        let text = self.text(property, stand_in)?;
        if text.has_variables() {
            let default = text.value.as_deref().unwrap_or("no value");
            self.assume(property, &format!("{default:?}; a policy file has no variable for it"));
        }
        text.value
    }

    /// Reports what was assumed. The comment goes to the next policy, route or section that takes it.
    pub(super) fn assume(&mut self, property: &SpringProperty, assumption: &str) {
        self.warn(property, &format!("assumed {assumption}"));
        let line = property.place.map(|place| format!(" (line {})", place.line)).unwrap_or_default();
        self.pending.push(format!("assumed: {}{line} is {assumption}", property.name));
    }

    /// The comments on what was assumed since the last call.
    pub(super) fn assumed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pending)
    }
}
