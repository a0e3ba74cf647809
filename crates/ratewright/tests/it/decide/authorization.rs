//! C6: which callers may ask about others, on a listener that other machines can reach.

use serde_json::json;
use tempfile::TempDir;

use crate::process::{Answer, Ratewright, listen, own_address};

/// C6: calls from other machines need one of the configured tokens. A call from this machine's other address counts as one.
#[test]
fn c6_from_elsewhere_every_call_needs_one_of_the_tokens() {
    let Some(address) = own_address() else { return };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    let text = format!(
        "{}api: {{tokens: [first, second]}}\n\
         policies: [{{name: api, by: ip, quota: {{rate: 1/h, burst: 50}}}}]\n",
        listen(&[("api", &format!("'{address}:0'"))])
    );
    std::fs::write(&file, text).unwrap();
    let ratewright = Ratewright::serve(&["-c", file.to_str().unwrap()]);

    let receipt = ask(
        &ratewright,
        "POST",
        "decide",
        "Bearer first",
        r#"{"attributes": {"ip": "192.0.2.1"}, "receipt": true}"#,
    );
    let receipt = json!({"receipt": receipt.json()["receipt"]}).to_string();
    for (method, path, body) in [
        ("GET", "rate-limit/check?key=somebody", ""),
        ("GET", "rate-limit/remaining?key=somebody", ""),
        ("DELETE", "rate-limit/reset?key=somebody", ""),
        ("GET", "rate-limit/check", ""),
        ("POST", "decide", r#"{"attributes": {"ip": "192.0.2.1"}}"#),
        ("POST", "decide/batch", r#"{"queries": []}"#),
        ("POST", "refund", &receipt),
    ] {
        for token in ["Bearer first", "Bearer second", "bearer first"] {
            assert_eq!(ask(&ratewright, method, path, token, body).status, 200, "{method} {path} {token}");
        }
        for token in ["", "Bearer third", "Bearer ", "Basic first", "first"] {
            let refused = ask(&ratewright, method, path, token, body);
            assert_eq!(
                (refused.status, &*refused.headers["www-authenticate"]),
                (401, "Bearer"),
                "{path} {token}"
            );
            assert_eq!(refused.headers["content-type"], "application/problem+json");
        }
    }
    let own = ask(&ratewright, "GET", "rate-limit/check", "Bearer first", "");
    assert_eq!(own.json()["key"], address.to_string(), "without a key, the caller itself");
}

fn ask(ratewright: &Ratewright, method: &str, path: &str, authorization: &str, body: &str) -> Answer {
    let authorization =
        if authorization.is_empty() { String::new() } else { format!("Authorization: {authorization}\r\n") };
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    ratewright.ask_raw(&format!(
        "{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{authorization}{length}\r\n{body}"
    ))
}
