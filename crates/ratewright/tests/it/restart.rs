//! Stops, restarts and upgrades under load.

mod load;
mod pid_1;
mod systemd;
mod upgrade;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use ratewright_lab::{Stream, accept, wait_until};

use crate::process::{Answer, Ratewright};

/// How many restarts in a row: a few, or as many as `RESTARTS` says.
fn n_restarts() -> usize {
    #[expect(clippy::disallowed_methods, reason = "tests take their size from the environment")]
    let asked = std::env::var("RESTARTS");
    asked.map_or(3, |n| n.parse().expect("RESTARTS is a number"))
}

const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends a request on a connection that stays open, and reads the response.
#[track_caller]
fn ask(stream: &mut Stream, request: &[u8]) -> Answer {
    stream.renew();
    stream.write_all(request).unwrap();
    let mut text = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
        let head = String::from_utf8_lossy(&text);
        let length = |head: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            line.parse::<usize>().ok()
        };
        if let Some(end) =
            head.find("\r\n\r\n").filter(|end| text.len() >= end + 4 + length(&head).unwrap_or(0))
        {
            assert!(end > 0);
            return Answer::parse(&head);
        }
    }
}

/// A load balancer must see that the instance is not ready before connections are refused.
#[test]
fn after_sigterm_readiness_fails_at_once_and_connections_are_accepted_for_the_delay() {
    let application = ratewright_lab::Nginx::start(1, "", "location / { return 200 'app'; }\n");
    let config = format!(
        "routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{}'}}]\n",
        application.address()
    );
    let ratewright = Ratewright::start_stopping_after("1h", &config);
    let mut kept = Stream::connect(&ratewright.gateway);
    assert_eq!(ask(&mut kept, REQUEST).headers.get("connection"), None);
    assert_eq!(ratewright.admin("/ready").status, 200);
    ratewright.signal("TERM");
    wait_until("it is not ready", || ratewright.admin("/ready").status == 503);
    for address in [&ratewright.gateway, &ratewright.address] {
        let mut new = Stream::connect(address);
        let answer = ask(&mut new, b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((answer.status, answer.headers["connection"].as_str()), (200, "close"));
        assert_eq!(new.read_some(), b"", "and end with the response");
    }
    let answer = ask(&mut kept, REQUEST);
    assert_eq!((answer.status, answer.headers["connection"].as_str()), (200, "close"));
    assert_eq!(kept.read_some(), b"", "the old one ends too");
    assert_eq!(ratewright.stop("INT").code(), Some(130), "Ctrl-C ends the delay");
    let brief = Ratewright::start_stopping_after("200ms", &config);
    let gateway = brief.gateway.clone();
    assert_eq!(brief.stop("TERM").code(), Some(0), "when the delay is over, it ends by itself");
    assert!(TcpStream::connect(gateway).is_err(), "it listens no more");
}

/// Ctrl-C is for developers, who have no load balancer.
#[test]
fn after_ctrl_c_there_is_no_delay() {
    let ratewright = Ratewright::start_stopping_after("1h", "policies: []\n");
    assert_eq!(ratewright.stop("INT").code(), Some(0));
}

/// Requests that do not finish within `drain_timeout` are aborted.
#[test]
fn requests_are_aborted_after_drain_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "drain_timeout: 300ms\nroutes: [{{id: app, match: {{path: /**}}, upstream: 'http://{}'}}]\n",
        silent.local_addr().unwrap()
    );
    let ratewright = Ratewright::start(&config);
    let mut stream = Stream::connect(&ratewright.gateway);
    stream.write_all(REQUEST).unwrap();
    let _upstream = accept(&silent);
    assert_eq!(ratewright.stop("TERM").code(), Some(0));
    assert!(stream.read(&mut [0]).unwrap_or(0) == 0, "nobody answered");
}
