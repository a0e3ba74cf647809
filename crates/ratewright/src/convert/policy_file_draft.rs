//! The policy file that a conversion writes: sections, settings and comments, rendered as YAML.
//!
//! Before it is printed, Ratewright's own reader checks it. So the printed file passes `ratewright check`, and an invalid value is
//! reported at its position in the file that was converted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::config::{Config, Position, SourceFile};

/// The sections in the order in which they are printed.
const SECTIONS: [&str; 9] =
    ["store", "clients", "exempt", "policies", "gateway", "routes", "api", "headers", "metrics"];

/// Comments are broken at this column.
const WIDTH: usize = 110;

/// A policy file that is being written.
#[derive(Default)]
pub(super) struct PolicyFileDraft {
    /// The comment at the top.
    pub(super) head: Vec<String>,
    /// The setting `enabled`, if it is not the default.
    pub(super) enabled: Option<String>,
    sections: BTreeMap<&'static str, DraftSection>,
    /// Variables without a default, and a value with which the file can be checked.
    pub(super) variables: BTreeMap<String, &'static str>,
}

/// A section: settings, or a list of items.
#[derive(Default)]
pub(super) struct DraftSection {
    pub(super) lines: Vec<DraftLine>,
    pub(super) items: Vec<DraftItem>,
}

/// An item of a list: a policy or a route.
pub(super) struct DraftItem {
    /// Its `name` or `id`.
    pub(super) name: String,
    /// The position of what it was converted from.
    pub(super) place: Option<Position>,
    pub(super) lines: Vec<DraftLine>,
}

/// A comment or a setting.
pub(super) enum DraftLine {
    Comment(String),
    /// A name, with a dot for a nested one (`redis.url`), and a value in YAML.
    Setting(String, String),
    /// A name, and a list of values in YAML, one on each line.
    List(String, Vec<String>),
}

impl PolicyFileDraft {
    /// A section, created if it is new.
    pub(super) fn section(&mut self, name: &'static str) -> &mut DraftSection {
        self.sections.entry(name).or_default()
    }

    /// True if it has neither settings nor items.
    pub(super) fn is_empty(&self) -> bool {
        let is_empty = |section: &DraftSection| section.items.is_empty() && !section.has_settings();
        self.enabled.is_none() && self.sections.values().all(is_empty)
    }

    /// True if a section has items.
    pub(super) fn has_items(&self, name: &str) -> bool {
        self.sections.get(name).is_some_and(|section| !section.items.is_empty())
    }

    /// True if a section has settings.
    pub(super) fn has_settings(&self, name: &str) -> bool {
        self.sections.get(name).is_some_and(DraftSection::has_settings)
    }

    /// The policy file.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        self.head.iter().for_each(|line| comment(&mut text, 0, line));
        if let Some(enabled) = &self.enabled {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\nenabled: {enabled}");
        }
        for name in SECTIONS {
            if let Some(section) = self.sections.get(name) {
                section.render(name, &mut text);
            }
        }
        text
    }

    /// What is wrong with it, with the positions of what it was converted from.
    pub(super) fn problems(&self) -> Vec<(Option<Position>, String)> {
        let whole = self.errors_in(self.render());
        if whole.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (list, id) in [("policies", "name"), ("routes", "id")] {
            for item in self.sections.get(list).map(|section| section.items.as_slice()).unwrap_or_default() {
                let mut text = String::new();
                for name in ["clients", "exempt"] {
                    if let Some(section) = self.sections.get(name) {
                        section.render(name, &mut text);
                    }
                }
                let _ = writeln!(text, "{list}:");
                item.render(id, &mut text, |setting| setting != "policies");
                found.extend(self.errors_in(text).into_iter().map(|problem| (item.place, problem)));
            }
        }
        if found.is_empty() { whole.into_iter().map(|problem| (None, problem)).collect() } else { found }
    }

    fn errors_in(&self, text: String) -> Vec<String> {
        let file = SourceFile { path: "policy file".into(), text, is_profile: false };
        let variable = |name: &str| self.variables.get(name).map(|value| (*value).to_owned());
        let checked = Config::of_elsewhere(vec![file], &variable);
        checked.err().iter().flatten().map(|error| error.problem().to_owned()).collect()
    }
}

impl DraftSection {
    /// Adds a comment.
    pub(super) fn comment(&mut self, text: impl Into<String>) {
        self.lines.push(DraftLine::Comment(text.into()));
    }

    /// Adds a setting; its value is YAML.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.lines.push(DraftLine::Setting(name.to_owned(), value.into()));
    }

    /// True if it has this setting.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.lines.iter().any(|line| matches!(line, DraftLine::Setting(known, _) if known == name))
    }

    fn has_settings(&self) -> bool {
        self.lines.iter().any(|line| !matches!(line, DraftLine::Comment(_)))
    }

    fn render(&self, name: &str, text: &mut String) {
        if self.lines.is_empty() && self.items.is_empty() {
            return;
        }
        text.push('\n');
        if !self.has_settings() && self.items.is_empty() {
            // Only comments: an empty section would mean something else.
            render_lines(&self.lines, 0, text, |_| true);
            return;
        }
        let _ = writeln!(text, "{name}:");
        render_lines(&self.lines, 2, text, |_| true);
        let id = if name == "routes" { "id" } else { "name" };
        for (n, item) in self.items.iter().enumerate() {
            if n > 0 || !self.lines.is_empty() {
                text.push('\n');
            }
            item.render(id, text, |_| true);
        }
    }
}

impl DraftItem {
    pub(super) fn new(name: String, place: Option<Position>) -> Self {
        Self { name, place, lines: Vec::new() }
    }

    /// Adds a comment.
    pub(super) fn comment(&mut self, text: impl Into<String>) {
        self.lines.push(DraftLine::Comment(text.into()));
    }

    /// Adds a setting; its value is YAML.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.lines.push(DraftLine::Setting(name.to_owned(), value.into()));
    }

    /// True if it has this setting.
    pub(super) fn sets(&self, name: &str) -> bool {
        self.lines.iter().any(|line| matches!(line, DraftLine::Setting(known, _) if known == name))
    }

    /// Adds a list with one value, or with several on lines of their own.
    pub(super) fn set_all(&mut self, name: &str, mut values: Vec<String>) {
        match values.len() {
            1 => self.set(name, values.remove(0)),
            _ => self.lines.push(DraftLine::List(name.to_owned(), values)),
        }
    }

    fn render(&self, id: &str, text: &mut String, is_shown: impl Fn(&str) -> bool) {
        let _ = writeln!(text, "  - {id}: {}", quoted(&self.name));
        render_lines(&self.lines, 4, text, is_shown);
    }
}

fn render_lines(lines: &[DraftLine], indent: usize, text: &mut String, is_shown: impl Fn(&str) -> bool) {
    let margin = " ".repeat(indent);
    let mut group = "";
    for line in lines {
        match line {
            DraftLine::Comment(words) => comment(text, indent, words),
            DraftLine::Setting(name, value) => match name.split_once('.') {
                Some((outer, name)) => {
                    if group != outer {
                        let _ = writeln!(text, "{margin}{outer}:");
                    }
                    group = outer;
                    let _ = writeln!(text, "{margin}  {name}: {value}");
                    continue;
                }
                None if is_shown(name) => {
                    let _ = writeln!(text, "{margin}{name}: {value}");
                }
                None => {}
            },
            DraftLine::List(name, values) => {
                let _ = writeln!(text, "{margin}{name}:");
                for value in values {
                    let _ = writeln!(text, "{margin}  - {value}");
                }
            }
        }
        if !matches!(line, DraftLine::Comment(_)) {
            group = "";
        }
    }
}

/// Writes a comment, in lines of limited width.
fn comment(text: &mut String, indent: usize, words: &str) {
    let margin = " ".repeat(indent);
    let words = ratewright_telemetry::escape_hidden(words);
    let mut line = String::new();
    for word in words.split(' ') {
        if !line.is_empty() && indent + 3 + line.chars().count() + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{margin}# {}", line.trim_end());
            line.clear();
        }
        line.push_str(word);
        line.push(' ');
    }
    let _ = writeln!(text, "{}", format!("{margin}# {}", line.trim_end()).trim_end());
}

/// A text as a YAML scalar, with quotes if it needs them.
pub(super) fn quoted(text: &str) -> String {
    const WORDS: [&str; 7] = ["null", "true", "false", "yes", "no", "on", "off"];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-*:".contains(c);
    let begins_plain = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    let is_word = WORDS.iter().any(|word| word.eq_ignore_ascii_case(text));
    if begins_plain && text.chars().all(is_plain) && !text.ends_with(':') && !is_word {
        return text.to_owned();
    }
    // JSON is YAML; it quotes what needs quotes.
    serde_json::Value::from(text).to_string()
}

/// Texts as a YAML list, or as a scalar if there is one.
pub(super) fn quoted_list<S: AsRef<str>>(texts: &[S]) -> String {
    let texts: Vec<_> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn settings_are_nested_and_quoted() {
        let mut draft = PolicyFileDraft { head: vec!["Head".to_owned()], ..PolicyFileDraft::default() };
        let store = draft.section("store");
        store.comment("a comment");
        store.set("redis.url", quoted("redis://${HOST:-localhost}:6379"));
        store.set("redis.prefix", quoted("ratelimit"));
        store.set("on_failure", "open");
        let mut item = DraftItem::new("off".to_owned(), None);
        item.set("when", format!("{{ path: {} }}", quoted_list(&["**/a", "/b/**"])));
        item.set_all("quota", vec!["{ rate: 1/s }".to_owned(), "{ name: b, rate: 1/h }".to_owned()]);
        draft.section("policies").items.push(item);
        draft.section("metrics").comment("nothing here");
        expect![[r#"
            # Head

            store:
              # a comment
              redis:
                url: "redis://${HOST:-localhost}:6379"
                prefix: ratelimit
              on_failure: open

            policies:
              - name: "off"
                when: { path: ["**/a", /b/**] }
                quota:
                  - { rate: 1/s }
                  - { name: b, rate: 1/h }

            # nothing here
        "#]]
        .assert_eq(&draft.render());
        assert_eq!(draft.problems(), []);
    }

    #[test]
    fn an_invalid_item_is_reported_at_its_position() {
        let mut draft = PolicyFileDraft::default();
        let place = Some(Position { file: 0, line: 7, column: 1 });
        let mut item = DraftItem::new("a".to_owned(), place);
        item.set("quota", "{ rate: soon }");
        draft.section("policies").items.push(item);
        let problems = draft.problems();
        assert!(matches!(problems.as_slice(), [(found, _)] if *found == place), "{problems:?}");
    }
}
