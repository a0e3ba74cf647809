//! Placeholders in Spring's values: `${REDIS_HOST:localhost}` becomes `${REDIS_HOST:-localhost}`.
//!
//! A placeholder that names another property of the file is replaced by its value. Any other names a variable of the environment,
//! as Spring would look it up: `${app.rate-limit}` is the variable APP_RATELIMIT.

use std::cell::Cell;

use super::properties::SpringProperty;

/// Placeholders in placeholders, and properties that refer to each other.
const DEPTH_MAX: usize = 8;

/// The longest text with all placeholders replaced: properties may double each other.
const LENGTH_MAX: usize = 64 * 1024;

/// A text after its placeholders are converted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SpringText {
    /// As a policy file writes it.
    pub(super) written: String,
    /// With the defaults of all variables. None if one has no default.
    pub(super) value: Option<String>,
    /// Variables without a default.
    pub(super) required: Vec<String>,
    /// Variables that a policy file cannot name, because they are in the default of another.
    pub(super) dropped: Vec<String>,
}

impl SpringText {
    fn literal(text: &str) -> Self {
        Self { written: text.to_owned(), value: Some(text.to_owned()), ..Self::default() }
    }

    /// True if it has a variable.
    pub(super) fn has_variables(&self) -> bool {
        self.value.as_ref() != Some(&self.written)
    }

    fn push(&mut self, other: Self) {
        self.written.push_str(&other.written);
        self.value = self.value.take().zip(other.value).map(|(text, more)| text + &more);
        self.required.extend(other.required);
        self.dropped.extend(other.dropped);
    }
}

/// Converts the placeholders of a text.
///
/// `left`: how many more placeholders may be replaced. Those that expand to nothing count too.
pub(super) fn converted(root: &SpringProperty, text: &str, left: &Cell<usize>) -> SpringText {
    within(root, text, 0, left)
}

fn within(root: &SpringProperty, text: &str, depth: usize, left: &Cell<usize>) -> SpringText {
    let mut converted = SpringText::literal("");
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let is_allowed = converted.written.len() < LENGTH_MAX && left.get() > 0;
        let Some((inside, after)) = closed(after).filter(|_| is_allowed) else {
            break;
        };
        left.set(left.get() - 1);
        converted.push(SpringText::literal(before));
        converted.push(placeholder(root, inside, depth, left));
        rest = after;
    }
    converted.push(SpringText::literal(rest));
    converted
}

/// What is within the braces, and what comes after them.
fn closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((text.get(..at)?, text.get(at + 1..)?)),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn placeholder(root: &SpringProperty, inside: &str, depth: usize, left: &Cell<usize>) -> SpringText {
    let (name, default) = inside.split_once(':').map_or((inside, None), |(name, text)| (name, Some(text)));
    let name = name.trim();
    let property = root.get(name).and_then(SpringProperty::text);
    if let Some(text) = property.filter(|_| depth < DEPTH_MAX) {
        return within(root, text, depth + 1, left);
    }
    let name = variable(name);
    let default = default.filter(|_| depth < DEPTH_MAX).map(|text| within(root, text, depth + 1, left));
    match default {
        // A default cannot contain a brace; the value itself can.
        Some(SpringText { value: Some(value), .. }) if value.contains(['{', '}']) => SpringText {
            written: value.clone(),
            value: Some(value),
            dropped: vec![name],
            required: Vec::new(),
        },
        Some(default @ SpringText { value: Some(_), .. }) => {
            let inner = default.has_variables().then(|| variables(&default.written));
            let value = default.value.unwrap_or_default();
            SpringText {
                written: format!("${{{name}:-{value}}}"),
                value: Some(value),
                dropped: default.dropped.into_iter().chain(inner.into_iter().flatten()).collect(),
                required: Vec::new(),
            }
        }
        Some(default) => SpringText {
            written: format!("${{{name}}}"),
            value: None,
            dropped: default.dropped.into_iter().chain(default.required).collect(),
            required: vec![name],
        },
        None => SpringText {
            written: format!("${{{name}}}"),
            value: None,
            required: vec![name],
            dropped: Vec::new(),
        },
    }
}

/// The items of a text with commas. A comma within braces separates nothing.
pub(super) fn list_items(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let items = text.split(move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    items.map(str::trim).filter(|item| !item.is_empty())
}

/// The names of the variables in a converted text.
fn variables(text: &str) -> Vec<String> {
    let names = text.split("${").skip(1).filter_map(|rest| rest.split([':', '}']).next());
    names.map(str::to_owned).collect()
}

/// The variable of the environment that Spring reads for a property.
fn variable(name: &str) -> String {
    let is_variable = |name: &str| {
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        begins && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if is_variable(name) {
        return name.to_owned();
    }
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = name.chars().filter(|c| *c != '-').map(letter).collect();
    if is_variable(&name) { name } else { format!("_{name}") }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let file = "app: {port: 6380, host: \"${APP_HOST:db}\", me: \"${app.me}\"}";
        let document = crate::yaml_node::documents(file, 0).unwrap().remove(0);
        let root = SpringProperty::of_document(&document).unwrap();
        let SpringText { written, value, required, dropped } = converted(&root, text, &Cell::new(100));
        expected.assert_eq(&format!("{written} = {value:?} {required:?} {dropped:?}"));
    }

    #[test]
    fn placeholders_become_variables() {
        check("${REDIS_HOST:localhost}", expect![[r#"${REDIS_HOST:-localhost} = Some("localhost") [] []"#]]);
        check("a${X}b", expect![[r#"a${X}b = None ["X"] []"#]]);
        check("${app.port}", expect![[r#"6380 = Some("6380") [] []"#]]);
        check("${app.host}:1", expect![[r#"${APP_HOST:-db}:1 = Some("db:1") [] []"#]]);
        check("${my.rate-limit:7}", expect![[r#"${MY_RATELIMIT:-7} = Some("7") [] []"#]]);
        check("${A:${B:c}}", expect![[r#"${A:-c} = Some("c") [] ["B"]"#]]);
        check("${A:${B}}", expect![[r#"${A} = None ["A"] ["B"]"#]]);
        check("${A:}", expect![[r#"${A:-} = Some("") [] []"#]]);
        check("${open", expect![[r#"${open = Some("${open") [] []"#]]);
        check("${}", expect![[r#"${_} = None ["_"] []"#]]);
        check("${9}", expect![[r#"${_9} = None ["_9"] []"#]]);
    }

    #[test]
    fn commas_separate_items_outside_of_braces() {
        assert_eq!(list_items("a, ${B:c,d},,e").collect::<Vec<_>>(), ["a", "${B:c,d}", "e"]);
    }

    #[test]
    fn properties_that_refer_to_themselves_end() {
        check("${app.me}", expect![[r#"${APP_ME} = None ["APP_ME"] []"#]]);
    }
}
