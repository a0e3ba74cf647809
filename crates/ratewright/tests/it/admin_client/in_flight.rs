//! Requests in flight, as `inspect` shows them.

use std::io::{Read, Write};
use std::net::TcpListener;

use expect_test::expect;
use ratewright_lab::{Stream, accept, wait_until};
use serde_json::json;

use super::{ask, check, json_of, printed};
use crate::process::Ratewright;

const POLICIES: &str = "policies:
- {name: at-once, by: ip, in_flight: 3, overrides: [{name: vip, match: {user: anna}, in_flight: 10}]}
- {name: per-user, by: user, in_flight: 2}
- {name: closed, in_flight: 5, mode: off}
";

/// A gateway in front of an upstream whose responses the test sends.
fn gateway(upstream: &TcpListener) -> Ratewright {
    let address = upstream.local_addr().unwrap();
    let routes = format!("routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{address}'}}]\n");
    Ratewright::start(&format!("{POLICIES}{routes}"))
}

/// Sends a request, and waits until the upstream has it: the client's side and the upstream's.
fn begin(ratewright: &Ratewright, upstream: &TcpListener) -> [Stream; 2] {
    let mut client = Stream::connect(&ratewright.gateway);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut server = accept(upstream);
    assert!(server.read_some().starts_with(b"GET / "));
    [client, server]
}

fn end([mut client, mut server]: [Stream; 2]) {
    client.renew();
    server.renew();
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn inspect_shows_how_many_requests_of_a_key_are_in_flight_and_the_maximum() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let ratewright = gateway(&upstream);
    let requests = [(); 2].map(|()| begin(&ratewright, &upstream));
    check(
        &ratewright,
        &["inspect", "at-once:127.0.0.1"],
        expect![[r#"
        at-once:127.0.0.1

        LIMIT        IN FLIGHT  MAX  MODE
        at-once              2    3  enforce
        at-once+vip          2   10  enforce
        exit 0"#]],
    );
    let answer = json_of(&ask(&ratewright, &["inspect", "at-once:127.0.0.1", "--json"]));
    assert_eq!(
        (&answer["inFlight"], &answer["max"], &answer["policy"]),
        (&json!(2), &json!(3), &json!("at-once"))
    );
    let in_flight = |key: &str| json_of(&ask(&ratewright, &["inspect", key, "--json"]))["inFlight"].clone();
    assert_eq!((in_flight("at-once:192.0.2.1"), in_flight("per-user:anna")), (json!(0), json!(0)));
    check(
        &ratewright,
        &["inspect", "--client", "127.0.0.1"],
        expect![[r#"
        127.0.0.1

        LIMIT        KEY        IN FLIGHT  MAX  MODE
        at-once      127.0.0.1          2    3  enforce
        at-once+vip  127.0.0.1          2   10  enforce

        per-user: needs user
        closed: the policy is off
        exit 0"#]],
    );
    check(
        &ratewright,
        &["inspect", "closed"],
        expect![[r#"
            closed: not counted; the policy or all limits are off
            exit 0"#]],
    );
    check(
        &ratewright,
        &["reset", "at-once:127.0.0.1"],
        expect![[r#"
            error: http://ADMIN rejected the request: policy "at-once" cannot be reset: it limits requests in flight, which end by themselves
            exit 1"#]],
    );
    requests.into_iter().for_each(end);
    wait_until("nothing is in flight", || in_flight("at-once:127.0.0.1") == 0);
}

/// A reload that lowers the maximum does not hide requests that began earlier.
#[test]
fn requests_beyond_a_lowered_maximum_are_shown() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let ratewright = gateway(&upstream);
    let requests = [(); 2].map(|()| begin(&ratewright, &upstream));
    let routes = format!(
        "routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{}'}}]\n",
        upstream.local_addr().unwrap()
    );
    ratewright.reload(&format!("policies: [{{name: at-once, by: ip, in_flight: 1}}]\n{routes}"));
    let answer = json_of(&ask(&ratewright, &["inspect", "at-once:127.0.0.1", "--json"]));
    assert_eq!((&answer["inFlight"], &answer["max"]), (&json!(2), &json!(1)));
    requests.into_iter().for_each(end);
}

#[test]
fn without_an_open_gateway_inspect_says_that_nothing_counts_requests_in_flight() {
    let ratewright = Ratewright::start(POLICIES);
    check(
        &ratewright,
        &["inspect", "at-once:127.0.0.1"],
        expect![[r#"
            error: http://ADMIN rejected the request: policy "at-once": requests in flight are not counted because the gateway is not running; add routes to the policy file and restart
            exit 1"#]],
    );
    assert_eq!(ratewright.admin("/api/v1/admin/key?policy=at-once&key=127.0.0.1").status, 409);
    let text = printed(&ask(&ratewright, &["inspect", "--client", "192.0.2.1"]));
    let remark = "at-once: the gateway is not running, and only the gateway counts requests in flight\n";
    assert!(text.contains(remark) && text.contains("per-user: needs user"), "{text}");
}

/// `explain` reports a 429 where the gateway would send one.
#[test]
fn explain_denies_a_request_over_the_in_flight_maximum() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let ratewright = gateway(&upstream);
    let explain = || {
        let body = json!({"attributes": {"ip": "127.0.0.1", "path": "/"}}).to_string();
        ratewright.post("/api/v1/explain", &[], &body).json()
    };
    assert_eq!((&explain()["allowed"], &explain()["status"]), (&json!(true), &json!(200)));
    let requests = [(); 3].map(|()| begin(&ratewright, &upstream));
    let explained = explain();
    assert_eq!((&explained["allowed"], &explained["status"]), (&json!(false), &json!(429)));
    assert_eq!(explained["summary"], "denied by at-once: 3 of 3 requests are in flight");
    assert_eq!(ratewright.pass("/", &[]).status, 429);
    requests.into_iter().for_each(end);
}
