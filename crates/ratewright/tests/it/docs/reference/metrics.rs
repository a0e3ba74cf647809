//! `docs/reference/metrics.md`: all metrics of a Ratewright that uses everything, and all that the sources name.

use std::collections::{BTreeMap, BTreeSet};

use ratewright_lab::wait_until;

use super::source::{Source, sources, texts};
use super::{assert_page, code, sentence, table, with_reference};
use crate::monitoring::environment::Scene;

/// A metric, as `/metrics` shows it.
#[derive(Default)]
struct Metric {
    help: String,
    kind: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// The groups, each with the beginnings of its metrics' names. The first that fits counts.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Decisions", &["rate_limiter_", "ratewright_decisions", "ratewright_near_limit"]),
    ("Policy file", &["ratewright_policies", "ratewright_reload", "ratewright_last_reload"]),
    ("Redis", &["ratewright_store", "ratewright_instances"]),
    ("Buckets in memory", &["ratewright_memory"]),
    ("Upstreams", &["gateway_upstream"]),
    ("Gateway", &["gateway_"]),
    ("Envoy's rate limit service", &["ratewright_envoy"]),
    ("Listeners", &["ratewright_certificate", "ratewright_proxy_protocol"]),
];

/// Labels: the values that are fixed, or none, and the meaning.
const LABELS: [(&str, &[&str], &str); 15] = [
    (
        "algorithm",
        &["TOKEN_BUCKET", "LEAKY_BUCKET", "SLIDING_WINDOW", "SLIDING_WINDOW_COUNTER", "FIXED_WINDOW"],
        "The algorithm of the policy that decided.",
    ),
    ("allowed", &["true", "false"], "The verdict."),
    (
        "basis",
        &["shared", "local", "fail_open", "fail_closed", "none"],
        "Where the decision was made: in Redis, in memory, or without a store, because the policy is open or closed without Redis. `none`: no store was asked.",
    ),
    (
        "entrypoint",
        &["gateway", "rest", "authorize", "grpc", "json", "tower"],
        "The way in. `tower` only in programs that use the layer.",
    ),
    ("kind", &[], "Why Redis did not reply."),
    ("listener", &["gateway", "api", "grpc", "admin"], "A listener of `listen`."),
    (
        "mode",
        &["enforce", "shadow", "shared", "local"],
        "Of decisions: `enforce`, or `shadow` for a policy that only counts. Of `ratewright_store_mode_since_seconds`: `shared` (Redis decides) or `local`.",
    ),
    (
        "policy",
        &[],
        "A policy of the policy file, or a rule for Envoy. Ad hoc keys are counted in `rate_limiter_requests_total` only.",
    ),
    ("reason", &[], "Why `proxy_protocol` refused a connection."),
    ("route", &[], "The id of a route."),
    ("route_path", &[], "The path of a route as the policy file writes it, or `none` if no route matches."),
    ("rule", &[], "A rule for Envoy: its domain and the keys of its descriptors."),
    ("server", &[], "The address of an upstream server."),
    ("status", &[], "The status of the response."),
    ("verdict", &["allowed", "denied"], "What the policy decided."),
];

/// A page of metrics by their names, without the label that the scene adds to every series.
fn scraped(page: &str) -> BTreeMap<String, Metric> {
    let mut found = BTreeMap::<String, Metric>::new();
    for line in page.lines() {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", "HELP", name, help] => found.entry(name.to_owned()).or_default().help = help.to_owned(),
            ["#", "TYPE", name, kind] => found.entry(name.to_owned()).or_default().kind = kind.to_owned(),
            ["#", ..] => {}
            _ => add_series(&mut found, line.rsplit_once(' ').unwrap().0),
        }
    }
    found
}

fn add_series(found: &mut BTreeMap<String, Metric>, series: &str) {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let parts = ["_bucket", "_count", "_sum"].iter().filter_map(|end| name.strip_suffix(end));
    let name = parts.chain([name]).find(|name| found.contains_key(*name)).expect("a TYPE before the series");
    let metric = found.get_mut(name).unwrap();
    for (label, value) in labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('=')) {
        if !["application", "le"].contains(&label) {
            metric.labels.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
}

/// The names in the sources that register metrics, without the suffixes that are added.
fn registered() -> BTreeSet<String> {
    let is_name = |text: &String| {
        let is_ours =
            ["ratewright_", "gateway_", "rate_limiter_"].iter().any(|prefix| text.starts_with(prefix));
        is_ours && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let registers =
        |source: &Source| ["Figure::", "encode_descriptor("].iter().any(|call| source.code.contains(call));
    let registering = sources().into_iter().filter(registers);
    registering.flat_map(|source| texts(&source.code)).filter(is_name).collect()
}

fn group(name: &str) -> &'static str {
    let fits = |(_, prefixes): &&(&str, &[&str])| prefixes.iter().any(|prefix| name.starts_with(prefix));
    GROUPS.iter().find(fits).unwrap_or_else(|| panic!("{name} belongs to no group")).0
}

fn unit(name: &str, metric: &Metric) -> &'static str {
    match name {
        _ if name.ends_with("_timestamp_seconds") => "Unix time in seconds",
        _ if name.ends_with("_seconds") => "seconds",
        _ if name.ends_with("_bytes") => "bytes",
        _ if metric.help.ends_with("1 or 0") => "1 or 0",
        _ => "count",
    }
}

fn render(metrics: &BTreeMap<String, Metric>) -> String {
    let mut made = String::new();
    for (title, _) in GROUPS {
        let rows = metrics.iter().filter(|(name, _)| group(name) == title).map(|(name, metric)| {
            let labels: Vec<_> = metric.labels.keys().map(|label| code(label)).collect();
            let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
            [code(name), metric.kind.clone(), unit(name, metric).to_owned(), labels, sentence(&metric.help)]
        });
        made += &format!("## {title}\n\n{}", table(["metric", "type", "unit", "labels", "meaning"], rows));
    }
    format!("{made}## Labels\n\n{}", render_labels(metrics))
}

fn render_labels(metrics: &BTreeMap<String, Metric>) -> String {
    let values = |label: &str| -> BTreeSet<&String> {
        metrics.values().filter_map(|metric| metric.labels.get(label)).flatten().collect()
    };
    let used: BTreeSet<&str> =
        metrics.values().flat_map(|metric| metric.labels.keys().map(String::as_str)).collect();
    assert_eq!(used, LABELS.iter().map(|(label, _, _)| *label).collect(), "labels, scraped and described");
    let rows = LABELS.iter().map(|(label, fixed, meaning)| {
        let seen = values(label);
        let unknown: Vec<_> =
            seen.iter().filter(|value| !fixed.is_empty() && !fixed.contains(&value.as_str())).collect();
        assert!(unknown.is_empty(), "{label} has other values: {unknown:?}");
        // Of these two, every value is shown from the start.
        let is_complete = ["kind", "reason"].contains(label);
        let listed =
            if is_complete { seen.iter().map(|value| value.as_str()).collect() } else { fixed.to_vec() };
        let listed: Vec<_> = listed.into_iter().map(code).collect();
        [
            code(label),
            if listed.is_empty() { "–".to_owned() } else { listed.join(", ") },
            (*meaning).to_owned(),
        ]
    });
    table(["label", "values", "meaning"], rows)
}

#[test]
fn the_page_on_metrics_has_every_metric() {
    let mut scene = Scene::start();
    scene.deny_one();
    wait_until("Redis has counted the instances", || {
        scene.serve_one_round();
        scene.ratewright.admin("/metrics").body.contains("ratewright_instances")
    });
    let metrics = scraped(&scene.ratewright.admin("/metrics").body);
    for (name, metric) in &metrics {
        assert!(metric.help.len() > 10, "{name} has no HELP");
    }
    let base = |name: &String| {
        let is_histogram = metrics[name].kind == "histogram";
        let end = if is_histogram { "_seconds" } else { "_total" };
        name.strip_suffix(end).unwrap_or(name).to_owned()
    };
    assert_eq!(
        metrics.keys().map(base).collect::<BTreeSet<_>>(),
        registered(),
        "scraped, and in the sources"
    );
    assert_page("metrics.md", &with_reference("metrics.md", &render(&metrics)));
}
