//! `ratewright convert spring`: the files of Spring applications, the policy files made of them, and whether these limit as the Spring
//! files say.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use expect_test::{Expect, ExpectFile, expect, expect_file};
use serde_json::json;

use crate::process::{Ratewright, command, run_in};

/// The folder of the Spring files.
fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/convert")
}

/// Converts files of the folder, and returns the policy file.
#[track_caller]
fn converted(args: &[&str]) -> String {
    let output = run_in(&folder(), &[&["convert", "spring"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Converts files, and compares the policy file and the remarks. The policy file must pass `ratewright check`.
#[track_caller]
fn check(args: &[&str], policy_file: ExpectFile, remarks: ExpectFile) {
    let output = run_in(&folder(), &[&["convert", "spring"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    policy_file.assert_eq(&text);
    remarks.assert_eq(str::from_utf8(&output.stderr).unwrap());
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), text).unwrap();
    let checked =
        command(&["check", file.path().to_str().unwrap()]).env("REDIS_PASSWORD", "x").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// With UPDATE_EXPECT=1 the expected files are written anew.
#[test]
fn spring_files_become_policy_files() {
    check(&["bucket4j.yml"], expect_file!["convert/bucket4j.yaml"], expect_file!["convert/bucket4j.stderr"]);
    check(
        &["bucket4j-production.yml"],
        expect_file!["convert/bucket4j-production.yaml"],
        expect_file!["convert/bucket4j-production.stderr"],
    );
    check(
        &["bucket4j-payment.yml"],
        expect_file!["convert/bucket4j-payment.yaml"],
        expect_file!["convert/bucket4j-payment.stderr"],
    );
    check(
        &["bucket4j-dev.yml"],
        expect_file!["convert/bucket4j-dev.yaml"],
        expect_file!["convert/bucket4j-dev.stderr"],
    );
    check(&["gateway.yml"], expect_file!["convert/gateway.yaml"], expect_file!["convert/gateway.stderr"]);
    check(&["starter.yml"], expect_file!["convert/starter.yaml"], expect_file!["convert/starter.stderr"]);
    check(
        &["decisions.yml"],
        expect_file!["convert/decisions.yaml"],
        expect_file!["convert/decisions.stderr"],
    );
    check(&["profiles.yml"], expect_file!["convert/profiles.yaml"], expect_file!["convert/profiles.stderr"]);
}

/// A policy file without its store: buckets in memory.
fn in_memory(text: &str) -> String {
    let (before, rest) = text.split_once("\nstore:\n").unwrap_or((text, ""));
    let rest = rest.split_once("\n\n").map_or("", |(_, rest)| rest);
    format!("{before}\n{rest}")
}

/// How many requests pass before one is denied.
#[track_caller]
fn n_allowed(mut ask: impl FnMut() -> u16) -> usize {
    (0..100).position(|_| ask() == 429).expect("one of 100 requests is denied")
}

#[test]
fn converted_bucket4j_limits_hold() {
    for (args, n_login, n_recovery) in [
        (&["bucket4j.yml"][..], 10, 5),
        (&["bucket4j-production.yml"], 5, 3),
        (&["bucket4j.yml", "bucket4j-production.yml"], 5, 3),
    ] {
        let ratewright = Ratewright::start(&in_memory(&converted(args)));
        let ask = |path: &str| {
            ratewright.decide(&json!({"ip": "192.0.2.1", "method": "POST", "path": path})).status
        };
        assert_eq!(n_allowed(|| ask("/api/auth/login")), n_login, "{args:?}");
        assert_eq!(n_allowed(|| ask("/api/password/recovery")), n_recovery, "{args:?}");
        let other = ratewright.decide(&json!({"ip": "192.0.2.1", "method": "GET", "path": "/api/users"}));
        assert_eq!(other.status, 200, "{args:?}");
        let denied = ratewright.decide(&json!({"ip": "192.0.2.1", "method": "POST", "path": "/login"}));
        assert_eq!(denied.headers["retry-after"], "60", "{args:?}");
    }
    let off = Ratewright::start(&in_memory(&converted(&["bucket4j.yml", "bucket4j-dev.yml"])));
    for _ in 0..20 {
        assert_eq!(off.decide(&json!({"ip": "192.0.2.1", "path": "/login"})).status, 200);
    }
}

/// A bucket of 60, of which a request takes 20.
#[test]
fn converted_gateway_routes_hold() {
    let ratewright = Ratewright::start(&in_memory(&converted(&["gateway.yml"])));
    let ask = |user: &str| ratewright.pass("/api/reports/1", &[("X-User-Id", user)]).status;
    assert_eq!(n_allowed(|| ask("anna")), 3);
    assert_eq!(n_allowed(|| ask("bob")), 3);
    assert_eq!(ratewright.pass("/api/reports/1", &[]).status, 403, "Spring denies requests without a key");
    let order = ratewright.pass("/api/orders/1", &[]);
    assert_eq!(order.headers["ratelimit-policy"], "\"orders\";q=50;w=5");
}

#[test]
fn converted_filters_of_the_starter_hold() {
    let ratewright = Ratewright::start(&in_memory(&converted(&["starter.yml"])));
    let ask = |ip: &str, path: &str| ratewright.decide(&json!({"ip": ip, "path": path})).status;
    assert_eq!(ask("192.0.2.1", "/login"), 200);
    assert_eq!(n_allowed(|| ask("192.0.2.2", "/signin")), 2, "one bucket for everybody, 3 in an hour");
    assert_eq!(ask("192.0.2.1", "/api/x"), 403, "without X-Api-Key, which the starter counts together");
    let with_key = || {
        let request = json!({"ip": "192.0.2.1", "path": "/api/x", "headers": {"X-Api-Key": "k"}});
        ratewright.decide(&request).status
    };
    assert_eq!(n_allowed(with_key), 5);
}

#[test]
fn converted_decision_service_has_its_defaults() {
    let ratewright = Ratewright::start(&in_memory(&converted(&["decisions.yml"])));
    let bucket = ratewright.get("check?algorithm=TOKEN_BUCKET&key=user:1");
    let window = ratewright.get("check?algorithm=SLIDING_WINDOW&key=user:1");
    assert_eq!((&bucket.json()["remaining"], &window.json()["remaining"]), (&json!(99), &json!(99)));
    assert_eq!(bucket.headers["x-ratelimit-limit"], "100");
    assert!(ratewright.admin("/metrics").body.contains("application=\"distributed-rate-limiter\""));
}

#[test]
fn a_profile_overrides_the_documents_for_all() {
    let text = converted(&["profiles.yml", "--profile", "production"]);
    assert!(text.contains("quota: { rate: 1/12s, burst: 5 }"), "{text}");
    assert!(converted(&["profiles.yml", "--profile", "dev"]).contains("enabled: false"));
}

/// Runs the command with a text on standard input, and compares the errors and the exit status.
#[track_caller]
fn check_error(input: &[u8], expected: Expect) {
    let mut child = command(&["convert", "spring", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    // The program may stop reading a file that is too long.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(str::from_utf8(&output.stdout).unwrap(), "");
    assert_eq!(output.status.code(), Some(2));
    expected.assert_eq(str::from_utf8(&output.stderr).unwrap());
}

#[test]
fn invalid_files_are_reported_and_exit_with_2() {
    check_error(
        b"",
        expect![[r#"
        error: standard input: no rate limits found; a section rate-limit with limits, spring.cloud.gateway.routes or bucket4j.filters is expected. Limits that are written in Java cannot be converted
    "#]],
    );
    check_error(
        b"\xff\xfe",
        expect![[r#"
        error: standard input: file is not UTF-8; save it as UTF-8
    "#]],
    );
    check_error(
        b"a: [1",
        expect![[r#"
        error: standard input:1:4: unclosed bracket; close it with } or ]
    "#]],
    );
    check_error(
        b"rate-limit:\n  limits:\n    login:\n      capacity: -1\n      window: 1m\n",
        expect![[r#"
            error: standard input:4:17: rate-limit.limits.login.capacity: "-1" is not a whole number from 0 up; write one, such as 10
              |
            4 |       capacity: -1
              |                 ^
        "#]],
    );
    check_error(
        &vec![b'a'; 10_000_000],
        expect![[r#"
        error: standard input: file exceeds 4194304 bytes; is this the configuration of an application?
    "#]],
    );
    check_error(
        "[".repeat(100_000).as_bytes(),
        expect![[r#"
        error: standard input:1:256: invalid YAML: recursion limit exceeded
    "#]],
    );
    let output = run_in(&folder(), &["convert", "spring", "nowhere.yml"]);
    assert_eq!(output.status.code(), Some(2));
    let output = run_in(&folder(), &["convert", "spring", "profiles.yml", "--profile", "nobody"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Every byte of a file is removed once, in steps, in the program as users run it.
#[test]
fn changed_files_do_not_make_the_program_panic() {
    let text = std::fs::read_to_string(folder().join("gateway.yml")).unwrap();
    for n in (0..text.len()).step_by(97) {
        let changed: String = text.char_indices().filter(|(at, _)| *at != n).map(|(_, c)| c).collect();
        let mut child = command(&["convert", "spring", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(changed.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            matches!(output.status.code(), Some(0 | 2)),
            "byte {n}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
