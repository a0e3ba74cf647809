//! Reads the values of Spring's properties: texts, numbers, durations and switches, and reports those that are invalid.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ratewright_core::Micros;
use ratewright_core::quota::{Algorithm, Rate};

use super::durations::{as_written, duration_of, duration_text, unit_of_name};
use super::exemptions::Exemptions;
use super::placeholders::{SpringText, converted, list_items};
use super::properties::SpringProperty;
use super::switches::SwitchedSection;
use crate::config::{ConfigError, SourceFile};
use crate::convert::policy_file_draft::PolicyFileDraft;

/// The placeholders in all values together. Properties may refer to each other, so that few bytes expand to many.
const EXPANSIONS_MAX: usize = 100_000;

/// What a variable without a default stands for, to check the file.
pub(super) const A_NUMBER: &str = "1";
pub(super) const A_DURATION: &str = "1s";
pub(super) const A_NAME: &str = "stand-in";
pub(super) const A_URL: &str = "http://stand-in.invalid:1";

/// The problem of a number such as 010.
const OCTAL: &str = "a number with a leading zero is ambiguous: Spring reads 010 as 8, other programs read 10. Write it without the zero";

/// The properties, the policy file that is made of them, and what there is to report.
pub(super) struct SpringReader<'a> {
    pub(super) root: &'a SpringProperty,
    pub(super) draft: PolicyFileDraft,
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<ConfigError>,
    pub(super) notes: Vec<String>,
    /// Comments on what was assumed, for the next policy.
    pub(super) pending: Vec<String>,
    /// Requests that are never limited, if the file names them.
    pub(super) exempted: Option<Exemptions<'a>>,
    /// The sections that were converted.
    pub(super) switched: Vec<SwitchedSection<'a>>,
    files: &'a [SourceFile],
    /// Names, and how often each was used.
    names: BTreeMap<String, usize>,
    expansions_left: Cell<usize>,
}

/// A whole number as a policy file writes it, and its value if it has no unknown variable.
#[derive(Clone, Debug)]
pub(super) struct DraftNumber {
    pub(super) text: String,
    pub(super) value: Option<u32>,
}

/// A duration as a policy file writes it, and its value if it has no unknown variable.
#[derive(Clone, Debug)]
pub(super) struct DraftDuration {
    pub(super) text: String,
    pub(super) value: Option<Micros>,
}

impl<'a> SpringReader<'a> {
    pub(super) fn new(root: &'a SpringProperty, files: &'a [SourceFile]) -> Self {
        Self {
            root,
            draft: PolicyFileDraft::default(),
            errors: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
            pending: Vec::new(),
            exempted: None,
            switched: Vec::new(),
            files,
            names: BTreeMap::new(),
            expansions_left: Cell::new(EXPANSIONS_MAX),
        }
    }

    /// Reports an invalid value. Its line is shown if it contains nothing else: other values may be secrets.
    pub(super) fn error(&mut self, property: &SpringProperty, problem: &str) {
        let line = property.place.and_then(|place| {
            let file = self.files.get(place.file)?;
            file.text.lines().nth(usize::try_from(place.line).ok()?.checked_sub(1)?)
        });
        let is_alone = line.is_some_and(|line| !line.contains(['{', ',']) && line.matches(':').count() == 1);
        let is_alone = is_alone && property.entries().is_empty();
        self.errors.push(self.located(property, problem, !is_alone));
    }

    /// Reports a property that needs a look. Its line is not shown: it may contain a secret.
    pub(super) fn warn(&mut self, property: &SpringProperty, problem: &str) {
        self.warnings.push(self.located(property, problem, true));
    }

    fn located(&self, property: &SpringProperty, problem: &str, is_secret: bool) -> ConfigError {
        let problem = ratewright_telemetry::escape_hidden(&format!("{}: {problem}", property.name));
        ConfigError::at(self.files, property.place, problem, is_secret)
    }

    /// Reports a property that has no equivalent, and returns the comment for the policy file.
    pub(super) fn not_converted(&mut self, property: &SpringProperty, advice: &str) -> String {
        self.warn(property, &format!("not converted; {advice}"));
        property.set_read();
        let line = property.place.map(|place| format!(" (line {})", place.line)).unwrap_or_default();
        format!("not converted: {}{line}; {advice}", property.name)
    }

    /// Reports all properties below this one that nothing has read, and returns the comments.
    pub(super) fn leftovers(&mut self, property: &SpringProperty, advice: &str) -> Vec<String> {
        property.unread().into_iter().map(|left| self.not_converted(left, advice)).collect()
    }

    /// The text of a property, with its placeholders converted. `stand_in` is what variables without a default stand for.
    pub(super) fn text(&mut self, property: &SpringProperty, stand_in: &'static str) -> Option<SpringText> {
        let text = property.text()?.trim();
        if let Some(other) = property.written_again.take() {
            let line = property.place.map_or(0, |place| place.line);
            let problem = format!(
                "written twice, in lines {} and {line}; spellings do not matter. Keep one",
                other.line
            );
            self.error(property, &problem);
        }
        let text = self.converted(text);
        for name in &text.required {
            self.draft.variables.insert(name.clone(), stand_in);
        }
        if !text.dropped.is_empty() {
            let names = text.dropped.join(", ");
            self.warn(property, &format!("a policy file cannot nest variables; it does not read {names}"));
        }
        Some(text)
    }

    /// Converts the placeholders of a text.
    pub(super) fn converted(&mut self, text: &str) -> SpringText {
        let text = converted(self.root, text, &self.expansions_left);
        if self.expansions_left.get() == 0 && self.errors.is_empty() {
            let problem =
                format!("more than {EXPANSIONS_MAX} placeholders; do properties refer to each other?");
            self.errors.push(ConfigError::at(self.files, None, problem, true));
        }
        text
    }

    /// The texts of a list, or of a text with commas.
    pub(super) fn texts(&mut self, property: &SpringProperty, stand_in: &'static str) -> Vec<SpringText> {
        let mut texts = Vec::new();
        for item in property.items() {
            texts.extend(self.text(item, stand_in));
        }
        let Some(text) = property.text() else { return texts };
        for part in list_items(text) {
            let text = self.converted(part);
            text.required.iter().for_each(|name| _ = self.draft.variables.insert(name.clone(), stand_in));
            texts.push(text);
        }
        texts
    }

    /// A whole number. One that is too large for Ratewright is lowered, never raised.
    pub(super) fn number(&mut self, property: &SpringProperty) -> Option<DraftNumber> {
        let Some(text) = self.text(property, A_NUMBER) else {
            self.error(property, "a whole number is expected here");
            return None;
        };
        let Some(value) = &text.value else {
            return Some(DraftNumber { text: text.written, value: None });
        };
        if self.is_octal(property) {
            self.error(property, OCTAL);
            return None;
        }
        let digits = value.replace('_', "");
        let is_whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_whole {
            self.error(
                property,
                &format!("{value:?} is not a whole number from 0 up; write one, such as 10"),
            );
            return None;
        }
        if let Ok(number) = digits.parse() {
            let written = if text.has_variables() { text.written } else { digits };
            return Some(DraftNumber { text: written, value: Some(number) });
        }
        self.warn(property, &format!("the largest number is {}; it is used instead", u32::MAX));
        Some(DraftNumber::known(u32::MAX))
    }

    /// True if a number is written with a zero before it, without quotes.
    fn is_octal(&self, property: &SpringProperty) -> bool {
        let written = property.place.and_then(|place| {
            let line = self
                .files
                .get(place.file)?
                .text
                .lines()
                .nth(usize::try_from(place.line).ok()?.checked_sub(1)?)?;
            let column = usize::try_from(place.column).ok()?.checked_sub(1)?;
            Some(
                line.chars()
                    .skip(column)
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect::<String>(),
            )
        });
        let is_digit = |b: u8| b.is_ascii_digit() || b == b'_';
        written
            .is_some_and(|digits| digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(is_digit))
    }

    /// A number from 1 up.
    pub(super) fn positive(&mut self, property: &SpringProperty) -> Option<DraftNumber> {
        let number = self.number(property)?;
        if number.value == Some(0) {
            self.error(property, "0 would deny everything or refill nothing; use at least 1");
            return None;
        }
        Some(number)
    }

    /// A duration as Spring writes it: `6s`, `1m`, `PT1M30S`; or a number, in the unit that the property's name ends with.
    pub(super) fn duration(&mut self, property: &SpringProperty) -> Option<DraftDuration> {
        self.duration_in(property, unit_of_name(&property.name))
    }

    /// A duration, of which a number has this unit.
    pub(super) fn duration_in(
        &mut self,
        property: &SpringProperty,
        unit: Option<&str>,
    ) -> Option<DraftDuration> {
        let Some(text) = self.text(property, A_DURATION) else {
            self.error(property, "a duration is expected here, such as 6s");
            return None;
        };
        let Some(value) = &text.value else {
            let written = text.written + unit.unwrap_or_default();
            if unit.is_some() {
                text.required.iter().for_each(|name| _ = self.draft.variables.insert(name.clone(), A_NUMBER));
            }
            return Some(DraftDuration { text: written, value: None });
        };
        if self.is_octal(property) {
            self.error(property, OCTAL);
            return None;
        }
        let is_bare = value.bytes().all(|b| b.is_ascii_digit());
        if is_bare && unit.is_none() {
            let advice = "it has no unit, and is read as seconds; Spring reads a Duration in milliseconds. Write 6s or 6ms";
            self.warn(property, advice);
        }
        let unit = unit.unwrap_or("s");
        let parsed = duration_of(&if is_bare { format!("{value}{unit}") } else { value.clone() });
        let Some(micros) = parsed.filter(|micros| !micros.is_zero() && *micros <= Rate::WINDOW_MAX) else {
            self.error(
                property,
                &format!("{value:?} is not a duration of up to 100 years; write for example 6s or 1m"),
            );
            return None;
        };
        let written = match (text.has_variables(), is_bare) {
            (false, true) => format!("{value}{unit}"),
            (false, false) => as_written(value).unwrap_or_else(|| duration_text(micros)),
            (true, true) => text.written + unit,
            (true, false) => text.written,
        };
        Some(DraftDuration { text: written, value: Some(micros) })
    }

    /// A name for a policy or route that no other has: letters, digits and `._-`.
    pub(super) fn unique_name(&mut self, name: &str, kind: &str) -> String {
        const LENGTH_MAX: usize = 56;
        let letter = |c: char| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) { c.to_ascii_lowercase() } else { '-' }
        };
        let mut base: String = name.chars().take(LENGTH_MAX).map(letter).collect();
        if base.is_empty() || Algorithm::NAMES.contains(&base.as_str()) {
            base.push_str("-limit");
        }
        let mut name = base.clone();
        loop {
            if let Entry::Vacant(free) = self.names.entry(format!("{kind}/{name}")) {
                free.insert(1);
                return name;
            }
            // Counted, not tried one by one: a file may have thousands of limits without a name.
            let n = self.names.entry(format!("{kind}/{base}")).or_insert(1);
            *n += 1;
            name = format!("{base}-{n}");
        }
    }
}

impl DraftNumber {
    pub(super) fn known(value: u32) -> Self {
        Self { text: value.to_string(), value: Some(value) }
    }
}

impl DraftDuration {
    pub(super) fn known(value: Micros) -> Self {
        Self { text: duration_text(value), value: Some(value) }
    }

    pub(super) fn seconds(seconds: u64) -> Self {
        Self::known(Micros::from_secs(seconds))
    }
}
