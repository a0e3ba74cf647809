//! Log levels of modules, and log lines of denials and errors.

use serde_json::{Value, json};

use crate::process::Ratewright;

const POLICY: &str = "policies: [{name: p, by: ip, quota: {rate: 1/h}}]\n";

fn config(log: &str) -> String {
    format!("log: {log}\n{POLICY}")
}

/// The targets of all lines so far, with their levels.
fn targets(ratewright: &Ratewright) -> Vec<(String, String)> {
    let lines = ratewright.logged();
    let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    lines.map(|line| (text(&line["target"]), text(&line["level"]))).collect()
}

/// B7: each module can have its own log level, and a reload can change it.
#[test]
fn b7_each_module_has_its_own_level() {
    let ratewright = Ratewright::start(&config("{level: error, modules: {ratewright_server: debug}}"));
    let decide = |ip: &str| ratewright.decide(&json!({"ip": ip})).status;
    assert_eq!([decide("192.0.2.1"), decide("192.0.2.1")], [200, 429]);
    ratewright.wait_for_line(&["DEBUG", "allowed", "192.0.2.1"]);
    ratewright.wait_for_line(&["WARN", "denied", "192.0.2.1"]);
    // At INFO, the program's own module would log this reload.
    ratewright
        .reload(&config("{level: error, modules: {ratewright_server: debug}}\nmetrics: {labels: {a: b}}"));
    assert_eq!(decide("192.0.2.2"), 200);
    ratewright.wait_for_line(&["DEBUG", "allowed", "192.0.2.2"]);
    let logged = targets(&ratewright);
    assert!(logged.iter().all(|(target, _)| target.starts_with("ratewright_server::")), "{logged:?}");

    ratewright.reload(&config("{level: debug, modules: {ratewright_server: error}}"));
    ratewright.wait_for_line(&["INFO", "policies reloaded"]);
    assert_eq!([decide("192.0.2.3"), decide("192.0.2.3")], [200, 429]);
    ratewright.reload(&config("{level: info}"));
    assert_eq!(decide("192.0.2.3"), 429);
    ratewright.wait_for_line(&["WARN", "denied", "192.0.2.3"]);
    let lines = ratewright.log();
    let n_lines = lines.iter().filter(|line| line.contains("192.0.2.3")).count();
    assert_eq!(n_lines, 1, "only the denial after the last reload is logged: {lines:#?}");
}

/// Otherwise the program would silently run with its defaults, without the limits of the file.
#[test]
fn a_mistyped_variable_logs_a_warning_unless_the_file_uses_it() {
    let config = "metrics: {labels: {a: '${RATEWRIGHT_TOKE:-b}'}}\n";
    let variables = [("RATEWRIGHT_CONF", "x.yaml"), ("RATEWRIGHT_TOKE", "c"), ("RATEWRIGHT_PORT", "tcp://x")];
    let ratewright = Ratewright::start_profile(config, None, &variables);
    ratewright.wait_for_line(&["WARN", "RATEWRIGHT_CONF is ignored; did you mean RATEWRIGHT_CONFIG?"]);
    let log = ratewright.log();
    assert_eq!(log.iter().filter(|line| line.contains("RATEWRIGHT_")).count(), 1, "{log:#?}");
}

/// Some readers end a line at U+2028, and terminals obey the others.
#[test]
fn hidden_characters_of_a_path_are_escapes_in_the_log() {
    let hidden = "/a\u{2028}\u{202e}\u{2066}\u{feff}\u{e0041}ü";
    for (format, shown) in [
        ("json", r"/a\u2028\u202e\u2066\ufeff\udb40\udc41ü"),
        ("text", r"/a\u{2028}\u{202e}\u{2066}\u{feff}\u{e0041}ü"),
    ] {
        let ratewright = Ratewright::start(&config(&format!("{{level: info, format: {format}}}")));
        let decide = || ratewright.decide(&json!({"ip": "192.0.2.1", "path": hidden})).status;
        assert_eq!([decide(), decide()], [200, 429]);
        ratewright.wait_for_line(&["WARN", "denied", shown]);
        if format == "json" {
            let mut lines =
                ratewright.logged().into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
            assert!(lines.any(|line| line["path"] == hidden), "a parser reads the path as it was");
        }
    }
}

/// The log line of a denial and its response name the same request, through every entrypoint.
#[test]
fn a_denial_is_found_in_the_log_by_the_id_of_its_response() {
    let ratewright = Ratewright::start(&config("{level: info}"));
    let body = json!({"attributes": {"ip": "192.0.2.1"}}).to_string();
    let decide = |id: &[(&str, &str)]| ratewright.post("/api/v1/decide", id, &body);
    assert_eq!(decide(&[]).status, 200);
    assert_eq!(decide(&[("X-Correlation-Id", "c-1")]).status, 429);
    ratewright.wait_for_line(&["WARN", "denied", "\"correlation_id\":\"c-1\""]);
    let made = decide(&[]).headers["x-correlation-id"].clone();
    ratewright.wait_for_line(&["WARN", "denied", &made]);
    let body = json!({"attributes": {"ip": "192.0.2.1", "headers": {"X-Request-Id": "client-7"}}});
    let denied = ratewright.post("/api/v1/decide", &[], &body.to_string());
    assert_eq!(denied.json()["correlationId"], "client-7", "the id of the client's request");
    ratewright.wait_for_line(&["WARN", "denied", "client-7"]);
    let check = || ratewright.get("check?algorithm=TOKEN_BUCKET&key=k&permits=100");
    assert_eq!((check().status, check().status), (200, 429));
    let id = check().headers["x-correlation-id"].clone();
    ratewright.wait_for_line(&["WARN", "denied", &id]);
    let denials = ratewright.admin("/api/v1/admin/denials?n=1").json();
    assert_eq!(denials["denials"][0]["correlationId"], *id);
}

#[test]
fn a_shadow_denial_is_logged_and_listed_as_shadow() {
    let config = "log: {level: info}\npolicies: [{name: tried, by: ip, mode: shadow, quota: {rate: 1/h}}]\n";
    let ratewright = Ratewright::start(config);
    let decide = || ratewright.decide(&json!({"ip": "192.0.2.1"})).status;
    assert_eq!([decide(), decide()], [200, 200]);
    ratewright.wait_for_line(&[
        "WARN",
        "would be denied (shadow)",
        "tried",
        "\"mode\":\"shadow\"",
        "192.0.2.1",
    ]);
    let top = ratewright.admin("/api/v1/admin/top").json();
    assert_eq!(
        top["top"],
        json!([{"policy": "tried", "client": "192.0.2.1", "atLeast": 1, "atMost": 1, "mode": "shadow"}])
    );
    let denials = ratewright.admin("/api/v1/admin/denials").json();
    assert_eq!(denials["denials"][0]["mode"], "shadow");
}

#[test]
fn errors_of_the_api_and_of_admin_carry_an_id() {
    let ratewright = Ratewright::start(&config("{level: info}"));
    let ask = |path: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r-9\r\nConnection: close\r\n\r\n"
        );
        (ratewright.ask_raw(&request), ratewright.ask_admin_raw(&request))
    };
    for path in
        ["/nowhere", "/api/v1/rate-limit/check?algorithm=X", "/api/v1/decide", "/api/v1/admin/top?n=0"]
    {
        let (api, admin) = ask(path);
        for answer in [api, admin] {
            assert!(answer.status >= 400, "{path}: {answer:?}");
            assert_eq!(answer.json()["correlationId"], "r-9", "{path}");
            assert_eq!(answer.json()["instance"], path.split('?').next().unwrap(), "{path}");
            assert_eq!(answer.headers["x-correlation-id"], "r-9", "{path}");
        }
    }
    let made = ratewright.ask("GET", "/nowhere");
    assert_eq!(made.json()["correlationId"], *made.headers["x-correlation-id"]);
}

/// hyper rejects these requests before any route sees them.
#[test]
fn a_request_that_cannot_be_parsed_gets_a_problem_and_a_log_line() {
    let ratewright = Ratewright::start(&config("{level: info}"));
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(60_000));
    let bad = "G@T / HTTP/1.1\r\nHost: a\r\n\r\n";
    for (request, status) in [(bad, 400), (&*long, 431)] {
        for answer in [ratewright.ask_raw(request), ratewright.ask_admin_raw(request)] {
            assert_eq!(answer.status, status);
            assert_eq!(answer.headers["content-type"], "application/problem+json");
            assert_eq!(answer.json()["correlationId"], *answer.headers["x-correlation-id"]);
        }
    }
    ratewright.wait_for_line(&["INFO", "request rejected: not valid HTTP/1.1", "127.0.0.1"]);
}
