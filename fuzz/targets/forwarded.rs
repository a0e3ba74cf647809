//! Whatever stands in forwarding headers: a stranger is who it is, and what a client wrote is not read.
//!
//! The input is lines. The first byte of each chooses its field; that of the first also the header that counts.
#![no_main]

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};
use ratewright_http::address::{Forwarding, Proxies, client, client_address};

const NAMES: [&str; 3] = ["x-forwarded-for", "forwarded", "x-real-ip"];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let source = match data.first() {
        Some(byte) if byte & 4 == 0 => Forwarding::XForwardedFor,
        _ => Forwarding::Forwarded,
    };
    let trusted = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
    let rules = Proxies::default().trusted(trusted.to_vec()).source(source);
    let mut headers = HeaderMap::new();
    for line in data.split(|&byte| byte == b'\n').take(16) {
        if let [which, value @ ..] = line
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            headers.append(NAMES[usize::from(which % 4).min(2)], value);
        }
    }

    for stranger in ["192.0.2.9", "2001:db8::9", "::1", "::ffff:192.0.2.9"] {
        let stranger: IpAddr = stranger.parse().expect("an address");
        assert_eq!(client_address(&headers, stranger, &rules), stranger.to_canonical());
    }
    for proxy in ["10.0.0.1", "fd00::1", "::ffff:10.0.0.1"] {
        let proxy: IpAddr = proxy.parse().expect("an address");
        let found = client_address(&headers, proxy, &rules);
        assert!(!client(found, 64).is_empty());
        assert_eq!(found, found.to_canonical());
        // An entry that is not an address ends the walk.
        let behind_rubbish = preceded(&headers, source, "6.6.6.6, \"10.0.0.2");
        assert_eq!(client_address(&behind_rubbish, proxy, &rules), found);
        if !rules.trust(found) {
            assert_eq!(client_address(&preceded(&headers, source, "6.6.6.6"), proxy, &rules), found);
        }
    }
});

/// The same, after a line that only a client can have written. Where nobody wrote that field there is no such line.
fn preceded(headers: &HeaderMap, source: Forwarding, line: &str) -> HeaderMap {
    let (name, line) = match source {
        Forwarding::XForwardedFor => (NAMES[0], line.to_owned()),
        Forwarding::Forwarded => (NAMES[1], format!("for={}", line.replace(", ", ", for="))),
        other => unreachable!("no target for {other:?} yet"),
    };
    let mut preceded = HeaderMap::new();
    if headers.contains_key(name) {
        preceded.append(name, line.parse().expect("a line"));
    }
    for (name, value) in headers {
        preceded.append(name, value.clone());
    }
    preceded
}
