//! Requests that are never limited. A policy file has one list of them, for all limits.

use super::properties::SpringProperty;
use super::reader::SpringReader;
use crate::convert::policy_file_draft::quoted;

/// The exemptions of all sections.
#[derive(Default)]
pub(super) struct Exemptions<'a> {
    /// One of the properties that name them.
    pub(super) property: Option<&'a SpringProperty>,
    pub(super) paths: Vec<String>,
    pub(super) methods: Vec<String>,
    pub(super) clients: Vec<String>,
}

impl Exemptions<'_> {
    /// Adds the exemptions of another section.
    pub(super) fn merge(&mut self, other: Self) {
        self.property = self.property.or(other.property);
        for (known, others) in [
            (&mut self.paths, other.paths),
            (&mut self.methods, other.methods),
            (&mut self.clients, other.clients),
        ] {
            let new: Vec<_> = others.into_iter().filter(|text| !known.contains(text)).collect();
            known.extend(new);
        }
    }
}

impl SpringReader<'_> {
    /// Writes the section `exempt`. Without paths and methods in it, /health and others would be exempt.
    ///
    /// `is_known`: the file has limits of which Spring exempts nothing by itself.
    pub(super) fn write_exemptions(&mut self, is_known: bool) {
        let exempted = self.exempted.take();
        let n_sections = self.switched.iter().filter(|section| section.has_policies()).count();
        if exempted.is_none() && !is_known {
            return;
        }
        let Exemptions { property, paths, methods, clients } = exempted.unwrap_or_default();
        if let Some(property) = property.filter(|_| n_sections > 1) {
            let assumption = "exempt from all limits, also from those of other sections";
            self.assume(property, assumption);
        }
        let comments = self.assumed();
        let exempt = self.draft.section("exempt");
        comments.into_iter().for_each(|comment| exempt.comment(comment));
        if is_known && property.is_none() {
            exempt.comment(
                "Spring limits every request. Without this section, /health, /static/** and others would be exempt.",
            );
        }
        let list = |texts: &[String]| {
            format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
        };
        exempt.set("paths", list(&paths));
        exempt.set("methods", list(&methods));
        if !clients.is_empty() {
            exempt.set("clients", list(&clients));
        }
    }
}
