//! The least rate of request bodies.

use ratewright_gateway::route::BodyRate;

use super::*;

/// What holds for the gateway, and for each route.
fn rates(config: &Config) -> String {
    let show = |rate: Option<BodyRate>| rate.map_or("none".to_owned(), |rate| rate.to_string());
    let routes = config
        .gateway
        .routes
        .iter()
        .map(|(_, route)| format!("; {}: {}", route.id, show(route.body_rate_min)));
    show(config.gateway.body_rate_min) + &routes.collect::<String>()
}

#[test]
fn a_least_rate_is_bytes_in_a_window() {
    let check = |text, expected| Files::of(text).check_as(rates, expected);
    check("", expect!["16384 bytes in 60s"]);
    check("gateway: {body_rate_min: 240B/s}", expect!["240 bytes in 1s"]);
    check("gateway: {body_rate_min: 8 KB/30s}", expect!["8192 bytes in 30s"]);
    check("gateway: {body_rate_min: none}", expect!["none"]);
    check(
        "\
gateway: {body_rate_min: 1KB/5min}
routes:
- {id: a, match: {path: /a}, upstream: http://h}
- {id: b, match: {path: /b}, upstream: http://h, body_rate_min: none}
- {id: c, match: {path: /c}, upstream: http://h, body_rate_min: 1MB/min}
",
        expect!["1024 bytes in 300s; a: 1024 bytes in 300s; b: none; c: 1048576 bytes in 60s"],
    );
}

#[test]
fn a_least_rate_that_makes_no_sense_is_rejected() {
    for wrong in ["240", "240B", "240/s", "0B/s", "fast", "8KB/", "/s", "8KB/0s", "8KB/2d", "8KB/30"] {
        let text = format!("gateway: {{body_rate_min: {wrong}}}");
        assert!(Files::of(&text).read().is_err(), "{wrong}");
    }
}
