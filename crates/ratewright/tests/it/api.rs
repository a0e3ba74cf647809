//! The REST API, by requirement id.

use std::io::{Read, Write};

use serde_json::json;

use crate::process::{Answer, Ratewright, listen, run};

/// Limits that refill more slowly than any test runs.
const SLOW: &str = "
api:
  defaults:
    token_bucket: {rate: 1/h, burst: 5}
    leaky_bucket: {rate: 1/h, burst: 5}
    sliding_window: {rate: 5/h}
    sliding_window_counter: {rate: 5/100year}
    fixed_window: {rate: 5/100year}
";

const ALGORITHMS: [&str; 5] =
    ["TOKEN_BUCKET", "LEAKY_BUCKET", "SLIDING_WINDOW", "SLIDING_WINDOW_COUNTER", "FIXED_WINDOW"];

#[test]
fn c1_check_consumes_remaining_only_looks_and_reset_clears() {
    let ratewright = Ratewright::start(SLOW);
    for algorithm in ALGORITHMS {
        let of = |call: &str| format!("{call}?algorithm={algorithm}&key=user:1");
        let remaining = || ratewright.get(&of("remaining")).json()["remaining"].as_u64().unwrap();
        assert_eq!(remaining(), 5, "{algorithm}");
        assert_eq!(ratewright.get(&of("check")).json()["remaining"], 4, "{algorithm}");
        assert_eq!((remaining(), remaining()), (4, 4), "{algorithm}");
        let reset = ratewright.ask("DELETE", &format!("/api/v1/rate-limit/{}", of("reset")));
        let expected =
            json!({"key": "user:1", "algorithm": algorithm, "message": "Rate limit reset", "basis": "local"});
        assert_eq!((reset.status, reset.json()), (200, expected));
        assert_eq!(remaining(), 5, "{algorithm}");
    }
    let post = ratewright.ask("POST", "/api/v1/rate-limit/check?key=user:1");
    assert_eq!(post.json()["remaining"], 4, "POST checks as GET does");
}

#[test]
fn c2_an_allowed_response_has_the_exact_fields() {
    let ratewright = Ratewright::start(SLOW);
    let answer = ratewright.get("check?algorithm=TOKEN_BUCKET&key=user:123");
    assert_eq!(answer.status, 200);
    let expected = r#"{"allowed":true,"key":"user:123","algorithm":"TOKEN_BUCKET","remaining":4,"resetAfterSeconds":3600,"retryAfterSeconds":0,"message":"Request allowed","basis":"local"}"#;
    assert_eq!(answer.body, expected);
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(
        (&*answer.headers["x-ratelimit-limit"], &*answer.headers["x-ratelimit-remaining"]),
        ("5", "4")
    );
    assert_eq!(answer.headers["ratelimit-policy"], r#""token_bucket";q=5;w=18000"#);
    assert_eq!(answer.headers["ratelimit"], r#""token_bucket";r=4;t=3600"#);
    assert!(!answer.headers.contains_key("retry-after"));
    assert_reset(&answer, 3_600);
}

#[test]
fn c2_a_denied_response_says_when_to_retry() {
    let ratewright = Ratewright::start(SLOW);
    assert_eq!(ratewright.get("check?key=user:123&permits=5").status, 200);
    let answer = ratewright.get("check?key=user:123");
    assert_eq!(answer.status, 429);
    let body = answer.json();
    assert_eq!((&body["allowed"], &body["remaining"]), (&json!(false), &json!(0)));
    assert_eq!(body["message"], "Rate limit exceeded");
    let retry_after = body["retryAfterSeconds"].as_u64().unwrap();
    assert!((3_500..=3_600).contains(&retry_after), "{body}");
    assert_eq!(answer.headers["retry-after"], retry_after.to_string());
    assert_eq!(answer.headers["ratelimit"], format!(r#""token_bucket";r=0;t={retry_after}"#));
    assert_eq!(answer.headers["x-ratelimit-remaining"], "0");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_reset(&answer, 5 * 3_600);
}

/// The reset time is Unix seconds, `after` seconds from now, give or take the time that the test takes.
fn assert_reset(answer: &Answer, after: u64) {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let reset: u64 = answer.headers["x-ratelimit-reset"].parse().unwrap();
    assert!((now + after - 60..=now + after + 1).contains(&reset), "{reset} is not {after} s after {now}");
}

#[test]
fn c3_the_defaults_are_a_hundred_at_once_and_each_algorithm_counts_apart() {
    let ratewright = Ratewright::start("");
    for algorithm in ALGORITHMS {
        // A fixed window may end between two requests, but not every time.
        let denied = (0..3).any(|n| {
            let check = || ratewright.get(&format!("check?algorithm={algorithm}&key=k{n}&permits=100"));
            let first = check();
            assert_eq!((first.status, &first.json()["remaining"]), (200, &json!(0)), "{algorithm}");
            check().status == 429
        });
        assert!(denied, "{algorithm}");
    }
    assert_eq!(
        ratewright.get("check?key=other").json()["algorithm"],
        "TOKEN_BUCKET",
        "the default algorithm"
    );
}

#[test]
fn c3_an_unknown_algorithm_is_a_clear_400() {
    let ratewright = Ratewright::start("");
    let answer = ratewright.get("check?algorithm=BUCKET&key=k");
    assert_eq!(answer.status, 400);
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    let body = answer.json();
    assert_eq!(body["parameter"], "algorithm");
    assert_eq!(
        body["detail"],
        "unknown algorithm \"BUCKET\"; use one of TOKEN_BUCKET, LEAKY_BUCKET, SLIDING_WINDOW, SLIDING_WINDOW_COUNTER, FIXED_WINDOW"
    );
}

#[test]
fn c4_several_permits_are_taken_together_or_not_at_all() {
    let ratewright = Ratewright::start(SLOW);
    for algorithm in ALGORITHMS {
        let permits = |n: u32| ratewright.get(&format!("check?algorithm={algorithm}&key=k&permits={n}"));
        assert_eq!(permits(3).json()["remaining"], 2, "{algorithm}");
        let denied = permits(3);
        assert_eq!((denied.status, &denied.json()["remaining"]), (429, &json!(2)), "{algorithm}");
        assert_eq!(permits(2).json()["remaining"], 0, "{algorithm}");
    }
}

#[test]
fn c4_more_permits_than_the_capacity_are_an_error_not_a_wait_for_ever() {
    let ratewright = Ratewright::start(SLOW);
    for algorithm in ALGORITHMS {
        let answer = ratewright.get(&format!("check?algorithm={algorithm}&key=k&permits=6"));
        assert_eq!(answer.status, 400);
        let detail = format!("permits is 6, and {algorithm} never has more than 5; use 1 to 5");
        assert_eq!(
            (&answer.json()["parameter"], &answer.json()["detail"]),
            (&json!("permits"), &json!(detail))
        );
    }
}

#[test]
fn c6_without_a_key_the_callers_address_is_the_key() {
    let ratewright = Ratewright::start(SLOW);
    assert_eq!(ratewright.get("check").json()["key"], "127.0.0.1");
    assert_eq!(ratewright.get("check?key=127.0.0.1").json()["remaining"], 3, "it is the same bucket");
    let spoofed = "GET /api/v1/rate-limit/check HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\nConnection: close\r\n\r\n";
    assert_eq!(ratewright.ask_raw(spoofed).json()["key"], "127.0.0.1", "nobody is trusted to forward");
}

#[test]
fn c6_invalid_keys_are_rejected_and_unusual_ones_are_distinct() {
    let ratewright = Ratewright::start(SLOW);
    for bad in ["key=", "key=%0a", "key=%7f", "key=%ff", "key=a&key=b", "Key=a", "key=a&x=1"] {
        let answer = ratewright.get(&format!("check?{bad}"));
        assert_eq!(
            (answer.status, answer.headers["content-type"].as_str()),
            (400, "application/problem+json"),
            "{bad}"
        );
    }
    assert_eq!(ratewright.get(&format!("check?key={}", "k".repeat(1_025))).status, 400);
    assert_eq!(ratewright.get(&format!("check?key={}", "k".repeat(1_024))).status, 200);
    for odd in ["a:b", "a%7Cb", "token_bucket:a", "%7Bx%7D", "%2F..%2F", "%C3%A9", "a%20b", "..", "*"] {
        let answer = ratewright.get(&format!("check?key={odd}"));
        assert_eq!(
            (answer.status, &answer.json()["remaining"]),
            (200, &json!(4)),
            "{odd} has a bucket of its own"
        );
    }
}

#[test]
fn unknown_paths_return_a_problem() {
    let ratewright = Ratewright::start("");
    let problem = |answer: Answer| {
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        (answer.status, answer.json()["title"].as_str().unwrap().to_owned())
    };
    assert_eq!(problem(ratewright.ask("GET", "/")), (404, "Not Found".to_owned()));
    let wrong = ratewright.ask("PUT", "/api/v1/rate-limit/check");
    assert_eq!(problem(wrong), (405, "Method Not Allowed".to_owned()));
    let body = "POST /api/v1/rate-limit/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nkey=a";
    assert_eq!(problem(ratewright.ask_raw(body)), (400, "Bad Request".to_owned()));
    assert_eq!(problem(ratewright.get("remaining?permits=1")), (400, "Bad Request".to_owned()));
}

#[test]
fn invalid_bytes_do_not_stop_the_listener() {
    let ratewright = Ratewright::start(SLOW);
    let long = format!(
        "GET /api/v1/rate-limit/check?key={} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "x".repeat(200_000)
    );
    let hostile: [&[u8]; 6] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /api/v1/rate-limit/check?permits=%%%&key=%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /api/v1/rate-limit/check HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        long.as_bytes(),
    ];
    for bytes in hostile {
        let mut stream = ratewright.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        assert_eq!(ratewright.get("remaining?key=k").status, 200);
    }
}

#[test]
fn with_enabled_false_everything_passes_uncounted() {
    let ratewright = Ratewright::start(&format!("enabled: false\n{SLOW}"));
    for _ in 0..10 {
        let answer = ratewright.get("check?key=k&permits=3");
        let body = answer.json();
        assert_eq!((answer.status, &body["remaining"], &body["basis"]), (200, &json!(5), &json!("off")));
    }
}

#[test]
fn parallel_requests_admit_exactly_the_burst() {
    let ratewright = Ratewright::start("api: {defaults: {token_bucket: {rate: 1/h, burst: 50}}}");
    let allowed: usize = std::thread::scope(|scope| {
        let ask = || (0..25).filter(|_| ratewright.get("check?key=hot").status == 200).count();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(allowed, 50);
}

#[test]
fn a_connection_serves_many_requests() {
    let ratewright = Ratewright::start(SLOW);
    let request = "GET /api/v1/rate-limit/check?key=k HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3)
        + "GET /api/v1/rate-limit/remaining?key=k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let text = ratewright.connect().exchange(&request);
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 4);
    assert!(text.contains(r#""remaining":2,"#), "{text}");
}

#[test]
fn the_banner_shows_a_curl_to_try() {
    let ratewright = Ratewright::start("");
    let curl = format!("curl 'http://{}/api/v1/rate-limit/check?key=user:123'", ratewright.address);
    assert!(ratewright.banner.trim_end().ends_with(&curl), "{}", ratewright.banner);
}

#[test]
fn sigterm_and_ctrl_c_drain() {
    for signal in ["TERM", "INT"] {
        let ratewright = Ratewright::start("");
        let mut idle = ratewright.connect();
        let mut busy = ratewright.connect();
        // A request whose head has begun to arrive may be in flight already: then it gets a complete response.
        busy.write_all(b"GET /api/v1/rate-limit/check?key=k HTTP/1.1\r\nHo").unwrap();
        assert_eq!(ratewright.get("check?key=other").status, 200, "both are accepted by now");
        ratewright.signal(signal);
        let _ = busy.write_all(b"st: localhost\r\n\r\n");
        let mut text = String::new();
        let _ = busy.read_to_string(&mut text);
        assert!(text.is_empty() || Answer::parse(&text).json()["allowed"] == true, "{signal}: {text}");
        assert_eq!(idle.read_some(), b"", "an idle connection is closed");
        // Not by another signal: a second Ctrl-C would end it at once, with another exit code.
        assert_eq!(ratewright.wait().code(), Some(0), "{signal}");
    }
}

#[test]
fn configuration_errors_have_a_position_and_exit_code_2() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "enabled: maybe").unwrap();
    let output = run(&["serve", "-c", file.path().to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with(&format!("error: {}:1:10: ", file.path().display())), "{error}");

    let output = run(&["-c", "/nowhere/at/all.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere/at/all.yaml: cannot read the file"));

    let ratewright = Ratewright::start("");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{}", listen(&[("api", &format!("'{}'", ratewright.address))])).unwrap();
    let output = run(&["-c", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("is another program using it?"));

    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
}

/// A wrong method returns a problem like every other error, and names the allowed methods.
#[test]
fn a_wrong_method_returns_405_with_the_allowed_methods() {
    let ratewright = Ratewright::start("");
    let api = |method: &str, path: &str| ratewright.ask(method, path);
    let admin = |method: &str, path: &str| ratewright.ask_admin(method, path);
    type Ask<'a> = &'a dyn Fn(&str, &str) -> Answer;
    let (api, admin): (Ask<'_>, Ask<'_>) = (&api, &admin);
    for (listener, path, allowed) in [
        (api, "/api/v1/rate-limit/check", "GET,POST"),
        (api, "/api/v1/rate-limit/remaining", "GET"),
        (api, "/api/v1/rate-limit/reset", "DELETE"),
        (api, "/api/v1/decide", "POST"),
        (api, "/api/v1/decide/batch", "POST"),
        (api, "/api/v1/refund", "POST"),
        (api, "/openapi.json", "GET,HEAD"),
        (admin, "/api/v1/admin/key", "GET,DELETE"),
        (admin, "/api/v1/admin/top", "GET,HEAD"),
        (admin, "/api/v1/admin/denials", "GET,HEAD"),
        (admin, "/actuator/info", "GET,HEAD"),
        (admin, "/actuator/health", "GET,HEAD"),
        (admin, "/actuator/prometheus", "GET,HEAD"),
        (admin, "/metrics", "GET,HEAD"),
        (admin, "/health", "GET,HEAD"),
        (admin, "/ready", "GET,HEAD"),
    ] {
        let methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"];
        for method in methods.iter().filter(|method| !allowed.split(',').any(|right| right == **method)) {
            let refused = listener(method, path);
            let field = |name: &str| refused.headers.get(name).map(String::as_str);
            assert_eq!((refused.status, field("allow")), (405, Some(allowed)), "{method} {path}");
            assert_eq!(field("content-type"), Some("application/problem+json"), "{method} {path}");
            if *method != "HEAD" {
                let detail = format!("method {method} not allowed for {path}");
                assert_eq!(refused.json()["detail"], detail);
            }
        }
    }
}

/// A browser on this machine also runs pages of other origins, which can reach listeners that need no token.
#[test]
fn a_web_page_may_only_ask_about_itself() {
    let ratewright = Ratewright::start("policies: [{name: all, quota: {rate: 1/h}}]\n");
    let ask = |listener: &str, call: &str, fields: &str| {
        let request = format!("{call} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n");
        if listener == "api" { ratewright.ask_raw(&request) } else { ratewright.ask_admin_raw(&request) }
    };
    let (api, admin) = ("api", "admin");
    let ours = "Host: localhost\r\n";
    let pages = [
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
        "Host: localhost\r\nSec-Fetch-Site: same-site\r\n",
        "Host: 127.0.0.1:8080\r\nOrigin: https://evil.example\r\n",
        "Host: evil.example\r\n",
        "Host: [::ffff:7f00:1]:8080\r\n", // an image of a page in Chromium
        "Host: localhost\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n",
        "Host: localhost\r\nReferer: https://evil.example/\r\n",
    ];
    for (listener, call) in [
        (api, "POST /api/v1/rate-limit/check?key=a"),
        (api, "GET /api/v1/rate-limit/remaining?key=a"),
        (api, "DELETE /api/v1/rate-limit/reset?key=a"),
        (admin, "GET /api/v1/admin/key?policy=all"),
        (admin, "DELETE /api/v1/admin/key?algorithm=TOKEN_BUCKET&key=a"),
        (admin, "GET /api/v1/admin/top"),
        (admin, "GET /api/v1/admin/denials"),
        (admin, "GET /metrics"),
        (admin, "GET /actuator/info"),
    ] {
        assert_eq!(ask(listener, call, ours).status, 200, "{call}");
        for page in pages {
            let refused = ask(listener, call, page);
            assert_eq!(refused.status, 403, "{call} {page}");
            let detail = refused.json()["detail"].as_str().unwrap().to_owned();
            assert!(detail.contains("may come from a web page of another site; set api.tokens"), "{detail}");
        }
    }
    for page in pages {
        for path in ["decide", "decide/batch", "refund"] {
            assert_eq!(ask(api, &format!("POST /api/v1/{path}"), page).status, 403, "{path} {page}");
        }
        let open = [
            (api, "/api/v1/rate-limit/check"),
            (api, "/openapi.json"),
            (admin, "/health"),
            (admin, "/ready"),
        ];
        for (listener, path) in open {
            assert_eq!(ask(listener, &format!("GET {path}"), page).status, 200, "{path} {page}");
        }
    }
}
