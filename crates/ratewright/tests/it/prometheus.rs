//! The admin listener's metrics, scraped by a real Prometheus.

use ratewright_lab::{Prometheus, Sample, wait_until};
use serde_json::{Value, json};

use crate::process::Ratewright;

/// Limits that refill more slowly than any test runs.
const SLOW: &str = "
api: {defaults: {token_bucket: {rate: 1/h, burst: 5}, fixed_window: {rate: 5/100year}}}
metrics: {labels: {application: shop}}
";

/// The value of an algorithm's series.
fn of(samples: &[Sample], algorithm: &str) -> Option<f64> {
    let found = samples.iter().find(|sample| sample.labels["algorithm"] == algorithm);
    found.map(|sample| sample.value)
}

/// The queries are seed 002's, letter by letter.
/// The first two queries are seed 000's, letter by letter. The second divides like by like; the third is what it means.
#[test]
fn a12_the_queries_on_the_gateway_work_and_the_share_is_a_share() {
    let denied = r#"rate(gateway_request_total{status="429"}[5m])"#;
    let like_by_like = r#"rate(gateway_request_total{status="429", route_path="/api/orders"}[5m])
/ rate(gateway_request_total{route_path="/api/orders"}[5m])"#;
    let share = r#"sum(rate(gateway_request_total{status="429", route_path="/api/orders"}[5m]))
/ sum(rate(gateway_request_total{route_path="/api/orders"}[5m]))"#;

    let application = ratewright_lab::Nginx::start(1, "", "location / { return 200 'yes'; }\n");
    let ratewright = Ratewright::start(&format!(
        "policies: [{{name: orders, by: ip, quota: {{rate: 1/h, burst: 5}}}}]\n\
         routes: [{{id: orders, match: {{path: /api/orders/**}}, upstream: 'http://{}'}}]\n",
        application.address()
    ));
    let ask = |n: usize| (0..n).for_each(|_| drop(ratewright.pass("/api/orders/1", &[])));
    ask(6); // both series are there, so that their rates have a beginning
    let prometheus = Prometheus::scraping(&ratewright.admin, "/metrics");
    wait_until("it has scraped twice", || !prometheus.query(denied).is_empty());
    ratewright.ask_admin("DELETE", "/api/v1/admin/key?policy=orders&key=127.0.0.1");
    ask(20);
    wait_until("it has scraped the last of them", || {
        prometheus.query(r#"gateway_request_total{status="429"}"#).first().is_some_and(|n| n.value == 16.0)
    });
    let denied = prometheus.query(denied);
    assert_eq!(denied.len(), 1, "{denied:?}");
    assert!(denied[0].value > 0.0 && denied[0].labels["route_path"] == "/api/orders", "{denied:?}");
    assert_eq!(prometheus.query(like_by_like)[0].value, 1.0);
    let share = prometheus.query(share)[0].value;
    assert!((0.6..0.9).contains(&share), "15 of 20, as far as rates can tell: {share}");
}

#[test]
fn c8_the_three_queries_work_as_written() {
    let denied = r#"sum(rate(rate_limiter_requests_total{allowed="false"}[1m])) by (algorithm)"#;
    let p99 = "histogram_quantile(0.99, rate(rate_limiter_check_seconds_bucket[5m]))";
    let by_algorithm = "sum(rate(rate_limiter_requests_total[5m])) by (algorithm)";

    let ratewright = Ratewright::start(SLOW);
    let prometheus = Prometheus::scraping(&ratewright.admin, "/actuator/prometheus");
    wait_until("it has scraped twice", || !prometheus.query(denied).is_empty());
    // On a busy machine one scrape may be late.
    wait_until("a scrape without an error", || prometheus.target() == (true, String::new()));
    for _ in 0..12 {
        ratewright.get("check?algorithm=TOKEN_BUCKET&key=a");
    }
    for _ in 0..3 {
        ratewright.get("check?algorithm=FIXED_WINDOW&key=a");
    }
    let count = r#"rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false",application="shop"}"#;
    wait_until("it has scraped the last of them", || {
        of(&prometheus.query(count), "TOKEN_BUCKET") == Some(7.0)
    });

    let denied = prometheus.query(denied);
    assert_eq!(denied.len(), 5, "one for each algorithm: {denied:?}");
    assert!(of(&denied, "TOKEN_BUCKET").is_some_and(|rate| rate > 0.0), "{denied:?}");
    assert_eq!(of(&denied, "FIXED_WINDOW"), Some(0.0));
    let by_algorithm = prometheus.query(by_algorithm);
    let [token_bucket, fixed_window] =
        ["TOKEN_BUCKET", "FIXED_WINDOW"].map(|algorithm| of(&by_algorithm, algorithm).unwrap());
    assert!(token_bucket > fixed_window && fixed_window > 0.0, "{by_algorithm:?}");
    for (allowed, algorithm) in
        [("true", "TOKEN_BUCKET"), ("false", "TOKEN_BUCKET"), ("true", "FIXED_WINDOW")]
    {
        let p99: Vec<_> =
            prometheus.query(p99).into_iter().filter(|p99| p99.labels["allowed"] == allowed).collect();
        let seconds = of(&p99, algorithm).unwrap();
        assert!(0.0 < seconds && seconds < 1.0, "{algorithm} {allowed}: {seconds} s");
    }
}

#[test]
fn c8_the_admin_listener_reports_health_and_metrics() {
    let ratewright = Ratewright::start(SLOW);
    for _ in 0..7 {
        ratewright.get("check?key=somebody");
    }
    for path in ["/health", "/actuator/health", "/ready"] {
        let answer = ratewright.admin(path);
        assert_eq!((answer.status, answer.json()), (200, json!({"status": "UP"})), "{path}");
    }
    let info = ratewright.admin("/actuator/info").json();
    assert_eq!((&info["name"], &info["version"]), (&json!("ratewright"), &json!(env!("CARGO_PKG_VERSION"))));
    let top = ratewright.admin("/api/v1/admin/top").json();
    let denied =
        json!({"policy": "token_bucket", "client": "somebody", "atLeast": 2, "atMost": 2, "mode": "enforce"});
    assert_eq!(top["top"], json!([denied]));
    let page = ratewright.admin("/metrics").body;
    for series in [
        r#"ratewright_decisions_total{application="shop",policy="token_bucket",entrypoint="rest",verdict="denied",basis="local",mode="enforce"} 2"#,
        r#"ratewright_memory_keys{application="shop"} 1.0"#,
        r#"ratewright_policies{application="shop"} 0.0"#,
    ] {
        assert!(page.lines().any(|line| line == series), "{series} is not in:\n{page}");
    }
    assert!(!page.contains("somebody"), "no client is in a label");
}

/// As many as the file lists: neither those behind ad hoc keys nor rules for Envoy, but those on requests in flight.
#[test]
fn the_number_of_policies_is_that_of_the_policy_file_in_force() {
    let rules = tempfile::NamedTempFile::new().unwrap();
    let domain = "domain: a\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 5}}]\n";
    std::fs::write(rules.path(), domain).unwrap();
    let with =
        |policies: &str| format!("envoy: {{files: ['{}']}}\npolicies: {policies}\n", rules.path().display());
    let ratewright = Ratewright::start(&with(
        "[{name: a, quota: {rate: 1/s}}, {name: b, in_flight: 5}, {name: c, in_flight: 6, by: ip}]",
    ));
    assert_eq!(ratewright.metric("ratewright_policies"), 3.0);
    assert!(ratewright.banner.contains(", 3 policies,"), "{}", ratewright.banner);
    ratewright.reload(&with("[{name: b, in_flight: 5}]"));
    assert_eq!(ratewright.metric("ratewright_policies"), 1.0);
    ratewright.reload(&with("[]"));
    assert_eq!(ratewright.metric("ratewright_policies"), 0.0);
}

#[test]
fn b7_denials_are_warnings_and_their_log_lines_are_limited() {
    let ratewright = Ratewright::start(SLOW);
    for _ in 0..105 {
        ratewright.get("check?key=somebody");
    }
    let denial_lines = ratewright.log();
    let denial_lines: Vec<_> = denial_lines.iter().filter(|line| line.contains("denied")).collect();
    let first = denial_lines.first().expect("a warning");
    let first: Value = serde_json::from_str(first).unwrap();
    for (member, expected) in [
        ("level", json!("WARN")),
        ("client", json!("somebody")),
        ("policy", json!("token_bucket")),
        ("retry_after", json!(3_600)),
        ("status", json!(429)),
    ] {
        assert_eq!(first[member], expected, "{first}");
    }
    assert!((10..100).contains(&denial_lines.len()), "{} lines for 100 denials", denial_lines.len());
}

/// B7: a denial is one log line, whatever the client sends as its name.
#[test]
fn b7_clients_cannot_forge_log_lines() {
    let policy = "policies: [{name: p, by: user, quota: {rate: 1/h}}]";
    for format in ["text", "json"] {
        let ratewright = Ratewright::start(&format!("{policy}\nlog: {{format: {format}}}\n"));
        let attributes = json!({ "user": "a\n2026-01-01T00:00:00Z  WARN forged\u{1b}[31m", "path": "/x", "method": "GET" });
        assert_eq!(ratewright.decide(&attributes).status, 200);
        assert_eq!(ratewright.decide(&attributes).status, 429);
        ratewright.wait_for_line(&["WARN", "denied", "/x"]);
        let log = ratewright.log();
        assert!(
            !log.iter().any(|line| line.starts_with("2026-01-01") || line.contains('\u{1b}')),
            "{log:#?}"
        );
    }
}
