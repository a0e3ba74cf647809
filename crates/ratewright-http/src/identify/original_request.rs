//! The client's request, as a proxy sends it in an authorization request.
//!
//! | protocol | method | target | host | used by |
//! |---|---|---|---|---|
//! | `forward-auth` | `X-Forwarded-Method` | `X-Forwarded-Uri` | `X-Forwarded-Host` | Traefik, Caddy, HAProxy |
//! | `auth-request` | `X-Original-Method` | `X-Original-URL`, with scheme and host | `X-Original-URL` | nginx |
//! | `ext-authz` | that of the authorization request | its path, after the prefix | `Host` | Envoy |
//!
//! The client's address is always in `X-Forwarded-For`. All other headers are those of the client's request.
//!
//! A client can send these headers itself, and some proxies append to a header instead of replacing it. So each header must
//! be present exactly once, and there are no defaults: a wrong guess would charge another path or client.
//!
//! # Laws
//! - A missing, empty or repeated header is an error.
//! - Only the headers of the configured protocol are read; those of the others never change the result.
//! - An ambiguous target, which two parsers could split differently (`http://host?/login`, `/a#b`), is an error. With
//!   `ext-authz` hyper has removed a fragment already; Envoy accepts none.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::request::Parts;
use http::uri::{self, PathAndQuery, Uri};
use http::{HeaderMap, HeaderName, Method, StatusCode};

use ratewright_core::query::AttributeName;

use super::{IdentityRules, METHOD_OVERRIDES};
use crate::address::{Proxies, forwarded_address};
use crate::parts::host_of;
use crate::problem::Problem;

const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const X_ORIGINAL_URL: HeaderName = HeaderName::from_static("x-original-url");

/// How a proxy sends the client's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AuthorizeProtocol {
    /// In `X-Forwarded-Method`, `-Uri` and `-Host`: Traefik, Caddy and HAProxy.
    ForwardAuth,
    /// In `X-Original-Method` and `X-Original-URL`: nginx.
    AuthRequest,
    /// With the client's method, path and host: Envoy's ext_authz over HTTP.
    ExtAuthz,
}

/// The client's request, without its body.
#[derive(Debug)]
pub struct OriginalRequest {
    /// The request head, with the headers that the proxy relayed.
    pub parts: Parts,
    /// The client's address.
    pub client: IpAddr,
}

/// Why the client's request cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OriginalRequestError {
    /// The proxy is misconfigured: a required header is missing, repeated or malformed.
    Proxy(Problem),
    /// The client sent an invalid method, target or host.
    Client(Problem),
}

impl AuthorizeProtocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ForwardAuth, Self::AuthRequest, Self::ExtAuthz];

    /// Its name in the policy file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ForwardAuth => "forward-auth",
            Self::AuthRequest => "auth-request",
            Self::ExtAuthz => "ext-authz",
        }
    }

    /// The headers that a proxy must send.
    pub const fn header_names(self) -> &'static str {
        match self {
            Self::ForwardAuth => "X-Forwarded-Method, X-Forwarded-Uri, X-Forwarded-Host and X-Forwarded-For",
            Self::AuthRequest => "X-Original-Method, X-Original-URL and X-Forwarded-For",
            Self::ExtAuthz => "X-Forwarded-For",
        }
    }
}

/// True if a request has the headers of an authorization request, by which a proxy meant another path of the listener.
pub fn is_authorization_request(headers: &HeaderMap) -> bool {
    let names = [X_FORWARDED_METHOD, X_FORWARDED_URI, X_ORIGINAL_METHOD, X_ORIGINAL_URL];
    headers.keys().any(|name| names.contains(name))
}

impl OriginalRequest {
    /// Reads the client's request from an authorization request. For [`AuthorizeProtocol::ExtAuthz`], `prefix` is removed from
    /// the path.
    ///
    /// # Errors
    /// If a header is missing or repeated, or its value is invalid.
    pub fn read(
        mut request: Parts,
        protocol: AuthorizeProtocol,
        prefix: &str,
        proxies: &Proxies,
    ) -> Result<Self, OriginalRequestError> {
        let client = client(&request.headers, proxies)?;
        match protocol {
            AuthorizeProtocol::ForwardAuth => {
                request.method = method(&request.headers, &X_FORWARDED_METHOD)?;
                request.uri = target(
                    required_header(&request.headers, &X_FORWARDED_URI)?.as_bytes(),
                    "X-Forwarded-Uri",
                )?;
                let host = host(&request.headers, &X_FORWARDED_HOST)?.clone();
                request.headers.insert(HOST, host);
            }
            AuthorizeProtocol::AuthRequest => {
                request.method = method(&request.headers, &X_ORIGINAL_METHOD)?;
                let url = required_header(&request.headers, &X_ORIGINAL_URL)?.as_bytes();
                let (host, path) = split_url(url)?;
                request.uri = target(path, "X-Original-URL")?;
                request.headers.insert(HOST, host);
            }
            AuthorizeProtocol::ExtAuthz => {
                host(&request.headers, &HOST)?;
                let whole = request.uri.path_and_query().map_or("", PathAndQuery::as_str);
                let path = whole.strip_prefix(prefix).filter(|path| path.starts_with('/'));
                let path = path.ok_or_else(|| no_path(prefix))?;
                request.uri = target(path.as_bytes(), "the path")?;
            }
        }
        Ok(Self { parts: request, client })
    }

    /// Why an upstream may read another identity than the one that is counted, if that is so. The gateway rejects or cleans
    /// such requests; a proxy forwards them as they are.
    pub fn ambiguity(&self, needs: &[AttributeName<String>], rules: &IdentityRules) -> Option<Problem> {
        let Parts { method, headers, .. } = &self.parts;
        if method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Some(bad_request(format!(
                "the method {method} contains lower-case letters; write it in capitals"
            )));
        }
        if headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
            return Some(bad_request("the request has several Authorization headers; send one".to_owned()));
        }
        let is_read = |alias: &str| {
            let of_policies = needs.iter().filter_map(|need| {
                let AttributeName::Header(name) = need else { return None };
                Some(name.as_str())
            });
            let fixed = METHOD_OVERRIDES.iter().map(HeaderName::as_str);
            let user = rules.user_header.as_ref().map(HeaderName::as_str);
            of_policies.chain(fixed).chain(user).any(|name| is_alias_of(alias, name))
        };
        let mut names = headers.keys().map(HeaderName::as_str);
        let alias = names.find(|name| name.bytes().any(is_read_as_dash) && is_read(name))?;
        Some(bad_request(format!(
            "some applications read the header {alias} under another name; write its name with hyphens only"
        )))
    }
}

/// True if some applications read this byte of a header's name as `-`.
fn is_read_as_dash(byte: u8) -> bool {
    byte != b'-' && !byte.is_ascii_alphanumeric()
}

/// True if some applications read both names as one.
fn is_alias_of(alias: &str, name: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (is_read_as_dash(a) && b == b'-');
    alias.len() == name.len() && alias != name && alias.bytes().zip(name.bytes()).all(same)
}

fn bad_request(detail: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// The client's address.
fn client(headers: &HeaderMap, proxies: &Proxies) -> Result<IpAddr, OriginalRequestError> {
    let line = required_header(headers, &X_FORWARDED_FOR)?;
    forwarded_address(line.as_bytes(), proxies).ok_or_else(|| {
        let detail =
            "the last entry of X-Forwarded-For is not an IP address; the proxy must set it to the client's address";
        OriginalRequestError::Proxy(Problem::new(StatusCode::BAD_REQUEST, detail))
    })
}

fn method(headers: &HeaderMap, name: &HeaderName) -> Result<Method, OriginalRequestError> {
    let method = Method::from_bytes(required_header(headers, name)?.as_bytes());
    method.map_err(|_| invalid(format!("header {name} is not a valid HTTP method")))
}

/// The value of a header that must be present exactly once.
fn required_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<&'a HeaderValue, OriginalRequestError> {
    let mut lines = headers.get_all(name).iter();
    let what = match (lines.next(), lines.next()) {
        (Some(line), None) if !line.is_empty() => return Ok(line),
        (Some(_), Some(_)) => "repeated; the proxy must replace the client's value",
        (Some(_) | None, _) => "missing or empty; the proxy must send it",
    };
    let detail = format!("header {name} is {what} (see docs/guides/proxies.md)");
    Err(OriginalRequestError::Proxy(Problem::new(StatusCode::BAD_REQUEST, detail)))
}

/// The host. A client of HTTP/1.0 need not send one, so it is the client's error if it is missing.
fn host<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a HeaderValue, OriginalRequestError> {
    match headers.get(name) {
        Some(host) if !host.is_empty() => required_header(headers, name),
        Some(_) | None => Err(invalid("the request has no Host; send one".to_owned())),
    }
}

/// A path and query as a URI.
fn target(text: &[u8], what: &str) -> Result<Uri, OriginalRequestError> {
    // `PathAndQuery` drops a fragment, but an upstream may treat it as part of the path.
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
fn split_url(url: &[u8]) -> Result<(HeaderValue, &[u8]), OriginalRequestError> {
    let no_host = || {
        let detail =
            "X-Original-URL must begin with http:// or https://; in nginx: $scheme://$host$request_uri";
        OriginalRequestError::Proxy(Problem::new(StatusCode::BAD_REQUEST, detail))
    };
    let rest = url.strip_prefix(b"http://").or_else(|| url.strip_prefix(b"https://")).ok_or_else(no_host)?;
    // A client can put `?` or `#` into its Host: the path would then parse as a query or fragment.
    let end = rest.iter().position(|byte| b"/?#\\".contains(byte)).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let is_host = str::from_utf8(host).is_ok_and(|host| !host.contains('@') && host_of(host).is_some());
    let host = HeaderValue::from_bytes(host).ok().filter(|_| is_host && path.first() == Some(&b'/'));
    host.map(|host| (host, path))
        .ok_or_else(|| invalid("X-Original-URL is invalid; expected http(s)://host/path".to_owned()))
}

fn no_path(prefix: &str) -> OriginalRequestError {
    let detail = format!("no path follows {prefix}; in Envoy's ext_authz filter, set path_prefix: {prefix}");
    OriginalRequestError::Proxy(Problem::new(StatusCode::BAD_REQUEST, detail))
}

fn invalid(detail: String) -> OriginalRequestError {
    OriginalRequestError::Client(bad_request(detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    /// Reads an authorization request: its protocol, its path, and its headers, one on a line.
    #[track_caller]
    fn check(protocol: AuthorizeProtocol, path: &str, headers: &str, expected: &str) {
        let mut call = Request::get(path);
        for line in headers.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap();
            call = call.header(name, HeaderValue::from_bytes(value.trim().as_bytes()).unwrap());
        }
        let (call, ()) = call.body(()).unwrap().into_parts();
        let proxies = Proxies::default().trusted(vec!["10.0.0.0/8".parse().unwrap()]);
        let found = match OriginalRequest::read(call, protocol, "/authorize", &proxies) {
            Ok(OriginalRequest { parts, client }) => {
                let host = parts.headers.get(HOST).unwrap().to_str().unwrap();
                format!("{} {host} {} from {client}", parts.method, parts.uri)
            }
            Err(OriginalRequestError::Proxy(problem)) => format!("proxy: {}", problem.detail()),
            Err(OriginalRequestError::Client(problem)) => format!("client: {}", problem.detail()),
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
    fn each_protocol_carries_the_request() {
        use AuthorizeProtocol::{AuthRequest, ExtAuthz, ForwardAuth};
        let expected = "POST api.example.com /login?next=%2F from 192.0.2.7";
        check(ForwardAuth, "/authorize", FORWARDED, expected);
        check(
            AuthRequest,
            "/authorize",
            ORIGINAL,
            "POST api.example.com:8443 /login?next=%2F from 192.0.2.7",
        );
        check(ExtAuthz, "/authorize/login?next=1", CALL, "GET api.example.com /login?next=1 from 192.0.2.7");
        check(ExtAuthz, "/authorize//login", CALL, "GET api.example.com //login from 192.0.2.7");
    }

    #[test]
    fn headers_of_other_protocols_are_ignored() {
        use AuthorizeProtocol::{AuthRequest, ExtAuthz, ForwardAuth};
        let forged = "
            X-Forwarded-Prefix: /x
            Forwarded: for=6.6.6.6
            X-Real-IP: 6.6.6.6";
        let expected = "POST api.example.com /login?next=%2F from 192.0.2.7";
        let original = "
            X-Original-Method: GET
            X-Original-URL: http://evil.example/free";
        check(ForwardAuth, "/authorize/free", &format!("{FORWARDED}{original}{forged}"), expected);
        let forwarded = "
            X-Forwarded-Method: GET
            X-Forwarded-Uri: /free
            X-Forwarded-Host: evil.example
            Host: evil.example";
        check(
            AuthRequest,
            "/authorize/free",
            &format!("{ORIGINAL}{forwarded}{forged}"),
            "POST api.example.com:8443 /login?next=%2F from 192.0.2.7",
        );
        check(
            ExtAuthz,
            "/authorize/login",
            &format!("{CALL}{original}\nX-Forwarded-Uri: /free"),
            "GET api.example.com /login from 192.0.2.7",
        );
    }

    #[test]
    fn a_missing_or_repeated_header_is_an_error_of_the_proxy() {
        for (source, headers) in
            [(AuthorizeProtocol::ForwardAuth, FORWARDED), (AuthorizeProtocol::AuthRequest, ORIGINAL)]
        {
            let lines: Vec<_> = headers.trim().lines().collect();
            for (n, line) in lines.iter().enumerate() {
                let name = line.trim().split_once(':').unwrap().0.to_lowercase();
                let without: Vec<_> = lines.iter().filter(|other| other != &line).copied().collect();
                let empty = format!("{}\n{name}:", without.join("\n"));
                for headers in [without.join("\n"), empty] {
                    let call = format!("{headers}\nHost: t");
                    let expected = match &*name {
                        "x-forwarded-host" => "client: the request has no Host; send one".to_owned(),
                        _ => format!(
                            "proxy: header {name} is missing or empty; the proxy must send it (see docs/guides/proxies.md)"
                        ),
                    };
                    check(source, "/authorize", &call, &expected);
                }
                let twice = format!("{}\n{}", lines.join("\n"), lines[n]);
                let expected = format!(
                    "proxy: header {name} is repeated; the proxy must replace the client's value (see docs/guides/proxies.md)"
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
                "proxy: the last entry of X-Forwarded-For is not an IP address; the proxy must set it to the client's address",
            ),
            (
                "192.0.2.7,",
                "proxy: the last entry of X-Forwarded-For is not an IP address; the proxy must set it to the client's address",
            ),
        ] {
            let headers = format!("Host: t\nX-Forwarded-For: {list}");
            check(AuthorizeProtocol::ExtAuthz, "/authorize/x", &headers, expected);
        }
    }

    /// A client that puts `?` into its Host must not hide its path in the query.
    #[test]
    fn an_ambiguous_url_is_an_error() {
        for (url, expected) in [
            ("http://x?/login", "client: X-Original-URL is invalid; expected http(s)://host/path"),
            ("http://x#/login", "client: X-Original-URL is invalid; expected http(s)://host/path"),
            ("http://x\\/login", "client: X-Original-URL is invalid; expected http(s)://host/path"),
            ("http://free@x/login", "client: X-Original-URL is invalid; expected http(s)://host/path"),
            ("http://x y/login", "client: X-Original-URL is invalid; expected http(s)://host/path"),
            ("http:///login", "client: X-Original-URL is invalid; expected http(s)://host/path"),
            ("http://x", "client: X-Original-URL is invalid; expected http(s)://host/path"),
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
            check(AuthorizeProtocol::AuthRequest, "/authorize", &headers, expected);
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
            check(AuthorizeProtocol::ForwardAuth, "/authorize", &headers, expected);
        }
        let headers = FORWARDED.replace("POST", "PO ST");
        check(
            AuthorizeProtocol::ForwardAuth,
            "/authorize",
            &headers,
            "client: header x-forwarded-method is not a valid HTTP method",
        );
        for path in ["/authorize", "/authorize?x", "/authorizer/x"] {
            check(
                AuthorizeProtocol::ExtAuthz,
                path,
                CALL,
                "proxy: no path follows /authorize; in Envoy's ext_authz filter, set path_prefix: /authorize",
            );
        }
    }

    #[test]
    fn a_request_that_names_two_identities_is_ambiguous() {
        let needs = [AttributeName::Header("x-api-key".to_owned()), AttributeName::User];
        let rules = IdentityRules::default().user_header(Some(HeaderName::from_static("x-user-id")));
        let ambiguity = |method: &str, headers: &[(&'static str, &'static str)]| {
            let mut request = Request::builder().method(method);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let original = OriginalRequest { parts, client: [192, 0, 2, 7].into() };
            original.ambiguity(&needs, &rules).map(|problem| problem.detail().to_owned())
        };
        let plain = [("x-api-key", "k"), ("authorization", "Bearer a"), ("x_other", "1"), ("a_b", "1")];
        assert_eq!(ambiguity("POST", &plain), None);
        let lower = "the method post contains lower-case letters; write it in capitals";
        assert_eq!(ambiguity("post", &[]).as_deref(), Some(lower));
        let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
        let several = "the request has several Authorization headers; send one";
        assert_eq!(ambiguity("GET", &twice).as_deref(), Some(several));
        for alias in ["x_api_key", "x-api_key", "x.api.key", "x_http_method_override", "x_user_id"] {
            let found = ambiguity("GET", &[(alias, "k")]);
            assert!(found.is_some_and(|detail| detail.contains(alias)), "{alias}");
        }
    }
}
