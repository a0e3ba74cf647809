//! What if the policies were others: logs and recent decisions, replayed through policies that come from a browser.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use ratewright_lab::{Stream, is_full_run, skip_here, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LiveLines, POLICIES, request};
use crate::process::{Answer, Ratewright, on_free_ports};

fn simulate(ratewright: &Ratewright, query: &str, policies: &str, log: &[u8]) -> Answer {
    let mut stream = Stream::connect(&ratewright.admin);
    let path = format!("/api/v1/admin/simulate?policyBytes={}{query}", policies.len());
    let length = policies.len() + log.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{policies}"
    )
    .unwrap();
    stream.write_all(log).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    Answer::parse(&response)
}

/// The report, of a simulation that succeeds.
fn report(ratewright: &Ratewright, query: &str, policies: &str, log: &[u8]) -> Value {
    let answer = simulate(ratewright, query, policies, log);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["report"].clone()
}

fn log(n: usize) -> String {
    let line = |n: usize| {
        format!(
            "203.0.113.7 - - [18/Nov/2026:12:00:{:02} +0000] \"POST /login HTTP/1.1\" 200 5 \"-\" \"-\"\n",
            n % 60
        )
    };
    (0..n).map(line).collect()
}

const STRICTER: &str = "policies: [{name: logins, by: ip, when: {path: /login}, quota: {rate: 1/h}}]\n";

#[test]
fn a_log_is_replayed_through_edited_policies_and_those_in_force() {
    let ratewright = Ratewright::start(POLICIES);
    let plain = report(&ratewright, "&name=access.log", STRICTER, log(5).as_bytes());
    assert_eq!((&plain["requests"], &plain["denied"]), (&json!(5), &json!(4)));
    assert_eq!(plain["against"]["denied"], 3, "in force, two are allowed");
    assert_eq!(plain["against"]["newly_denied"], 1);
    assert_eq!(plain["logs"][0]["log"], "access.log");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(log(5).as_bytes()).unwrap();
    let compressed = report(&ratewright, "&name=access.log", STRICTER, &gzip.finish().unwrap());
    assert_eq!(compressed, plain);
    let csv = "1795003200,203.0.113.7,POST,/login\n".repeat(5);
    let csv = report(
        &ratewright,
        "&format=csv&fields=time%3D1,ip%3D2,method%3D3,path%3D4",
        STRICTER,
        csv.as_bytes(),
    );
    assert_eq!(csv["denied"], 4);
    let by_user = "policies: [{name: a, by: {first_of: [user, ip]}, quota: {rate: 1/h}}]\n";
    let skipped = report(&ratewright, "", by_user, log(5).as_bytes());
    assert_eq!((&skipped["denied"], &skipped["policies"][0]["is_simulated"]), (&json!(0), &json!(false)));
    assert_eq!(report(&ratewright, "&assumeAbsent=true", by_user, log(5).as_bytes())["denied"], 4);
    assert_eq!(ratewright.metric("ratewright_memory_keys"), 0.0, "the buckets in force are not touched");
}

/// The decisions that the page has, replayed through the policies in force, are the decisions.
#[test]
fn recent_decisions_are_replayed() {
    let ratewright = Ratewright::start(POLICIES);
    let mut lines = LiveLines::open(&ratewright);
    lines.next();
    for _ in 0..5 {
        request(&ratewright, "/login");
    }
    ratewright
        .decide(&json!({"ip": "203.0.113.8", "method": "GET", "path": "/", "headers": {"X-Api-Key": "k1"}}));
    let mut decisions = Vec::new();
    lines.until(|line| {
        decisions.extend(line["decisions"].as_array().unwrap().iter().map(Value::to_string));
        decisions.len() >= 6
    });
    assert!(!decisions.iter().any(|decision| decision.contains("k1")), "keys are digests: {decisions:?}");
    let log = decisions.join("\n");
    let in_force = ratewright.admin("/api/v1/admin/policy-file").json();
    let in_force = in_force["text"].as_str().unwrap();
    let same = report(&ratewright, "&from=decisions", in_force, log.as_bytes());
    assert_eq!((&same["requests"], &same["denied"]), (&json!(6), &json!(3)), "{same}");
    assert_eq!((&same["against"]["newly_denied"], &same["against"]["newly_allowed"]), (&json!(0), &json!(0)));
    let stricter = report(&ratewright, "&from=decisions", STRICTER, log.as_bytes());
    assert_eq!((&stricter["denied"], &stricter["against"]["newly_denied"]), (&json!(4), &json!(1)));
    let by_key = "policies: [{name: k, by: 'header:X-Api-Key', missing: skip, quota: {rate: 1/h}}]\n";
    let by_key = report(&ratewright, "&from=decisions", by_key, log.as_bytes());
    assert_eq!(by_key["policies"][0]["clients"], 1, "{by_key}");
    let compares = "policies: [{name: k, by: ip, when: {'header:X-Api-Key': k1}, quota: {rate: 1/h}}]\n";
    let compares = report(&ratewright, "&from=decisions", compares, log.as_bytes());
    assert_eq!(compares["policies"][0]["is_simulated"], false, "a digest cannot be compared: {compares}");
}

#[test]
fn invalid_policies_are_reported_with_their_lines() {
    let ratewright = Ratewright::start(POLICIES);
    let invalid =
        "policies:\n  - {name: a, by: ip, quoat: {rate: 1/h}}\n  - {name: b, by: ip, quota: {rate: 1/x}}\n";
    let answer = simulate(&ratewright, "", invalid, b"");
    assert_eq!(answer.status, 422);
    let errors = answer.json()["errors"].clone();
    assert!(errors[0].as_str().unwrap().starts_with("edited policies:2:"), "{errors}");
    let answer = simulate(&ratewright, "", "policies: []\n", b"\x00\x01 no log\n");
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(answer.body.contains("format not recognised"), "{}", answer.body);
}

/// The text comes from a browser: it must not show the environment or files of the server.
#[test]
fn edited_policies_read_neither_variables_nor_files() {
    let ratewright = Ratewright::start(POLICIES);
    for name in
        ["'a${HOME}'", r#""a\x24{HOME}""#, r#""a\u0024{HOME}""#, "\"a$\\\n    {HOME}\"", "'${HOME:-a}'"]
    {
        let text = format!("policies: [{{name: {name}, quota: {{rate: 1/h}}}}]\n");
        let answer = simulate(&ratewright, "", &text, log(1).as_bytes());
        assert_eq!(answer.status, 422, "{text}: {}", answer.body);
        assert!(answer.body.contains("variables are not expanded here"), "{text}: {}", answer.body);
    }
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret.pem");
    std::fs::write(&secret, "top secret\n").unwrap();
    for text in [
        format!("clients: {{user: {{jwt: {{keys: '{}'}}}}}}\npolicies: []\n", secret.display()),
        format!("listen: {{tls: {{cert: '{0}', key: '{0}'}}}}\npolicies: []\n", secret.display()),
        format!("envoy: {{files: ['{}']}}\npolicies: []\n", folder.path().display()),
        format!("store: {{url: 'redis://127.0.0.1:1', tls: {{ca: '{}'}}}}\npolicies: []\n", secret.display()),
    ] {
        let answer = simulate(&ratewright, "", &text, log(1).as_bytes());
        assert!(!answer.body.contains("top secret"), "{text}: {}", answer.body);
        assert!([200, 422].contains(&answer.status), "{text}: {}", answer.body);
    }
}

/// A policy that routes list applies only there, also if the edited text has no routes.
#[test]
fn routes_and_clients_stay_as_they_are_in_force() {
    let ratewright = Ratewright::start(
        "clients: {trusted_proxies: [198.51.100.0/24]}\n\
         routes: [{id: shop, match: {path: /shop/**}, upstream: 'http://127.0.0.1:1', policies: [shop]}, \
                  {id: rest, match: {path: /**}, upstream: 'http://127.0.0.1:1'}]\n\
         policies: [{name: shop, by: ip, quota: {rate: 100/h}}]\n",
    );
    let line = |path: &str| {
        json!({"ts": 1_795_003_200, "ip": "198.51.100.9", "xff": "203.0.113.7", "m": "GET", "p": path})
            .to_string()
    };
    let log = [line("/shop/a"), line("/shop/b"), line("/other")].join("\n");
    let query = "&format=json&fields=time%3Dts,ip%3Dip,forwarded_for%3Dxff,method%3Dm,path%3Dp";
    let edited = "policies: [{name: shop, by: ip, quota: {rate: 1/h}}]\n";
    let report = report(&ratewright, query, edited, log.as_bytes());
    assert_eq!((&report["policies"][0]["requests"], &report["denied"]), (&json!(2), &json!(1)), "{report}");
    assert_eq!(report["policies"][0]["most_denied"][0]["client"], "203.0.113.7");
    let answer = simulate(&ratewright, query, "policies: []\n", log.as_bytes());
    assert_eq!(answer.status, 422, "a route lists a policy that is gone: {}", answer.body);
    assert!(answer.body.contains("shop"), "{}", answer.body);
}

#[test]
fn the_policies_in_force_are_shown_without_secrets() {
    let text_of = |config: &str| Ratewright::start(config).admin("/api/v1/admin/policy-file").json();
    let shown = text_of("# mine\npolicies: [{name: a, quota: {rate: 1/h}}]\napi: {tokens: [s3cret]}\n");
    let text = shown["text"].as_str().unwrap();
    assert!(text.contains("name: a") && !text.contains("s3cret") && !text.contains("listen"), "{text}");
    for config in [
        "policies: [{name: a, when: {'header:X-Api-Key': s3cret}, quota: {rate: 1/h}}]\n",
        "policies: [{name: a, quota: {rate: '${RATE:-1/h}'}}]\n",
    ] {
        let shown = text_of(config);
        assert_eq!(shown["text"], Value::Null, "{config}: {shown}");
        assert!(
            shown["reason"]
                .as_str()
                .unwrap()
                .ends_with("paste the policies to try into the editor, with all values written out"),
            "{shown}"
        );
    }
}

#[test]
fn the_policies_of_a_folder_are_not_shown() {
    let folder = TempDir::new().unwrap();
    std::fs::write(
        folder.path().join("a.yaml"),
        on_free_ports("policies: [{name: a, quota: {rate: 1/h}}]\n"),
    )
    .unwrap();
    std::fs::write(folder.path().join("b.yaml"), "policies: [{name: b, quota: {rate: 1/h}}]\n").unwrap();
    let ratewright = Ratewright::serve(&["--config", folder.path().to_str().unwrap()]);
    let shown = ratewright.admin("/api/v1/admin/policy-file").json();
    assert_eq!(shown["text"], Value::Null);
    assert!(shown["reason"].as_str().unwrap().contains("2 files"), "{shown}");
    let report = report(&ratewright, "", STRICTER, log(3).as_bytes());
    assert_eq!((&report["denied"], &report["against"]["denied"]), (&json!(2), &json!(2)));
}

#[test]
fn one_simulation_runs_at_a_time_and_a_long_body_is_refused() {
    let ratewright = Ratewright::start(POLICIES);
    let begin = || {
        let mut slow = Stream::connect(&ratewright.admin);
        let request =
            b"POST /api/v1/admin/simulate?policyBytes=0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
        slow.write_all(request).unwrap();
        slow
    };
    let mut slow = Vec::new();
    wait_until("a slow one has begun", || {
        slow.push(begin());
        simulate(&ratewright, "", STRICTER, log(1).as_bytes()).status == 503
    });
    drop(slow);
    wait_until("it has ended", || simulate(&ratewright, "", STRICTER, log(1).as_bytes()).status == 200);
    let long = ratewright.ask_admin_raw(
        "POST /api/v1/admin/simulate?policyBytes=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 40000000\r\n\r\n",
    );
    assert_eq!(long.status, 413, "{}", long.body);
}

/// 100 KB that decompress to more than the limit.
#[test]
fn a_log_that_decompresses_to_too_much_is_cut_off() {
    let ratewright = Ratewright::start(POLICIES);
    // Few and long lines are soon simulated, also by a slow machine: a simulation may take 30 s.
    let line = log(1).replace("\"-\"\n", &format!("\"{}\"\n", "x".repeat(2_000)));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(line.repeat(500).as_bytes()).unwrap();
    let log = gzip.finish().unwrap().repeat(80);
    let before = ratewright.resident();
    let report = report(&ratewright, "", STRICTER, &log);
    assert!(
        report["logs"][0]["error"].as_str().is_some_and(|error| error.contains("larger than")),
        "{}",
        report["logs"]
    );
    assert!(ratewright.resident() < before + 400 * 1024 * 1024, "memory stays bounded");
}

/// A simulation that would take minutes: its caller goes, and the program stops.
#[test]
fn a_simulation_ends_with_its_caller_and_with_the_program() {
    let ratewright = Ratewright::start(POLICIES);
    let policy = |n: usize| format!("  - {{name: p{n}, by: ip, quota: {{rate: 1/h}}}}\n");
    let policies: String = std::iter::once("policies:\n".to_owned()).chain((0..2_000).map(policy)).collect();
    let lines: Vec<_> = (0..200_000)
        .map(|n| log(1).replace("203.0.113.7", &format!("10.{}.{}.1", n / 250, n % 250)))
        .collect();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(lines.concat().as_bytes()).unwrap();
    let log = gzip.finish().unwrap();
    let begin = || {
        let mut stream = Stream::connect(&ratewright.admin);
        let path = format!("/api/v1/admin/simulate?policyBytes={}", policies.len());
        let length = policies.len() + log.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{policies}"
        )
        .unwrap();
        stream.write_all(&log).unwrap();
        stream
    };
    let is_busy = || simulate(&ratewright, "", STRICTER, self::log(1).as_bytes()).status == 503;
    // A probe may hold the slot when the long simulation arrives, so that is sent again then.
    let run = || {
        let mut streams = Vec::new();
        wait_until("it runs", || {
            streams.push(begin());
            is_busy()
        });
        streams
    };
    drop(run());
    wait_until("it ends with its caller", || !is_busy());
    let _streams = run();
    ratewright.signal("INT");
    assert!(ratewright.wait().success());
}

/// The whole way. Its parts are tested in the crate ratewright-sim, and beside the code of the page.
#[test]
fn a_simulation_with_too_many_clients_is_refused() {
    if !is_full_run() {
        return skip_here("two million clients take 14 s; `make test-all` has them");
    }
    let ratewright = Ratewright::start(POLICIES);
    let policy = |n: usize| format!("  - {{name: p{n}, by: ip, quota: {{rate: 1/h}}}}\n");
    let policies: String = std::iter::once("policies:\n".to_owned()).chain((0..300).map(policy)).collect();
    let line = |n: usize| format!("{},10.{}.{}.1\n", 1_795_003_200 + n / 100, n / 250, n % 250);
    let log: String = (0..10_000).map(line).collect();
    let answer = simulate(&ratewright, "&format=csv&fields=time%3D1,ip%3D2", &policies, log.as_bytes());
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(
        answer.body.contains("too many clients") && answer.body.contains("ratewright simulate"),
        "{}",
        answer.body
    );
}
