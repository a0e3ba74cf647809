//! Whatever a proxy sends in an authorization request: it is rejected, or the headers of other protocols change nothing.
//!
//! The first byte of the input chooses the protocol. The rest is lines; the first byte of each chooses its header.
#![no_main]

use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Request};
use ratewright_http::address::Proxies;
use ratewright_http::identify::original_request::{AuthorizeProtocol, OriginalRequest};

const PREFIX: &str = "/authorize";
const FORWARD_AUTH: [&str; 3] = ["x-forwarded-method", "x-forwarded-uri", "x-forwarded-host"];
const AUTH_REQUEST: [&str; 2] = ["x-original-method", "x-original-url"];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [chosen, lines @ ..] = data else { return };
    let protocol = AuthorizeProtocol::ALL[usize::from(chosen % 3)];
    let (own, others): (&[&str], &[&str]) = match protocol {
        AuthorizeProtocol::ForwardAuth => (&FORWARD_AUTH, &AUTH_REQUEST),
        _ => (&AUTH_REQUEST, &FORWARD_AUTH),
    };
    let names: Vec<&str> = ["x-forwarded-for", "host"].iter().chain(own).copied().collect();
    let mut lines = lines.split(|&byte| byte == b'\n').take(16);
    let path = lines.next().and_then(|line| str::from_utf8(line).ok()).unwrap_or_default();
    let Ok(request) = Request::get(format!("{PREFIX}{path}")).body(()) else { return };
    let (mut request, ()) = request.into_parts();
    for line in lines {
        if let [which, value @ ..] = line
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            request.headers.append(
                names[usize::from(*which) % names.len()].parse::<http::HeaderName>().expect("a name"),
                value,
            );
        }
    }
    let trusted = ["10.0.0.0/8"].map(|network| network.parse().expect("a network"));
    let proxies = Proxies::default().trusted(trusted.to_vec());
    let found = |request: Parts| OriginalRequest::read(request, protocol, PREFIX, &proxies).ok();

    let plain = found(request.clone());
    let mut forged = request.clone();
    for name in others.iter().chain(&["x-real-ip", "forwarded"]) {
        forged.headers.append(*name, HeaderValue::from_static("http://free.example/free"));
    }
    let forged = found(forged);
    assert_eq!(plain.is_some(), forged.is_some());
    let (Some(plain), Some(forged)) = (plain, forged) else { return };
    assert_eq!(
        (&plain.parts.method, &plain.parts.uri, plain.client),
        (&forged.parts.method, &forged.parts.uri, forged.client)
    );
    assert_eq!(plain.parts.headers.get_all(HOST).iter().count(), 1);
    assert!(plain.parts.uri.path().starts_with('/') && plain.parts.uri.authority().is_none());

    // A header that is sent twice is an error, whichever it is.
    for name in names.iter().filter(|name| **name != "host" || protocol == AuthorizeProtocol::ExtAuthz) {
        let mut twice = request.clone();
        if let Some(value) = request.headers.get(*name) {
            twice.headers.append(*name, value.clone());
            let is_read = **name != *"x-original-method" && **name != *"x-original-url"
                || protocol != AuthorizeProtocol::ExtAuthz;
            assert!(found(twice).is_none() || !is_read, "{name} twice");
        }
    }
});
