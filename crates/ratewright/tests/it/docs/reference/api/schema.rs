//! The schemas of the OpenAPI description, in words.

use serde_json::Value;

use super::{code, paragraph, sentence, table};

/// `/openapi.json`.
pub(super) struct OpenApi(pub(super) Value);

impl OpenApi {
    /// Follows a reference, if it is one.
    pub(super) fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        let pointer = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        pointer.map_or(value, |pointer| self.0.pointer(pointer).unwrap())
    }

    /// A type in a few words. A type of its own is a link.
    pub(super) fn type_of(&self, schema: &Value) -> String {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap();
            return format!("[{name}](#{})", name.to_lowercase());
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            let mut choices: Vec<_> = choices
                .iter()
                .map(|choice| self.type_of(choice))
                .filter(|choice| !choice.is_empty())
                .collect();
            choices.dedup();
            return choices.join(" or ");
        }
        if let Some(values) = schema["enum"].as_array() {
            return values.iter().map(|value| code(value.as_str().unwrap())).collect::<Vec<_>>().join(", ");
        }
        match kind(schema) {
            "array" => format!("array of {}", self.type_of(&schema["items"])),
            "object" => format!("object of {}", self.type_of(&schema["additionalProperties"])),
            "integer" => format!("integer{}", range(schema)),
            "string" => match schema["format"].as_str() {
                Some("ipv4" | "ipv6") => "IP address".to_owned(),
                Some("date-time") => "time (RFC 3339)".to_owned(),
                _ => format!("string{}", length(schema)),
            },
            "null" => String::new(),
            other => other.to_owned(),
        }
    }

    /// All schemas by name.
    pub(super) fn render_schemas(&self) -> String {
        let schemas = self.0["components"]["schemas"].as_object().unwrap();
        schemas.iter().map(|(name, schema)| self.render_schema(name, schema)).collect()
    }

    fn render_schema(&self, name: &str, schema: &Value) -> String {
        let mut made = format!("### {name}\n\n");
        made += &paragraph(&sentence(
            schema["description"].as_str().unwrap_or_else(|| panic!("{name} has no description")),
        ));
        if let Some(parts) = schema["allOf"].as_array() {
            let parts: Vec<_> = parts.iter().map(|part| self.type_of(part)).collect();
            made += &format!(
                "All fields of {}{}\n\n",
                parts.join(" and "),
                if schema["properties"].is_object() { ", and:" } else { "." }
            );
        }
        let Some(fields) = schema["properties"].as_object() else { return made };
        let required =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
        let rows = fields.iter().map(|(name, field)| {
            let described =
                field["description"].as_str().unwrap_or_else(|| panic!("{name} has no description"));
            let mut meaning = sentence(described);
            let default = &field["default"];
            if !default.is_null() && !meaning.contains("Default: ") {
                meaning += &format!(" Default: {}.", code(&default.to_string()));
            }
            let is_required = if required.contains(&name.as_str()) { "yes" } else { "no" };
            [code(name), self.type_of(field), is_required.to_owned(), meaning.trim().to_owned()]
        });
        made + &table(["field", "type", "required", "meaning"], rows)
    }
}

/// The type, without `null`.
fn kind(schema: &Value) -> &str {
    let kinds = schema["type"].as_array().into_iter().flatten();
    let mut kinds = kinds.chain([&schema["type"]]).filter_map(Value::as_str);
    kinds.find(|kind| *kind != "null").unwrap_or("null")
}

fn range(schema: &Value) -> String {
    match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
        (Some(from), Some(to)) if to != 65_535 => format!(", {from} to {to}"),
        (Some(from @ 1..), _) => format!(", at least {from}"),
        _ => String::new(),
    }
}

fn length(schema: &Value) -> String {
    match (schema["minLength"].as_u64(), schema["maxLength"].as_u64(), schema["pattern"].as_str()) {
        (from, Some(to), _) => format!(", {} to {to} characters", from.unwrap_or(0)),
        (_, None, Some(pattern)) if pattern.starts_with("^[a-z0-9") => format!(", {}", code(pattern)),
        _ => String::new(),
    }
}
