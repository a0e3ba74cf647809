//! Decisions during an outage of a real Redis.

use ratewright_lab::{Redis, wait_until};
use serde_json::{Value, json};

use crate::process::{Answer, Ratewright};

const POLICIES: &str = "
policies:
- {name: opens, when: {path: /open}, by: ip, on_failure: open, quota: {rate: 1/h, burst: 4}}
- {name: closes, when: {path: /closed}, by: ip, on_failure: closed, quota: {rate: 1/h, burst: 4}}
- {name: halves, when: {path: /local}, by: ip, on_failure: local, quota: {rate: 1/h, burst: 4}}
";

fn start(server: &Redis, more: &str) -> Ratewright {
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", server.url());
    let ratewright = Ratewright::start(&format!("{store}{more}{POLICIES}"));
    ratewright.wait_for_redis();
    ratewright
}

fn decide(ratewright: &Ratewright, path: &str) -> Answer {
    ratewright.decide(&json!({"ip": "192.0.2.1", "path": path}))
}

/// Waits until decisions on the path have this basis.
fn wait_for_basis(ratewright: &Ratewright, path: &str, basis: &str) {
    let look = json!({"attributes": {"ip": "192.0.2.9", "path": path}, "look": true}).to_string();
    wait_until(basis, || ratewright.post("/api/v1/decide", &[], &look).json()["basis"] == basis);
}

/// C7: each policy's on_failure applies without Redis; the response and the metrics show it.
#[test]
fn c7_each_policy_says_what_happens_without_redis() {
    let mut server = Redis::start();
    let ratewright = start(&server, "");
    let spent = [(); 5].map(|()| decide(&ratewright, "/open").status);
    assert_eq!(spent, [200, 200, 200, 200, 429]);
    server.kill();
    wait_for_basis(&ratewright, "/open", "fail_open");

    let series = |policy: &str, verdict: &str, basis: &str| {
        ratewright.metric(&format!(
            r#"ratewright_decisions_total{{policy="{policy}",entrypoint="rest",verdict="{verdict}",basis="{basis}",mode="enforce"}}"#
        ))
    };
    for (path, policy, basis, statuses) in [
        ("/open", "opens", "fail_open", [200, 200, 200]),
        ("/closed", "closes", "fail_closed", [429, 429, 429]),
        ("/local", "halves", "local", [200, 200, 429]),
    ] {
        let answers = [(); 3].map(|()| decide(&ratewright, path));
        assert_eq!(answers.each_ref().map(|answer| answer.status), statuses, "{path}");
        for answer in &answers {
            let body = answer.json();
            assert_eq!(
                (&body["basis"], &body["limits"][0]["basis"]),
                (&json!(basis), &json!(basis)),
                "{path}"
            );
        }
        let n = |status| statuses.iter().filter(|found_status| **found_status == status).count() as f64;
        assert_eq!(series(policy, "allowed", basis), n(200), "{path}");
        assert_eq!(series(policy, "denied", basis), n(429), "{path}");
        assert!(ratewright.metric(&format!("ratewright_store_standings_total{{basis=\"{basis}\"}}")) >= 3.0);
    }
    let closed = decide(&ratewright, "/closed");
    let body = closed.json();
    assert_eq!(closed.headers["retry-after"], "1");
    assert_eq!(body["message"], "Rate limits cannot be checked");
    assert_eq!(body["detail"], "Rate limits cannot be checked. Try again in 1 second.");
    assert_eq!(
        (ratewright.metric("ratewright_store_up"), ratewright.metric("ratewright_store_substituted")),
        (0.0, 1.0)
    );

    server.run();
    wait_for_basis(&ratewright, "/closed", "shared");
    assert_eq!(decide(&ratewright, "/closed").remaining("closes"), Some(3), "nothing was charged meanwhile");
}

/// C7: a request under several policies: a denial by on_failure: closed charges no other policy.
#[test]
fn c7_a_denial_without_redis_charges_no_other_policy() {
    let mut server = Redis::start();
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", server.url());
    let ratewright = Ratewright::start(&format!(
        "{store}policies: [{{name: halves, by: ip, quota: {{rate: 1/h, burst: 4}}}}, \
         {{name: closes, when: {{path: /closed}}, by: ip, on_failure: closed, quota: {{rate: 1/h, burst: 4}}}}]"
    ));
    wait_for_basis(&ratewright, "/closed", "shared");
    server.kill();
    wait_for_basis(&ratewright, "/closed", "fail_closed");
    for _ in 0..3 {
        let denied = decide(&ratewright, "/closed");
        assert_eq!((denied.status, &denied.json()["basis"]), (429, &json!("fail_closed")));
    }
    assert_eq!(decide(&ratewright, "/open").remaining("halves"), Some(1), "the share of four is two");
    assert_eq!(decide(&ratewright, "/open").remaining("halves"), Some(0));
    let denied = decide(&ratewright, "/closed").json();
    assert_eq!(denied["message"], "Rate limit exceeded", "the wait is that of halves");
    assert!(denied["detail"].as_str().unwrap().starts_with("Rate limit \"halves\" exceeded."), "{denied}");
}

/// A policy in shadow mode neither denies without Redis, nor says how the request was decided.
#[test]
fn a_shadow_policy_does_not_change_the_basis() {
    let mut server = Redis::start();
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", server.url());
    let ratewright = Ratewright::start(&format!(
        "{store}policies: [{{name: halves, by: ip, quota: {{rate: 1/h, burst: 4}}}}, \
         {{name: trial, mode: shadow, by: ip, on_failure: closed, quota: {{rate: 1/h, burst: 4}}}}]"
    ));
    wait_for_basis(&ratewright, "/", "shared");
    server.kill();
    wait_for_basis(&ratewright, "/", "local");
    let allowed = decide(&ratewright, "/");
    assert_eq!((allowed.status, &allowed.json()["basis"]), (200, &json!("local")));
}

/// C10: allowed requests are logged at DEBUG, the outage of Redis at WARN, once, with its cause.
#[test]
fn c10_allowed_at_debug_and_substitutes_at_warn() {
    let mut server = Redis::start();
    let ratewright = start(&server, "log: {level: debug}\n");
    decide(&ratewright, "/local");
    let allowed = ratewright.wait_for_line(&["\"message\":\"allowed\""]);
    let allowed: Value = serde_json::from_str(&allowed).unwrap();
    for (member, expected) in [
        ("level", "DEBUG"),
        ("client", "192.0.2.1"),
        ("path", "/local"),
        ("policy", "halves"),
        ("basis", "shared"),
    ] {
        assert_eq!(allowed[member], expected, "{allowed}");
    }
    server.kill();
    wait_for_basis(&ratewright, "/local", "local");
    let port = server.port().to_string();
    ratewright.wait_for_line(&["WARN", "deciding without Redis; each policy's on_failure applies", &port]);
    for _ in 0..20 {
        decide(&ratewright, "/local");
    }
    let log = ratewright.log();
    let outages = log.iter().filter(|line| line.contains("deciding without Redis") && line.contains(&port));
    assert_eq!(outages.count(), 1, "{log:#?}");
}

/// C10: a failed script is logged at ERROR, with the key. Here Redis lacks a command that the script needs.
#[test]
fn c10_failures_are_errors_with_the_key() {
    let server = Redis::start_with(&["--rename-command", "HSET", ""]);
    let ratewright = start(&server, "");
    wait_until("Redis is asked", || {
        decide(&ratewright, "/local");
        ratewright.logged().iter().any(|line| line.contains("ERROR"))
    });
    let error = ratewright.wait_for_line(&["ERROR"]);
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["message"], "unexpected reply from Redis for these keys", "{error}");
    assert!(error["keys"].as_str().unwrap().contains("192.0.2.1"), "{error}");
    assert!(error["cause"].as_str().unwrap().contains("nknown Redis command"), "{error}");
}
