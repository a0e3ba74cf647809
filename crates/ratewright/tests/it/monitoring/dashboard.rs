//! The dashboard: its expressions, and that it is portable to any Grafana.

use std::collections::BTreeSet;

use serde_json::Value;

use super::text;

pub(super) fn dashboard() -> Value {
    serde_json::from_str(&text("deploy/grafana/ratewright.json")).unwrap()
}

/// Panels that show data.
pub(super) fn panels() -> Vec<Value> {
    let panels = dashboard()["panels"].as_array().unwrap().clone();
    panels.into_iter().filter(|panel| panel["type"] != "row").collect()
}

/// An expression as Grafana would send it, all instances and policies being chosen.
pub(super) fn substituted(expression: &str) -> String {
    let variables =
        [("$__rate_interval", "4s"), ("$instance", ".*"), ("$policy", ".*"), ("$deployment", "ratewright")];
    let substituted =
        variables.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!substituted.contains('$'), "a variable that nobody knows: {substituted}");
    substituted
}

/// The expressions of panels and annotations whose title is chosen.
pub(super) fn expressions(is_chosen: impl Fn(&str) -> bool) -> Vec<String> {
    let of = |value: &Value| substituted(value["expr"].as_str().unwrap());
    let dashboard = dashboard();
    let annotations = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let mut chosen: Vec<String> =
        annotations.filter(|list| is_chosen(list["name"].as_str().unwrap())).map(of).collect();
    for panel in panels().iter().filter(|panel| is_chosen(panel["title"].as_str().unwrap())) {
        chosen.extend(panel["targets"].as_array().unwrap().iter().map(of));
    }
    chosen
}

#[test]
fn e4_the_dashboard_is_portable() {
    let dashboard = dashboard();
    assert_eq!((&dashboard["id"], &dashboard["uid"]), (&Value::Null, &Value::from("ratewright")));
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have the id {}", panel["id"]);
    }
    for panel in panels() {
        let title = panel["title"].as_str().unwrap();
        assert!(
            panel["description"].as_str().is_some_and(|text| !text.is_empty()),
            "{title} has no description"
        );
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        let targets = panel["targets"].as_array().unwrap();
        for source in targets.iter().chain([&panel]).map(|value| &value["datasource"]["uid"]) {
            assert_eq!(source, "${datasource}", "{title}");
        }
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            for range in expression.split('[').skip(1) {
                assert!(range.starts_with("$__rate_interval]"), "{title}: {expression}");
            }
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let variables: Vec<_> = variables.map(|variable| variable["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(variables, ["datasource", "instance", "policy", "deployment"]);
    let text = super::text("deploy/grafana/ratewright.json");
    assert!(!text.contains("127.0.0.1") && !text.contains("localhost"), "it names an instance");
}

/// E4: the count of 429s, and replicas against load.
#[test]
fn e4_the_dashboard_has_the_required_panels() {
    let titles: Vec<_> = panels().iter().map(|panel| panel["title"].as_str().unwrap().to_owned()).collect();
    for title in [
        "Denials",
        "429s by route",
        "Allowed by policy",
        "Denied by policy",
        "Shadow: would be denied",
        "Near the limit",
        "Basis of decisions",
        "Without Redis",
        "Redis latency",
        "Upstream health",
        "Replicas",
        "CPU against request",
    ] {
        assert!(titles.iter().any(|there| there == title), "{title} is missing: {titles:?}");
    }
}
