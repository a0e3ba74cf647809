//! The live page and its data: `GET /` of the admin listener. `browser/` tests it in Chromium.

mod browser;
mod what_if;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};

use ratewright_lab::{Nginx, Redis, Stream, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Ratewright, http, listen, own_address};

const POLICIES: &str = "
policies:
  - {name: logins, by: ip, when: {path: /login}, quota: {rate: 2/h}}
  - {name: trial, by: ip, mode: shadow, when: {path: /trial}, quota: {rate: 1/h}}
  - {name: by-user-and-ip, by: [user, ip], missing: skip, quota: {rate: 10/h}}
  - {name: by-key, by: 'header:X-Api-Key', missing: skip, quota: {rate: 20/h}}
  - {name: everything, when: {path: /all}, quota: {rate: 1000/h}}
";

/// The lines of `/api/v1/admin/live`.
pub(crate) struct LiveLines(BufReader<Stream>);

impl LiveLines {
    #[track_caller]
    pub(crate) fn open(ratewright: &Ratewright) -> Self {
        Self::open_with(&ratewright.admin, "").unwrap()
    }

    /// Opens it with more headers. If it is refused, the status line: the rest of that response must not be read as lines.
    fn open_with(address: &str, headers: &str) -> Result<Self, String> {
        let mut stream = Stream::connect(address);
        write!(stream, "GET /api/v1/admin/live HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n").unwrap();
        let (mut lines, mut status) = (BufReader::new(stream), String::new());
        lines.read_line(&mut status).unwrap();
        if status.starts_with("HTTP/1.1 200 ") { Ok(Self(lines)) } else { Err(status) }
    }

    /// The next line; `None` at the end of the response, which must be complete.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Value> {
        self.0.get_mut().renew();
        self.read()
    }

    /// The next line, within the time that is left.
    #[track_caller]
    fn read(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the response was cut off");
            if line == "0\r\n" {
                return None;
            }
            if line.starts_with('{') {
                return Some(serde_json::from_str(&line).unwrap());
            }
        }
    }

    /// The first line that fulfils a condition. A line comes each second, so the deadline is for all of them.
    #[track_caller]
    pub(super) fn until(&mut self, mut holds: impl FnMut(&Value) -> bool) -> Value {
        self.0.get_mut().renew();
        loop {
            let line = self.read().expect("the response goes on");
            if holds(&line) {
                return line;
            }
        }
    }

    /// Waits until the response ends.
    #[track_caller]
    fn end(&mut self) {
        self.0.get_mut().renew();
        while self.read().is_some() {}
    }
}

fn request(ratewright: &Ratewright, path: &str) -> u16 {
    ratewright.decide(&json!({"ip": "203.0.113.7", "method": "POST", "path": path, "user": "anna"})).status
}

#[test]
fn the_page_updates_without_configuration() {
    let ratewright = Ratewright::start("");
    let page = ratewright.admin("/");
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    let mut lines = LiveLines::open(&ratewright);
    assert_eq!(lines.next().unwrap()["seconds"], json!([]));
    assert_eq!(ratewright.get("check").status, 200);
    let line = lines.until(|line| line["seconds"] != json!([]));
    assert_eq!(line["seconds"][0].as_array().unwrap()[1..], [json!(1), json!(0), json!(0)]);
    assert_eq!(line["decisions"][0]["verdict"], "allowed");
    assert_eq!(line["status"]["store"]["mode"], "memory");
    assert_eq!(line["status"]["store"]["keys"], 1);
    let policies = ratewright.admin("/api/v1/admin/policies").json();
    assert_eq!(policies["policies"][0]["policy"], "token_bucket", "{policies}");
}

#[test]
fn page_files_forbid_other_sites_and_are_not_cached() {
    let ratewright = Ratewright::start("");
    let page = ratewright.admin("/").body;
    let names = page.split("\"/page/").skip(1).filter_map(|rest| rest.split('"').next());
    let names: Vec<_> = names.map(|name| format!("/page/{name}")).collect();
    assert!(names.iter().any(|name| name == "/page/app.js"), "{names:?}");
    for path in names.iter().map(String::as_str).chain(["/"]) {
        let answer = ratewright.admin(path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
        let policy = &answer.headers["content-security-policy"];
        for part in
            ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
    }
    for path in ["/page/", "/page/..%2fCargo.toml", "/page/nothing.js", "/page/a/b"] {
        assert_eq!(ratewright.admin(path).status, 404, "{path}");
    }
}

#[test]
fn data_needs_a_token_unless_the_listener_is_local() {
    let Some(address) = own_address() else { return };
    let text = |token: &str| {
        let listen = listen(&[("admin", &format!("'{address}:0'"))]);
        format!("{listen}api: {{tokens: [{token}]}}\n{POLICIES}")
    };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, text("first")).unwrap();
    let ratewright = Ratewright::serve(&[&file]);
    let ask = |path: &str, headers: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
        http(&ratewright.admin, &request)
    };
    assert_eq!(ask("/", "").status, 200, "the page is open: it asks for the token");
    for path in ["live", "policies", "policy-file", "top", "denials", "client?ip=192.0.2.1"] {
        let answer = ask(&format!("/api/v1/admin/{path}"), "");
        assert_eq!(answer.status, 401, "{path}: {}", answer.body);
        let answer = ask(&format!("/api/v1/admin/{path}"), "Authorization: Bearer second\r\n");
        assert_eq!(answer.status, 401, "{path}: {}", answer.body);
        if path != "live" {
            assert_eq!(
                ask(&format!("/api/v1/admin/{path}"), "Authorization: Bearer first\r\n").status,
                200,
                "{path}"
            );
        }
    }
    let mut lines = LiveLines::open_with(&ratewright.admin, "Authorization: Bearer first\r\n").unwrap();
    assert!(lines.next().is_some());
    std::fs::write(&file, text("second")).unwrap();
    lines.end(); // because the token was revoked
}

#[test]
fn a_page_of_another_site_gets_no_data() {
    let ratewright = Ratewright::start(POLICIES);
    let host = &ratewright.admin;
    for (headers, reason) in [
        (format!("Host: {host}\r\nOrigin: https://evil.example\r\n"), "Origin"),
        (format!("Host: {host}\r\nSec-Fetch-Site: cross-site\r\n"), "Sec-Fetch-Site"),
        ("Host: evil.example\r\n".to_owned(), "Host"),
    ] {
        for (method, path) in [
            ("GET", "live"),
            ("GET", "policies"),
            ("GET", "policy-file"),
            ("POST", "client"),
            ("POST", "simulate?policyBytes=0"),
        ] {
            let request = format!(
                "{method} /api/v1/admin/{path} HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n"
            );
            let answer = http(host, &request);
            assert_eq!(answer.status, 403, "{reason} {path}: {}", answer.body);
            assert!(answer.body.contains(reason), "{}", answer.body);
        }
    }
}

#[test]
fn denied_and_shadow_requests_are_told_apart() {
    let ratewright = Ratewright::start(POLICIES);
    let mut lines = LiveLines::open(&ratewright);
    lines.next();
    let statuses: Vec<_> = (0..4).map(|_| request(&ratewright, "/login")).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!([request(&ratewright, "/trial"), request(&ratewright, "/trial")], [200, 200]);
    let (mut by_second, mut decisions) = (BTreeMap::new(), Vec::new());
    let totals = |by_second: &BTreeMap<u64, [u64; 3]>| {
        [0, 1, 2].map(|n| by_second.values().map(|counts| counts[n]).sum::<u64>())
    };
    lines.until(|line| {
        for second in line["seconds"].as_array().unwrap() {
            let [at, counts @ ..] = [0, 1, 2, 3].map(|n| second[n].as_u64().unwrap());
            by_second.insert(at, counts); // a second that comes again replaces its earlier value
        }
        decisions.extend(line["decisions"].as_array().unwrap().iter().cloned());
        totals(&by_second).iter().sum::<u64>() >= 6
    });
    assert_eq!(totals(&by_second), [3, 2, 1], "allowed, denied, shadow: each request once");
    let verdicts: Vec<_> = decisions.iter().map(|decision| decision["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["allowed", "allowed", "denied", "denied", "allowed", "shadow"]);
    assert_eq!((&decisions[2]["policy"], &decisions[5]["policy"]), (&json!("logins"), &json!("trial")));
    let denials = ratewright.admin("/api/v1/admin/denials?policy=trial").json();
    assert_eq!(denials["denials"].as_array().unwrap().len(), 1);
    assert_eq!(denials["denials"][0]["mode"], "shadow");
}

#[test]
fn the_last_reload_and_its_error_are_shown() {
    let ratewright = Ratewright::start(POLICIES);
    let mut lines = LiveLines::open(&ratewright);
    let reload = |line: &Value| line["status"]["reload"].clone();
    let first = lines.next().unwrap();
    let generation = &first["status"]["generation"];
    let first = reload(&first);
    assert_eq!((&first["failed"], &first["lastError"]), (&json!(0), &Value::Null));
    ratewright.rewrite("policies: [{name: broken}]\n");
    // The count is a moment earlier than the error.
    let failed = lines.until(|line| reload(line)["failed"] == 1 && reload(line)["lastError"].is_string());
    let failed = reload(&failed);
    assert!(failed["lastError"].as_str().unwrap().contains("broken"), "{failed}");
    assert_eq!(failed["loadedAt"], first["loadedAt"], "the old file stays in force");
    ratewright.rewrite(&POLICIES.replace("2/h", "3/h"));
    let line = lines.until(|line| reload(line)["succeeded"] == 1);
    assert_eq!(reload(&line)["lastError"], Value::Null);
    assert_ne!(line["status"]["generation"], *generation);
}

#[test]
fn a_lost_redis_is_shown() {
    let mut redis = Redis::start();
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n", redis.url());
    let ratewright = Ratewright::start(&format!("{store}{POLICIES}"));
    ratewright.wait_for_redis();
    let mut lines = LiveLines::open(&ratewright);
    let mode = |line: &Value| line["status"]["store"]["mode"].clone();
    lines.next(); // the latency is that of calls since the first line
    request(&ratewright, "/login");
    let line = lines.until(|line| line["status"]["store"]["latencyMs"].is_number() && mode(line) == "shared");
    assert!(line["status"]["store"]["location"].as_str().unwrap().starts_with("Redis at "), "{line}");
    redis.kill();
    wait_until("decisions are local", || {
        request(&ratewright, "/other");
        ratewright.metric("ratewright_store_substituted") == 1.0
    });
    lines.until(|line| mode(line) == "local");
}

#[test]
fn upstreams_are_shown_with_their_health() {
    let upstream = Nginx::upstream();
    let ratewright = Ratewright::start(&format!(
        "routes: [{{id: shop, match: {{path: /**}}, upstream: 'http://{}'}}]\n{POLICIES}",
        upstream.address()
    ));
    let line = LiveLines::open(&ratewright).next().unwrap();
    let address = format!("http://{}", upstream.address());
    assert_eq!(
        line["status"]["upstreams"],
        json!([{"route": "shop", "address": address, "isHealthy": true, "ejections": 0}])
    );
}

/// Composite keys need all parts; what is missing is named, and nothing is searched.
#[test]
fn a_client_is_found_by_address_user_and_header() {
    let ratewright = Ratewright::start(POLICIES);
    request(&ratewright, "/login");
    ratewright.decide(&json!({"ip": "203.0.113.7", "path": "/", "headers": {"X-Api-Key": "k1"}}));
    let usage = |body: Value| {
        let answer = ratewright.post_admin("/api/v1/admin/client", &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let policies = answer.json()["policies"].as_array().unwrap().clone();
        let of = |policy: &Value| {
            let left =
                policy["limits"].as_array().unwrap().iter().map(|limit| limit["remaining"].to_string());
            let needs = policy["needs"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|part| part.as_str().unwrap().to_owned());
            let left: Vec<_> = left.chain(needs).collect();
            format!("{} {}", policy["policy"].as_str().unwrap(), left.join(" "))
        };
        policies.iter().map(of).collect::<Vec<_>>()
    };
    let all = |logins, trial, pair, key| {
        [
            ("logins", logins),
            ("trial", trial),
            ("by-user-and-ip", pair),
            ("by-key", key),
            ("everything", "1000"),
        ]
        .map(|(policy, left)| format!("{policy} {left}"))
    };
    assert_eq!(
        usage(json!({"attributes": {"ip": "203.0.113.7"}})),
        all("1", "1", "user", "header:x-api-key")
    );
    assert_eq!(usage(json!({"attributes": {"user": "anna"}})), all("ip", "ip", "ip", "header:x-api-key"));
    assert_eq!(
        usage(json!({"attributes": {"ip": "203.0.113.7", "user": "anna", "headers": {"x-api-key": "k1"}}})),
        all("1", "1", "9", "19")
    );
    assert_eq!(
        usage(json!({"attributes": {"ip": "203.0.113.8", "user": "anna", "headers": {"x-api-key": "k2"}}})),
        all("2", "1", "10", "20"),
        "another client"
    );
    let body = json!({"attributes": {"ip": "203.0.113.7"}}).to_string();
    let limit = &ratewright.post_admin("/api/v1/admin/client", &body).json()["policies"][0]["limits"][0];
    assert_eq!(limit["refill"]["shape"], "smooth");
    assert!(limit["refill"]["fullAfterMs"].as_u64().unwrap() > 0, "{limit}");
    for invalid in ["", "{", "[]", r#"{"ip": "203.0.113.7"}"#, r#"{"attributes": {"ip": "nobody"}}"#] {
        assert_eq!(ratewright.post_admin("/api/v1/admin/client", invalid).status, 400, "{invalid}");
    }
}

#[test]
fn a_denied_client_has_a_wait_and_a_reset_ends_it() {
    let ratewright = Ratewright::start(POLICIES);
    let statuses: Vec<_> = (0..3).map(|_| request(&ratewright, "/login")).collect();
    assert_eq!(statuses, [200, 200, 429]);
    let first_limit = || {
        let body = json!({"attributes": {"ip": "203.0.113.7"}}).to_string();
        ratewright.post_admin("/api/v1/admin/client", &body).json()["policies"][0]["limits"][0].clone()
    };
    let denied = first_limit();
    assert_eq!((&denied["outcome"], &denied["remaining"]), (&json!("denied"), &json!(0)));
    let wait = denied["retryAfterSeconds"].as_u64().unwrap();
    assert!((1_700..=1_800).contains(&wait), "{denied}");
    let reset = ratewright.ask_admin("DELETE", "/api/v1/admin/key?policy=logins&key=203.0.113.7");
    assert_eq!(reset.status, 200);
    assert_eq!(first_limit()["remaining"], 2);
    assert_eq!(request(&ratewright, "/login"), 200);
}

#[test]
fn a_program_with_an_open_page_stops_at_once() {
    let ratewright = Ratewright::start(POLICIES);
    let mut lines = LiveLines::open(&ratewright);
    lines.next();
    ratewright.signal("INT");
    lines.end();
    assert!(ratewright.wait().success());
}

/// Sixteen pages may be open. A page that was closed is forgotten when its next line is sent.
#[test]
fn closed_pages_free_their_slots() {
    let ratewright = Ratewright::start(POLICIES);
    let open_all =
        || (0..16).map(|_| LiveLines::open_with(&ratewright.admin, "")).collect::<Result<Vec<_>, _>>();
    for _ in 0..3 {
        let mut pages = Vec::new();
        wait_until("the closed pages are forgotten, and all can be open at once", || {
            open_all().is_ok_and(|all| {
                pages = all;
                true
            })
        });
        assert!(pages.iter_mut().all(|page| page.next().is_some()));
        let refused = ratewright.admin("/api/v1/admin/live");
        assert_eq!(refused.status, 503, "{}", refused.body);
        assert_eq!(ratewright.admin("/health").status, 200);
    }
}
