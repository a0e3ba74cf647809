//! The published schemas describe the reports: neither has a property that the other lacks.

use serde_json::Value;

use super::test_reports::{full_report, hostile_report, quiet_report, suggestion};
use super::*;

#[test]
fn reports_match_their_schema() {
    for report in [full_report(), quiet_report(), hostile_report("\x1b<"), Report::default()] {
        check(SCHEMA, &serde_json::to_value(&report).unwrap());
    }
}

#[test]
fn suggestions_match_their_schema() {
    let without_rate = BurstSuggestion { sufficient_burst: Some(7), ..BurstSuggestion::default() };
    let empty = Suggestion { of: "clients", bursts: vec![without_rate], ..Suggestion::default() };
    for suggestion in [suggestion(), empty] {
        check(SUGGESTION_SCHEMA, &serde_json::to_value(&suggestion).unwrap());
    }
}

/// A full report fills every list and every option, so validation reaches every object of the schema.
#[test]
fn full_samples_reach_every_property() {
    let report = serde_json::to_value(full_report()).unwrap();
    for path in [
        "/period/from",
        "/logs/0/log",
        "/timeline/from",
        "/policies/0/first_denial/at",
        "/policies/0/most_denied/0/client",
        "/policies/0/timeline/allowed/0",
        "/policies/0/notes/0",
        "/logged_decisions/first_difference/denied_in",
        "/against/most_newly_denied/0/first_at",
        "/against/most_newly_allowed/0/last_at",
        "/unreadable_lines/0/reason",
        "/notes/0",
    ] {
        assert!(report.pointer(path).is_some_and(|value| !value.is_null()), "{path}");
    }
    let suggestion = serde_json::to_value(suggestion()).unwrap();
    for path in
        ["/bursts/0/next_lower/rate", "/bursts/0/curve/0/rate", "/bursts/0/most_denied/0/last_denied_at"]
    {
        assert!(suggestion.pointer(path).is_some_and(|value| !value.is_null()), "{path}");
    }
}

#[test]
fn every_object_is_closed_and_every_property_is_described() {
    for schema in [SCHEMA, SUGGESTION_SCHEMA] {
        let schema: Value = serde_json::from_str(schema).unwrap();
        assert!(schema["title"].is_string());
        check_object(&schema);
        schema["$defs"].as_object().unwrap().values().for_each(check_object);
    }
}

#[test]
fn the_schema_rejects_an_unknown_and_a_missing_property() {
    let valid = jsonschema::validator_for(&serde_json::from_str(SCHEMA).unwrap()).unwrap();
    let report = serde_json::to_value(full_report()).unwrap();
    let mut unknown = report.clone();
    unknown["policies"][0]["timeline"]["more"] = Value::Null;
    let mut missing = report.clone();
    missing["against"]["most_newly_denied"][0].as_object_mut().unwrap().remove("first_at");
    assert!(valid.is_valid(&report) && !valid.is_valid(&unknown) && !valid.is_valid(&missing));
}

#[track_caller]
fn check(schema: &str, value: &Value) {
    let schema: Value = serde_json::from_str(schema).unwrap();
    jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("invalid schema: {error}"));
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[track_caller]
fn check_object(schema: &Value) {
    assert_eq!(schema["additionalProperties"], false, "{schema}");
    let properties = schema["properties"].as_object().unwrap();
    let mut required: Vec<&str> =
        schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    required.sort_unstable();
    let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(required, names);
    properties.iter().for_each(|(name, property)| assert!(property["description"].is_string(), "{name}"));
}
