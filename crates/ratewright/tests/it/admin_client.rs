//! The commands that ask a running instance: `inspect`, `reset` and `top`.

mod client_buckets;
mod in_flight;

use std::io::{BufRead, BufReader, read_to_string};
use std::process::Output;

use expect_test::{Expect, expect};
use ratewright_lab::{Printed, Redis, free_port, output, wait, write_certificates};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Guarded, Ratewright, command, listen, own_address, run};

const POLICIES: &str = "
api: {defaults: {token_bucket: {rate: 1/h, burst: 100}}}
policies:
- {name: login, by: ip, quota: [{rate: 1/h, burst: 10}, {name: day, algorithm: sliding_window, rate: 20/d}], when: {path: /login}}
- {name: api, by: {first_of: [user, ip]}, quota: {rate: 1/h, burst: 2}, when: {path: /api}}
- {name: all, mode: shadow, quota: {rate: 10/1000d}}
- {name: idle, by: ip, mode: off, quota: {rate: 1/h}}
";

/// Runs a command against the program's admin listener.
fn ask(ratewright: &Ratewright, args: &[&str]) -> Output {
    run(&[args, &["--admin", &format!("http://{}", ratewright.admin)]].concat())
}

/// Checks a command's output and exit status. Masks times, durations and the listener's address.
#[track_caller]
fn check(ratewright: &Ratewright, args: &[&str], expected: Expect) {
    let printed = printed(&ask(ratewright, args)).replace(&ratewright.admin, "ADMIN");
    expected.assert_eq(&printed.lines().map(timeless).collect::<Vec<_>>().join("\n"));
}

fn timeless(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let word = |(n, word): (usize, &&str)| {
        let is_time = word.len() == 8 && word.split(':').count() == 3;
        let is_wait = words.get(n + 1) == Some(&"s") && **word != *"0";
        let is_random_id = word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_time {
            "hh:mm:ss".to_owned()
        } else if is_random_id {
            "(random id)".to_owned()
        } else if is_wait {
            "n".repeat(word.len())
        } else {
            (*word).to_owned()
        }
    };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

fn printed(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    format!("{}{}exit {}", text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

fn json_of(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", printed(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn inspect_shows_the_usage_of_each_quota() {
    let ratewright = Ratewright::start(POLICIES);
    for _ in 0..3 {
        ratewright.decide(&json!({"ip": "192.0.2.1", "path": "/login"}));
    }
    ratewright.get("check?key=user:123");
    let expected = expect![[r#"
        login:192.0.2.1

        LIMIT      LEFT  OF  FULL IN  MODE     BASIS
        login         7  10  nnnnn s  enforce  local
        login/day    17  20  nnnnn s  enforce  local
        exit 0"#]];
    check(&ratewright, &["inspect", "login:192.0.2.1"], expected);
    check(
        &ratewright,
        &["inspect", "login/day:{192.0.2.99}"],
        expect![[r#"
            login:192.0.2.99

            LIMIT      LEFT  OF  FULL IN  MODE     BASIS
            login        10  10  0 s      enforce  local
            login/day    20  20  0 s      enforce  local
            exit 0"#]],
    );
    check(
        &ratewright,
        &["inspect", "token_bucket:user:123"],
        expect![[r#"
            token_bucket:user:123

            LIMIT         LEFT   OF  FULL IN  MODE     BASIS
            token_bucket    99  100  nnnn s   enforce  local
            exit 0"#]],
    );
    let all = ask(&ratewright, &["inspect", "all", "--json"]);
    let all = json_of(&all);
    assert_eq!(
        (&all["policy"], &all["remaining"], &all["limits"][0]["mode"]),
        (&json!("all"), &json!(7), &json!("shadow"))
    );
    check(
        &ratewright,
        &["inspect", "idle:192.0.2.1"],
        expect![[r#"
            idle:192.0.2.1: not counted; the policy or all limits are off
            exit 0"#]],
    );
    assert_eq!(
        ratewright.admin("/api/v1/admin/key?policy=login&key=192.0.2.1").json()["remaining"],
        7,
        "nothing is spent"
    );
}

#[test]
fn reset_clears_one_key_only() {
    let ratewright = Ratewright::start(POLICIES);
    for ip in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(
            [(); 3].map(|()| ratewright.decide(&json!({"ip": ip, "path": "/api"})).status),
            [200, 200, 429]
        );
    }
    let left = |key: &str| json_of(&ask(&ratewright, &["inspect", key, "--json"]))["remaining"].clone();
    assert_eq!((left("api:ip:192.0.2.1"), left("api:ip:192.0.2.2")), (json!(0), json!(0)));
    let expected = expect![[r#"
        api:ip:192.0.2.1 is reset, in this instance
        exit 0"#]];
    check(&ratewright, &["reset", "api:ip:192.0.2.1"], expected);
    assert_eq!((left("api:ip:192.0.2.1"), left("api:ip:192.0.2.2")), (json!(2), json!(0)));
    let reset = json_of(&ask(&ratewright, &["reset", "api:ip:192.0.2.2", "--json"]));
    assert_eq!(
        reset,
        json!({"key": "ip:192.0.2.2", "policy": "api", "message": "Rate limit reset", "basis": "local"})
    );
    assert_eq!(left("api:ip:192.0.2.2"), 2);
}

#[test]
fn inspect_remaining_and_reset_cover_all_buckets_of_a_policy() {
    check_all_buckets(&Ratewright::start(OVERRIDDEN));
}

#[test]
fn inspect_remaining_and_reset_cover_all_buckets_on_redis() {
    let server = Redis::start();
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", server.url());
    let ratewright = Ratewright::start(&format!("{store}{OVERRIDDEN}"));
    ratewright.wait_for_redis();
    check_all_buckets(&ratewright);
    assert_eq!(ratewright.get("remaining?policy=p&key=anna").json()["basis"], "shared");
}

const OVERRIDDEN: &str = "
clients: {user: {jwt: {secret: a secret of at least thirty-two bytes}}}
policies:
- name: p
  by: user
  quota: {rate: 5/h}
  overrides: [{name: get, match: {method: GET}, quota: {rate: 9/h}}]
";

/// All buckets of a policy, by their keys in Redis: of overrides, and of addresses with an invalid token.
#[track_caller]
fn check_all_buckets(ratewright: &Ratewright) {
    let ask_as = |method: &str, user: &str| {
        ratewright.decide(&json!({"ip": "192.0.2.1", "method": method, "user": user})).status
    };
    let refused = || {
        let headers = json!({"Authorization": "Bearer a.b.c"});
        ratewright.decide(&json!({"ip": "192.0.2.1", "method": "POST", "headers": headers})).status
    };
    assert_eq!([ask_as("GET", "anna"), ask_as("POST", "anna"), ask_as("POST", "anna"), refused()], [200; 4]);
    let left = |key: &str| {
        let inspected = json_of(&ask(ratewright, &["inspect", key, "--json"]));
        let limits = inspected["limits"].as_array().unwrap().clone();
        limits.iter().map(|limit| limit["remaining"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    // Of the buckets that a key has, the one that is emptiest.
    let least =
        |key: &str| ratewright.get(&format!("remaining?policy=p&key={key}")).json()["remaining"].clone();
    assert_eq!(left("p:anna"), [3, 8]);
    assert_eq!(left("p+get:anna"), [3, 8], "as Redis has it");
    assert_eq!(least("anna"), 3, "of the policy's own quota");
    assert_eq!([(); 7].map(|()| ask_as("GET", "anna")), [200; 7]);
    assert_eq!((left("p:anna"), least("anna")), (vec![3, 1], json!(1)), "of the override's");
    assert_eq!((left("p:anna"), least("anna")), (vec![3, 1], json!(1)), "a look spends nothing");
    assert_eq!(left("p:ip:192.0.2.1"), [4, 9], "the address whose token is refused");
    assert_eq!(left("p:ip%3A192.0.2.1"), [5, 9], "a user of that name");
    assert_eq!(least("ip%3A192.0.2.1"), 5);
    ask(ratewright, &["reset", "p:ip:192.0.2.1"]);
    ask(ratewright, &["reset", "p:anna"]);
    assert_eq!((left("p:ip:192.0.2.1"), left("p:anna")), (vec![5, 9], vec![5, 9]));
    assert_eq!(least("anna"), 5, "as many as it ever has under its own quota");
}

#[test]
fn top_shows_the_most_denied_clients_and_the_latest_denials() {
    let ratewright = Ratewright::start(POLICIES);
    check(
        &ratewright,
        &["top"],
        expect![[r#"
            No client was denied in the last 5 minutes
            exit 0"#]],
    );
    for (ip, n) in [("192.0.2.1", 5), ("192.0.2.22", 3)] {
        for _ in 0..n {
            ratewright.decide(&json!({"ip": ip, "method": "GET", "path": "/api"}));
        }
    }
    let body = json!({"attributes": {"ip": "192.0.2.1", "method": "POST", "path": "/login"}, "cost": 11});
    ratewright.post("/api/v1/decide", &[], &body.to_string());
    check(
        &ratewright,
        &["top", "-n", "3"],
        expect![[r#"
            Most denied in the last 5 minutes

            DENIED  POLICY  CLIENT         MODE
                 3  api     ip:192.0.2.1   enforce
                 1  api     ip:192.0.2.22  enforce
                 1  login   192.0.2.1      enforce

            Last denials

            UTC       POLICY  CLIENT         REQUEST      RETRY AFTER  MODE     CORRELATION ID
            hh:mm:ss  login   192.0.2.1      POST /login  never        enforce  (random id)
            hh:mm:ss  api     ip:192.0.2.22  GET /api     nnnn s       enforce  (random id)
            hh:mm:ss  api     ip:192.0.2.1   GET /api     nnnn s       enforce  (random id)
            exit 0"#]],
    );
    check(
        &ratewright,
        &["top", "--policy", "login"],
        expect![[r#"
            Most denied in the last 5 minutes

            DENIED  POLICY  CLIENT     MODE
                 1  login   192.0.2.1  enforce

            Last denials

            UTC       POLICY  CLIENT     REQUEST      RETRY AFTER  MODE     CORRELATION ID
            hh:mm:ss  login   192.0.2.1  POST /login  never        enforce  (random id)
            exit 0"#]],
    );
    let top = json_of(&ask(&ratewright, &["top", "--json", "-n", "1"]));
    assert_eq!(
        top["top"],
        json!([{"policy": "api", "client": "ip:192.0.2.1", "atLeast": 3, "atMost": 3, "mode": "enforce"}])
    );
    assert_eq!((&top["windowSeconds"], &top["denials"][0]["path"]), (&json!(300), &json!("/login")));
    assert_eq!(top["denials"].as_array().unwrap().len(), 1);
}

/// A mistyped name must not look like a policy without denials.
#[test]
fn top_rejects_unknown_policies_and_reports_policies_without_denials() {
    let ratewright = Ratewright::start(&format!("{POLICIES}- {{name: at-once, by: ip, in_flight: 3}}\n"));
    check(
        &ratewright,
        &["top", "-p", "nope"],
        expect![[r#"
        error: http://ADMIN rejected the request: unknown policy "nope"; see the policy file
        exit 1"#]],
    );
    assert_eq!(ratewright.admin("/api/v1/admin/top?policy=nope").status, 404);
    for policy in ["login", "idle", "at-once", "token_bucket"] {
        let text = printed(&ask(&ratewright, &["top", "-p", policy]));
        assert_eq!(text, format!("No client was denied by policy {policy} in the last 5 minutes\nexit 0"));
    }
    for _ in 0..3 {
        ratewright.decide(&json!({"ip": "192.0.2.1", "path": "/api"}));
    }
    ratewright.reload("policies: [{name: other, quota: {rate: 1/h}}]\n");
    let gone = printed(&ask(&ratewright, &["top", "-p", "api"]));
    assert!(
        gone.contains("1  api     ip:192.0.2.1") && gone.ends_with("exit 0"),
        "denied before the reload: {gone}"
    );
}

/// Before switching a policy to enforce, an operator wants to see which clients it would have denied.
#[test]
fn top_marks_denials_in_shadow_mode_and_shows_correlation_ids() {
    let ratewright = Ratewright::start(
        "policies:\n\
         - {name: trial, by: ip, mode: shadow, quota: {rate: 1/h}, when: {path: /trial}}\n\
         - {name: api, by: ip, quota: {rate: 1/h}, when: {path: /api}}\n",
    );
    for (path, n) in [("/trial", 3), ("/api", 2)] {
        for n in 0..n {
            let body = json!({"attributes": {"ip": "192.0.2.1", "method": "GET", "path": path}});
            let id = format!("id{}-{n}", path.replace('/', "-"));
            ratewright.post("/api/v1/decide", &[("X-Correlation-Id", &id)], &body.to_string());
        }
    }
    check(
        &ratewright,
        &["top"],
        expect![[r#"
            Most denied in the last 5 minutes

            DENIED  POLICY  CLIENT     MODE
                 1  api     192.0.2.1  enforce
                 2  trial   192.0.2.1  shadow

            Last denials

            UTC       POLICY  CLIENT     REQUEST     RETRY AFTER  MODE     CORRELATION ID
            hh:mm:ss  api     192.0.2.1  GET /api    nnnn s       enforce  id-api-1
            hh:mm:ss  trial   192.0.2.1  GET /trial  nnnn s       shadow   id-trial-2
            hh:mm:ss  trial   192.0.2.1  GET /trial  nnnn s       shadow   id-trial-1

            Mode shadow: the policy would have denied these requests; it is not enforced
            exit 0"#]],
    );
    let api = printed(&ask(&ratewright, &["top", "-p", "api"]));
    assert!(!api.contains("shadow"), "{api}");
    let json = json_of(&ask(&ratewright, &["top", "--json"]));
    assert_eq!(
        (&json["top"][1]["mode"], &json["denials"][0]["correlationId"]),
        (&json!("shadow"), &json!("id-api-1"))
    );
}

/// Whatever a value contains, a printed key can be copied, inspected and reset, and names the same bucket.
#[test]
fn a_printed_key_can_be_inspected_and_reset() {
    let ratewright = Ratewright::start(
        "policies:\n\
         - {name: pair, by: [user, path], quota: {rate: 1/h, burst: 1}, when: {path: '/pair/**'}}\n\
         - {name: one, by: {first_of: [user, ip]}, quota: {rate: 1/h, burst: 1}, when: {path: /one}}\n\
         api: {defaults: {token_bucket: {rate: 1/h, burst: 1}}}\n",
    );
    let users = ["a|b", "a", "a%7Cb", "100%", "100%25", "%", "|", "é b"];
    for user in users {
        for path in ["/pair/x|y", "/pair/b|x", "/one"] {
            let attributes = json!({"user": user, "path": path});
            assert_eq!([(); 2].map(|()| ratewright.decide(&attributes).status), [200, 429], "{user} {path}");
        }
    }
    for key in ["50%25|x", "50%2525"] {
        let check = format!("check?key={}", key.replace('%', "%25"));
        assert_eq!([(); 2].map(|()| ratewright.get(&check).status), [200, 429], "{key}");
    }
    let top = json_of(&ask(&ratewright, &["top", "--json", "-n", "100"]));
    let shown: Vec<_> = top["top"].as_array().unwrap().iter().collect();
    assert_eq!(shown.len(), users.len() * 3 + 2, "{shown:#?}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let keys: Vec<_> =
        shown.iter().map(|row| format!("{}:{}", text(&row["policy"]), text(&row["client"]))).collect();
    let left = |key: &str| json_of(&ask(&ratewright, &["inspect", key, "--json"]))["remaining"].clone();
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(left(key), 0, "{key}");
        json_of(&ask(&ratewright, &["reset", key, "--json"]));
        assert_eq!(left(key), 1, "{key}");
        assert!(keys[n + 1..].iter().all(|other| left(other) == 0), "{key} and no other");
    }
}

/// The admin API takes several values in the same encoding, and a single value unencoded.
#[test]
fn the_admin_api_accepts_any_key() {
    let ratewright = Ratewright::start(
        "policies:\n\
         - {name: pair, by: [user, 'claim:plan'], quota: {rate: 1/h, burst: 5}, when: {path: /pair}}\n\
         - {name: one, by: user, quota: {rate: 1/h, burst: 5}, when: {path: /one}}\n\
         - {name: me, by: {first_of: [user, ip]}, quota: {rate: 1/h, burst: 5}}\n",
    );
    ratewright.decide(&json!({"user": "a|b", "claims": {"plan": "100%"}, "path": "/pair"}));
    ratewright.decide(&json!({"user": "a%7Cb|c", "path": "/one"}));
    let left = |policy: &str, key: &str| {
        let key = percent_encoding::utf8_percent_encode(key, percent_encoding::NON_ALPHANUMERIC);
        ratewright.get(&format!("remaining?policy={policy}&key={key}")).json()["remaining"].clone()
    };
    assert_eq!(left("pair", "a%7Cb|100%25"), 4);
    assert_eq!(left("pair", "a%7Cb|100%2525"), 5);
    assert_eq!(left("one", "a%7Cb|c"), 4);
    assert_eq!(left("one", "a|b|c"), 5);
    let own = ratewright.get("check?policy=me").json()["key"].as_str().unwrap().to_owned();
    assert_eq!((own.as_str(), left("me", &own)), ("ip:127.0.0.1", json!(4)), "and its own key is reported");
}

/// Values from clients must not control the operator's terminal.
#[test]
fn control_characters_from_clients_are_escaped() {
    let ratewright = Ratewright::start(POLICIES);
    for _ in 0..3 {
        ratewright.decide(&json!({"user": "\u{1b}]0;owned\u{7}\u{9b}31m\nroot", "path": "/api"}));
    }
    let output = ask(&ratewright, &["top"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("user:%1B]0;owned%07%C2%9B31m%0Aroot"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn top_watch_refreshes() {
    let ratewright = Ratewright::start(POLICIES);
    let admin = format!("http://{}", ratewright.admin);
    let watching = command(&["top", "--watch", "--json", "--admin", &admin]).spawn();
    let mut watching = Guarded(watching.unwrap());
    let mut lines = BufReader::new(Printed::by(watching.0.stdout.take().unwrap())).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["denials"], json!([]));
    for _ in 0..3 {
        ratewright.decide(&json!({"ip": "192.0.2.1", "path": "/api"}));
    }
    let denied = std::iter::repeat_with(next).find(|line| line["top"] != json!([])).unwrap();
    assert_eq!(denied["top"][0]["client"], "ip:192.0.2.1");
    drop(ratewright);
    let errors = read_to_string(Printed::by(watching.0.stderr.take().unwrap())).unwrap();
    assert_eq!(wait(&mut watching.0).code(), Some(1), "it ends with the program that it asks");
    assert!(errors.contains("is Ratewright running"), "{errors}");
}

#[test]
fn errors_say_what_to_do() {
    let ratewright = Ratewright::start(POLICIES);
    check(
        &ratewright,
        &["inspect", "nobody:192.0.2.1"],
        expect![[r#"
            error: http://ADMIN rejected the request: unknown policy "nobody"; the policies are login, api, all, idle
            exit 1"#]],
    );
    check(
        &ratewright,
        &["inspect", "api:192.0.2.1"],
        expect![[r#"
            error: http://ADMIN rejected the request: key "192.0.2.1" does not fit policy api; it is made of user:… or ip:…
            exit 1"#]],
    );
    check(
        &ratewright,
        &["reset", "login"],
        expect![[r#"
            error: http://ADMIN rejected the request: key is missing; it is made of ip
            exit 1"#]],
    );
    ratewright.reload("policies: [{name: keys, by: 'header:X-Api-Key', quota: {rate: 1/h}}]");
    check(
        &ratewright,
        &["reset", "keys:header:x-api-key:#6ab9f1eb"],
        expect![[r#"
        error: http://ADMIN rejected the request: key "header:x-api-key:#6ab9f1eb" is the digest of a secret value; send the value itself, for which printf %s VALUE | sha256sum begins with 6ab9f1eb
        exit 1"#]],
    );
    check(
        &ratewright,
        &["inspect", "token_bucket"],
        expect![[r#"
            error: http://ADMIN rejected the request: key is missing; it is made of 1 to 1024 characters
            exit 1"#]],
    );
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let output = run(&["top", "--admin", &nowhere]);
    assert_eq!(
        printed(&output),
        format!(
            "error: cannot reach {nowhere} (Connection refused (os error 111)); is Ratewright running, and is listen.admin this address? See --admin\nexit 1"
        )
    );
    let api = format!("http://{}", ratewright.address);
    let output = printed(&run(&["top", "--admin", &api]));
    assert!(output.contains("path /api/v1/admin/top not found") && output.ends_with("exit 1"), "{output}");
    for misuse in [
        &["inspect"][..],
        &["inspect", "a:b", "--admin", "127.0.0.1:8082"],
        &["top", "--admin", "ftp://127.0.0.1"],
        &["top", "-n", "0"],
        &["top", "-n", "1001"],
        &["top", "extra"],
    ] {
        assert_eq!(run(misuse).status.code(), Some(2), "{misuse:?}");
    }
    for command in ["inspect", "reset", "top"] {
        let help = String::from_utf8(run(&[command, "--help"]).stdout).unwrap();
        for part in [
            "Exit status:",
            "Examples:",
            "RATEWRIGHT_ADMIN",
            "RATEWRIGHT_TOKEN",
            "[default: http://127.0.0.1:8082]",
        ] {
            assert!(help.contains(part), "{part} is not in {help}");
        }
    }
}

/// The URL and the token may come from the environment; for TLS, --ca names the CA, or the machine trusts it.
#[test]
fn commands_use_a_token_and_tls() {
    let Some(address) = own_address() else { return };
    let folder = TempDir::new().unwrap();
    write_certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tls = format!("{{cert: {}, key: {}}}", path("server.pem"), path("server.key"));
    let exposed = listen(&[("admin", &format!("'{address}:0'"))]);
    let plain = format!("{exposed}api: {{tokens: [first]}}\n");
    let encrypted = listen(&[("admin", &format!("{{address: '127.0.0.1:0', tls: {tls}}}"))]) + POLICIES;
    let start = |text: &str| {
        std::fs::write(folder.path().join("ratewright.yaml"), text).unwrap();
        Ratewright::serve(&["-c", &path("ratewright.yaml")])
    };
    let ratewright = start(&plain);
    let admin = format!("http://{}", ratewright.admin);
    let with = |token: &str| {
        let mut top = command(&["top"]);
        printed(&output(top.env("RATEWRIGHT_ADMIN", &admin).env("RATEWRIGHT_TOKEN", token)))
    };
    let warning =
        format!("warning: token sent to {admin} over plain HTTP; anyone on the network path can read it\n");
    assert_eq!(with("first"), format!("No client was denied in the last 5 minutes\n{warning}exit 0"));
    let refused = with("second");
    assert!(
        refused.contains("rejected the request: the token is not valid")
            && refused.ends_with("see --token\nexit 1"),
        "{refused}"
    );
    let missing = printed(&run(&["top", "--admin", &admin]));
    assert!(missing.contains("rejected the request: the token is missing"), "{missing}");

    let ratewright = start(&encrypted);
    let admin = format!("https://{}", ratewright.admin);
    let output = run(&["top", "--admin", &admin, "--ca", &path("ca.pem")]);
    assert_eq!(printed(&output), "No client was denied in the last 5 minutes\nexit 0");
    let untrusted = printed(&run(&["top", "--admin", &admin]));
    assert!(untrusted.contains("UnknownIssuer") && untrusted.contains("See --admin and --ca"), "{untrusted}");
    let unreadable = printed(&run(&["top", "--admin", &admin, "--ca", &path("no.pem")]));
    assert!(unreadable.contains("cannot read --ca") && unreadable.ends_with("exit 1"), "{unreadable}");
}

/// Buckets of IPv6 clients have the network in their keys; operators have an address.
#[test]
fn a_key_with_an_ipv6_address_selects_its_network() {
    let ratewright = Ratewright::start("policies: [{name: login, by: ip, quota: {rate: 3/h}}]\n");
    for _ in 0..4 {
        ratewright.decide(&json!({"ip": "2001:db8::2"}));
    }
    let left =
        |key: &str| json_of(&ask(&ratewright, &["inspect", key, "--json"]))["limits"][0]["remaining"].clone();
    for key in ["login:2001:db8::2", "login:2001:db8::ffff", "login:2001:db8::/64"] {
        assert_eq!(left(key), 0, "{key}");
    }
    let reset = ask(&ratewright, &["reset", "login:2001:db8::2"]);
    assert!(reset.status.success(), "{}", printed(&reset));
    assert_eq!(left("login:2001:db8::2"), 3);
    assert_eq!(ratewright.decide(&json!({"ip": "2001:db8::2"})).status, 200);
}
