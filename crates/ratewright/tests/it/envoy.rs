//! A real Envoy with its rate limit filter, in front of nginx: what its clients see.

mod ambiguous_requests;

use std::collections::BTreeMap;

use ratewright_lab::{
    Envoy, Fault, Filter, Load, Nginx, Proxy, Redis, Trust, skip, wait_until, write_certificates,
};

use crate::process::{Answer, Ratewright, http};

/// By address, and by path.
const BY: &str = "\
- actions: [{remote_address: {}}]
- actions: [{request_headers: {header_name: ':path', descriptor_key: path}}]
";

/// By one header's value, with the cost in another; and by tokens, whose number is in the response.
const BY_COST: &str = "\
- actions: [{request_headers: {header_name: x-batch, descriptor_key: batch}}]
  hits_addend: {format: '%REQ(x-size)%'}
- actions: [{request_headers: {header_name: x-model, descriptor_key: model}}]
  hits_addend: {number: 0}
- actions: [{request_headers: {header_name: x-model, descriptor_key: model}}]
  hits_addend: {format: '%RESP(x-tokens)%'}
  apply_on_stream_done: true
";

/// Rules for the domain `edge`, and the program with them.
struct Edge {
    folder: tempfile::TempDir,
    ratewright: Ratewright,
    upstream: Nginx,
}

/// True if Envoy is installed. Without it the test is skipped.
pub(crate) fn has_envoy() -> bool {
    let is_installed = Envoy::program().is_some();
    if !is_installed {
        skip("Envoy is not installed; `make deps` installs it");
    }
    is_installed
}

impl Edge {
    fn start(rules: &str, more: &str) -> Self {
        Self::with("compat: all_or_nothing", rules, more)
    }

    fn with(settings: &str, rules: &str, more: &str) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join("edge.yaml"), rules).unwrap();
        let config = format!("envoy: {{files: [{}], {settings}}}\n{more}", folder.path().display());
        let ratewright = Ratewright::start(&config);
        Self::of(folder, ratewright)
    }

    /// The program with these listeners.
    fn opening(listeners: &str) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let [rules, file] = ["edge.yaml", "ratewright.yaml"].map(|name| folder.path().join(name));
        std::fs::write(&rules, RULES).unwrap();
        let config = format!("listen: {{{listeners}}}\nenvoy: {{files: [{}]}}\n", rules.display());
        std::fs::write(&file, config).unwrap();
        Self::of(folder, Ratewright::serve(&["-c".as_ref(), file.as_path()]))
    }

    fn of(folder: tempfile::TempDir, ratewright: Ratewright) -> Self {
        let answer = "location / { add_header x-tokens 8; return 200 'through'; }\n";
        Self { folder, ratewright, upstream: Nginx::start(1, "", answer) }
    }

    fn envoy(&self, failure_mode_deny: bool) -> Envoy {
        self.envoy_with(Filter { failure_mode_deny, rate_limits: BY, ..Filter::PATIENT })
    }

    fn envoy_with(&self, filter: Filter<'_>) -> Envoy {
        let upstream = self.upstream.address();
        Envoy::start(&Filter { service: &self.ratewright.grpc, upstream: &upstream, ..filter })
    }

    /// The same request in JSON.
    fn ask(&self, body: &str) -> Answer {
        let (address, length) = (&self.ratewright.address, body.len());
        let head = format!("POST /json HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n");
        http(address, &format!("{head}Connection: close\r\n\r\n{body}"))
    }
}

fn get(envoy: &Envoy, path: &str) -> Answer {
    get_with(envoy, path, "")
}

/// The same with header fields, each with the end of its line.
fn get_with(envoy: &Envoy, path: &str, fields: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n");
    http(&envoy.address(), &request)
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
- {key: path, value: /once, rate_limit: {unit: year, requests_per_unit: 1}}
- {key: path, value: /shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
- {key: path, value: /free, rate_limit: {unlimited: true}}
- {key: path, value: /bucket, rate_limit: {algorithm: token_bucket, unit: year, requests_per_unit: 3}}
- {key: remote_address, rate_limit: {unit: year, requests_per_unit: 1000}}
";

#[test]
fn envoys_clients_get_429_and_rate_limit_headers() {
    if !has_envoy() {
        return;
    }
    let edge = Edge::start(RULES, "");
    let envoy = edge.envoy(false);
    let first = get(&envoy, "/once");
    assert_eq!((first.status, first.body.as_str()), (200, "through"));
    assert_eq!(first.headers["x-ratelimit-remaining"], "0");
    assert_eq!(first.headers["x-ratelimit-limit"], "1, 1000;w=31536000, 1;w=31536000");
    let denied = get(&envoy, "/once");
    assert_eq!((denied.status, &*denied.headers["x-envoy-ratelimited"]), (429, "true"));
    assert!(denied.headers["x-ratelimit-reset"].parse::<u64>().unwrap() <= 31_536_000);
    assert_eq!(statuses(&envoy, "/shadow", 5), BTreeMap::from([(200, 5)]));
    assert_eq!(statuses(&envoy, "/free", 5), BTreeMap::from([(200, 5)]));
    assert_eq!(statuses(&envoy, "/bucket", 5), BTreeMap::from([(200, 3), (429, 2)]));
    // Denied requests do not charge the address: 14 of 17 passed.
    assert_eq!(get(&envoy, "/other").headers["x-ratelimit-remaining"], "985");
}

#[test]
fn a_reload_of_rules_keeps_counters() {
    if !has_envoy() {
        return;
    }
    let edge = Edge::start(RULES, "");
    let envoy = edge.envoy(true);
    assert_eq!(statuses(&envoy, "/once", 3), BTreeMap::from([(200, 1), (429, 2)]));
    let more = RULES.replace(
        "value: /once, rate_limit: {unit: year, requests_per_unit: 1}",
        "value: /once, rate_limit: {unit: year, requests_per_unit: 4}",
    );
    std::fs::write(edge.folder.path().join("edge.yaml"), &more).unwrap();
    wait_until("it is in force", || edge.ratewright.metric("ratewright_reloads_total") == 1.0);
    assert_eq!(statuses(&envoy, "/once", 5), BTreeMap::from([(200, 3), (429, 2)]));
    // A limit that comes beside it does not forget it.
    let both = more.replace(
        "rate_limit: {unit: year, requests_per_unit: 4}",
        "rate_limit: [{unit: hour, requests_per_unit: 9}, {unit: year, requests_per_unit: 4}]",
    );
    std::fs::write(edge.folder.path().join("edge.yaml"), both).unwrap();
    wait_until("it is in force", || edge.ratewright.metric("ratewright_reloads_total") == 2.0);
    assert_eq!(get(&envoy, "/once").status, 429);
    // An invalid file is reported too.
    let free = more.replace("value: /free, rate_limit: {unlimited: true}", "value: /free");
    std::fs::write(edge.folder.path().join("edge.yaml"), free).unwrap();
    edge.ratewright.wait_for_line(&["policies reloaded", "~envoy"]);
}

/// Rules are replaced repeatedly under load: no request fails, and no more pass than the limit allows.
#[test]
fn reloads_of_rules_under_load_keep_the_limit_exact() {
    if !has_envoy() {
        return;
    }
    let rules = |n: usize| {
        let once = "value: /once, rate_limit: {unit: year, requests_per_unit: 1}";
        let many = "value: /many, rate_limit: {unit: year, requests_per_unit: 400}";
        RULES.replace(once, many).replace("per_unit: 1000", &format!("per_unit: {}", 100_000 + n))
    };
    let edge = Edge::start(&rules(0), "");
    let envoy = edge.envoy(true);
    let ask = |goes_on: &dyn Fn() -> bool| {
        let mut counts = BTreeMap::<u16, usize>::new();
        while goes_on() || counts.values().sum::<usize>() < 150 {
            *counts.entry(get(&envoy, "/many").status).or_default() += 1;
        }
        counts
    };
    let counts: Vec<_> = std::thread::scope(|scope| {
        let load = Load::default();
        let asking = (0..4).map(|_| load.goes_on()).map(|goes_on| scope.spawn(move || ask(&goes_on)));
        let asking: Vec<_> = asking.collect();
        for n in 1..=5 {
            std::fs::write(edge.folder.path().join("edge.yaml"), rules(n)).unwrap();
            wait_until("it is in force", || edge.ratewright.metric("ratewright_reloads_total") >= n as f64);
        }
        load.end();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    let of = |status: u16| counts.iter().filter_map(|counts| counts.get(&status)).sum::<usize>();
    let all: usize = counts.iter().flat_map(BTreeMap::values).sum();
    assert_eq!((of(200), of(429)), (400, all - 400), "{counts:?}");
}

#[test]
fn costs_come_from_request_and_response_headers() {
    if !has_envoy() {
        return;
    }
    let rules = "\
domain: edge
descriptors:
- {key: batch, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: model, record_mode: true, rate_limit: {unit: year, requests_per_unit: 10}}
";
    let edge = Edge::start(rules, "");
    let envoy = edge.envoy_with(Filter { counted_limits: BY_COST, ..Filter::PATIENT });
    let batch = |size: u32| get_with(&envoy, "/", &format!("x-batch: a\r\nx-size: {size}\r\n"));
    assert_eq!((batch(7).status, batch(4).status, batch(3).status, batch(1).status), (200, 429, 200, 429));

    let look = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "model", "value": "m"}], "hitsAddend": "0"}]}"#;
    let left = || edge.ask(look).json()["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0);
    let model = || get_with(&envoy, "/", "x-model: m\r\n").status;
    assert_eq!(model(), 200);
    wait_until("the answer is counted", || left() == 2);
    assert_eq!(model(), 200, "of ten tokens two are left");
    wait_until("the answer is counted", || edge.ask(look).status == 429);
    assert_eq!(model(), 429);
}

/// Envoy and Ratewright use mutual TLS. A client without a certificate gets no response.
#[test]
fn only_clients_with_a_certificate_are_served() {
    if !has_envoy() {
        return;
    }
    let certificates = tempfile::TempDir::new().unwrap();
    let folder = certificates.path();
    write_certificates(folder);
    let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| folder.join(name));
    let (cert, key) = (cert.display(), key.display());
    let mutual = format!(", client_ca: {}", ca.display());
    for (more, trust, expected) in [
        ("", Trust::Blind, 500),
        ("", Trust::OneSided(folder), 200),
        (&*mutual, Trust::OneSided(folder), 500),
        (&*mutual, Trust::Mutual(folder), 200),
    ] {
        let tls = format!("tls: {{cert: {cert}, key: {key}{more}}}");
        let listeners = format!(
            "gateway: '127.0.0.1:0', api: '127.0.0.1:0', admin: off, grpc: {{address: '127.0.0.1:0', {tls}}}"
        );
        let edge = Edge::opening(&listeners);
        let filter = Filter { failure_mode_deny: true, rate_limits: BY, trust, ..Filter::PATIENT };
        let status = get(&edge.envoy_with(filter), "/once").status;
        assert_eq!(status, expected, "{trust:?} {more}");
        if status == 500 {
            edge.ratewright.wait_for_line(&["TLS handshake failed", "127.0.0.1"]);
        }
    }
}

/// Envoy does not notice an outage of Redis. During an outage of Ratewright it follows failure_mode_deny.
#[test]
fn envoy_survives_an_outage_of_redis_and_of_ratewright() {
    if !has_envoy() {
        return;
    }
    let mut redis = Redis::start();
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", redis.url());
    let edge = Edge::start(RULES, &store);
    let (open, closed) = (edge.envoy(false), edge.envoy(true));
    edge.ratewright.wait_for_redis();
    assert_eq!(get(&closed, "/bucket").status, 200);
    redis.kill();
    for _ in 0..20 {
        assert_eq!(get(&closed, "/other").status, 200);
    }
    let Edge { ratewright, upstream: _upstream, .. } = edge;
    assert!(ratewright.stop("TERM").success());
    assert_eq!((get(&open, "/once").status, get(&closed, "/once").status), (200, 500));
}

#[test]
fn post_json_decides_as_grpc_does() {
    let edge = Edge::with("headers: retry-after", RULES, "");
    let body = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "path", "value": "/once"}]}]}"#;
    let (first, second) = (edge.ask(body), edge.ask(body));
    assert_eq!((first.status, &first.json()["overallCode"]), (200, &"OK".into()));
    assert_eq!((second.status, &second.json()["overallCode"]), (429, &"OVER_LIMIT".into()));
    assert_eq!(second.json()["responseHeadersToAdd"][0]["key"], "Retry-After");
    let page = format!(
        "POST /json HTTP/1.1\r\nHost: {}\r\nOrigin: https://evil.example\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        edge.ratewright.address,
        body.len()
    );
    assert_eq!(http(&edge.ratewright.address, &page).status, 403, "a page of another site speaks for nobody");
    let wrong = edge.ask(r#"{"domain": ""}"#);
    assert_eq!((wrong.status, wrong.body.as_str()), (400, "rate limit domain must not be empty\n"));
    assert_eq!(edge.ask("{").status, 400);
}

/// Including charges over the limit (record mode).
#[test]
fn denials_are_counted_for_the_rule_that_denies() {
    for compat in ["all_or_nothing", "strict"] {
        let edge = Edge::with(&format!("compat: {compat}"), &RULES.replace("/once", "once"), "");
        let body = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "remote_address", "value": "::1"}]}, {"entries": [{"key": "path", "value": "once"}]}]}"#;
        let statuses: Vec<_> = (0..3).map(|_| edge.ask(body).status).collect();
        assert_eq!(statuses, [200, 429, 429]);
        let counted = |rule: &str, verdict: &str| {
            edge.ratewright.metric(&format!(
                r#"ratewright_decisions_total{{policy="envoy.edge.{rule}",entrypoint="json",verdict="{verdict}",basis="local",mode="enforce"}}"#
            ))
        };
        let of_both =
            ["path_once", "remote_address"].map(|rule| (counted(rule, "allowed"), counted(rule, "denied")));
        assert_eq!(of_both, [(1.0, 2.0), (3.0, 0.0)], "{compat}");
    }
}

/// A mistyped name looks like one without a limit. The metrics show it.
#[test]
fn unmatched_requests_are_counted_and_logged() {
    let edge = Edge::start(&format!("{RULES}- {{key: open}}\n"), "");
    assert!(edge.ratewright.banner.contains("4 limits, "), "{}", edge.ratewright.banner);
    // A rule without a limit is intended.
    for (domain, key) in [("egde", "path"), ("edge", "paht"), ("edge", "path"), ("edge", "open")] {
        let body = format!(
            r#"{{"domain": "{domain}", "descriptors": [{{"entries": [{{"key": "{key}", "value": "/free"}}]}}]}}"#
        );
        assert_eq!(edge.ask(&body).status, 200);
    }
    let counted = ["ratewright_envoy_unknown_domain_total", "ratewright_envoy_unmatched_descriptors_total"];
    assert_eq!(counted.map(|series| edge.ratewright.metric(series)), [1.0, 1.0]);
    edge.ratewright.wait_for_line(&["a domain that no file of envoy.files has", "egde"]);
    assert_eq!(edge.ratewright.ask("GET", "/healthcheck").body, "OK");
}

/// By rule, and by values of requests if the file says so (detailed_metric).
#[test]
fn hits_are_counted_by_rule() {
    let rules = "domain: edge\ndescriptors:
- {key: path, value: /once, rate_limit: {unit: year, requests_per_unit: 1}}
- {key: path, value: /shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
- {key: user, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 1}}
";
    let edge = Edge::start(rules, "");
    for (key, value, expected) in [("path", "/once", 429), ("path", "/shadow", 200), ("user", "u1", 429)] {
        let body = format!(
            r#"{{"domain": "edge", "hitsAddend": 3, "descriptors": [{{"entries": [{{"key": "{key}", "value": "{value}"}}]}}]}}"#
        );
        assert_eq!(edge.ask(&body).status, expected);
    }
    for rule in ["edge.path_/once", "edge.path_/shadow", "edge.user_u1"] {
        let counted = ["ratewright_envoy_hits_total", "ratewright_envoy_over_limit_hits_total"]
            .map(|series| edge.ratewright.metric(&format!(r#"{series}{{rule="{rule}"}}"#)));
        assert_eq!(counted, [3.0, 3.0], "{rule}");
    }
}

/// Envoy can send any header as a value. Values under secret-like names are not shown.
#[test]
fn secret_values_stay_out_of_the_log() {
    let limit = "rate_limit: {unit: year, requests_per_unit: 1}";
    let rules = format!("domain: edge\ndescriptors: [{{key: X-Api-Key, {limit}}}, {{key: user, {limit}}}]\n");
    let edge = Edge::start(&rules, "");
    for (key, value) in [("X-Api-Key", "s3cret"), ("user", "ada")] {
        let body = format!(
            r#"{{"domain": "edge", "hitsAddend": 2, "descriptors": [{{"entries": [{{"key": "{key}", "value": "{value}"}}]}}]}}"#
        );
        assert_eq!(edge.ask(&body).status, 429);
    }
    edge.ratewright.wait_for_line(&["denied", "ada"]);
    let (log, recent) = (edge.ratewright.logged(), edge.ratewright.admin("/api/v1/admin/denials").body);
    assert!(log.iter().any(|line| line.contains("X-Api-Key:#")), "{log:#?}");
    assert!(
        log.iter().all(|line| !line.contains("s3cret")) && !recent.contains("s3cret"),
        "{log:#?} {recent}"
    );
}

/// Hits reported after a response deny no request, and are not counted as denials; the next request is denied.
#[test]
fn hits_reported_after_a_response_are_not_denials() {
    let rules = "domain: edge\ndescriptors: [{key: model, record_mode: true, rate_limit: {unit: year, requests_per_unit: 10}}]\n";
    let edge = Edge::start(rules, "");
    let ask = |hits: u32| {
        edge.ask(&format!(
            r#"{{"domain": "edge", "descriptors": [{{"entries": [{{"key": "model", "value": "m"}}], "hitsAddend": {hits}}}]}}"#
        ))
    };
    assert_eq!([0, 8, 8].map(|hits| ask(hits).status), [200, 200, 429]);
    let denied = ask(0);
    assert_eq!(denied.status, 429);
    let reset_after = denied.json()["statuses"][0]["durationUntilReset"].as_str().unwrap().to_owned();
    let counted = |verdict: &str| {
        let labels = format!(
            r#"policy="envoy.edge.model",entrypoint="json",verdict="{verdict}",basis="local",mode="enforce""#
        );
        edge.ratewright.metric(&format!("ratewright_decisions_total{{{labels}}}"))
    };
    assert_eq!(["allowed", "denied"].map(counted), [3.0, 1.0]);
    let line = edge.ratewright.wait_for_line(&["denied", "envoy.edge.model"]);
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let retry_after = line["retry_after"].as_u64().unwrap();
    let left: u64 = reset_after.trim_end_matches('s').split('.').next().unwrap().parse().unwrap();
    assert!((left..=left + 60).contains(&retry_after), "{retry_after} s, until the year ends: {left} s");
}

/// One rule of each mode.
fn rules_of_every_mode() -> String {
    let limit = |n: u32| format!("rate_limit: {{unit: year, requests_per_unit: {n}}}");
    let (one, ten) = (limit(1), limit(10));
    format!(
        "domain: edge\ndescriptors:
- {{key: client, {ten}}}
- {{key: once, {one}}}
- {{key: tokens, record_mode: true, {ten}}}
- {{key: quota, quota_mode: true, {one}}}
"
    )
}

/// A request with these descriptors, each with its hits.
fn request(descriptors: &[(&str, u32)]) -> String {
    let descriptor = |(key, hits): &(&str, u32)| {
        format!(r#"{{"entries": [{{"key": "{key}", "value": "x"}}], "hitsAddend": {hits}}}"#)
    };
    let all: Vec<_> = descriptors.iter().map(descriptor).collect();
    format!(r#"{{"domain": "edge", "descriptors": [{}]}}"#, all.join(", "))
}

#[test]
fn a_decision_settles_afterwards_what_was_spent_and_what_was_paid_in_vain() {
    let redis = Redis::start();
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", redis.url());
    let edge = Edge::with("compat: all_or_nothing", &rules_of_every_mode(), &store);
    edge.ratewright.wait_for_redis();
    let ask = |descriptors: &[(&str, u32)]| edge.ask(&request(descriptors));
    let left = |key: &str| ask(&[(key, 0)]).json()["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0);

    assert_eq!(ask(&[("once", 1), ("quota", 1)]).status, 200);
    assert_eq!(ask(&[("tokens", 8), ("once", 1), ("client", 1)]).status, 429);
    wait_until("what was spent already is recorded", || left("tokens") == 2);
    assert_eq!(ask(&[("quota", 1), ("client", 1)]).status, 429);
    wait_until("what was paid in vain is back", || left("client") == 10);
}

/// With a stalled Redis, a decision waits for one call, whatever the modes of its rules.
#[test]
fn a_decision_makes_one_redis_call() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let store = format!("store: {{redis: {{url: '{}', deadline: 1s}}}}\n", proxy.url());
    let edge = Edge::with("compat: all_or_nothing", &rules_of_every_mode(), &store);
    edge.ratewright.wait_for_redis();
    let n_unanswered = || {
        let page = edge.ratewright.admin("/metrics").body;
        let counted = page.lines().filter(|line| line.starts_with("ratewright_store_failures_total{"));
        counted.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    let modes: [&[(&str, u32)]; 4] = [
        &[("client", 1)],
        &[("tokens", 1), ("client", 1)],
        &[("quota", 1), ("client", 1)],
        &[("tokens", 1), ("client", 1), ("quota", 1)],
    ];
    for asked in modes {
        let n_before = n_unanswered();
        proxy.set(Fault::BlackHole);
        let status = edge.ask(&request(asked)).status;
        proxy.set(Fault::None);
        assert!([200, 429].contains(&status), "{asked:?}: {status}");
        wait_until("the outage of Redis is logged", || n_unanswered() > n_before);
        assert_eq!(n_unanswered() - n_before, 1.0, "{asked:?}");
        edge.ratewright.wait_for_redis();
    }
}
