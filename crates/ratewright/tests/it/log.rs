//! Log levels of single modules.

use serde_json::{Value, json};

use crate::process::Ratewright;

const POLICY: &str = "policies: [{name: p, by: ip, quota: {rate: 1/h}}]\n";

fn config(log: &str) -> String {
    format!("log: {log}\n{POLICY}")
}

/// The targets of all lines so far, with their levels.
fn targets(ratewright: &Ratewright) -> Vec<(String, String)> {
    let lines = ratewright.logged();
    let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    lines.map(|line| (text(&line["target"]), text(&line["level"]))).collect()
}

/// B7: each module can have its own log level, and a reload can change it.
#[test]
fn b7_each_module_has_its_own_level() {
    let ratewright = Ratewright::start(&config("{level: error, modules: {ratewright_server: debug}}"));
    let decide = |ip: &str| ratewright.decide(&json!({"ip": ip})).status;
    assert_eq!([decide("192.0.2.1"), decide("192.0.2.1")], [200, 429]);
    ratewright.wait_for_line(&["DEBUG", "allowed", "192.0.2.1"]);
    ratewright.wait_for_line(&["WARN", "denied", "192.0.2.1"]);
    // At INFO, the program's own module would log this reload.
    ratewright
        .reload(&config("{level: error, modules: {ratewright_server: debug}}\nmetrics: {labels: {a: b}}"));
    assert_eq!(decide("192.0.2.2"), 200);
    ratewright.wait_for_line(&["DEBUG", "allowed", "192.0.2.2"]);
    let logged = targets(&ratewright);
    assert!(logged.iter().all(|(target, _)| target.starts_with("ratewright_server::")), "{logged:?}");

    ratewright.reload(&config("{level: debug, modules: {ratewright_server: error}}"));
    ratewright.wait_for_line(&["INFO", "policies reloaded"]);
    assert_eq!([decide("192.0.2.3"), decide("192.0.2.3")], [200, 429]);
    ratewright.reload(&config("{level: info}"));
    assert_eq!(decide("192.0.2.3"), 429);
    ratewright.wait_for_line(&["WARN", "denied", "192.0.2.3"]);
    let lines = ratewright.log();
    let n_lines = lines.iter().filter(|line| line.contains("192.0.2.3")).count();
    assert_eq!(n_lines, 1, "only the denial after the last reload is logged: {lines:#?}");
}

/// The program would run on its defaults, without anybody's limits, and say nothing.
#[test]
fn a_mistyped_variable_is_warned_of_unless_the_file_uses_it() {
    let config = "metrics: {labels: {a: '${RATEWRIGHT_TOKE:-b}'}}\n";
    let variables = [("RATEWRIGHT_CONF", "x.yaml"), ("RATEWRIGHT_TOKE", "c"), ("RATEWRIGHT_PORT", "tcp://x")];
    let ratewright = Ratewright::start_profile(config, None, &variables);
    ratewright.wait_for_line(&["WARN", "RATEWRIGHT_CONF is ignored; did you mean RATEWRIGHT_CONFIG?"]);
    let log = ratewright.log();
    assert_eq!(log.iter().filter(|line| line.contains("RATEWRIGHT_")).count(), 1, "{log:#?}");
}
