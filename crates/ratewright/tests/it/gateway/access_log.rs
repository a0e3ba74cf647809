//! The access log on standard output.

use ratewright_lab::{all_of, lines_of, receive, wait_until};
use serde_json::{Value, json};

use super::{application, gateway, with_routes};

const LOGGED: &str = "gateway: {access_log: true}\npolicies: []\n";

fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn each_request_is_one_line_of_json() {
    let application = application();
    let mut ratewright = gateway(&application, LOGGED);
    let lines = lines_of(ratewright.stdout());
    let agent = "\"},\\ \u{202e}\u{85}";
    let answer = ratewright.pass(
        "//a%20%7b/\"b?token=secret",
        &[("User-Agent", agent), ("X-Request-Id", "r-1"), ("X-Forwarded-For", "6.6.6.6")],
    );
    assert_eq!(answer.status, 200);
    let line = receive(&lines, "a line");
    assert!(line.is_ascii() && !line.contains("secret"), "{line}");
    let mut seen = value(&line);
    let took = seen["duration_ms"].take().as_f64().unwrap();
    assert!(took > 0.0 && took < 20_000.0, "{took}");
    let time = seen["time"].take();
    assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
    assert_eq!(
        seen,
        json!({"time": null, "client": "127.0.0.1", "method": "GET", "host": "localhost",
            "path": "/a%20%7B/%22b", "route": "app", "policy": null, "denied": false, "status": 200, "duration_ms": null,
            "request_id": "r-1", "user_agent": agent, "http": "1.1"})
    );
    assert_eq!(ratewright.pass("/a%0d%0a%7b?token=secret", &[]).status, 400);
    let line = receive(&lines, "a line");
    assert!(line.is_ascii() && !line.contains("secret"), "{line}");
    assert_eq!(value(&line)["path"], "/a%0d%0a%7b");
}

#[test]
fn a_blocked_standard_output_delays_no_request() {
    let application = application();
    let ratewright = gateway(&application, LOGGED);
    let path = format!("/{}", "x".repeat(2_000));
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").repeat(49);
    let last = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    wait_until("more was asked than is kept", || {
        let answers = ratewright.pass_all(&format!("{request}{last}"));
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 50);
        ratewright.metric("gateway_access_log_dropped_total") > 0.0
    });
}

#[test]
fn a_reload_switches_the_log_and_a_stop_loses_no_line() {
    let application = application();
    let mut ratewright = gateway(&application, "policies: []\n");
    let out = ratewright.stdout();
    ratewright.pass("/unseen", &[]);
    ratewright.reload(&with_routes(&application, LOGGED));
    for n in 0..20 {
        ratewright.pass(&format!("/seen/{n}"), &[]);
    }
    ratewright.signal("TERM");
    let text = all_of(out, "the program ends");
    let paths: Vec<_> = text.lines().map(|line| value(line)["path"].as_str().unwrap().to_owned()).collect();
    let expected: Vec<_> = (0..20).map(|n| format!("/seen/{n}")).collect();
    assert_eq!(paths, expected);
}

#[test]
fn a_blocked_standard_output_does_not_prevent_a_stop() {
    let application = application();
    let ratewright = gateway(&application, LOGGED);
    let path = format!("/{}", "x".repeat(2_000));
    for _ in 0..100 {
        ratewright.pass(&path, &[]);
    }
    assert!(ratewright.stop("TERM").success());
}
