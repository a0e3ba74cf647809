//! The file's names, for editors and for docs/configuration.md. Both come from the types in `file.rs`.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::file::File;

/// The JSON Schema of the policy file.
pub(crate) fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<File>();
    schema.insert("title".to_owned(), "Tollgate policy file".into());
    schema.to_value()
}

/// The reference as a table for each section, in Markdown.
pub(crate) fn reference() -> String {
    let schema = schema();
    let mut text = String::new();
    section(&schema, &schema, "", &mut text);
    text
}

/// Writes one section, then those in it.
fn section(root: &Value, schema: &Value, path: &str, text: &mut String) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    let title = if path.is_empty() { "The whole file".to_owned() } else { format!("`{path}`") };
    text.push_str(&format!("### {title}\n\n"));
    if let Some(description) = description(schema).filter(|_| !path.is_empty()) {
        text.push_str(&format!("{description}\n\n"));
    }
    text.push_str("| name | meaning |\n|---|---|\n");
    for (name, property) in properties {
        let description =
            description(property).or_else(|| description(inner(root, property)?)).unwrap_or_default();
        text.push_str(&format!("| `{name}` | {description} |\n"));
    }
    text.push('\n');
    for (name, property) in properties {
        if let Some(inner) = inner(root, property) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            section(root, inner, &path, text);
        }
    }
}

fn description(schema: &Value) -> Option<String> {
    schema.get("description")?.as_str().map(|text| text.replace('\n', " ").replace('|', "\\|"))
}

/// The section that a property is, or has.
fn inner<'a>(root: &'a Value, property: &'a Value) -> Option<&'a Value> {
    if property.get("properties").is_some() {
        return Some(property);
    }
    if let Some(name) = property.get("$ref").and_then(Value::as_str) {
        let definition = root.pointer(name.strip_prefix('#')?)?;
        return inner(root, definition);
    }
    let items = property.get("items").and_then(|items| inner(root, items));
    let choices = property.get("anyOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.or_else(|| choices.iter().find_map(|choice| inner(root, choice)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

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
        let schema = schema();
        walk(&schema, "");
        let definitions = schema["$defs"].as_object().unwrap();
        assert!(definitions.len() > 10);
        definitions.iter().for_each(|(name, definition)| walk(definition, name));
    }
}
