//! The schemas of settings that accept several forms, such as an address or a section.

use std::borrow::Cow;
use std::net::SocketAddr;

use ratewright_core::query::AttributeName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::FirstOf;
use crate::file::{
    By, Condition, Cors, CorsSection, Cost, Listener, ListenerSection, Upstream, UpstreamSection,
};
use crate::raw_value::{ConfigValue, RawList, RawValue};
use crate::values::{ATTRIBUTE, UpstreamUrl};

impl JsonSchema for Listener {
    fn schema_name() -> Cow<'static, str> {
        "Listener".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let section = generator.subschema_for::<ListenerSection>();
        json_schema!({ "anyOf": [SocketAddr::schema(), { "const": "off" }, section] })
    }
}

impl JsonSchema for Cors {
    fn schema_name() -> Cow<'static, str> {
        "Cors".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let section = generator.subschema_for::<CorsSection>();
        json_schema!({ "anyOf": [{ "const": "off" }, section] })
    }
}

impl JsonSchema for Upstream {
    fn schema_name() -> Cow<'static, str> {
        "Upstream".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = RawValue::<UpstreamUrl>::json_schema(generator);
        let section = generator.subschema_for::<UpstreamSection>();
        json_schema!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }, section] })
    }
}

impl JsonSchema for By {
    fn schema_name() -> Cow<'static, str> {
        "By".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = RawValue::<AttributeName<String>>::json_schema(generator);
        let first_of = generator.subschema_for::<FirstOf>();
        let part = json_schema!({ "anyOf": [one, first_of] });
        json_schema!({ "anyOf": [part, { "type": "array", "minItems": 1, "items": part }] })
    }
}

impl JsonSchema for Cost {
    fn schema_name() -> Cow<'static, str> {
        "Cost".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let number = RawValue::<u32>::json_schema(generator);
        let header = json_schema!({ "type": "object", "required": ["header"], "additionalProperties": false,
            "properties": { "header": { "type": "string" } } });
        let methods = json_schema!({ "type": "object", "additionalProperties": number });
        let paths = json_schema!({ "type": "object", "required": ["path"], "additionalProperties": false,
            "properties": { "path": { "type": "object", "additionalProperties": number } } });
        let bytes = json_schema!({ "type": "object", "required": ["bytes"], "additionalProperties": false,
            "properties": { "bytes": { "const": "request" } } });
        json_schema!({ "anyOf": [number, header, methods, paths, bytes] })
    }
}

impl JsonSchema for Condition {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let patterns = RawList::<String>::json_schema(generator);
        json_schema!({
            "description": "Attributes and their patterns. Every attribute must match one of its patterns. In a path, `*` stays in a segment and `**` crosses segments. `ip` takes networks.",
            "type": "object",
            "propertyNames": { "pattern": ATTRIBUTE },
            "additionalProperties": patterns
        })
    }
}
