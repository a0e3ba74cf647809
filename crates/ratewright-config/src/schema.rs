//! The schema for editors and the reference for docs/reference/configuration.md.
//!
//! ```text
//!   types in file.rs ─test─► schema/policy-file.json ─► `ratewright schema`, reference, defaults
//! ```
//!
//! The schema is a committed file, so that `schemars` is compiled for tests only. `UPDATE_EXPECT=1 cargo test -p
//! ratewright-config schema` writes the file; without the variable, the test compares it with the types.

use serde_json::Value;

/// The JSON Schema of the policy file.
pub const SCHEMA: &str = include_str!("../schema/policy-file.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("the committed schema is valid JSON")
}

/// Names in the order in which one writes them; others follow by the alphabet.
const ORDER: [&str; 42] = [
    "enabled",
    "listen",
    "store",
    "clients",
    "exempt",
    "id",
    "match",
    "upstream",
    "servers",
    "origins",
    "path",
    "policies",
    "gateway",
    "routes",
    "envoy",
    "files",
    "api",
    "headers",
    "problem",
    "metrics",
    "log",
    "admin",
    "address",
    "redis",
    "url",
    "name",
    "group",
    "when",
    "by",
    "missing",
    "quota",
    "in_flight",
    "after_abort",
    "algorithm",
    "rate",
    "burst",
    "cost",
    "count",
    "overrides",
    "retry_after",
    "mode",
    "on_failure",
];

/// The reference as a table for each section, in Markdown.
pub fn reference() -> String {
    let root = schema();
    let mut reference = Reference { root: &root, sections: Vec::new(), text: String::new() };
    reference.section(&root, "");
    reference.text
}

/// Writes the reference.
struct Reference<'a> {
    root: &'a Value,
    /// The sections that are there already, with where they are.
    sections: Vec<(&'a Value, String)>,
    text: String,
}

impl<'a> Reference<'a> {
    /// Writes one section, then those in it. A section that occurs several times is written once.
    fn section(&mut self, schema: &'a Value, path: &str) {
        let Some(Value::Object(properties)) = schema.get("properties") else { return };
        self.sections.push((schema, path.to_owned()));
        let mut properties: Vec<_> = properties.iter().collect();
        let order = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
        properties.sort_by_key(|(name, _)| order(name));
        let title = if path.is_empty() { "The whole file".to_owned() } else { format!("`{path}`") };
        self.text.push_str(&format!("### {title}\n\n"));
        if let Some(description) = description(schema).filter(|_| !path.is_empty()) {
            self.text.push_str(&format!("{}\n\n", wrapped(&description)));
        }
        self.text.push_str("| name | meaning |\n|---|---|\n");
        let inner: Vec<_> = properties
            .into_iter()
            .map(|(name, property)| (join(path, name), name, property, inner(self.root, property)))
            .collect();
        for (_, name, property, inner) in &inner {
            self.row(name, property, *inner);
        }
        self.text.push('\n');
        let is_nested = !path.is_empty();
        for (path, _, _, inner) in inner {
            match inner {
                Some(inner) if self.position(inner).is_none() && !(is_nested && is_explained(inner)) => {
                    self.section(inner, &path)
                }
                Some(_) | None => {}
            }
        }
    }

    fn row(&mut self, name: &str, property: &Value, inner: Option<&Value>) {
        let mut text = description(property).unwrap_or_default();
        match inner {
            Some(inner) => {
                if let Some(position) = self.position(inner) {
                    text.push_str(&format!(" Its names are those of `{position}`."));
                }
            }
            None => {
                let more = referred(self.root, property).and_then(description);
                text.extend(more.map(|more| format!(" {more}")));
            }
        }
        self.text.push_str(&format!("| `{name}` | {text} |\n"));
    }

    /// Where a section is written already.
    fn position(&self, section: &Value) -> Option<&str> {
        let same = |(other, _): &&(&Value, String)| std::ptr::eq(*other, section);
        self.sections.iter().find(same).map(|(_, path)| path.as_str())
    }
}

/// A text in lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split_whitespace() {
        let n = word.chars().count();
        if length > 0 && length + 1 + n > 120 {
            (lines, length) = (lines + "\n", 0);
        } else if length > 0 {
            (lines, length) = (lines + " ", length + 1);
        }
        (lines, length) = (lines + word, length + n);
    }
    lines
}

/// A setting as the documentation has it. Policies and routes have no names in its path.
#[derive(Debug)]
pub struct Documented {
    /// Its path.
    pub path: String,
    /// Its default, if the documentation names one.
    pub default: Option<String>,
}

/// All settings and sections of the file.
pub fn documented() -> Vec<Documented> {
    fn walk(root: &Value, section: &Value, path: &str, all: &mut Vec<Documented>) {
        let properties = section.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let (path, inner) = (join(path, name), inner(root, property));
            let text = property.get("description").and_then(Value::as_str).unwrap_or_default();
            let default = text.split_once("Default: `").and_then(|(_, after)| after.split_once('`'));
            let default = default.map(|(default, _)| default.to_owned());
            all.push(Documented { path: path.clone(), default });
            inner.into_iter().for_each(|inner| walk(root, inner, &path, all));
        }
    }
    let root = schema();
    let mut all = Vec::new();
    walk(&root, &root, "", &mut all);
    all
}

/// True if a nested section has a single setting, which its parent's row explains.
fn is_explained(section: &Value) -> bool {
    section.get("properties").and_then(Value::as_object).is_some_and(|names| names.len() == 1)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn description(schema: &Value) -> Option<String> {
    schema.get("description")?.as_str().map(|text| text.replace('\n', " ").replace('|', "\\|"))
}

/// The definition that a property refers to.
fn referred<'a>(root: &'a Value, property: &'a Value) -> Option<&'a Value> {
    let name = |schema: &'a Value| schema.get("$ref").and_then(Value::as_str);
    let name = name(property).or_else(|| choices(property).iter().find_map(name))?;
    root.pointer(name.strip_prefix('#')?)
}

fn choices(schema: &Value) -> &[Value] {
    schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The section that a property is, or has.
fn inner<'a>(root: &'a Value, property: &'a Value) -> Option<&'a Value> {
    if property.get("properties").is_some() {
        return Some(property);
    }
    if property.get("$ref").is_some() {
        return inner(root, referred(root, property)?);
    }
    let items = property.get("items").and_then(|items| inner(root, items));
    items.or_else(|| choices(property).iter().find_map(|choice| inner(root, choice)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::File;
    use expect_test::expect_file;
    use schemars::generate::SchemaSettings;
    use serde_json::Map;

    /// The schema of the types.
    fn generate() -> Value {
        let generator = SchemaSettings::draft2020_12().into_generator();
        let mut schema = generator.into_root_schema_for::<File>();
        schema.insert("title".to_owned(), "Ratewright policy file".into());
        schema.to_value()
    }

    #[test]
    fn the_committed_schema_is_that_of_the_types() {
        expect_file!["../schema/policy-file.json"].assert_eq(&format!("{:#}\n", generate()));
    }

    #[test]
    fn every_name_of_the_file_is_explained() {
        fn walk(schema: &Value, path: &str) {
            let none = Map::new();
            let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
            for (name, property) in properties {
                let path = format!("{path}.{name}");
                assert!(description(property).is_some_and(|text| text.len() > 8), "{path} is not explained");
            }
        }
        let schema = generate();
        walk(&schema, "");
        let definitions = schema["$defs"].as_object().unwrap();
        assert!(definitions.len() > 10);
        definitions.iter().for_each(|(name, definition)| walk(definition, name));
    }
}
