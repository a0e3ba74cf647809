use super::*;
use proptest::prelude::*;
use ratewright_http::address::{Proxies, client_address};

fn rules(source: Forwarding) -> IdentityRules {
    IdentityRules::default()
        .proxies(Proxies::default().trusted(vec!["10.0.0.0/8".parse().unwrap()]).source(source))
        .user_header(Some(HeaderName::from_static("x-user-id")))
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    fields.iter().fold(HeaderMap::new(), |mut headers, (name, value)| {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
        headers
    })
}

/// All headers that the upstream gets.
fn forwarded_headers(source: Forwarding, peer: &str, fields: &[(&'static str, &str)]) -> String {
    let (rules, mut headers) = (rules(source), headers(fields));
    let peer = peer.parse().unwrap();
    let client = client_address(&headers, peer, &rules.proxies);
    let host = Some(HeaderValue::from_static("a.example:8443"));
    let hop = Hop { peer: &ConnectionPeer::new(peer), client, scheme: Scheme::Https, host };
    let forwarding = hop.forwarding_headers(&mut headers, &rules, &PolicyHeaders::of([], &rules));
    forwarding.for_each(|name, _| assert!(!headers.contains_key(name), "{name}"));
    forwarding.add_to(&mut headers);
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines.join("; ")
}

#[track_caller]
fn check(peer: &str, fields: &[(&'static str, &str)], expected: &str) {
    assert_eq!(forwarded_headers(Forwarding::XForwardedFor, peer, fields), expected);
}

const SPOOFED: [(&str, &str); 15] = [
    ("x-forwarded-for", "6.6.6.6"),
    ("x-forwarded-for", "7.7.7.7"),
    ("x-forwarded-proto", "gopher"),
    ("x-forwarded-host", "evil.example"),
    ("x-forwarded-port", "1"),
    ("x-real-ip", "6.6.6.6"),
    ("forwarded", "for=6.6.6.6"),
    ("x-user-id", "root"),
    ("x_user_id", "root"),
    ("x-original-url", "/admin"),
    ("x-rewrite-url", "/admin"),
    ("script_name", "/static"),
    ("script-name", "/static"),
    ("path_info", "/admin"),
    ("daphne-root-path", "/static"),
];

#[test]
fn client_claims_are_not_forwarded() {
    let plain = "x-forwarded-for: 192.0.2.7; x-forwarded-host: a.example:8443; x-forwarded-proto: https; x-real-ip: 192.0.2.7";
    check("192.0.2.7", &[], plain);
    check("192.0.2.7", &SPOOFED, plain);
    check("::ffff:192.0.2.7", &SPOOFED, plain);
}

#[test]
fn a_trusted_proxys_headers_are_forwarded_and_the_proxy_is_appended() {
    check(
        "10.0.0.1",
        &[
            ("x-forwarded-for", "198.51.100.7, 10.0.0.2"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "b"),
            ("x-user-id", "anna"),
        ],
        "x-forwarded-for: 198.51.100.7, 10.0.0.2, 10.0.0.1; x-forwarded-host: b; x-forwarded-proto: http; x-real-ip: 198.51.100.7; x-user-id: anna",
    );
    check(
        "10.0.0.1",
        &[
            ("x-forwarded-for", "198.51.100.7"),
            ("x-forwarded-for", "10.0.0.3"),
            ("forwarded", "for=6.6.6.6"),
            ("x_forwarded_for", "6.6.6.6"),
        ],
        "x-forwarded-for: 198.51.100.7, 10.0.0.3, 10.0.0.1; x-forwarded-host: a.example:8443; x-forwarded-proto: https; x-real-ip: 198.51.100.7",
    );
}

/// Other paths from a proxy stay, unless a CGI server would read them as its own variable.
#[test]
fn other_paths_from_a_trusted_proxy_stay_unless_they_are_written_with_underscores() {
    let fields = [
        ("script-name", "/app"),
        ("script_name", "/static"),
        ("path_info", "/admin"),
        ("x_original_url", "/admin"),
    ];
    check(
        "10.0.0.1",
        &fields,
        "script-name: /app; x-forwarded-for: 10.0.0.1; x-forwarded-host: a.example:8443; x-forwarded-proto: https; x-real-ip: 10.0.0.1",
    );
}

#[test]
fn a_client_named_by_another_header_starts_the_chain() {
    check(
        "10.0.0.1",
        &[("x-real-ip", "198.51.100.7")],
        "x-forwarded-for: 198.51.100.7, 10.0.0.1; x-forwarded-host: a.example:8443; x-forwarded-proto: https; x-real-ip: 198.51.100.7",
    );
    assert_eq!(
        forwarded_headers(
            Forwarding::Forwarded,
            "10.0.0.1",
            &[("forwarded", "for=\"[2001:db8::1]\""), ("x-forwarded-for", "6.6.6.6")]
        ),
        "forwarded: for=\"[2001:db8::1]\"; x-forwarded-for: 2001:db8::1, 10.0.0.1; x-forwarded-host: a.example:8443; x-forwarded-proto: https; x-real-ip: 2001:db8::1",
    );
}

#[test]
fn an_oversized_forwarding_chain_is_replaced() {
    let long = "6.6.6.6, ".repeat(2_000) + "198.51.100.7";
    let forwarding = forwarded_headers(Forwarding::XForwardedFor, "10.0.0.1", &[("x-forwarded-for", &long)]);
    assert!(forwarding.starts_with("x-forwarded-for: 198.51.100.7, 10.0.0.1;"), "{forwarding}");
}

#[test]
fn without_a_host_x_forwarded_host_is_omitted() {
    let mut headers = headers(&[("x-forwarded-host", "evil.example")]);
    let peer = "192.0.2.7".parse().unwrap();
    let hop = Hop { peer: &ConnectionPeer::new(peer), client: peer, scheme: Scheme::Http, host: None };
    hop.forwarding_headers(&mut headers, &rules(Forwarding::XForwardedFor), &PolicyHeaders::default())
        .add_to(&mut headers);
    assert!(!headers.contains_key("x-forwarded-host"));
    assert_eq!(headers["x-forwarded-proto"], "http");
}

proptest! {
    /// Headers of an untrusted peer do not change the forwarding headers.
    #[test]
    fn an_untrusted_peer_cannot_change_forwarding_headers(picks in prop::collection::vec((prop::sample::select(SPOOFED.to_vec()), "[ -~]{0,20}"), 0..8)) {
        let fields: Vec<_> = picks.iter().map(|((name, _), value)| (*name, value.as_str())).collect();
        for source in [Forwarding::XForwardedFor, Forwarding::Forwarded] {
            prop_assert_eq!(forwarded_headers(source, "192.0.2.7", &fields), forwarded_headers(source, "192.0.2.7", &[]));
        }
    }

    /// An upstream that trusts the gateway identifies the same client.
    #[test]
    fn a_trusting_upstream_finds_the_same_client(entries in prop::collection::vec(prop::sample::select(vec!["6.6.6.6", "10.0.0.2", "unknown", "2001:db8::1", ""]), 0..5)) {
        let rules = rules(Forwarding::XForwardedFor);
        let line = entries.join(", ");
        let mut headers = headers(&[("x-forwarded-for", &line)]);
        let peer = "10.0.0.1".parse().unwrap();
        let client = client_address(&headers, peer, &rules.proxies);
        let hop = Hop { peer: &ConnectionPeer::new(peer), client, scheme: Scheme::Http, host: None };
        hop.forwarding_headers(&mut headers, &rules, &PolicyHeaders::default()).add_to(&mut headers);
        prop_assert_eq!(client_address(&headers, "10.9.9.9".parse().unwrap(), &rules.proxies), client, "{:?}", headers);
    }
}
