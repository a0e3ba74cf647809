//! Reloads of the policy file: by an edit, by SIGHUP, by Kubernetes.

mod referenced_files;
mod routes;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratewright_lab::{Client, Load, Redis, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Answer, Ratewright, listen, on_free_ports};

/// One policy that counts by address, with this quota and these other lines.
fn policy(name: &str, quota: &str, more: &str) -> String {
    format!("policies: [{{name: {name}, by: ip, quota: {quota}, {more}}}]\n")
}

/// Asks for a decision about a request of this client.
fn decide(ratewright: &Ratewright, ip: &str) -> Answer {
    ratewright.decide(&json!({"ip": ip}))
}

/// Tells what a client has left of a policy, and spends nothing.
fn look(ratewright: &Ratewright, ip: &str, policy: &str) -> Option<u64> {
    let body = json!({"attributes": {"ip": ip}, "look": true});
    ratewright.post("/api/v1/decide", &[], &body.to_string()).remaining(policy)
}

const FAILURES: &str = "ratewright_reload_failures_total";

/// The rate is the same in both files, so units mean the same: what was spent can be read off.
#[test]
fn a_changed_quota_keeps_spent_units() {
    // A bucket keeps the share that was spent, a window its count.
    for (algorithm, before, after, left) in [
        ("token_bucket", "rate: 1/h, burst: 10", "rate: 1/h, burst: 20", [11, 19, 5]),
        ("leaky_bucket", "rate: 1/h, burst: 10", "rate: 1/h, burst: 20", [11, 19, 5]),
        ("sliding_window", "rate: 10/d", "rate: 20/d", [15, 19, 4]),
        ("sliding_window_counter", "rate: 10/100year", "rate: 20/100year", [15, 19, 4]),
        ("fixed_window", "rate: 10/100year", "rate: 20/100year", [15, 19, 4]),
    ] {
        let quota = |terms: &str| policy("api", &format!("{{algorithm: {algorithm}, {terms}}}"), "");
        let ratewright = Ratewright::start(&quota(before));
        for left in [9, 8, 7, 6] {
            assert_eq!(decide(&ratewright, "192.0.2.1").remaining("api"), Some(left), "{algorithm}");
        }
        ratewright.reload(&quota(after));
        assert_eq!(decide(&ratewright, "192.0.2.1").remaining("api"), Some(left[0]), "{algorithm}");
        assert_eq!(decide(&ratewright, "192.0.2.2").remaining("api"), Some(left[1]), "{algorithm}");
        ratewright.reload(&quota(before));
        assert_eq!(decide(&ratewright, "192.0.2.1").remaining("api"), Some(left[2]), "{algorithm}");
    }
}

#[test]
fn a_policy_that_returns_keeps_its_counts() {
    const QUOTA: &str = "{rate: 1/h, burst: 10}";
    let ratewright = Ratewright::start(&policy("old", QUOTA, ""));
    assert_eq!(decide(&ratewright, "192.0.2.1").remaining("old"), Some(9));
    ratewright.reload(&policy("new", QUOTA, ""));
    let renamed = decide(&ratewright, "192.0.2.1");
    assert_eq!((renamed.remaining("old"), renamed.remaining("new")), (None, Some(9)));
    ratewright.wait_for_line(&["policies reloaded", "+new -old"]);
    ratewright.reload("policies: []\n");
    let free = decide(&ratewright, "192.0.2.1").json();
    assert_eq!(
        (&free["allowed"], &free["basis"], &free["limits"]),
        (&json!(true), &json!("none"), &json!([]))
    );
    ratewright.reload(&format!(
        "policies: [{{name: old, by: ip, quota: {QUOTA}}}, {{name: new, by: ip, quota: {QUOTA}}}]"
    ));
    let both = decide(&ratewright, "192.0.2.1");
    assert_eq!((both.remaining("old"), both.remaining("new")), (Some(8), Some(8)));
    assert_eq!(ratewright.metric("ratewright_policies"), 2.0);
}

#[test]
fn an_invalid_file_is_reported_and_ignored() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 3}", ""));
    assert_eq!(ratewright.metric(FAILURES), 0.0);
    assert_eq!(decide(&ratewright, "192.0.2.1").remaining("api"), Some(2));
    let file = ratewright.file().display().to_string();
    for (n, (broken, expected_error)) in [
        (policy("api", "{rate: 1/h, burst: 0}", ""), ":3:58: policies.api.quota.burst is"),
        ("policies: [\n".to_owned(), ":3:11: "),
        ("polices: []\n".to_owned(), ":3:1: unknown setting \\\"polices\\\""),
    ]
    .into_iter()
    .enumerate()
    {
        ratewright.rewrite(&broken);
        let failures = n as f64 + 1.0;
        wait_until("it is refused", || ratewright.metric(FAILURES) == failures);
        ratewright.wait_for_line(&["ERROR", &format!("{file}{expected_error}")]);
        ratewright.wait_for_line(&["ERROR", "policy file rejected; the previous file stays in force"]);
        assert_eq!(look(&ratewright, "192.0.2.1", "api"), Some(2), "{broken}");
    }
    std::fs::remove_file(ratewright.file()).unwrap();
    wait_until("a missing file is refused too", || ratewright.metric(FAILURES) == 4.0);
    ratewright.wait_for_line(&["ERROR", &format!("{file}: cannot read the file")]);
    assert_eq!(look(&ratewright, "192.0.2.1", "api"), Some(2));
    assert_eq!(ratewright.metric("ratewright_reloads_total"), 0.0);
    ratewright.reload(&policy("api", "{rate: 1/h, burst: 5}", ""));
    assert_eq!(look(&ratewright, "192.0.2.1", "api"), Some(3), "a third of it is spent");
    assert_eq!(ratewright.metric(FAILURES), 4.0);
}

/// An emptied or incomplete file does not lift the limits.
#[test]
fn a_file_without_policies_is_rejected() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 3}", ""));
    ratewright.rewrite("log: {level: info}\n");
    ratewright.wait_for_line(&[
        "ERROR",
        "policy file rejected: section policies is missing",
        "write policies: []",
    ]);
    wait_until("it is counted: the log is a moment earlier", || ratewright.metric(FAILURES) == 1.0);
    assert_eq!(look(&ratewright, "192.0.2.1", "api"), Some(3));
    ratewright.reload("policies: []\n");
    assert_eq!(look(&ratewright, "192.0.2.1", "api"), None);
}

/// A file that is truncated before its routes would close all of them.
#[test]
fn a_file_without_routes_is_rejected() {
    let policies = "policies: [{name: api, by: ip, quota: {rate: 1/h, burst: 3}}]\n";
    let routes = "routes: [{id: all, match: {path: /**}, upstream: 'http://127.0.0.1:9'}]\n";
    let ratewright = Ratewright::start(&format!("{policies}{routes}"));
    assert_eq!(ratewright.pass("/", &[]).status, 502);
    ratewright.rewrite(policies);
    ratewright.wait_for_line(&[
        "ERROR",
        "policy file rejected: section routes is missing",
        "write routes: []",
    ]);
    assert_eq!(ratewright.pass("/", &[]).status, 502);
    ratewright.reload(&format!("{policies}routes: []\n"));
    assert_eq!(ratewright.pass("/", &[]).status, 404);
}

/// Most editors replace the file; some, and `cp`, write into it.
#[test]
fn a_file_written_in_place_is_read_when_complete() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 3}", ""));
    let mut file = std::fs::File::create(ratewright.file()).unwrap();
    let text = on_free_ports(&policy("api", "{rate: 1/h, burst: 4}", ""));
    for byte in text.as_bytes() {
        file.write_all(&[*byte]).unwrap();
    }
    wait_until("it is in force", || look(&ratewright, "192.0.2.1", "api") == Some(4));
}

/// SIGHUP reloads even an unchanged file.
#[test]
fn sighup_reads_everything_again() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 3}", ""));
    for n in [1.0, 2.0] {
        ratewright.signal("HUP");
        wait_until("it is read again", || ratewright.metric("ratewright_reloads_total") == n);
    }
    ratewright.wait_for_line(&["policies reloaded", "none"]);
}

/// A mounted ConfigMap: the file is a link into `..data`, which is a link to a folder that is replaced as a whole.
#[test]
fn kubernetes_swaps_a_whole_folder() {
    let mount = TempDir::new().unwrap();
    let version = |name: &str, burst: u32| {
        let folder = mount.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let text = on_free_ports(&policy("api", &format!("{{rate: 1/h, burst: {burst}}}"), ""));
        std::fs::write(folder.join("ratewright.yaml"), text).unwrap();
    };
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, mount.path().join(name)).unwrap();
    version("..2026_1", 5);
    link("..2026_1", "..data");
    link("..data/ratewright.yaml", "ratewright.yaml");
    let file = mount.path().join("ratewright.yaml");
    let ratewright = Ratewright::serve(&[Path::new("-c"), &file]);
    assert_eq!(decide(&ratewright, "192.0.2.1").remaining("api"), Some(4));
    for (n, burst) in [(2, 10), (3, 20)] {
        version(&format!("..2026_{n}"), burst);
        link(&format!("..2026_{n}"), "..data_tmp");
        std::fs::rename(mount.path().join("..data_tmp"), mount.path().join("..data")).unwrap();
        std::fs::remove_dir_all(mount.path().join(format!("..2026_{}", n - 1))).unwrap();
        wait_until("it is in force", || {
            look(&ratewright, "192.0.2.1", "api") == Some(u64::from(burst) * 4 / 5)
        });
    }
    assert_eq!(ratewright.metric(FAILURES), 0.0);
}

#[test]
fn files_of_a_folder_can_be_added_changed_and_removed() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a-listen.yaml", &on_free_ports(""));
    write("b-login.yaml", &policy("login", "{rate: 1/h, burst: 5}", ""));
    let ratewright = Ratewright::serve(&[Path::new("-c"), folder.path()]);
    let left = || ["login", "api"].map(|policy| look(&ratewright, "192.0.2.1", policy));
    assert_eq!(left(), [Some(5), None]);
    write("c-api.yml", &policy("api", "{rate: 1/h, burst: 7}", ""));
    wait_until("the file that was added is in force", || left() == [Some(5), Some(7)]);
    write("b-login.yaml", &policy("login", "{rate: 1/h, burst: 6}", ""));
    wait_until("the change is in force", || left() == [Some(6), Some(7)]);
    write("d-again.yaml", &policy("api", "{rate: 1/h, burst: 9}", ""));
    wait_until("a name that stands twice is refused", || ratewright.metric(FAILURES) == 1.0);
    ratewright.wait_for_line(&["ERROR", "d-again.yaml:1:19: duplicate policy name"]);
    std::fs::remove_file(folder.path().join("d-again.yaml")).unwrap();
    std::fs::rename(folder.path().join("b-login.yaml"), folder.path().join("b-login.yaml.off")).unwrap();
    wait_until("what was taken away is gone", || left() == [None, Some(7)]);
}

/// E6: every step of a rollback is an edit of the file. Counts are kept.
#[test]
fn e6_limits_are_rolled_back_without_a_rebuild() {
    let tight = |more: &str| policy("api", "{rate: 1/h, burst: 2}", more);
    let ratewright = Ratewright::start(&tight(""));
    let statuses = || [(); 3].map(|()| decide(&ratewright, "192.0.2.1").status);
    assert_eq!(statuses(), [200, 200, 429]);

    ratewright.reload(&tight("mode: shadow"));
    assert_eq!(statuses(), [200; 3], "shadow counts, and denies nobody");
    let limit = &decide(&ratewright, "192.0.2.1").json()["limits"][0];
    assert_eq!((&limit["mode"], &limit["outcome"]), (&json!("shadow"), &json!("denied")));

    ratewright.reload(&tight("mode: enforce"));
    assert_eq!(statuses(), [429; 3]);
    ratewright.reload(&tight("mode: off"));
    assert_eq!(statuses(), [200; 3]);
    assert_eq!(decide(&ratewright, "192.0.2.1").json()["limits"], json!([]));

    ratewright.reload(&policy("api", "{rate: 1/h, burst: 4}", ""));
    assert_eq!(statuses(), [429; 3], "all of it stays spent");
    ratewright.reload(&policy("api", "{rate: 1000/s, burst: 4}", ""));
    wait_until("it comes back soon", || decide(&ratewright, "192.0.2.1").status == 200);
    ratewright.reload(&policy("api", "{rate: 1/h, burst: 4}", ""));
    wait_until("it is tight again", || decide(&ratewright, "192.0.2.1").status == 429);

    let denied = decide(&ratewright, "192.0.2.1");
    assert!(denied.headers.contains_key("retry-after"));
    ratewright
        .reload(&format!("headers: {{retry_after: false}}\n{}", policy("api", "{rate: 1/h, burst: 4}", "")));
    let denied = decide(&ratewright, "192.0.2.1");
    assert_eq!((denied.status, denied.headers.get("retry-after")), (429, None));
    assert_eq!(denied.headers["x-ratelimit-remaining"], "0");

    ratewright.reload(&format!("enabled: false\n{}", tight("")));
    assert_eq!(statuses(), [200; 3]);
}

/// B1: all limits, or a single one, can be switched off: in the file, or by a profile of the environment.
#[test]
fn b1_limits_are_switched_off_by_the_file_or_by_a_profile() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    let limits = "policies:\n- {name: login, by: ip, quota: {rate: 1/h, burst: 1}}\n- {name: api, by: ip, quota: {rate: 1/h, burst: 2}}\n";
    let write = |text: &str| std::fs::write(&file, on_free_ports(text)).unwrap();
    let profile = |name: &str, text: &str| {
        std::fs::write(folder.path().join(format!("ratewright.{name}.yaml")), text).unwrap();
    };
    let serve = |args: &[&str]| {
        let args: Vec<_> = ["-c", file.to_str().unwrap()].iter().chain(args).copied().collect();
        Ratewright::serve(&args)
    };
    let statuses = |ratewright: &Ratewright| [(); 3].map(|()| decide(ratewright, "192.0.2.1").status);
    write(limits);
    profile("dev", "enabled: false\n");
    profile("staging", "policies: [{name: login, mode: off}]\n");
    assert_eq!(statuses(&serve(&[])), [200, 429, 429]);
    let dev = serve(&["--profile", "dev"]);
    assert_eq!(statuses(&dev), [200; 3]);
    assert_eq!(statuses(&serve(&["--profile", "staging"])), [200, 200, 429]);

    profile("dev", "enabled: true\n");
    wait_until("the profile's change is in force", || look(&dev, "192.0.2.1", "login") == Some(1));
    assert_eq!(statuses(&dev), [200, 429, 429]);
    write(&format!("enabled: false\n{limits}"));
    assert_eq!(statuses(&serve(&[])), [200; 3]);
}

/// The counts are in Redis; a reload does not touch them, and neither does a restart with another file.
#[test]
fn with_redis_the_counts_survive_a_reload() {
    let server = Redis::start();
    let with = |quota: &str| {
        let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", server.url());
        format!("{store}{}", policy("api", quota, ""))
    };
    let basis = |ratewright: &Ratewright| decide(ratewright, "192.0.2.9").json()["basis"].clone();
    let ratewright = Ratewright::start(&with("{rate: 1/h, burst: 10}"));
    wait_until("it decides by Redis", || basis(&ratewright) == "shared");
    for left in [9, 8, 7] {
        assert_eq!(decide(&ratewright, "192.0.2.1").remaining("api"), Some(left));
    }
    ratewright.reload(&with("{rate: 1/h, burst: 20}"));
    let answer = decide(&ratewright, "192.0.2.1");
    assert_eq!((answer.remaining("api"), &answer.json()["basis"]), (Some(13), &json!("shared")));
    assert!(server.cli(&["KEYS", "*"]).contains("ratelimit:api:192.0.2.1"));
    drop(ratewright);
    let ratewright = Ratewright::start(&with("{rate: 1/h, burst: 30}"));
    wait_until("it decides by Redis", || basis(&ratewright) == "shared");
    assert_eq!(look(&ratewright, "192.0.2.1", "api"), Some(19), "7 of 20 are 10.5 of 30");
}

/// Changes of listeners and of the store need a restart, and are logged.
#[test]
fn restart_only_changes_are_logged() {
    let ratewright = Ratewright::start("");
    ratewright.reload("store: {local: {max_keys: 5}}\n");
    ratewright.wait_for_line(&["WARN", "settings changed: store; restart to apply"]);
    ratewright.reload("log: {format: text, denials: all}\nmetrics: {labels: {application: t}}\n");
    ratewright.reload("");
    let n_lines = |part: &str| ratewright.logged().iter().filter(|line| line.contains(part)).count();
    wait_until("all is logged", || n_lines("policies reloaded") == 3);
    let names = "settings changed: metrics.labels, log.format, log.denials; restart to apply";
    assert_eq!((n_lines(names), n_lines("settings changed: ")), (1, 2), "once for each reload");
    let file = ratewright.file();
    std::fs::write(&file, listen(&[("admin", "off")])).unwrap();
    ratewright.wait_for_line(&["WARN", "listener removed: listen.admin; it stays open until a restart"]);
    std::fs::write(&file, listen(&[("api", "'127.0.0.1:1'")])).unwrap();
    ratewright.wait_for_line(&[
        "WARN",
        "listener address changed: listen.api from 127.0.0.1:0 to 127.0.0.1:1; restart to apply",
    ]);
    assert_eq!(decide(&ratewright, "192.0.2.1").status, 200, "it still listens");
}

/// Fifty reloads under load: no request fails, on old and new connections, and each is decided by one whole rule set.
#[test]
fn reloads_disturb_no_request() {
    /// Two policies that belong together.
    fn pair(n: usize) -> String {
        let policy =
            |side: &str| format!("{{name: {side}{n}, by: ip, quota: {{rate: 1000/h, burst: 1000000}}}}");
        format!("policies: [{}, {}]\n", policy("left"), policy("right"))
    }
    /// Which pair an answer is about.
    fn pair_of(answer: &Value) -> usize {
        let number = |limit: usize, side: &str| {
            let policy = answer["limits"][limit]["policy"].as_str().unwrap_or_else(|| panic!("{answer}"));
            policy
                .strip_prefix(side)
                .and_then(|n| n.parse::<usize>().ok())
                .unwrap_or_else(|| panic!("{answer}"))
        };
        let (left, right) = (number(0, "left"), number(1, "right"));
        assert_eq!(left, right, "one rule set as a whole");
        left
    }
    let ratewright = Ratewright::start(&pair(0));
    let n_answered = AtomicUsize::new(0);
    let body = json!({"attributes": {"ip": "192.0.2.1"}}).to_string();
    let ask = |keeps: bool, goes_on: &dyn Fn() -> bool| {
        let mut client = Client::connect(&ratewright.address);
        while goes_on() {
            if !keeps {
                client = Client::connect(&ratewright.address);
            }
            let (status, answer) = client.post("/api/v1/decide", &body).unwrap();
            assert_eq!(status, 200, "{answer}");
            pair_of(&serde_json::from_str(&answer).unwrap());
            n_answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let load = Load::default();
        let spawn = |keeps, goes_on| scope.spawn(move || ask(keeps, &goes_on));
        let threads = [true, true, false].map(|keeps| spawn(keeps, load.goes_on()));
        for n in 1..=50 {
            ratewright.rewrite(&pair(n));
            ratewright.signal("HUP");
            let before = n_answered.load(Ordering::Relaxed);
            wait_until("it is in force, and requests are answered", || {
                pair_of(&decide(&ratewright, "192.0.2.1").json()) == n
                    && n_answered.load(Ordering::Relaxed) > before
            });
        }
        load.end();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    });
    wait_until("all are counted: the last one is in force a moment earlier", || {
        ratewright.metric("ratewright_reloads_total") >= 50.0
    });
    assert_eq!(ratewright.metric(FAILURES), 0.0);
}
