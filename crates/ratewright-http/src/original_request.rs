//! The client's request, as a proxy describes it when it asks whether the request may pass.
//!
//! | source | method | target | host | for |
//! |---|---|---|---|---|
//! | `x-forwarded` | `X-Forwarded-Method` | `X-Forwarded-Uri` | `X-Forwarded-Host` | Traefik, Caddy |
//! | `x-original` | `X-Original-Method` | `X-Original-URL`, with scheme and host | the same | nginx |
//! | `call` | of the call | of the call, after a prefix | `Host` | Envoy's ext_authz |
//!
//! The client's address is always in `X-Forwarded-For`. All other headers of the call are those of the client's request.
//!
//! A client can send these headers itself, and some proxies append to a header instead of replacing it. So each header must
//! be there exactly once, and nothing has a default: a guess could count the request under another path or client.
//!
//! # Laws
//! - A missing or repeated header is an error.
//! - Only one family is read. The headers of the others never change the result.
//! - A target that can be split at two places (`http://host?/login`, `/a#b`) is an error.

use std::net::IpAddr;

use http::header::{HOST, HeaderValue};
use http::request::Parts;
use http::uri::{self, PathAndQuery, Uri};
use http::{HeaderMap, HeaderName, Method, StatusCode};

use crate::address::{Proxies, forwarded_address};
use crate::parts::host_of;
use crate::problem::Problem;

const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const X_ORIGINAL_URL: HeaderName = HeaderName::from_static("x-original-url");

/// Where a call describes the client's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OriginalRequestSource {
    /// In `X-Forwarded-Method`, `-Uri`, `-Host`: Traefik and Caddy.
    XForwarded,
    /// In `X-Original-Method` and `X-Original-URL`: nginx.
    XOriginal,
    /// The call has the client's method, path and host: Envoy's ext_authz over HTTP.
    Call,
}

/// The client's request, without its body.
#[derive(Debug)]
pub struct OriginalRequest {
    /// Its head, with the headers that the proxy relayed.
    pub parts: Parts,
    /// The client's address.
    pub client: IpAddr,
}

/// Why a call does not describe a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InvalidDescription {
    /// The proxy does not send what it must: its configuration is wrong.
    Proxy(Problem),
    /// The client's request is invalid.
    Client(Problem),
}

impl OriginalRequestSource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::XForwarded, Self::XOriginal, Self::Call];

    /// Its name in the policy file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwarded => "x-forwarded",
            Self::XOriginal => "x-original",
            Self::Call => "call",
        }
    }

    /// The headers that a proxy must send.
    pub const fn header_names(self) -> &'static str {
        match self {
            Self::XForwarded => "X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Host and X-Forwarded-For",
            Self::XOriginal => "X-Original-Method, X-Original-URL and X-Forwarded-For",
            Self::Call => "X-Forwarded-For",
        }
    }
}

impl OriginalRequest {
    /// Reads the description. `prefix` is the path of the call, which precedes the client's path for
    /// [`OriginalRequestSource::Call`].
    ///
    /// # Errors
    /// If a header is missing or repeated, or its value is invalid.
    pub fn read(
        mut call: Parts,
        source: OriginalRequestSource,
        prefix: &str,
        proxies: &Proxies,
    ) -> Result<Self, InvalidDescription> {
        let client = client(&call.headers, proxies)?;
        match source {
            OriginalRequestSource::XForwarded => {
                call.method = method(&call.headers, &X_FORWARDED_METHOD)?;
                call.uri = target(single(&call.headers, &X_FORWARDED_URI)?.as_bytes(), "X-Forwarded-Uri")?;
                let host = single(&call.headers, &X_FORWARDED_HOST)?.clone();
                call.headers.insert(HOST, host);
            }
            OriginalRequestSource::XOriginal => {
                call.method = method(&call.headers, &X_ORIGINAL_METHOD)?;
                let url = single(&call.headers, &X_ORIGINAL_URL)?.as_bytes();
                let (host, path) = split_url(url)?;
                call.uri = target(path, "X-Original-URL")?;
                call.headers.insert(HOST, host);
            }
            OriginalRequestSource::Call => {
                single(&call.headers, &HOST)?;
                let whole = call.uri.path_and_query().map_or("", PathAndQuery::as_str);
                let path = whole.strip_prefix(prefix).filter(|path| path.starts_with('/'));
                let path = path.ok_or_else(|| no_path(prefix))?;
                call.uri = target(path.as_bytes(), "the path of the call")?;
            }
        }
        Ok(Self { parts: call, client })
    }
}

/// The client's address.
fn client(headers: &HeaderMap, proxies: &Proxies) -> Result<IpAddr, InvalidDescription> {
    let line = single(headers, &X_FORWARDED_FOR)?;
    forwarded_address(line.as_bytes(), proxies).ok_or_else(|| {
        let detail =
            "X-Forwarded-For does not end with an IP address; the proxy must set it to the client's address";
        InvalidDescription::Proxy(Problem::new(StatusCode::BAD_REQUEST, detail))
    })
}

fn method(headers: &HeaderMap, name: &HeaderName) -> Result<Method, InvalidDescription> {
    Method::from_bytes(single(headers, name)?.as_bytes())
        .map_err(|_| invalid(format!("{name} is not a method")))
}

/// The only value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a HeaderValue, InvalidDescription> {
    let mut lines = headers.get_all(name).iter();
    let what = match (lines.next(), lines.next()) {
        (Some(line), None) if !line.is_empty() => return Ok(line),
        (Some(_), Some(_)) => "repeated; the proxy must replace what the client sends",
        (Some(_) | None, _) => "missing; the proxy must send it",
    };
    let detail = format!("header {name} is {what}: see the recipes in docs/proxies.md");
    Err(InvalidDescription::Proxy(Problem::new(StatusCode::BAD_REQUEST, detail)))
}

/// A path and query as a URI.
fn target(text: &[u8], what: &str) -> Result<Uri, InvalidDescription> {
    // The library would drop a fragment, but an upstream may read it as part of the path.
    let parsed = (text.first() == Some(&b'/') && !text.contains(&b'#'))
        .then(|| PathAndQuery::try_from(text).ok())
        .flatten();
    let mut parts = uri::Parts::default();
    parts.path_and_query = parsed;
    parts
        .path_and_query
        .is_some()
        .then(|| Uri::from_parts(parts).ok())
        .flatten()
        .ok_or_else(|| invalid(format!("{what} is not a valid request target")))
}

/// The host and the rest of an absolute URL.
fn split_url(url: &[u8]) -> Result<(HeaderValue, &[u8]), InvalidDescription> {
    let no_host = || {
        let detail =
            "X-Original-URL must begin with http:// or https://; in nginx: $scheme://$host$request_uri";
        InvalidDescription::Proxy(Problem::new(StatusCode::BAD_REQUEST, detail))
    };
    let rest = url.strip_prefix(b"http://").or_else(|| url.strip_prefix(b"https://")).ok_or_else(no_host)?;
    // A client can put `?` or `#` into its Host: all that follows would look like a query.
    let end = rest.iter().position(|byte| b"/?#\\".contains(byte)).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let is_host = str::from_utf8(host).is_ok_and(|host| !host.contains('@') && host_of(host).is_some());
    let host = HeaderValue::from_bytes(host).ok().filter(|_| is_host && path.first() == Some(&b'/'));
    host.map(|host| (host, path)).ok_or_else(|| invalid("the host in X-Original-URL is not valid".to_owned()))
}

fn no_path(prefix: &str) -> InvalidDescription {
    let detail = format!("the call has no path after {prefix}; in Envoy, set path_prefix: {prefix}");
    InvalidDescription::Proxy(Problem::new(StatusCode::BAD_REQUEST, detail))
}

fn invalid(detail: String) -> InvalidDescription {
    InvalidDescription::Client(Problem::new(StatusCode::BAD_REQUEST, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    /// Reads a call: its source, its path, and its headers, one on a line.
    #[track_caller]
    fn check(source: OriginalRequestSource, path: &str, headers: &str, expected: &str) {
        let mut call = Request::get(path);
        for line in headers.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap();
            call = call.header(name, HeaderValue::from_bytes(value.trim().as_bytes()).unwrap());
        }
        let (call, ()) = call.body(()).unwrap().into_parts();
        let proxies = Proxies::default().trusted(vec!["10.0.0.0/8".parse().unwrap()]);
        let found = match OriginalRequest::read(call, source, "/authorize", &proxies) {
            Ok(OriginalRequest { parts, client }) => {
                let host = parts.headers.get(HOST).unwrap().to_str().unwrap();
                format!("{} {host} {} from {client}", parts.method, parts.uri)
            }
            Err(InvalidDescription::Proxy(problem)) => format!("proxy: {}", problem.detail()),
            Err(InvalidDescription::Client(problem)) => format!("client: {}", problem.detail()),
        };
        assert_eq!(found, expected);
    }

    const FORWARDED: &str = "
        X-Forwarded-Method: POST
        X-Forwarded-Uri: /login?next=%2F
        X-Forwarded-Host: api.example.com
        X-Forwarded-For: 192.0.2.7";
    const ORIGINAL: &str = "
        X-Original-Method: POST
        X-Original-URL: https://api.example.com:8443/login?next=%2F
        X-Forwarded-For: 192.0.2.7";
    const CALL: &str = "
        Host: api.example.com
        X-Forwarded-For: 192.0.2.7";

    #[test]
    fn each_source_describes_the_request() {
        use OriginalRequestSource::{Call, XForwarded, XOriginal};
        let expected = "POST api.example.com /login?next=%2F from 192.0.2.7";
        check(XForwarded, "/authorize", FORWARDED, expected);
        check(XOriginal, "/authorize", ORIGINAL, "POST api.example.com:8443 /login?next=%2F from 192.0.2.7");
        check(Call, "/authorize/login?next=1", CALL, "GET api.example.com /login?next=1 from 192.0.2.7");
        check(Call, "/authorize//login", CALL, "GET api.example.com //login from 192.0.2.7");
    }

    #[test]
    fn headers_of_other_families_change_nothing() {
        use OriginalRequestSource::{Call, XForwarded, XOriginal};
        let forged = "
            X-Forwarded-Prefix: /x
            Forwarded: for=6.6.6.6
            X-Real-IP: 6.6.6.6";
        let expected = "POST api.example.com /login?next=%2F from 192.0.2.7";
        let original = "
            X-Original-Method: GET
            X-Original-URL: http://evil.example/free";
        check(XForwarded, "/authorize/free", &format!("{FORWARDED}{original}{forged}"), expected);
        let forwarded = "
            X-Forwarded-Method: GET
            X-Forwarded-Uri: /free
            X-Forwarded-Host: evil.example
            Host: evil.example";
        check(
            XOriginal,
            "/authorize/free",
            &format!("{ORIGINAL}{forwarded}{forged}"),
            "POST api.example.com:8443 /login?next=%2F from 192.0.2.7",
        );
        check(
            Call,
            "/authorize/login",
            &format!("{CALL}{original}\nX-Forwarded-Uri: /free"),
            "GET api.example.com /login from 192.0.2.7",
        );
    }

    #[test]
    fn a_missing_or_repeated_header_is_an_error_of_the_proxy() {
        for (source, headers) in
            [(OriginalRequestSource::XForwarded, FORWARDED), (OriginalRequestSource::XOriginal, ORIGINAL)]
        {
            let lines: Vec<_> = headers.trim().lines().collect();
            for (n, line) in lines.iter().enumerate() {
                let name = line.trim().split_once(':').unwrap().0.to_lowercase();
                let without: Vec<_> = lines.iter().filter(|other| other != &line).copied().collect();
                let empty = format!("{}\n{name}:", without.join("\n"));
                for headers in [without.join("\n"), empty] {
                    let call = format!("{headers}\nHost: t");
                    let expected = format!(
                        "proxy: header {name} is missing; the proxy must send it: see the recipes in docs/proxies.md"
                    );
                    check(source, "/authorize", &call, &expected);
                }
                let twice = format!("{}\n{}", lines.join("\n"), lines[n]);
                let expected = format!(
                    "proxy: header {name} is repeated; the proxy must replace what the client sends: see the recipes in docs/proxies.md"
                );
                check(source, "/authorize", &twice, &expected);
            }
        }
    }

    #[test]
    fn the_client_is_the_last_address_that_is_not_a_trusted_proxy() {
        for (list, expected) in [
            ("192.0.2.7", "GET t /x from 192.0.2.7"),
            ("6.6.6.6, 192.0.2.7", "GET t /x from 192.0.2.7"),
            ("6.6.6.6, 192.0.2.7, 10.0.0.1", "GET t /x from 192.0.2.7"),
            ("10.0.0.1", "GET t /x from 10.0.0.1"),
            ("[2001:db8::1]:4711", "GET t /x from 2001:db8::1"),
            (
                "192.0.2.7, unknown",
                "proxy: X-Forwarded-For does not end with an IP address; the proxy must set it to the client's address",
            ),
            (
                "192.0.2.7,",
                "proxy: X-Forwarded-For does not end with an IP address; the proxy must set it to the client's address",
            ),
        ] {
            let headers = format!("Host: t\nX-Forwarded-For: {list}");
            check(OriginalRequestSource::Call, "/authorize/x", &headers, expected);
        }
    }

    /// A client that puts `?` into its Host must not hide its path in the query.
    #[test]
    fn a_url_that_can_be_split_at_two_places_is_an_error() {
        for (url, expected) in [
            ("http://x?/login", "client: the host in X-Original-URL is not valid"),
            ("http://x#/login", "client: the host in X-Original-URL is not valid"),
            ("http://x\\/login", "client: the host in X-Original-URL is not valid"),
            ("http://free@x/login", "client: the host in X-Original-URL is not valid"),
            ("http://x y/login", "client: the host in X-Original-URL is not valid"),
            ("http:///login", "client: the host in X-Original-URL is not valid"),
            ("http://x", "client: the host in X-Original-URL is not valid"),
            ("http://x/a#b", "client: X-Original-URL is not a valid request target"),
            ("http://x/a b", "client: X-Original-URL is not a valid request target"),
            ("http://[::1]:80/a", "GET [::1]:80 /a from 192.0.2.7"),
            (
                "/login",
                "proxy: X-Original-URL must begin with http:// or https://; in nginx: $scheme://$host$request_uri",
            ),
        ] {
            let headers =
                format!("X-Original-Method: GET\nX-Original-URL: {url}\nX-Forwarded-For: 192.0.2.7");
            check(OriginalRequestSource::XOriginal, "/authorize", &headers, expected);
        }
    }

    #[test]
    fn an_invalid_target_or_method_is_an_error_of_the_client() {
        for (uri, expected) in [
            ("*", "client: X-Forwarded-Uri is not a valid request target"),
            ("login", "client: X-Forwarded-Uri is not a valid request target"),
            ("http://x/login", "client: X-Forwarded-Uri is not a valid request target"),
            ("/a#b", "client: X-Forwarded-Uri is not a valid request target"),
            ("//login", "GET t //login from 192.0.2.7"),
        ] {
            let headers = format!(
                "X-Forwarded-Method: GET\nX-Forwarded-Uri: {uri}\nX-Forwarded-Host: t\nX-Forwarded-For: 192.0.2.7"
            );
            check(OriginalRequestSource::XForwarded, "/authorize", &headers, expected);
        }
        let headers = FORWARDED.replace("POST", "PO ST");
        check(
            OriginalRequestSource::XForwarded,
            "/authorize",
            &headers,
            "client: x-forwarded-method is not a method",
        );
        for path in ["/authorize", "/authorize?x", "/authorizer/x"] {
            check(
                OriginalRequestSource::Call,
                path,
                CALL,
                "proxy: the call has no path after /authorize; in Envoy, set path_prefix: /authorize",
            );
        }
    }
}
