//! Invalid bodies: each gets a clear error, and affects no other request.

use std::io::{Read, Write};

use serde_json::json;

use super::policy;
use crate::process::{Answer, Ratewright};

#[test]
fn an_invalid_body_returns_400() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 10}", ""));
    let deep = |open: &str| format!(r#"{{"attributes": {}"#, open.repeat(20_000));
    for (body, expected_detail) in [
        ("", "EOF while parsing a value"),
        ("key=value", "expected value at line 1 column 1"),
        ("{", "EOF while parsing an object"),
        ("null", "invalid type: null"),
        ("[]", "invalid type: sequence, expected an object"),
        (r#"[{"ip": "10.0.0.1"}, 5]"#, "invalid type: sequence, expected an object"),
        (r#"{"attributes": ["10.0.0.1"]}"#, "invalid type: sequence, expected an object"),
        ("{} {}", "trailing characters"),
        (r#"{"attributes": {"ip": "10.0.0.1"}, "attributes": {}}"#, "duplicate field `attributes`"),
        (r#"{"attribute": {}}"#, "unknown field `attribute`, expected one of `attributes`, `cost`"),
        (
            r#"{"attributes": {"address": "10.0.0.1"}}"#,
            "unknown field `address`, expected one of `ip`, `peer`, `user`",
        ),
        (r#"{"attributes": {"ip": "10.0.0.256"}}"#, "invalid IP address syntax"),
        (r#"{"attributes": {"headers": {"X-A": 1}}}"#, "invalid type: integer `1`"),
        (r#"{"cost": 0}"#, "invalid value: integer `0`, expected a nonzero u32"),
        (r#"{"cost": -1}"#, "invalid value: integer `-1`, expected a nonzero u32"),
        (r#"{"cost": 1.5}"#, "invalid type: floating point `1.5`"),
        (r#"{"cost": 4294967296}"#, "invalid value: integer `4294967296`"),
        (r#"{"cost": 1e99}"#, "invalid type: floating point"),
        (r#"{"cost": "1"}"#, "invalid type: string"),
        (r#"{"look": 1}"#, "invalid type: integer `1`, expected a boolean"),
        ("{\"attributes\": {\"user\": \"\u{1}\"}}", "control character"),
        (&deep("["), "invalid type: sequence"),
        (&deep(r#"{"other":"#), "invalid type: map"),
    ] {
        let answer = ratewright.post("/api/v1/decide", &[], body);
        let shown = body.split_at(body.floor_char_boundary(60)).0;
        assert_eq!(
            (answer.status, &*answer.headers["content-type"]),
            (400, "application/problem+json"),
            "{shown}"
        );
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(expected_detail) && detail.len() < 400, "{shown}: {detail}");
    }
    assert_eq!(ratewright.decide(&json!({"ip": "192.0.2.1"})).remaining("api"), Some(9));
}

/// The largest cost exceeds every burst: it is always denied, without an error.
#[test]
fn a_cost_above_the_burst_is_always_denied() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 10}", ""));
    let answer =
        ratewright.post("/api/v1/decide", &[], r#"{"attributes": {"ip": "192.0.2.1"}, "cost": 4294967295}"#);
    assert_eq!(answer.status, 429);
    let body = answer.json();
    assert!(!answer.headers.contains_key("retry-after") && body.get("retryAfter").is_none());
    assert_eq!(body["limits"][0]["outcome"], "never");
    assert_eq!(
        body["detail"],
        "Rate limit \"api\" never has more than 10, and this request needs more. Trying again does not help."
    );
}

#[test]
fn a_body_that_is_too_long_is_413() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 10}", ""));
    let long = |n: usize| json!({"attributes": {"ip": "192.0.2.1", "user": "u".repeat(n)}}).to_string();
    assert_eq!(ratewright.post("/api/v1/decide", &[], &long(200_000)).status, 200);
    for (path, n) in [("decide", 1_000_000), ("refund", 1_000_000), ("decide/batch", 9_000_000)] {
        let refused = ratewright.post(&format!("/api/v1/{path}"), &[], &long(n));
        assert_eq!(
            (refused.status, refused.json()["title"].as_str()),
            (413, Some("Payload Too Large")),
            "{path}"
        );
    }
    // Without a length nobody knows before the end how long it is.
    let mut stream = ratewright.connect();
    let head = "POST /api/v1/decide HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..16 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break; // the server may close the connection early
        }
    }
    let _ = stream.write_all(b"0\r\n\r\n");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert_eq!(Answer::parse(&text).status, 413);
}

#[test]
fn only_post_decides() {
    let ratewright = Ratewright::start(&policy("api", "{rate: 1/h, burst: 10}", ""));
    for path in ["/api/v1/decide", "/api/v1/decide/batch", "/api/v1/refund"] {
        for method in ["GET", "PUT", "DELETE", "HEAD"] {
            let refused = ratewright.ask(method, path);
            assert_eq!((refused.status, refused.headers["allow"].as_str()), (405, "POST"), "{method} {path}");
        }
    }
}
