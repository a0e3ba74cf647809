//! A rollback as an operator does it: edit the file, `ratewright diff`, `ratewright reload`, and check responses. Also the guard against
//! a file that drops most policies.

use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratewright_lab::{Client, Load, Nginx, PATIENCE, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Answer, Ratewright, command, on_free_ports, output_for, run};

const FAILURES: &str = "ratewright_reload_failures_total";
const RELOADS: &str = "ratewright_reloads_total";

/// Runs `ratewright reload` against a program.
fn reload(ratewright: &Ratewright, options: &[&str]) -> Output {
    let admin = format!("http://{}", ratewright.admin);
    run(&[&["reload", "--admin", &admin], options].concat())
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// So many policies, each by address.
fn policies(names: impl IntoIterator<Item = String>) -> String {
    let policies =
        names.into_iter().map(|name| format!("  - {{name: {name}, by: ip, quota: {{rate: 1/h}}}}\n"));
    format!("policies:\n{}", policies.collect::<String>())
}

fn numbered(n: usize) -> impl Iterator<Item = String> {
    (0..n).map(|n| format!("p{n:02}"))
}

/// An application with a gateway before it, and clients who must not notice that anything changes.
struct Site {
    ratewright: Ratewright,
    application: Nginx,
}

impl Site {
    fn start(config: &str) -> Self {
        let application = Nginx::start(1, "", "location / { return 200 'hello'; }\n");
        let ratewright = Ratewright::start(&Self::routed(&application, config));
        Self { ratewright, application }
    }

    fn routed(application: &Nginx, config: &str) -> String {
        let address = application.address();
        format!("{config}routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{address}'}}]\n")
    }

    /// The operator's way: another file, what it changes, and putting it in force. Both commands say this.
    #[track_caller]
    fn change(&self, config: &str, says: &str) {
        let file = self.ratewright.file();
        let new = file.with_extension("new");
        std::fs::write(&new, on_free_ports(&Self::routed(&self.application, config))).unwrap();
        let diff = run(&["diff", file.to_str().unwrap(), new.to_str().unwrap()]);
        assert_eq!(
            (stdout(&diff).as_str(), diff.status.code()),
            (&*format!("{says}\n"), Some(1)),
            "{diff:?}"
        );
        std::fs::rename(new, file).unwrap();
        let reloaded = reload(&self.ratewright, &[]);
        assert_eq!(stdout(&reloaded), format!("in force\n  {says}\n"), "{reloaded:?}");
        assert!(reloaded.status.success());
    }

    fn pass(&self) -> Answer {
        self.ratewright.pass("/orders", &[])
    }

    /// What the REST listener says of the same client, without spending anything.
    fn is_allowed(&self) -> bool {
        let body = json!({"attributes": {"ip": "127.0.0.1"}, "look": true});
        self.ratewright.post("/api/v1/decide", &[], &body.to_string()).json()["allowed"] == json!(true)
    }
}

/// E6: each step back is an edit, seen in responses of the gateway and of REST, without a restart, a failed request or a lost count.
#[test]
fn e6_a_policy_is_shadowed_raised_and_restored_without_a_restart() {
    let policy = |rate: &str, mode: &str| {
        let quota = format!("{{algorithm: sliding_window, rate: {rate}}}");
        format!("policies: [{{name: per-ip, by: ip, quota: {quota}, mode: {mode}}}]\n")
    };
    let enforced = policy("5/h", "enforce");
    let site = Site::start(&enforced);
    let n_passed = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        let load = Load::default();
        let (goes_on, ratewright, n_passed) = (load.goes_on(), &site.ratewright, &n_passed);
        // Exempt requests on one connection: each must be answered, whatever is changed meanwhile.
        let others = threads.spawn(move || {
            let mut client = Client::connect(&ratewright.gateway);
            while goes_on() {
                assert_eq!(client.get("/static/x").unwrap().0, 200);
                n_passed.fetch_add(1, Ordering::Relaxed);
            }
        });
        let denied = |why: &str| {
            let answer = site.pass();
            assert_eq!(answer.status, 429, "{why}");
            assert!(!site.is_allowed(), "{why}");
            answer
        };
        let allowed = |why: &str| {
            assert_eq!(site.pass().status, 200, "{why}");
            assert!(site.is_allowed(), "{why}");
        };
        (0..5).for_each(|n| assert_eq!(site.pass().status, 200, "{n}"));
        assert!(denied("5 are spent").headers.contains_key("retry-after"));

        site.change(
            &policy("5/h", "shadow"),
            "policy per-ip: switched to shadow: it counts, and no longer denies",
        );
        allowed("a shadow denies nobody");
        site.change(&enforced, "policy per-ip: switched to enforce: it denies");
        denied("the counts are still there");

        site.change(&policy("5/h", "off"), "policy per-ip: switched off: it neither counts nor denies");
        allowed("it is off");
        site.change(&enforced, "policy per-ip: switched to enforce: it denies");
        denied("the counts are still there");

        let softer = "policy per-ip: softer: 8 in any hour instead of 5 in any hour; counts are kept";
        site.change(&policy("8/h", "enforce"), softer);
        (5..7).for_each(|n| assert_eq!(site.pass().status, 200, "{n}"));
        allowed_once_more(&site);
        denied("8 are spent");
        let stricter = "policy per-ip: stricter: 5 in any hour instead of 8 in any hour; counts are kept";
        site.change(&enforced, stricter);
        denied("8 of 5 are spent");

        let silent = format!("headers: {{retry_after: false}}\n{enforced}");
        site.change(&silent, "headers.retry_after: denials no longer carry Retry-After");
        assert!(!denied("silent").headers.contains_key("retry-after"));
        site.change(&enforced, "headers.retry_after: denials carry Retry-After again");
        assert!(denied("not silent").headers.contains_key("retry-after"));

        let off = "enabled: everything is switched off; every request passes, uncounted";
        site.change(&format!("enabled: false\n{enforced}"), off);
        allowed("everything is off");
        site.change(&enforced, "enabled: everything is switched on again; limits apply");
        denied("the counts are still there");

        let before = n_passed.load(Ordering::Relaxed);
        wait_until("others still pass", || n_passed.load(Ordering::Relaxed) > before || others.is_finished());
        load.end();
        others.join().unwrap();
    });
    assert_eq!(site.ratewright.metric(FAILURES), 0.0);
}

fn allowed_once_more(site: &Site) {
    assert_eq!(site.pass().status, 200, "the last of 8");
}

#[test]
fn a_file_that_drops_most_policies_is_rejected_unless_forced() {
    let (all, few) = (policies(numbered(12)), policies(numbered(1)));
    let ratewright = Ratewright::start(&all);
    let n_policies = || ratewright.metric("ratewright_policies");
    ratewright.rewrite(&few);
    let reason = "drops 11 of 12 policies (p01, p02, p03, …)";
    ratewright.wait_for_line(&["ERROR", reason, "ratewright reload --force"]);
    wait_until("the watcher's rejection is counted", || ratewright.metric(FAILURES) == 1.0);
    assert_eq!(n_policies(), 12.0, "the watcher rejects it");
    ratewright.signal("HUP");
    wait_until("SIGHUP is refused", || ratewright.metric(FAILURES) == 2.0);
    let refused = reload(&ratewright, &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).starts_with("error: policy file rejected: ") && stderr(&refused).contains(reason),
        "{refused:?}"
    );
    let answer = ratewright.ask_admin("POST", "/api/v1/admin/reload?force=false");
    assert_eq!((answer.status, answer.json()["status"].as_u64()), (422, Some(422)));
    assert!(answer.json()["detail"].as_str().unwrap().contains(reason), "{answer:?}");
    assert_eq!((n_policies(), ratewright.metric(FAILURES)), (12.0, 4.0));

    let forced = reload(&ratewright, &["--force"]);
    assert!(forced.status.success() && stdout(&forced).contains("policy p11: removed"), "{forced:?}");
    assert_eq!(n_policies(), 1.0);
    ratewright.reload(&all);
    assert_eq!(n_policies(), 12.0, "a good file after a refused one");
    ratewright.rewrite(&few);
    wait_until("an earlier forced reload does not allow this one", || ratewright.metric(FAILURES) == 5.0);
    ratewright.rewrite("policies: [\n");
    wait_until("an invalid file is refused", || ratewright.metric(FAILURES) == 6.0);
    let invalid = reload(&ratewright, &["--force"]);
    assert_eq!(invalid.status.code(), Some(2), "an invalid file cannot be forced");
    assert!(stderr(&invalid).contains("ratewright.yaml:3:11: "), "{invalid:?}");
    assert_eq!(n_policies(), 12.0);
}

/// Which files pass: `(before, after, is it put in force)`.
#[test]
fn the_guard_rejects_only_probably_incomplete_files() {
    let cases = [
        ("9 of 10 are not more than 90 %", policies(numbered(10)), policies(numbered(1)), true),
        ("10 of 11 are", policies(numbered(11)), policies(numbered(1)), false),
        ("9 policies are few", policies(numbered(9)), policies(["other".to_owned()]), true),
        ("none at all, in so many words", policies(numbered(12)), "policies: []\n".to_owned(), true),
        ("all off", policies(numbered(12)), format!("enabled: false\n{}", policies(numbered(1))), true),
        ("all off, and nothing else", policies(numbered(12)), "enabled: false\n".to_owned(), true),
        ("left out", policies(numbered(12)), "log: {level: info}\n".to_owned(), false),
        ("renamed", policies(numbered(12)), policies(numbered(12).map(|name| format!("x{name}"))), true),
        (
            "the file of another program",
            policies(numbered(12)),
            policies(numbered(12).map(|name| format!("x{name}"))).replace("1/h", "2/h"),
            false,
        ),
        (
            "switched off one by one",
            policies(numbered(12)),
            policies(numbered(12)).replace("by: ip", "mode: off"),
            true,
        ),
    ];
    for (why, before, after, is_in_force) in cases {
        let ratewright = Ratewright::start(&before);
        ratewright.rewrite(&after);
        let reloaded = reload(&ratewright, &[]);
        assert_eq!(reloaded.status.code(), Some(if is_in_force { 0 } else { 2 }), "{why}: {reloaded:?}");
    }
}

/// The watcher is often first. The command reports what edits changed in all since it was last run, however many there were.
#[test]
fn a_reload_reports_the_net_change_since_the_last_report() {
    let rate = |rate: &str| format!("policies: [{{name: api, by: ip, quota: {{rate: {rate}}}}}]\n");
    let ratewright = Ratewright::start(&rate("10/s"));
    let report = || stdout(&reload(&ratewright, &[]));
    ratewright.reload(&rate("20/s"));
    ratewright.reload(&rate("30/s"));
    assert!(
        report().contains("softer: 30 at once, then 30 every second instead of 10 at once"),
        "the net change"
    );
    assert_eq!(report(), "in force; no difference\n");
    ratewright.reload(&rate("1/s"));
    ratewright.reload(&rate("30/s"));
    assert_eq!(report(), "in force; no difference\n", "edited and reverted");
    ratewright.reload(&rate("5/s"));
    ratewright.rewrite("policies: [\n");
    assert_eq!(reload(&ratewright, &[]).status.code(), Some(2));
    ratewright.rewrite(&rate("5/s"));
    assert!(report().contains("stricter: 5 at once"), "a rejected file in between loses no report");
}

/// Some settings stay as they were at the start, so they are compared with that.
#[test]
fn changes_that_need_a_restart_are_reported_until_reverted() {
    let config = |timeout: &str| format!("drain_timeout: {timeout}\npolicies: []\n");
    let ratewright = Ratewright::start(&config("20s"));
    let report = || stdout(&reload(&ratewright, &[]));
    for (timeout, words) in
        [("7s", "7 s instead of 20 s"), ("7s", "7 s instead of 20 s"), ("9s", "9 s instead of 20 s")]
    {
        ratewright.rewrite(&config(timeout));
        let expected =
            format!("in force; these changes need a restart\n  drain_timeout: {words}; needs a restart\n");
        assert_eq!(report(), expected);
    }
    ratewright.rewrite(&config("20s"));
    assert_eq!(report(), "in force; no difference\n");
}

/// Rules for Envoy are guarded by themselves: policies that stay do not hide that all rules are gone.
#[test]
fn the_guard_counts_rules_for_envoy_by_themselves() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("rules.yaml");
    let rules = |n: usize| {
        let rule =
            |n| format!("- {{key: user, value: u{n}, rate_limit: {{unit: hour, requests_per_unit: 5}}}}\n");
        format!("domain: edge\ndescriptors:\n{}", (0..n).map(rule).collect::<String>())
    };
    let config = |files: &str| format!("envoy: {{files: [{files}]}}\n{}", policies(numbered(20)));
    let named = format!("'{}'", file.display());
    std::fs::write(&file, rules(12)).unwrap();
    let ratewright = Ratewright::start(&config(&named));
    std::fs::write(&file, rules(1)).unwrap();
    let refused = reload(&ratewright, &[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(stderr(&refused).contains("drops 11 of 12 rules for Envoy (envoy.edge.user_u1, "), "{refused:?}");
    std::fs::write(&file, rules(2)).unwrap();
    assert!(reload(&ratewright, &[]).status.success(), "10 of 12 are not more than 90 %");
    std::fs::write(&file, rules(12)).unwrap();
    assert!(reload(&ratewright, &[]).status.success());
    std::fs::write(&file, rules(1)).unwrap();
    assert!(reload(&ratewright, &["--force"]).status.success());
    std::fs::write(&file, rules(12)).unwrap();
    assert!(reload(&ratewright, &[]).status.success());
    ratewright.rewrite(&config(""));
    assert!(reload(&ratewright, &[]).status.success(), "files: [] says that there are none");
}

/// A ConfigMap of several files, one of which is gone; and a profile that renames nothing.
#[test]
fn a_missing_file_of_a_folder_is_rejected_by_a_reload_but_not_at_a_start() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("production")).unwrap();
    std::fs::write(path("listen.yaml"), on_free_ports("policies: [{name: own, quota: {rate: 9/s}}]\n"))
        .unwrap();
    std::fs::write(path("clients.yaml"), policies(numbered(30))).unwrap();
    let shadow = "policies: [{name: own, mode: shadow}]\n";
    std::fs::write(path("production/own.yaml"), shadow).unwrap();
    let args = [folder.path().to_str().unwrap(), "--profile", "production"];
    let ratewright = Ratewright::serve(&args);
    assert_eq!(ratewright.metric("ratewright_policies"), 31.0);
    std::fs::remove_file(path("clients.yaml")).unwrap();
    ratewright.wait_for_line(&["ERROR", "drops 30 of 31 policies"]);
    assert_eq!(reload(&ratewright, &[]).status.code(), Some(2));
    std::fs::write(path("clients.yaml"), policies(numbered(29))).unwrap();
    wait_until("the file is back", || ratewright.metric("ratewright_policies") == 30.0);
    std::fs::write(path("production/own.yaml"), shadow.replace("shadow", "off")).unwrap();
    wait_until("its profile is followed", || {
        ratewright.logged().iter().any(|line| line.contains("policy own: switched off: it no longer counts"))
    });
    std::fs::remove_file(path("clients.yaml")).unwrap();
    ratewright.wait_for_line(&["ERROR", "drops 29 of 30 policies"]);
    drop(ratewright);
    let started = Ratewright::serve(&args);
    assert_eq!(started.metric("ratewright_policies"), 1.0, "a start is not guarded: {}", started.banner);
}

/// `policies: []` in one file says nothing of a file that is gone. In a file of its own it is meant.
#[test]
fn an_empty_list_in_one_file_does_not_allow_a_missing_file() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("listen.yaml"), on_free_ports("policies: []\n")).unwrap();
    std::fs::write(path("clients.yaml"), policies(numbered(12))).unwrap();
    let ratewright = Ratewright::serve(&[folder.path().to_str().unwrap()]);
    let n_policies = || ratewright.metric("ratewright_policies");
    std::fs::remove_file(path("clients.yaml")).unwrap();
    let refused = reload(&ratewright, &[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let advice = "write policies: [] in each of its files";
    assert!(stderr(&refused).contains("drops 12 of 12 policies") && stderr(&refused).contains(advice));
    std::fs::write(path("clients.yaml"), "log: {level: info}\n").unwrap();
    assert_eq!(reload(&ratewright, &[]).status.code(), Some(2), "the file has lost its list");
    assert_eq!(n_policies(), 12.0);
    std::fs::write(path("clients.yaml"), "policies: []\n").unwrap();
    assert!(reload(&ratewright, &[]).status.success(), "each file says so");
    assert_eq!(n_policies(), 0.0);
}

/// A rule with a limit of zero denies everything, so it is not a rule that was dropped.
#[test]
fn the_guard_counts_rules_with_a_limit_of_zero() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("rules.yaml");
    let rules = |n_rules: usize, limit: u32| {
        let limit = format!("rate_limit: {{unit: hour, requests_per_unit: {limit}}}");
        let rules = (0..n_rules).map(|n| format!("- {{key: user, value: u{n}, {limit}}}\n"));
        format!("domain: edge\ndescriptors:\n{}", rules.collect::<String>())
    };
    std::fs::write(&file, rules(12, 5)).unwrap();
    let ratewright = Ratewright::start(&format!("envoy: {{files: ['{}']}}\n", file.display()));
    std::fs::write(&file, rules(12, 0)).unwrap();
    let denying = reload(&ratewright, &[]);
    assert!(denying.status.success(), "{denying:?}");
    let line = "rule for Envoy edge.user_u0: stricter: denies everything instead of 5 in each hour";
    assert!(stdout(&denying).contains(line), "{denying:?}");
    std::fs::write(&file, rules(1, 0)).unwrap();
    let dropping = reload(&ratewright, &[]);
    assert_eq!(dropping.status.code(), Some(2), "{dropping:?}");
    assert!(
        stderr(&dropping).contains("drops 11 of 12 rules for Envoy (envoy.edge.user_u1, "),
        "{dropping:?}"
    );
}

/// SIGHUP, edits and commands at once are taken one after the other, and the last good file counts.
#[test]
fn concurrent_reloads_are_serialised() {
    let (all, few) = (policies(numbered(12)), policies(numbered(1)));
    let ratewright = Ratewright::start(&all);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..10 {
                    let code = reload(&ratewright, &[]).status.code();
                    assert!(matches!(code, Some(0 | 2)), "{code:?}");
                }
            });
        }
        threads.spawn(|| (0..20).for_each(|_| ratewright.signal("HUP")));
        for n in 0..20 {
            ratewright.rewrite(if n % 2 == 0 { &few } else { &all });
            assert_eq!(ratewright.metric("ratewright_policies"), 12.0, "the small one is never in force");
        }
    });
    let softer = all.replace("1/h", "2/h");
    ratewright.rewrite(&softer);
    assert!(reload(&ratewright, &[]).status.success());
    assert!(ratewright.metric(RELOADS) >= 1.0);
    let reply: Value = serde_json::from_str(&stdout(&reload(&ratewright, &["--json"]))).unwrap();
    assert_eq!(reply["changes"], json!([]), "nothing is left to tell");
}

#[test]
fn a_reload_needs_the_same_authorisation_as_a_reset() {
    let ratewright = Ratewright::start(&policies(numbered(1)));
    let head =
        "POST /api/v1/admin/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n";
    let page = ratewright.ask_admin_raw(&format!("{head}Origin: https://evil.example\r\n\r\n"));
    assert_eq!(page.status, 403, "a page of another origin: {page:?}");
    assert_eq!(ratewright.ask_admin("GET", "/api/v1/admin/reload").status, 405);
    assert_eq!(ratewright.ask_admin("POST", "/api/v1/admin/reload?force=1").status, 400);
    assert_eq!(
        ratewright.ask("POST", "/api/v1/admin/reload").status,
        404,
        "the REST listener has no such path"
    );
    assert_eq!(ratewright.metric(RELOADS), 0.0);
    let unreachable = run(&["reload", "--admin", "http://127.0.0.1:1"]);
    assert_eq!(unreachable.status.code(), Some(1), "{unreachable:?}");
}

#[test]
fn diff_has_the_exit_status_of_diff_and_reads_standard_input() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let (old, new) = (write("old.yaml", &policies(numbered(2))), write("new.yaml", &policies(numbered(1))));
    let invalid = write("invalid.yaml", "polices: []\n");
    let same = run(&["diff", &old, &old]);
    assert_eq!((same.status.code(), stdout(&same).as_str()), (Some(0), "no difference\n"));
    let changed = run(&["diff", &old, &new]);
    assert_eq!(
        (changed.status.code(), stdout(&changed).as_str()),
        (Some(1), "policy p01: removed; it no longer limits anybody\n")
    );
    let wrong = run(&["diff", &old, &invalid]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        stderr(&wrong).contains("invalid.yaml:1:1: unknown setting") && stdout(&wrong).is_empty(),
        "{wrong:?}"
    );
    assert_eq!(run(&["diff", "-", "-"]).status.code(), Some(2));
    let piped = from_standard_input(&new, &["diff", "-", &old, "--json"]);
    let reply: Value = serde_json::from_str(&stdout(&piped)).unwrap();
    assert_eq!(
        (&reply["changes"][0]["kind"], &reply["changes"][0]["effect"]),
        (&json!("added"), &json!("stricter"))
    );
    write("new.over.yaml", "policies: [{name: p00, mode: shadow}]\n");
    write("old.over.yaml", "policies: [{name: p00, mode: off}]\n");
    let over = run(&["diff", &new, &old, "--profile", "over"]);
    assert!(stdout(&over).contains("policy p00: switched off: it no longer counts\n"), "{over:?}");
}

fn from_standard_input(file: &str, args: &[&str]) -> Output {
    output_for(&mut command(args), std::fs::read(Path::new(file)).unwrap(), PATIENCE)
}
