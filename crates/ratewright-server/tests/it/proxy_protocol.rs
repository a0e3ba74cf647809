//! The PROXY protocol in front of the REST listener: who is on this machine, and who only comes through it.

use std::time::Duration;

use ratewright_listen::{ConnectionSetup, ProxyProtocol};
use ratewright_server::Listening;

use crate::house::{House, LAST_CHECK, hear, say, within};

/// Opens the listener to load balancers on this machine.
async fn open(listening: Listening) -> (House, ProxyProtocol) {
    let proxy = ProxyProtocol::new("listen.api", vec!["127.0.0.0/8".parse().unwrap()]);
    let setup = ConnectionSetup { proxy_protocol: Some(proxy.clone()), tls: None };
    (House::open(listening, setup).await, proxy)
}

/// The answer to a check that follows these bytes.
async fn asked(house: &House, before: &str) -> String {
    let mut stream = house.connect().await;
    within(say(&mut stream, format!("{before}{LAST_CHECK}").as_bytes())).await.unwrap_or_default()
}

fn is_unauthorized(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 401 ")
}

/// Why connections were refused, and how often.
fn refused(proxy: &ProxyProtocol) -> Vec<(&'static str, u64)> {
    proxy.n_refused().filter(|(_, n)| *n > 0).map(|(refusal, n)| (refusal.name(), n)).collect()
}

#[tokio::test]
async fn a_load_balancer_on_this_machine_lends_nobody_its_privileges() {
    let (house, proxy) = open(Listening::default()).await;
    for stranger in ["TCP4 192.0.2.7 10.0.0.9", "TCP6 2001:db8::7 ::1", "TCP6 ::ffff:192.0.2.7 ::1"] {
        let answer = asked(&house, &format!("PROXY {stranger} 40000 8080\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{stranger}: {answer}");
    }
    for forged in
        ["TCP4 127.0.0.1 127.0.0.1", "TCP6 ::1 ::1", "TCP6 ::ffff:127.0.0.1 ::1", "TCP4 0.0.0.0 10.0.0.9"]
    {
        let answer = asked(&house, &format!("PROXY {forged} 40000 8080\r\n")).await;
        assert_eq!(answer, "", "{forged}");
    }
    // It does not say for whom it speaks: for itself, as in health checks, or for a client of a unix socket.
    assert!(is_unauthorized(&asked(&house, "PROXY UNKNOWN\r\n").await));
    assert!(is_unauthorized(&asked(&house, "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").await));
    assert_eq!(asked(&house, "").await, "", "without a header nobody is served");
    assert_eq!(refused(&proxy), [("missing", 1), ("address", 4)]);
    house.close().await;
}

#[tokio::test]
async fn a_header_that_does_not_come_gives_its_place_back() {
    let head_within = Duration::from_millis(500);
    let (house, proxy) = open(Listening { connections_max: 1, head_within, ..Listening::default() }).await;
    let mut silent = house.connect().await;
    assert!(is_unauthorized(&asked(&house, "PROXY UNKNOWN\r\n").await), "the silent one's place is free");
    assert_eq!(within(hear(&mut silent)).await.unwrap_or_default(), "");
    assert_eq!(refused(&proxy), [("timeout", 1)]);
    house.close().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_headers() {
    let hour = Duration::from_secs(3_600);
    let (house, _) = open(Listening { head_within: hour, drain_timeout: hour, ..Listening::default() }).await;
    let mut silent = house.connect().await;
    assert!(is_unauthorized(&asked(&house, "PROXY UNKNOWN\r\n").await));
    house.close().await;
    assert_eq!(within(hear(&mut silent)).await.unwrap_or_default(), "");
}
