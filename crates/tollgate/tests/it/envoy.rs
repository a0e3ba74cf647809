//! Envoy itself, with its rate limit filter, in front of nginx: what its clients see.

use std::collections::BTreeMap;

use tollgate_lab::{Envoy, Filter, Nginx, Redis, wait_until};

use crate::process::{Answer, Tollgate, http};

/// By address, by path, and what a header says it costs.
const BY: &str = "\
- actions: [{remote_address: {}}]
- actions: [{request_headers: {header_name: ':path', descriptor_key: path}}]
";

/// Rules for the domain `edge`, and the program with them.
struct Edge {
    folder: tempfile::TempDir,
    tollgate: Tollgate,
    upstream: Nginx,
}

/// True if Envoy is there. Without it nothing is proved, and that is said.
#[expect(clippy::print_stderr, reason = "whoever runs the tests must see it")]
fn has_envoy(n_tests: &str) -> bool {
    let is_there = Envoy::program().is_some();
    if !is_there {
        eprintln!(
            "skipped {n_tests}: Envoy is not installed, and its registry was out of reach; run `make deps`"
        );
    }
    is_there
}

impl Edge {
    fn start(rules: &str, more: &str) -> Self {
        Self::with("compat: all_or_nothing", rules, more)
    }

    fn with(settings: &str, rules: &str, more: &str) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join("edge.yaml"), rules).unwrap();
        let config = format!("envoy: {{files: [{}], {settings}}}\n{more}", folder.path().display());
        let tollgate = Tollgate::start(&config);
        Self { folder, tollgate, upstream: Nginx::start(1, "", "location / { return 200 'through'; }\n") }
    }

    fn envoy(&self, failure_mode_deny: bool) -> Envoy {
        let upstream = self.upstream.address();
        let filter =
            Filter { service: &self.tollgate.grpc, upstream: &upstream, failure_mode_deny, rate_limits: BY };
        Envoy::start(&filter)
    }
}

fn get(envoy: &Envoy, path: &str) -> Answer {
    http(&envoy.address(), &format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
}

fn statuses(envoy: &Envoy, path: &str, n: usize) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..n {
        *counts.entry(get(envoy, path).status).or_default() += 1;
    }
    counts
}

const RULES: &str = "\
domain: edge
descriptors:
- {key: path, value: /once, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: /shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: /free, rate_limit: {unlimited: true}}
- {key: path, value: /bucket, rate_limit: {algorithm: token_bucket, unit: day, requests_per_unit: 3}}
- {key: remote_address, rate_limit: {unit: day, requests_per_unit: 1000}}
";

#[test]
fn envoys_clients_are_limited_and_told() {
    if !has_envoy("1 test of Envoy's filter") {
        return;
    }
    let edge = Edge::start(RULES, "");
    let envoy = edge.envoy(false);
    let first = get(&envoy, "/once");
    assert_eq!((first.status, first.body.as_str()), (200, "through"));
    assert_eq!(first.headers["x-ratelimit-remaining"], "0");
    assert_eq!(first.headers["x-ratelimit-limit"], "1, 1000;w=86400, 1;w=86400");
    let denied = get(&envoy, "/once");
    assert_eq!((denied.status, &*denied.headers["x-envoy-ratelimited"]), (429, "true"));
    assert!(denied.headers["x-ratelimit-reset"].parse::<u64>().unwrap() <= 86_400);
    assert_eq!(statuses(&envoy, "/shadow", 5), BTreeMap::from([(200, 5)]));
    assert_eq!(statuses(&envoy, "/free", 5), BTreeMap::from([(200, 5)]));
    assert_eq!(statuses(&envoy, "/bucket", 5), BTreeMap::from([(200, 3), (429, 2)]));
    // What was denied has cost the address nothing: 14 of 17 passed.
    assert_eq!(get(&envoy, "/other").headers["x-ratelimit-remaining"], "985");
}

#[test]
fn rules_are_changed_while_envoy_asks_and_counters_stay() {
    if !has_envoy("1 test of a reload") {
        return;
    }
    let edge = Edge::start(RULES, "");
    let envoy = edge.envoy(true);
    assert_eq!(statuses(&envoy, "/once", 3), BTreeMap::from([(200, 1), (429, 2)]));
    let more = RULES.replace(
        "value: /once, rate_limit: {unit: day, requests_per_unit: 1}",
        "value: /once, rate_limit: {unit: day, requests_per_unit: 4}",
    );
    std::fs::write(edge.folder.path().join("edge.yaml"), more).unwrap();
    wait_until("it is in force", || edge.tollgate.metric("tollgate_reloads_total") == 1.0);
    assert_eq!(statuses(&envoy, "/once", 5), BTreeMap::from([(200, 3), (429, 2)]));
}

/// Envoy must not notice that Redis is gone; that Tollgate is, it handles as it was told.
#[test]
fn without_redis_envoy_notices_nothing_and_without_tollgate_it_does_as_it_was_told() {
    if !has_envoy("1 test of outages") {
        return;
    }
    let mut redis = Redis::start();
    let store = format!("store: {{redis: {{url: '{}', deadline: 1s}}}}\n", redis.url());
    let edge = Edge::start(RULES, &store);
    let (open, closed) = (edge.envoy(false), edge.envoy(true));
    wait_until("it decides by Redis", || edge.tollgate.get("remaining?key=warm").json()["basis"] == "shared");
    assert_eq!(get(&closed, "/bucket").status, 200);
    redis.kill();
    for _ in 0..20 {
        assert_eq!(get(&closed, "/other").status, 200);
    }
    let Edge { tollgate, upstream: _upstream, .. } = edge;
    assert!(tollgate.stop("TERM").success());
    assert_eq!((get(&open, "/once").status, get(&closed, "/once").status), (200, 500));
}

#[test]
fn the_same_can_be_asked_in_json() {
    let edge = Edge::with("headers: retry-after", RULES, "");
    let body = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "path", "value": "/once"}]}]}"#;
    let ask = |body: &str| {
        let length = body.len();
        let head =
            format!("POST /json HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\n", edge.tollgate.address);
        http(&edge.tollgate.address, &format!("{head}Connection: close\r\n\r\n{body}"))
    };
    let (first, second) = (ask(body), ask(body));
    assert_eq!((first.status, &first.json()["overallCode"]), (200, &"OK".into()));
    assert_eq!((second.status, &second.json()["overallCode"]), (429, &"OVER_LIMIT".into()));
    assert_eq!(second.json()["responseHeadersToAdd"][0]["key"], "Retry-After");
    let wrong = ask(r#"{"domain": ""}"#);
    assert_eq!((wrong.status, wrong.body.as_str()), (400, "rate limit domain must not be empty\n"));
    assert_eq!(ask("{").status, 400);
}
