//! The properties of Spring files: nested or dotted names, in kebab-case, camelCase or snake_case, of one or several documents.
//!
//! ```text
//!   rateLimit: {default-limit: {capacity: 5}}
//!   rate_limit.defaultLimit.capacity: 5            all three are one property
//!   "rate-limit.default-limit[capacity]": 5
//! ```
//!
//! Every property remembers whether it was read, so that the others can be reported.

use std::cell::Cell;
use std::collections::HashMap;

use crate::config::Position;
use crate::yaml_node::YamlNode;

/// Deeper than any configuration; functions that walk the tree call themselves.
const DEPTH_MAX: usize = 64;

/// How far an index may be beyond the end of its list: `routes[3]` may come before `routes[0]`.
const GAP_MAX: usize = 8;

/// A property: a value, a list or a section.
#[derive(Debug)]
pub(super) struct SpringProperty {
    /// Its full name, as it is written: `spring.cloud.gateway.routes[0].id`.
    pub(super) name: String,
    pub(super) place: Option<Position>,
    value: SpringValue,
    is_read: Cell<bool>,
    /// The position of a value that this one replaced in the same document, until it is reported.
    pub(super) written_again: Cell<Option<Position>>,
}

#[derive(Debug)]
enum SpringValue {
    Null,
    Text(String),
    List(Vec<SpringProperty>),
    Section(SpringSection),
}

/// Properties by name. Names are compared by their letters.
#[derive(Debug, Default)]
struct SpringSection {
    entries: Vec<(String, SpringProperty)>,
    by_letters: HashMap<String, usize>,
}

impl SpringSection {
    fn get(&self, name: &str) -> Option<&SpringProperty> {
        let at = *self.by_letters.get(&letters(name))?;
        self.entries.get(at).map(|(_, property)| property)
    }

    /// The property of this name, or the one that the function makes.
    fn entry(&mut self, name: &str, new: impl FnOnce() -> SpringProperty) -> &mut SpringProperty {
        let at = *self.by_letters.entry(letters(name)).or_insert(self.entries.len());
        if at == self.entries.len() {
            self.entries.push((name.to_owned(), new()));
        }
        &mut self.entries[at].1
    }
}

/// A part of a dotted name.
#[derive(Debug, PartialEq)]
enum NamePart<'a> {
    Name(&'a str),
    Index(usize),
}

/// A document that is nested too deeply, at this position.
#[derive(Debug)]
pub(super) struct TooDeep(pub(super) Option<Position>);

impl SpringProperty {
    /// The root of no properties.
    pub(super) fn empty() -> Self {
        Self::new(String::new(), None, SpringValue::Null)
    }

    fn new(name: String, place: Option<Position>, value: SpringValue) -> Self {
        Self { name, place, value, is_read: Cell::new(false), written_again: Cell::new(None) }
    }

    /// The properties of a document.
    pub(super) fn of_document(document: &YamlNode) -> Result<Self, TooDeep> {
        let mut root = Self::empty();
        root.insert(&[], document, 0)?;
        Ok(root)
    }

    /// Inserts the value of a document's node under a dotted name.
    fn insert(&mut self, parts: &[NamePart<'_>], node: &YamlNode, depth: usize) -> Result<(), TooDeep> {
        if depth > DEPTH_MAX {
            return Err(TooDeep(node.place));
        }
        self.place = self.place.or(node.place);
        if let [part, rest @ ..] = parts {
            return self.child(part).insert(rest, node, depth + 1);
        }
        let earlier =
            self.place.filter(|_| matches!(self.value, SpringValue::Text(_)) && node.text().is_some());
        self.written_again.set(earlier);
        self.place = node.place;
        if let Some(text) = node.text() {
            self.value = SpringValue::Text(text.to_owned());
        }
        for (n, item) in node.items().iter().enumerate() {
            self.item(n).insert(&[], item, depth + 1)?;
        }
        for (name, node) in node.entries() {
            self.insert(&name_parts(name), node, depth + 1)?;
        }
        Ok(())
    }

    /// The property under a part of a name, created if it is new.
    fn child(&mut self, part: &NamePart<'_>) -> &mut Self {
        let n_items = self.items().len();
        match part {
            NamePart::Index(n) if *n <= n_items + GAP_MAX && self.entries().is_empty() => self.item(*n),
            NamePart::Index(n) => self.entry(&n.to_string()),
            NamePart::Name(name) => self.entry(name),
        }
    }

    fn item(&mut self, n: usize) -> &mut Self {
        if !matches!(self.value, SpringValue::List(_)) {
            self.value = SpringValue::List(Vec::new());
        }
        let SpringValue::List(items) = &mut self.value else { unreachable!("it was made a list") };
        while items.len() <= n {
            let name = format!("{}[{}]", self.name, items.len());
            items.push(Self::new(name, None, SpringValue::Null));
        }
        &mut items[n]
    }

    fn entry(&mut self, name: &str) -> &mut Self {
        if !matches!(self.value, SpringValue::Section(_)) {
            self.value = SpringValue::Section(SpringSection::default());
        }
        let full = if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) };
        let SpringValue::Section(section) = &mut self.value else { unreachable!("it was made a section") };
        section.entry(name, || Self::new(full, None, SpringValue::Null))
    }

    /// Merges a later document over this one: sections by their names; other values, lists too, are replaced.
    pub(super) fn merge(&mut self, other: Self) {
        match (&mut self.value, other.value) {
            (_, SpringValue::Null) => {}
            (SpringValue::Section(section), SpringValue::Section(others)) => {
                for (name, other) in others.entries {
                    let empty = || Self::new(other.name.clone(), other.place, SpringValue::Null);
                    section.entry(&name, empty).merge(other);
                }
            }
            (value, other_value) => {
                *value = other_value;
                self.place = other.place;
                self.written_again = other.written_again;
            }
        }
    }

    /// The property under a dotted name. Spellings do not matter.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        name.split('.').try_fold(self, |property, part| {
            let SpringValue::Section(section) = &property.value else { return None };
            section.get(part).filter(|property| !property.is_null())
        })
    }

    /// The first property that exists under one of these names.
    pub(super) fn first_of(&self, names: &[&str]) -> Option<&Self> {
        names.iter().find_map(|name| self.get(name))
    }

    /// The text of a value, which is read by that.
    pub(super) fn text(&self) -> Option<&str> {
        let SpringValue::Text(text) = &self.value else { return None };
        self.is_read.set(true);
        Some(text)
    }

    pub(super) fn items(&self) -> &[Self] {
        if let SpringValue::List(items) = &self.value { items } else { &[] }
    }

    pub(super) fn entries(&self) -> &[(String, Self)] {
        if let SpringValue::Section(section) = &self.value { &section.entries } else { &[] }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, SpringValue::Null)
    }

    /// Marks everything below it as read: another part of the program reports it.
    pub(super) fn set_read(&self) {
        self.unread().iter().for_each(|property| property.is_read.set(true));
    }

    /// The values below it that nothing has read.
    pub(super) fn unread(&self) -> Vec<&Self> {
        match &self.value {
            SpringValue::Null => Vec::new(),
            SpringValue::Text(_) if self.is_read.get() => Vec::new(),
            SpringValue::Text(_) => vec![self],
            SpringValue::List(items) => items.iter().flat_map(Self::unread).collect(),
            SpringValue::Section(section) => {
                section.entries.iter().flat_map(|(_, entry)| entry.unread()).collect()
            }
        }
    }
}

/// True if two names are one in Spring's relaxed binding: `refill-tokens`, `refillTokens`, `REFILL_TOKENS`.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one == other || letters(one) == letters(other)
}

/// What counts of a name in relaxed binding.
fn letters(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect()
}

/// The parts of a dotted name: `a.b[0].c`, and `a[b.c]` for a name with a dot. A name that is not built like that is one part.
fn name_parts(name: &str) -> Vec<NamePart<'_>> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        if let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            parts.push(inside.parse().map_or(NamePart::Name(inside), NamePart::Index));
            rest = after.strip_prefix('.').unwrap_or(after);
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        if part.is_empty() {
            break;
        }
        parts.push(NamePart::Name(part));
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    let is_whole = rest.is_empty() && !name.ends_with('.') && parts.len() < DEPTH_MAX;
    if is_whole && !parts.is_empty() { parts } else { vec![NamePart::Name(name)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> SpringProperty {
        let mut root = SpringProperty::empty();
        for document in crate::yaml_node::documents(text, 0).unwrap() {
            root.merge(SpringProperty::of_document(&document).unwrap());
        }
        root
    }

    #[test]
    fn spellings_and_nesting_do_not_matter() {
        for text in [
            "rateLimit: {default-limit: {capacity: 5}}",
            "rate_limit.defaultLimit.capacity: 5",
            "\"rate-limit.default-limit[capacity]\": 5",
            "RATE-LIMIT: {defaultLimit.capacity: 5}",
        ] {
            let root = tree(text);
            assert_eq!(root.get("rate-limit.default-limit.capacity").unwrap().text(), Some("5"), "{text}");
        }
        let root = tree("a.routes[1].id: y\na.routes[0].id: x\na:\n  routes[1].uri: z");
        let ids: Vec<_> = root.get("a.routes").unwrap().items().iter().map(|item| item.get("id")).collect();
        assert_eq!(ids.iter().map(|id| id.unwrap().text().unwrap()).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(
            root.unread().iter().map(|left| left.name.as_str()).collect::<Vec<_>>(),
            ["a.routes[1].uri"]
        );
    }

    #[test]
    fn a_later_document_overrides_values_and_replaces_lists() {
        let root = tree("a: {b: 1, c: 2, l: [1, 2]}\n---\na: {B: 3, l: [4]}\n");
        assert_eq!(root.get("a.b").unwrap().text(), Some("3"));
        assert_eq!(root.get("a.c").unwrap().text(), Some("2"));
        assert_eq!(root.get("a.l").unwrap().items().len(), 1);
    }

    #[test]
    fn odd_names_are_one_part() {
        for name in [".", "a.", ".a", "a..b", "[", "a[", "", "a[0"] {
            assert_eq!(name_parts(name), [NamePart::Name(name)], "{name}");
        }
        let many = "a.".repeat(100) + "b";
        assert_eq!(name_parts(&many).len(), 1);
        assert_eq!(tree("a[99999999999]: 1").unread().len(), 1);
    }
}
