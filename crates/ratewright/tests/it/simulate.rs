//! `ratewright simulate` and `ratewright suggest`, as a user runs them.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ratewright_lab::{PATIENCE, join, lines_of, output_of, receive};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Ratewright, command, run_in};

mod real_logs;

const SAMPLE: &str = include_str!("../../../../examples/logs/access.log");

const POLICIES: &str = "policies:
  - { name: per-ip, by: ip, quota: { rate: 30/min, burst: 40 } }
  - { name: login, by: ip, when: { path: /login, method: POST }, quota: { rate: 5/min } }
";

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Runs the program with standard input.
fn run_with_input(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut child = command(args).current_dir(folder).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = output_of(child, PATIENCE);
    let _not_all_of_it = join(writing, "the input is written");
    output
}

#[test]
fn a_report_says_who_would_have_been_denied() {
    let folder = folder(&[("p.yaml", POLICIES), ("access.log", SAMPLE)]);
    let output = run_in(folder.path(), &["simulate", "-c", "p.yaml", "access.log", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "", "no progress without a terminal");
    let report = json_of(&output);
    assert_eq!(
        (&report["lines"], &report["unreadable"], &report["requests"]),
        (&json!(735), &json!(0), &json!(734))
    );
    let policy = |n: usize, name: &str| report["policies"][n][name].clone();
    assert_eq!((policy(0, "policy"), policy(0, "denied")), (json!("per-ip"), json!(141)));
    assert_eq!((policy(0, "clients_denied"), policy(0, "clients")), (json!(1), json!(23)));
    assert_eq!(policy(0, "most_denied")[0]["client"], "192.0.2.77");
    assert_eq!(
        (policy(1, "policy"), policy(1, "requests"), policy(1, "denied")),
        (json!("login"), json!(41), json!(32))
    );
    assert_eq!(policy(1, "first_denial")["at"], "2026-02-10T08:40:05.000Z");
}

#[test]
fn standard_input_and_pieces_give_the_same_report_as_the_whole_log() {
    let lines: Vec<_> = SAMPLE.split_inclusive('\n').collect();
    let (first, second) = (lines[..400].concat(), lines[400..].concat());
    let folder =
        folder(&[("p.yaml", POLICIES), ("access.log", SAMPLE), ("a.log", &second), ("b.log", &first)]);
    let report = |args: &[&str]| {
        let mut report = json_of(&run_with_input(folder.path(), args, SAMPLE));
        report.as_object_mut().unwrap().remove("logs");
        report
    };
    let whole = report(&["simulate", "-c", "p.yaml", "access.log", "--json"]);
    assert_eq!(report(&["simulate", "-c", "p.yaml", "--json"]), whole);
    assert_eq!(report(&["simulate", "-c", "p.yaml", "--json", "-"]), whole);
    assert_eq!(report(&["simulate", "-c", "p.yaml", "--json", "a.log", "b.log"]), whole);
    assert_eq!(report(&["simulate", "-c", "p.yaml", "--json", "b.log", "a.log"]), whole);
}

#[test]
fn reports_follow_their_published_schemas() {
    let folder = folder(&[("p.yaml", POLICIES), ("old.yaml", "policies: []\n"), ("access.log", SAMPLE)]);
    for (schema, command) in [
        ("--simulate", &["simulate", "-c", "p.yaml", "--against", "old.yaml", "access.log", "--json"][..]),
        ("--suggest", &["suggest", "access.log", "--burst", "1,40", "--json"]),
    ] {
        let schema = json_of(&run_in(folder.path(), &["schema", schema]));
        let report = json_of(&run_in(folder.path(), command));
        let errors: Vec<_> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&report)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn the_suggested_policy_keeps_its_promise_when_it_is_simulated() {
    let folder = folder(&[("access.log", SAMPLE)]);
    for options in [
        &["--burst", "40"][..],
        &["--burst", "10", "--deny-at-most", "10%"],
        &["--burst", "5", "--path", "/api/**", "--deny-at-most", "1/50"],
        &["--burst", "3", "--of", "clients", "--deny-at-most", "5%", "--spread"],
        &["--burst", "30", "--by", "", "--deny-at-most", "5%"],
    ] {
        let output = run_in(folder.path(), &[&["suggest", "access.log", "--json"], options].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let suggestion = json_of(&output);
        let burst = &suggestion["bursts"][0];
        std::fs::write(folder.path().join("suggested.yaml"), burst["policy"].as_str().unwrap()).unwrap();
        let spread: &[&str] = if options.contains(&"--spread") { &["--spread"] } else { &[] };
        let simulate = [&["simulate", "-c", "suggested.yaml", "access.log", "--json"], spread].concat();
        let report = json_of(&run_in(folder.path(), &simulate));
        let policy = &report["policies"][0];
        assert_eq!(
            (&policy["requests"], &policy["denied"]),
            (&suggestion["requests"], &burst["denied"]),
            "{options:?}"
        );
        if !options.contains(&"--by") {
            assert_eq!(policy["clients_denied"], burst["clients_denied"], "{options:?}");
            assert_eq!(policy["most_denied"], burst["most_denied"], "{options:?}");
        }
    }
}

#[test]
fn a_burst_that_is_too_small_for_any_rate_is_reported_with_the_least_one() {
    let lines = "192.0.2.1 - - [10/Feb/2026:08:20:11 +0000] \"GET / HTTP/1.1\" 200 1\n".repeat(7);
    let folder = folder(&[("access.log", &lines)]);
    let output = run_in(folder.path(), &["suggest", "access.log", "--burst", "3", "--deny-at-most", "0%"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("burst 7 or more is needed"), "{}", text(&output.stdout));
}

#[test]
fn wrong_arguments_say_what_to_do_and_simulate_nothing() {
    let bad = "policies: [{name: a, by: ip, quota: {rate: 0/s}}]\n";
    let folder = folder(&[
        ("p.yaml", POLICIES),
        ("bad.yaml", bad),
        ("access.log", SAMPLE),
        ("x.log", "what is this\n"),
    ]);
    for (args, part) in [
        (&["simulate", "-c", "bad.yaml", "access.log"][..], "bad.yaml:1:"),
        (&["simulate", "-c", "none.yaml", "access.log"], "none.yaml"),
        (&["simulate", "-c", "p.yaml", "none.log"], "cannot open none.log"),
        (&["simulate", "-c", "p.yaml", "."], "is a folder"),
        (&["simulate", "-c", "p.yaml", "access.log", "./access.log"], "given twice"),
        (&["simulate", "-c", "p.yaml", "x.log"], "format not recognised: x.log"),
        (&["simulate", "-c", "p.yaml", "-f", "iis", "x.log"], "combined"),
        (&["simulate", "-c", "p.yaml", "-f", "csv", "x.log"], "--fields"),
        (&["simulate", "-c", "p.yaml", "--fields", "time=1", "x.log"], "--format"),
        (&["simulate", "-c", "p.yaml", "--enforce", "nope", "access.log"], "per-ip, login"),
        (&["simulate", "-c", "p.yaml", "--assume-absent", "nope", "access.log"], "header:NAME"),
        (&["suggest", "access.log", "--deny-at-most", "0.1"], "0.1%"),
        (&["suggest", "access.log", "--burst", "0"], "whole number from 1"),
        (&["suggest", "access.log", "--by", "nope"], "nope"),
        (&["suggest", "access.log", "--path", "["], "path"),
    ] {
        let output = run_in(folder.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn unreadable_lines_end_with_status_1_and_cannot_command_the_terminal() {
    let log = format!("\u{1b}[2J<script>\n{SAMPLE}");
    let folder = folder(&[("p.yaml", POLICIES), ("access.log", &log)]);
    let args = ["simulate", "-c", "p.yaml", "-f", "combined", "access.log", "--html", "r.html"];
    let output = run_in(folder.path(), &args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let shown = text(&output.stdout);
    assert!(shown.contains("access.log:1:") && !shown.contains('\u{1b}'), "{shown}");
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.starts_with("<!") && page.contains("<svg") && page.contains("192.0.2.77"));
    assert!(
        !page.contains("<script") && !page.contains('\u{1b}') && !page.contains("http://"),
        "one file, without scripts"
    );
}

/// What the gateway decided and logged is what the simulator decides by the log.
#[test]
fn the_gateways_own_log_is_simulated_to_the_same_decisions() {
    let config = "gateway: {access_log: true}\n\
        routes: [{id: shop, match: {path: '/**'}, upstream: 'http://127.0.0.1:1', policies: [routed]}]\n\
        policies: [{name: per-ip, by: ip, quota: {rate: 1/h, burst: 6}}, \
        {name: routed, by: route, quota: {rate: 1/h, burst: 100}}, \
        {name: login, by: ip, when: {path: /login}, quota: {rate: 1/h, burst: 2}}]\n";
    let mut ratewright = Ratewright::start(config);
    let log = lines_of(ratewright.stdout());
    let statuses: Vec<u16> = (0..12)
        .map(|n| ratewright.pass(["/a", "/login", "/%6Cogin", "/health"][n % 4], &[]).status)
        .collect();
    let n_denied = statuses.iter().filter(|status| **status == 429).count();
    assert!((2..10).contains(&n_denied), "{statuses:?}");
    let lines: Vec<String> = (0..12).map(|_| receive(&log, "a line")).collect();
    let folder = folder(&[("p.yaml", config), ("access.log", &(lines.join("\n") + "\n"))]);
    let report = json_of(&run_in(folder.path(), &["simulate", "-c", "p.yaml", "access.log", "--json"]));
    assert_eq!(report["logs"][0]["format"], "ratewright");
    let logged = &report["logged_decisions"];
    assert_eq!((&logged["requests"], &logged["denied"]), (&json!(12), &json!(n_denied)));
    assert_eq!(
        (&logged["denied_only_in_log"], &logged["denied_only_in_simulation"]),
        (&json!(0), &json!(0)),
        "{logged}"
    );
    let routed =
        report["policies"].as_array().unwrap().iter().find(|policy| policy["policy"] == "routed").unwrap();
    assert_eq!(routed["is_simulated"], true, "{routed}");
}

#[test]
fn secrets_in_a_log_are_shown_as_digests() {
    let policies = "policies: [{name: per-key, by: 'header:X-Api-Key', quota: {rate: 1/h}}]\n";
    let log = "{\"t\":1770710411,\"key\":\"sk-very-secret\"}\n".repeat(3);
    let folder = folder(&[("p.yaml", policies), ("lines.json", &log)]);
    let fields = "time=t,header:x-api-key=key";
    let args = ["simulate", "-c", "p.yaml", "-f", "json", "--fields", fields, "lines.json"];
    let digest = text(&run_in(folder.path(), &["key", "sk-very-secret"]).stdout);
    for more in [&[][..], &["--json"], &["--html", "r.html"]] {
        let output = run_in(folder.path(), &[&args, more].concat());
        let shown = text(&output.stdout);
        assert!(shown.contains(digest.trim()) && !shown.contains("sk-very"), "{shown}");
    }
    assert!(!std::fs::read_to_string(folder.path().join("r.html")).unwrap().contains("sk-very"));
    let output = run_in(
        folder.path(),
        &[
            "suggest",
            "-f",
            "json",
            "--fields",
            fields,
            "--by",
            "header:x-api-key",
            "--burst",
            "1",
            "--deny-at-most",
            "100%",
            "lines.json",
        ],
    );
    let shown = text(&output.stdout);
    assert!(shown.contains(digest.trim()) && !shown.contains("sk-very"), "{shown}");
}

/// A mistyped --html must not cost a log or a policy file.
#[test]
fn a_page_replaces_only_a_page() {
    let folder = folder(&[
        ("p.yaml", POLICIES),
        ("access.log", SAMPLE),
        ("old.html", "<!DOCTYPE html>old"),
        ("new.html", ""),
    ]);
    let simulate =
        |page: &str| run_in(folder.path(), &["simulate", "-c", "p.yaml", "access.log", "--html", page]);
    crate::packages::run(Command::new("mkfifo").arg(folder.path().join("pipe")));
    std::os::unix::fs::symlink("old.html", folder.path().join("link.html")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("dangling.html")).unwrap();
    for page in ["access.log", "p.yaml", "none/x.html", ".", "pipe", "/dev/null", "dangling.html"] {
        let output = simulate(page);
        assert_eq!(output.status.code(), Some(2), "{page}: {output:?}");
        assert!(text(&output.stderr).contains("--html"), "{output:?}");
    }
    for page in ["old.html", "new.html", "another.html", "link.html"] {
        assert_eq!(simulate(page).status.code(), Some(0), "{page}");
        assert!(std::fs::read_to_string(folder.path().join(page)).unwrap().contains("192.0.2.77"));
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("access.log")).unwrap(), SAMPLE);
    let n_files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(n_files, 8, "no temporary file stays");
    assert!(folder.path().join("link.html").is_symlink(), "a link stays a link");
}

/// A log without hosts cannot tell the route: nothing may look as if it were allowed.
#[test]
fn routes_by_host_need_a_log_with_hosts() {
    let config = "routes: [{id: a, match: {path: '/**', host: api.example.com}, upstream: 'http://127.0.0.1:1'}]\n\
        policies: [{name: per-ip, by: ip, quota: {rate: 1/h}}]\n";
    let folder = folder(&[("p.yaml", config), ("access.log", SAMPLE)]);
    let report = json_of(&run_in(folder.path(), &["simulate", "-c", "p.yaml", "access.log", "--json"]));
    let policy = &report["policies"][0];
    assert_eq!(policy["is_simulated"], false, "{policy}");
    assert!(policy["notes"][0].as_str().unwrap().contains("routes match by host"), "{policy}");
}

/// A gateway normalises the path and counts that one: the other readings of an ambiguous path do not count.
#[test]
fn with_routes_a_path_has_one_form() {
    let config = "clients: {ambiguous_paths: reject}\n\
        routes: [{id: all, match: {path: '/**'}, upstream: 'http://127.0.0.1:1'}]\n\
        policies: [{name: a, by: path, quota: {rate: 1/h}}]\n";
    let paths = ["/x/../b", "/b", "//x/login", "/login", "/x/login"];
    let line =
        |path: &&str| format!("192.0.2.1 - - [10/Feb/2026:08:20:11 +0000] \"GET {path} HTTP/1.1\" 200 1\n");
    let folder = folder(&[("p.yaml", config), ("access.log", &paths.iter().map(line).collect::<String>())]);
    let report = json_of(&run_in(folder.path(), &["simulate", "-c", "p.yaml", "access.log", "--json"]));
    assert_eq!(report["policies"][0]["requests"], 5, "{report:#}");
    assert_eq!(report["policies"][0]["denied"], 2, "/b and /x/login");
}

/// What `suggest` takes of a gateway's file is what `simulate` does with it.
#[test]
fn a_rate_by_route_is_that_of_the_simulation() {
    let config = "routes: [{id: api, match: {path: '/api/**'}, upstream: 'http://127.0.0.1:1'}]\n\
        policies: [{name: a, by: route, quota: {rate: 1/h}}]\n";
    let folder = folder(&[("p.yaml", config), ("access.log", SAMPLE)]);
    let report = json_of(&run_in(folder.path(), &["simulate", "-c", "p.yaml", "access.log", "--json"]));
    let args = [
        "suggest",
        "access.log",
        "-c",
        "p.yaml",
        "--by",
        "route",
        "--deny-at-most",
        "100%",
        "--burst",
        "1",
        "--json",
    ];
    let suggestion = json_of(&run_in(folder.path(), &args));
    assert_eq!(suggestion["requests"], report["policies"][0]["requests"]);
    assert_eq!(suggestion["bursts"][0]["denied"], report["policies"][0]["denied"]);
}

/// A policy's verdict must not depend on how the log is read.
#[test]
fn a_user_far_into_the_log_gives_the_same_report_by_file_and_by_pipe() {
    let policies = "policies: [{name: per-user, by: user, quota: {rate: 1/h}}]\nclients: {user: {header: X-User}, trusted_proxies: [10.0.0.1]}\n";
    let line =
        |user: &str| format!("192.0.2.1 - {user} [10/Feb/2026:08:20:11 +0000] \"GET / HTTP/1.1\" 200 1\n");
    let log = line("-").repeat(1_600) + &line("anna").repeat(100);
    assert!(log.len() > 100_000);
    let folder = folder(&[("p.yaml", policies), ("access.log", &log)]);
    let report = |output: Output| {
        let mut report = json_of(&output);
        report.as_object_mut().unwrap().remove("logs");
        report
    };
    let by_file = report(run_in(folder.path(), &["simulate", "-c", "p.yaml", "access.log", "--json"]));
    let by_pipe = report(run_with_input(folder.path(), &["simulate", "-c", "p.yaml", "--json"], &log));
    assert_eq!(by_file, by_pipe);
    assert_eq!(by_file["policies"][0]["is_simulated"], false, "the first lines have no user: {by_file:#}");
}

#[test]
fn nothing_replayed_and_lost_requests_are_failures() {
    let lines: Vec<_> = SAMPLE.split_inclusive('\n').collect();
    let wrong = [&lines[400..], &lines[..400]].concat().concat();
    let folder =
        folder(&[("p.yaml", POLICIES), ("wrong.log", &wrong), ("empty.log", ""), ("access.log", SAMPLE)]);
    let output = run_in(folder.path(), &["simulate", "-c", "p.yaml", "wrong.log", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("out of order; pass the logs as separate arguments"), "{output:?}");
    for args in [
        &["simulate", "-c", "p.yaml", "empty.log"][..],
        &["suggest", "empty.log"],
        &["suggest", "access.log", "--path", "/nothing"],
    ] {
        assert_eq!(run_in(folder.path(), args).status.code(), Some(1), "{args:?}");
    }
    // All requests lack an address: an all-clear would be false.
    std::fs::write(folder.path().join("a.csv"), "time,ip\n1770711611,/a\n1770711612,/b\n").unwrap();
    let args = ["simulate", "-c", "one.yaml", "-f", "csv", "--fields", "time=time,ip=ip", "a.csv"];
    std::fs::write(folder.path().join("one.yaml"), "policies: [{name: a, by: ip, quota: {rate: 1/h}}]\n")
        .unwrap();
    let output = run_in(folder.path(), &args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("no policy applied to any request"), "{output:?}");
    let output = run_in(folder.path(), &["suggest", "access.log", "--by", "user"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("has user"), "{output:?}");
    let output = run_in(folder.path(), &["simulate", "-c", "p.yaml", "no\u{1b}[31mpe.log"]);
    assert!(!text(&output.stderr).contains('\u{1b}'), "{output:?}");
}
