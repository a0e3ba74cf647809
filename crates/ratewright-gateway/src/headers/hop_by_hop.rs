//! Hop-by-hop headers, which are not forwarded.
//!
//! `Connection` names further ones, and a client may name any header there, for example one that a proxy before us set:
//! the upstream would see no client address or no login. So [`is_kept`] headers stay whatever `Connection` says:
//! framing, host, identity, address and request ids. A request that names a policy header there has been rejected
//! before: see `identity.rs`.
//!
//! `TE: trailers` is forwarded, since gRPC needs it and it only promises to read trailers. `Trailer` only announces
//! them, and stays.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE,
    FORWARDED, HOST, ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Hop-by-hop headers. `TE: trailers` is forwarded.
static HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    TRANSFER_ENCODING,
    TE,
    UPGRADE,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
];

/// Headers that `Connection` cannot remove: framing, content and identity.
static KEPT: [HeaderName; 13] = [
    HOST,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    AUTHORIZATION,
    COOKIE,
    SET_COOKIE,
    ORIGIN,
    FORWARDED,
    VIA,
    TRAILER,
    TE, // handled separately
];

/// More headers that `Connection` cannot remove, without a constant in http.
const KEPT_BY_NAME: [&str; 5] =
    ["x-real-ip", "x-request-id", "x-correlation-id", "traceparent", "tracestate"];

/// Removes hop-by-hop headers: `Connection` and the headers it names, `Keep-Alive`, `Proxy-Connection`,
/// `Proxy-Authenticate`, `Proxy-Authorization`, `TE` except `trailers`, `Transfer-Encoding` and `Upgrade`.
///
/// `user` is the header in which trusted proxies name the user. It stays too.
pub fn strip_hop_by_hop(headers: &mut HeaderMap, user: Option<&HeaderName>) {
    // One pass over all names is cheaper than one lookup for each; mostly none is present.
    let found: SmallVec<[&HeaderName; 4]> = headers.keys().filter_map(hop_by_hop).collect();
    if found.contains(&&CONNECTION) {
        for name in connection_options(headers) {
            if !is_kept(&name) && user != Some(&name) {
                headers.remove(name);
            }
        }
    }
    for name in found.iter().filter(|name| ***name != TE) {
        headers.remove(*name);
    }
    if found.contains(&&TE) {
        let is_trailers = |text: &[u8]| text.eq_ignore_ascii_case(b"trailers");
        let accepts_trailers = headers.get_all(TE).iter().flat_map(elements).any(is_trailers);
        headers.remove(TE);
        if accepts_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
}

/// The same name, if it is a hop-by-hop header.
pub(super) fn hop_by_hop(name: &HeaderName) -> Option<&'static HeaderName> {
    HOP_BY_HOP.iter().find(|known| *known == name)
}

/// True if `Connection` cannot remove this header.
fn is_kept(name: &HeaderName) -> bool {
    KEPT.contains(name) || name.as_str().starts_with("x-forwarded-") || KEPT_BY_NAME.contains(&name.as_str())
}

/// True if a name is an alias of a hop-by-hop or kept header, with `_` or the like for `-`: upstreams that speak CGI or
/// WSGI read `content_length` as `Content-Length`, and lighttpd `content.length` too.
pub(super) fn is_alias(name: &str) -> bool {
    name.bytes().any(is_read_as_dash)
        && HOP_BY_HOP.iter().chain(&KEPT).any(|known| is_alias_of(name, known.as_str()))
}

/// True if some upstreams read this byte of a name as `-` or `_`.
pub(super) fn is_read_as_dash(byte: u8) -> bool {
    byte != b'-' && !byte.is_ascii_alphanumeric()
}

/// True if a name is `known`, possibly with `_` or the like for `-`.
pub(super) fn is_alias_of(name: &str, known: &str) -> bool {
    name.len() == known.len() && has_alias_prefix(name, known)
}

/// True if a name starts with `known`, possibly with `_` or the like for `-`.
pub(super) fn has_alias_prefix(name: &str, known: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (is_read_as_dash(a) && !b.is_ascii_alphanumeric());
    name.len() >= known.len() && name.bytes().zip(known.bytes()).all(same)
}

/// The headers that `Connection` names.
pub(super) fn connection_options(headers: &HeaderMap) -> SmallVec<[HeaderName; 2]> {
    let options = headers.get_all(CONNECTION).iter().flat_map(elements);
    options.filter_map(|option| HeaderName::from_bytes(option).ok()).collect()
}

/// The elements of a list, trimmed.
pub(crate) fn elements(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(*name, HeaderValue::from_static(value));
            headers
        })
    }

    /// Compares the remaining headers.
    #[track_caller]
    fn check(fields: &[(&'static str, &'static str)], expected: &str) {
        let mut headers = headers(fields);
        strip_hop_by_hop(&mut headers, Some(&HeaderName::from_static("x-user-id")));
        let mut left: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        left.sort();
        assert_eq!(left.join(" "), expected);
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        check(
            &[
                ("connection", "close, X-Mine"),
                ("connection", "x-other"),
                ("x-mine", "1"),
                ("x-other", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-connection", "close"),
                ("proxy-authorization", "Basic x"),
                ("proxy-authenticate", "Basic"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("trailer", "x-sum"),
                ("accept", "*/*"),
            ],
            "accept=*/* trailer=x-sum",
        );
        check(&[("connection", ", ,\u{7e},a b,,"), ("accept", "*/*")], "accept=*/*");
    }

    /// Otherwise a client could remove its address, its login or its body length.
    #[test]
    fn connection_cannot_remove_protected_headers() {
        check(
            &[
                (
                    "connection",
                    "Host, X-Forwarded-For, X-Forwarded-Proto, Authorization, Content-Length, Content-Type, X-User-Id, X-Request-Id, Cookie",
                ),
                ("host", "a"),
                ("x-forwarded-for", "1"),
                ("authorization", "x"),
                ("content-length", "5"),
                ("content-type", "t"),
                ("x-user-id", "u"),
                ("x-request-id", "r"),
                ("cookie", "c"),
            ],
            "authorization=x content-length=5 content-type=t cookie=c host=a x-forwarded-for=1 x-request-id=r x-user-id=u",
        );
    }

    #[test]
    fn only_te_trailers_is_forwarded() {
        check(&[("te", "trailers")], "te=trailers");
        check(&[("te", "gzip;q=0.5, Trailers"), ("connection", "TE")], "te=trailers");
        check(&[("te", "deflate"), ("te", "trailers")], "te=trailers");
        check(&[("te", "gzip")], "");
    }

    #[test]
    fn nothing_is_allocated_for_a_request_without_connection() {
        let mut headers = headers(&[("host", "a"), ("accept", "*/*"), ("user-agent", "x")]);
        let made = allocation_counter::measure(|| strip_hop_by_hop(&mut headers, None));
        assert_eq!(made.count_total, 0);
    }
}
