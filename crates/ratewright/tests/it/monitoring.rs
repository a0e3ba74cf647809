//! E4, C8: monitoring. The files of `deploy/prometheus` and `deploy/grafana` against a real Prometheus that
//! scrapes a Ratewright under load.
//!
//! Alerts wait for minutes, tests do not: see [`shorten_durations`]. Rules over hours or days are also tested by promtool with
//! synthetic samples, in `deploy/prometheus/tests.yaml`.

#![expect(clippy::disallowed_methods, reason = "Prometheus records real time")]

mod dashboard;
mod dashboard_svg;
pub(crate) mod environment;
mod exporter;
mod metrics;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use ratewright_lab::{Prometheus, foreign, output, wait_until};
use serde_json::Value;

use environment::Scene;
use exporter::Exporter;

/// A file under the root of the repository.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

/// All rules, of all groups.
fn rules() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&text("deploy/prometheus/rules.yaml")).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The rules with shorter times, so that a test need not wait for minutes. Only durations of their own are replaced, not
/// those in names such as `rate5m`:
///
/// | written | in the test | why |
/// |---|---|---|
/// | `1m` | `1s` | four scrapes |
/// | `5m` | `2s` | eight scrapes |
/// | `10m` | `1s` | only in `for` |
/// | `20m` | `4s` | longer than `10m` and `5m` together, as there |
/// | `15m` | `120s` | time enough to start Redis several times |
/// | `1h` | `60s` | more than the test has run before the spike |
fn shorten_durations(rules: &str) -> String {
    let is_part_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut shortened = String::new();
    for piece in rules.split_inclusive(|c| !is_part_of_word(c)) {
        let word = piece.trim_end_matches(|c| !is_part_of_word(c));
        shortened.push_str(match word {
            "1m" | "10m" => "1s",
            "5m" => "2s",
            "20m" => "4s",
            "15m" => "120s",
            "1h" => "60s",
            other => other,
        });
        shortened.push_str(piece.strip_prefix(word).unwrap_or_default());
    }
    shortened
}

/// Runs promtool, which comes with Prometheus.
#[track_caller]
fn promtool(args: &[&str]) -> String {
    let output = output(foreign("promtool").args(args));
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {args:?}: {printed}");
    printed.into_owned()
}

#[test]
fn e4_the_rules_are_valid_and_pass_their_unit_tests() {
    let [rules, tests] = ["rules.yaml", "tests.yaml"].map(|name| path("deploy/prometheus").join(name));
    let printed = promtool(&["check", "rules", "--lint=all", "--lint-fatal", rules.to_str().unwrap()]);
    assert!(printed.contains("SUCCESS") && !printed.contains("lint error"), "{printed}");
    let printed = promtool(&["test", "rules", tests.to_str().unwrap()]);
    assert!(printed.contains("SUCCESS"), "{printed}");
}

/// Every alert is tested by promtool: when it fires, and that it does not at other times.
#[test]
fn e4_every_alert_has_a_unit_test_and_says_what_to_do() {
    let (tests, page) = (text("deploy/prometheus/tests.yaml"), text("docs/operations/production.md"));
    let mut names = BTreeSet::new();
    for alert in rules().iter().filter(|rule| rule["alert"].is_string()) {
        let name = alert["alert"].as_str().unwrap();
        assert!(names.insert(name.to_owned()), "{name} is there twice");
        let is_word = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
        assert!(tests.split(name).skip(1).any(is_word), "{name} is not in tests.yaml");
        assert!(page.contains(&format!("`{name}`")), "the page does not say what to do about {name}");
        let annotations = &alert["annotations"];
        assert!(annotations["summary"].as_str().is_some_and(|text| text.len() > 20), "{name}");
        assert!(annotations["description"].as_str().is_some_and(|text| text.len() > 80), "{name}");
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["warning", "critical"].contains(&severity), "{name}: {severity}");
    }
    for group in ["Fallback", "DenialSpike", "StoreFlapping", "ReloadFailed", "NearKeyCap", "InstanceDown"] {
        assert!(names.contains(&format!("Ratewright{group}")), "{group} is missing: {names:?}");
    }
}

/// With UPDATE_EXPECT=1 the resource is written anew.
#[test]
fn e4_the_custom_resource_has_the_same_groups() {
    let rules = text("deploy/prometheus/rules.yaml");
    let (_, groups) = rules.split_once("\ngroups:\n").unwrap();
    let indented: String = groups
        .lines()
        .map(|line| if line.is_empty() { "\n".into() } else { format!("  {line}\n") })
        .collect();
    let resource = format!(
        "# The groups of rules.yaml for the Prometheus Operator. A test compares them; UPDATE_EXPECT=1 writes this file anew.\n\
         apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: ratewright\n  labels:\n    \
         app.kubernetes.io/name: ratewright\nspec:\n  groups:\n{indented}"
    );
    expect_file!["../../../../deploy/kubernetes/monitoring/prometheusrule.yaml"].assert_eq(&resource);
    let [rules, resource]: [Value; 2] = [&rules, &resource].map(|text| serde_saphyr::from_str(text).unwrap());
    assert_eq!(rules["groups"], resource["spec"]["groups"]);
}

#[test]
fn durations_are_shortened_and_names_are_not() {
    assert_eq!(
        shorten_durations("for: 5m\nx:rate5m[15m] offset 1h, 5 minutes"),
        "for: 2s\nx:rate5m[120s] offset 60s, 5 minutes"
    );
}

/// E4, C8: one Prometheus sees Ratewright healthy, then with every fault that has an alert.
#[test]
fn e4_c8_every_expression_returns_data_and_each_alert_fires() {
    let (mut scene, exporter) = (Scene::start(), Exporter::start());
    scene.deny_one();
    let ratewright = ("ratewright", &*scene.ratewright.admin.clone(), "/metrics");
    let kubernetes = ("kubernetes", &*exporter.address.clone(), "/metrics");
    let prometheus = Prometheus::with_rules(
        &[ratewright, kubernetes],
        &shorten_durations(&text("deploy/prometheus/rules.yaml")),
    );
    wait_until("it has begun to scrape", || prometheus.query("sum(up) == 2").len() == 1);
    let began = std::time::Instant::now();
    let fired = |alert: &str| {
        let query = format!("count_over_time(ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}[10m])");
        !prometheus.query(&query).is_empty()
    };

    // Healthy: whatever the dashboard asks for is there.
    let records = rules().into_iter().filter(|rule| rule["record"].is_string());
    let mut asked: Vec<String> =
        records.map(|rule| shorten_durations(rule["expr"].as_str().unwrap())).collect();
    asked.extend(rules().iter().filter_map(|rule| Some(rule["record"].as_str()?.to_owned())));
    asked.extend(dashboard::expressions(|title| title != "Reloads"));
    assert!(asked.len() > 40, "{}", asked.len());
    let mut n_rounds = 0;
    wait_until("every expression returns data", || {
        scene.serve_one_round();
        n_rounds += 1;
        asked
            .retain(|expression| !prometheus.query(expression).iter().any(|sample| sample.value.is_finite()));
        asked.is_empty() || {
            assert!(n_rounds < 5_000, "no data: {asked:#?}");
            false
        }
    });
    let past = "quantile_over_time(0.5, policy:ratewright_denials:rate5m[1h] offset 20m)";
    let past = shorten_durations(past);
    assert!(
        shorten_durations(&text("deploy/prometheus/rules.yaml")).contains(&past),
        "a spike is compared with: {past}"
    );
    wait_until("there is a past to compare with", || {
        scene.serve_one_round();
        // A picture needs more of it.
        !prometheus.query(&past).is_empty() && (!dashboard_svg::is_drawn() || began.elapsed().as_secs() >= 12)
    });
    for quiet in ["Fallback", "StoreFlapping", "NearKeyCap", "DenialSpike", "UpstreamDown", "ReloadFailed"] {
        assert!(!fired(&format!("Ratewright{quiet}")), "{quiet} fires without its fault");
    }
    for expiring in ["RatewrightCertificateExpiring", "RatewrightCertificateExpiresSoon"] {
        wait_until("a certificate that expires in a day is reported", || fired(expiring));
    }

    // Many are denied; Redis is gone, so that keys are kept here; an upstream is gone; the policy file is broken.
    wait_until("denials are a spike", || {
        scene.serve_one_round();
        scene.flood();
        fired("RatewrightDenialSpike")
    });
    scene.redis.kill();
    scene.break_policy_file();
    scene.site.kill();
    for alert in ["Fallback", "NearKeyCap", "UpstreamDown", "UpstreamFlapping", "ReloadFailed"] {
        wait_until(alert, || {
            scene.serve_one_round();
            scene.send_as_new_clients();
            fired(&format!("Ratewright{alert}"))
        });
    }

    // Redis comes and goes.
    scene.restore_policy_file();
    scene.site.run();
    wait_until("the link to Redis flaps", || {
        scene.redis.run();
        wait_until("it is connected", || {
            scene.serve_one_round();
            scene.ratewright.metric("ratewright_store_up{application=\"shop\"}") == 1.0
        });
        scene.redis.kill();
        wait_until("the link is down", || {
            scene.serve_one_round();
            scene.ratewright.metric("ratewright_store_up{application=\"shop\"}") == 0.0
        });
        fired("RatewrightStoreFlapping")
    });
    scene.redis.run();
    wait_until("the reload is marked, and all is well again", || {
        scene.serve_one_round();
        let reloads = dashboard::expressions(|title| title == "Reloads");
        reloads.iter().all(|expression| !prometheus.query(expression).is_empty())
    });
    wait_until("some seconds are left for the picture", || {
        scene.serve_one_round();
        let since = "min(ratewright_store_mode_since_seconds{mode=\"shared\"}) > 1";
        !dashboard_svg::is_drawn() || !prometheus.query(since).is_empty()
    });
    dashboard_svg::draw(&prometheus, began.elapsed().as_secs_f64(), &scene);

    // The program ends, and then it is forgotten.
    scene.ratewright.signal("KILL");
    wait_until("the instance is down", || fired("RatewrightInstanceDown"));
    prometheus.scrape(&[kubernetes]);
    wait_until("nothing is scraped", || fired("RatewrightAbsent"));
    let all: BTreeSet<_> =
        rules().iter().filter_map(|rule| Some(rule["alert"].as_str()?.to_owned())).collect();
    let silent: Vec<_> = all.iter().filter(|alert| !fired(alert)).collect();
    assert!(silent.is_empty(), "{silent:?}");
}
