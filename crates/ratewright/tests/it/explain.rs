//! Explanations of a request: from the API, from the admin listener, and from a policy file.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::process::{Ratewright, run};

const CONFIG: &str = "clients:
  trusted_proxies: [10.0.0.0/8]
  user: { jwt: { secret: 0123456789abcdef0123456789abcdef } }
policies:
  - { name: login, group: endpoint, when: { path: '**/login**', method: POST }, by: ip, quota: { rate: 1/h, burst: 2 } }
  - { name: rest, group: endpoint, by: ip, quota: { rate: 100/h } }
  - { name: per-user, by: user, quota: { rate: 10/h }, overrides: [{ name: gold, match: { user: 'g-*' }, quota: { rate: 50/h } }] }
  - { name: partners, when: { 'header:X-Api-Key': k-1, host: api.example.com }, quota: { rate: 5/h } }
  - { name: trial, by: ip, mode: shadow, quota: { rate: 1/h } }
  - { name: old, by: ip, mode: off, quota: { rate: 1/h } }
  - { name: named, when: { path: /never }, quota: { rate: 1/h } }
";

#[track_caller]
fn explained(ratewright: &Ratewright, attributes: &str) -> Value {
    let answer = ratewright.post("/api/v1/explain", &[], &format!(r#"{{"attributes": {attributes}}}"#));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.headers["cache-control"], "no-store");
    serde_json::from_str(&answer.body).unwrap()
}

/// What came of each policy, a line each.
#[track_caller]
fn check(ratewright: &Ratewright, attributes: &str, expected: Expect) {
    let explained = explained(ratewright, attributes);
    let mut text = format!("{}\n", explained["summary"].as_str().unwrap());
    for policy in explained["policies"].as_array().unwrap() {
        let [name, result, why] = ["policy", "result", "why"].map(|name| policy[name].as_str().unwrap());
        text.push_str(&format!("{name}: {result}: {why}\n"));
    }
    expected.assert_eq(&text);
}

/// Where attributes come from, a line each.
#[track_caller]
fn check_origins(ratewright: &Ratewright, attributes: &str, expected: Expect) {
    let explained = explained(ratewright, attributes);
    let mut text = String::new();
    for attribute in explained["attributes"].as_array().unwrap() {
        let [name, from] = ["name", "from"].map(|name| attribute[name].as_str().unwrap());
        text.push_str(&format!("{name} = {}: {from}\n", attribute["values"]));
    }
    expected.assert_eq(&text);
}

#[test]
fn each_policy_is_explained() {
    let ratewright = Ratewright::start(CONFIG);
    let login = r#"{"ip": "192.0.2.1", "method": "POST", "path": "/api/login", "user": "g-1"}"#;
    check(
        &ratewright,
        login,
        expect![[r#"
        allowed; 3 of 7 policies apply, the tightest is login
        login: applies: it covers the request
        rest: group_taken: of the group endpoint only the first match applies, and login comes first
        per-user: applies: it covers the request; its override gold matches
        partners: not_covered: the request has no header:x-api-key; the request has no host; it must match api.example.com
        trial: applies: it covers the request
        old: off: its mode is off, or enabled is false
        named: not_covered: path is /api/login, which does not match /never
    "#]],
    );
    for _ in 0..2 {
        assert_eq!(
            ratewright.post("/api/v1/decide", &[], &format!(r#"{{"attributes": {login}}}"#)).status,
            200
        );
    }
    check(
        &ratewright,
        login,
        expect![[r#"
        denied by login: its bucket is empty: 0 of 2 left
        login: applies: it covers the request
        rest: group_taken: of the group endpoint only the first match applies, and login comes first
        per-user: applies: it covers the request; its override gold matches
        partners: not_covered: the request has no header:x-api-key; the request has no host; it must match api.example.com
        trial: applies: it covers the request
        old: off: its mode is off, or enabled is false
        named: not_covered: path is /api/login, which does not match /never
    "#]],
    );
    check(
        &ratewright,
        r#"{"ip": "192.0.2.1", "method": "OPTIONS", "path": "/"}"#,
        expect![[r#"
        allowed: the request is exempt: method matches OPTIONS
        login: exempt: the request is exempt: method matches OPTIONS
        rest: exempt: the request is exempt: method matches OPTIONS
        per-user: exempt: the request is exempt: method matches OPTIONS
        partners: exempt: the request is exempt: method matches OPTIONS
        trial: exempt: the request is exempt: method matches OPTIONS
        old: exempt: the request is exempt: method matches OPTIONS
        named: exempt: the request is exempt: method matches OPTIONS
    "#]],
    );
    let partner =
        r#"{"ip": "192.0.2.1", "path": "/x", "host": "other.example.com", "headers": {"X-Api-Key": "k-2"}}"#;
    check(
        &ratewright,
        partner,
        expect![[r#"
        allowed; 2 of 7 policies apply, the tightest is rest
        login: not_covered: the request has no method; it must match POST; path is /x, which does not match **/login**
        rest: applies: it covers the request
        per-user: missing: the request has no user, and missing is skip
        partners: not_covered: header:x-api-key does not match (1 value(s) sent); host is other.example.com, which does not match api.example.com
        trial: applies: it covers the request
        old: off: its mode is off, or enabled is false
        named: not_covered: path is /x, which does not match /never
    "#]],
    );
}

#[test]
fn explaining_spends_nothing_and_agrees_with_the_decision() {
    let ratewright = Ratewright::start(CONFIG);
    let login = r#"{"ip": "192.0.2.1", "method": "POST", "path": "/login"}"#;
    let decide = || ratewright.post("/api/v1/decide", &[], &format!(r#"{{"attributes": {login}}}"#));
    for expected in [200, 200, 429, 429] {
        for _ in 0..3 {
            let explained = explained(&ratewright, login);
            assert_eq!(explained["status"], expected);
            assert_eq!(explained["allowed"], expected == 200);
        }
        assert_eq!(decide().status, expected);
    }
    let denied = decide();
    let headers = &explained(&ratewright, login)["headers"];
    for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "ratelimit-policy"] {
        assert_eq!(headers[name], denied.headers[name], "{name}");
    }
    assert!(headers["retry-after"].is_string());
}

#[test]
fn the_origin_of_each_attribute_is_shown() {
    let ratewright = Ratewright::start(CONFIG);
    check_origins(
        &ratewright,
        r#"{"peer": "10.0.0.1", "path": "/", "headers": {"X-Forwarded-For": "6.6.6.6, 198.51.100.7, 10.0.0.2", "Authorization": "Bearer x.y.z"}}"#,
        expect![[r#"
            ip = ["198.51.100.7"]: X-Forwarded-For, entry 2 of 3 from the right, sent by a trusted proxy
            method = []: missing
            path = ["/"]: the request
            user = ["(cannot be read)"]: token rejected: the token's header cannot be read
            header:x-api-key = []: missing
            host = []: missing
        "#]],
    );
    check_origins(
        &ratewright,
        r#"{"peer": "203.0.113.9", "path": "/", "headers": {"X-Forwarded-For": "1.1.1.1"}}"#,
        expect![[r#"
            ip = ["203.0.113.9"]: the connection; X-Forwarded-For is ignored, since this address is not in clients.trusted_proxies
            method = []: missing
            path = ["/"]: the request
            user = []: missing: the request has no Authorization header
            header:x-api-key = []: missing
            host = []: missing
        "#]],
    );
    check_origins(
        &ratewright,
        r#"{"peer": "10.0.0.1", "path": "/", "headers": {"X-Api-Key": "k-1"}}"#,
        expect![[r#"
            ip = ["10.0.0.1"]: the connection of a trusted proxy that sent no readable X-Forwarded-For: all its clients look like one
            method = []: missing
            path = ["/"]: the request
            user = []: missing: the request has no Authorization header
            header:x-api-key = ["(secret)"]: the header x-api-key
            host = []: missing
        "#]],
    );
    let both =
        ratewright.post("/api/v1/explain", &[], r#"{"attributes": {"ip": "192.0.2.1", "peer": "10.0.0.1"}}"#);
    assert_eq!(both.status, 400, "{}", both.body);
}

/// As in the gateway: only a trusted proxy may name the user.
#[test]
fn the_user_header_of_a_trusted_peer_counts() {
    let config = r#"
clients: { trusted_proxies: [10.0.0.0/8], user: { header: X-User-Id } }
policies: [{ name: per-user, by: user, quota: { rate: 3/h } }]
"#;
    let ratewright = Ratewright::start(config);
    check_origins(
        &ratewright,
        r#"{"peer": "10.0.0.1", "path": "/", "headers": {"x-user-id": "anna"}}"#,
        expect![[r#"
            ip = ["10.0.0.1"]: the connection of a trusted proxy that sent no readable X-Forwarded-For: all its clients look like one
            method = []: missing
            path = ["/"]: the request
            user = ["anna"]: the x-user-id header from a trusted proxy
        "#]],
    );
    check_origins(
        &ratewright,
        r#"{"peer": "203.0.113.9", "path": "/", "headers": {"x-user-id": "anna"}}"#,
        expect![[r#"
            ip = ["203.0.113.9"]: the connection
            method = []: missing
            path = ["/"]: the request
            user = []: missing: no x-user-id header from a trusted proxy
        "#]],
    );
    check_origins(
        &ratewright,
        r#"{"ip": "10.0.0.1", "path": "/", "headers": {"x-user-id": "anna"}}"#,
        expect![[r#"
            ip = ["10.0.0.1"]: from the caller
            method = []: missing
            path = ["/"]: the request
            user = []: missing: the x-user-id header names the user only if peer is set, and is a trusted proxy
        "#]],
    );
    let decide = |peer: &str| {
        let body = json!({"attributes": {"peer": peer, "headers": {"X-User-Id": "anna"}}, "cost": 2});
        ratewright.post("/api/v1/decide", &[], &body.to_string()).status
    };
    assert_eq!([decide("10.0.0.1"), decide("10.9.9.9")], [200, 429], "one user, whatever the proxy");
    assert_eq!([decide("203.0.113.9"), decide("203.0.113.9")], [200, 200], "no user, so no limit");
}

/// A rejected token is reported, whatever the peer; the header counts beside it.
#[test]
fn the_origin_of_the_user_is_the_one_that_counted() {
    let with_header = CONFIG.replace("user: {", "user: { header: X-User-Id,");
    assert_ne!(with_header, CONFIG);
    let ratewright = Ratewright::start(&with_header);
    let user = |peer: &str, headers: &str| {
        let attributes = format!(r#"{{"peer": "{peer}", "path": "/", "headers": {{{headers}}}}}"#);
        let explained = explained(&ratewright, &attributes);
        let attributes = explained["attributes"].as_array().unwrap();
        let user = attributes.iter().find(|attribute| attribute["name"] == "user").unwrap();
        format!("{} {}", user["values"], user["from"].as_str().unwrap())
    };
    let (trusted, untrusted) = ("10.0.0.1", "203.0.113.9");
    let (token, name) = (r#""Authorization": "Bearer x.y.z""#, r#""x-user-id": "anna""#);
    expect![[r#"
        ["(cannot be read)"] token rejected: the token's header cannot be read
        ["anna"] the x-user-id header from a trusted proxy
        ["(cannot be read)"] token rejected: the token's header cannot be read
        ["anna"] the x-user-id header from a trusted proxy
        [] missing: the request has no Authorization header, and no x-user-id header from a trusted proxy"#]]
    .assert_eq(
        &[
            user(trusted, token),
            user(trusted, &format!("{token}, {name}")),
            user(untrusted, &format!("{token}, {name}")),
            user(trusted, name),
            user(untrusted, name),
        ]
        .join("\n"),
    );
}

#[test]
fn the_command_asks_an_instance_or_reads_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, CONFIG).unwrap();
    let file = file.to_str().unwrap();
    let ratewright = Ratewright::start(CONFIG);
    let admin = format!("http://{}", ratewright.admin);
    let request = ["explain", "-X", "POST", "/api/login", "--ip", "192.0.2.1"];
    let by_file = run(&[&request[..], &["-c", file]].concat());
    let by_program = run(&[&request[..], &["--admin", &admin]].concat());
    // The time of day is another one every second.
    let timeless = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).unwrap();
        let is_timeless = |line: &&str| !line.contains("x-ratelimit-reset");
        text.lines().filter(is_timeless).map(|line| format!("{line}\n")).collect::<String>()
    };
    let text = timeless(by_file.stdout);
    assert_eq!(text, timeless(by_program.stdout), "{:?}", by_program.stderr);
    expect![[r#"
        POST /api/login: allowed; 2 of 7 policies apply, the tightest is login

        ATTRIBUTE         VALUE       FROM
        ip                192.0.2.1   from the caller
        method            POST        the request
        path              /api/login  the request
        user                          missing: the request has no Authorization header
        header:x-api-key              missing
        host                          missing

        POLICY    RESULT       WHY
        login     applies      it covers the request
        rest      group taken  of the group endpoint only the first match applies, and login comes first
        per-user  missing      the request has no user, and missing is skip
        partners  not covered  the request has no header:x-api-key; the request has no host; it must match api.example.com
        trial     applies      it covers the request
        old       off          its mode is off, or enabled is false
        named     not covered  path is /api/login, which does not match /never

        KEY              LEFT  OF  FULL IN  RETRY AFTER  MODE
        login:192.0.2.1     2   2  0 s      0 s          enforce
        trial:192.0.2.1     1   1  0 s      0 s          shadow

        allowed (basis local); nothing was spent
          ratelimit: "login";r=2
          ratelimit-policy: "login";q=2;w=7200
          x-ratelimit-limit: 2
          x-ratelimit-remaining: 2
    "#]].assert_eq(&text);
    let json = run(&[&request[..], &["-c", file, "--json"]].concat());
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["allowed"], true);
    let wrong = run(&["explain", "/", "-H", "no colon"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn routes_and_permits_are_explained_as_the_gateway_sees_them() {
    let ratewright = Ratewright::start(
        "routes:
  - { id: orders, match: { path: /orders/**, method: [GET] }, upstream: 'http://127.0.0.1:1', policies: [per-route] }
policies:
  - { name: per-route, by: [route, ip], quota: { rate: 5/h } }
  - { name: at-once, by: ip, in_flight: 3 }
",
    );
    check(
        &ratewright,
        r#"{"ip": "192.0.2.1", "method": "GET", "path": "/orders/7"}"#,
        expect![[r#"
            allowed; 2 of 2 policies apply, the tightest is per-route
            per-route: applies: it covers the request
            at-once: applies: it covers the request; 0 of 3 requests are in flight
        "#]],
    );
    check(
        &ratewright,
        r#"{"ip": "192.0.2.1", "method": "GET", "path": "/other"}"#,
        expect![[r#"
            allowed; 1 of 2 policies apply, and none of them denies: at-once
            per-route: not_named: only routes and callers that name it fall under it
            at-once: applies: it covers the request; 0 of 3 requests are in flight
        "#]],
    );
    let explained = explained(&ratewright, r#"{"ip": "192.0.2.1", "method": "POST", "path": "/orders/7"}"#);
    assert_eq!(explained["route"], "routes match, but not with this method; the gateway responds 405");
}
