//! Fields that are between two neighbours, and go no further.
//!
//! `Connection` names further ones, and a client may write there what it likes. If all of it were obeyed, a client could have
//! taken away what somebody before or in us set, and the server would find nobody's address or no login at all. So what
//! [`is_kept`] tells stays, whatever `Connection` says: framing, hosts, the client's identity and address, and request ids. A
//! request that names there what it is counted by has been refused before: see `identity.rs`.
//!
//! `TE: trailers` is passed on, since gRPC needs it and it promises nothing but to read trailers. `Trailer` only announces
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

/// Fields between two neighbours. Of `TE` a part may go on.
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

/// Fields that `Connection` cannot take away: how long the body is and what is in it, and who is asking.
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
    TE, // it is looked at apart
];

/// More fields that `Connection` cannot take away, those that http has no names for.
const KEPT_TOO: [&str; 5] = ["x-real-ip", "x-request-id", "x-correlation-id", "traceparent", "tracestate"];

/// Takes away what is between two neighbours only: `Connection` and what it names, `Keep-Alive`, `Proxy-Connection`,
/// `Proxy-Authenticate`, `Proxy-Authorization`, `TE` but for `trailers`, `Transfer-Encoding` and `Upgrade`.
///
/// `user` is the field in which trusted proxies name the user, if there is one. It stays too.
pub fn strip_hop_by_hop(headers: &mut HeaderMap, user: Option<&HeaderName>) {
    // Looking for each of them by its name costs more than looking at all names once; mostly none is there.
    let there: SmallVec<[&HeaderName; 4]> = headers.keys().filter_map(hop_by_hop).collect();
    if there.contains(&&CONNECTION) {
        for name in named(headers) {
            if !is_kept(&name) && user != Some(&name) {
                headers.remove(name);
            }
        }
    }
    for name in there.iter().filter(|name| ***name != TE) {
        headers.remove(*name);
    }
    if there.contains(&&TE) {
        let is_trailers = |text: &[u8]| text.eq_ignore_ascii_case(b"trailers");
        let takes_trailers = headers.get_all(TE).iter().flat_map(elements).any(is_trailers);
        headers.remove(TE);
        if takes_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
}

/// The same name, if the field is between two neighbours.
pub(super) fn hop_by_hop(name: &HeaderName) -> Option<&'static HeaderName> {
    HOP_BY_HOP.iter().find(|known| *known == name)
}

/// True if `Connection` cannot take this field away.
fn is_kept(name: &HeaderName) -> bool {
    KEPT.contains(name) || name.as_str().starts_with("x-forwarded-") || KEPT_TOO.contains(&name.as_str())
}

/// True if a name is that of a header between two neighbours, or of one that `Connection` cannot take away, once `_` and the like are
/// taken for `-`: upstreams that speak CGI or WSGI read `content_length` as `Content-Length`, and lighttpd `content.length` too.
pub(super) fn is_double(name: &str) -> bool {
    name.bytes().any(is_read_as_dash)
        && HOP_BY_HOP.iter().chain(&KEPT).any(|known| is_spelled(name, known.as_str()))
}

/// True if some upstreams read this byte of a name as `-`, or as `_` like that.
pub(super) fn is_read_as_dash(byte: u8) -> bool {
    byte != b'-' && !byte.is_ascii_alphanumeric()
}

/// True if a name is `known`, perhaps with `_` or the like in the place of `-`.
pub(super) fn is_spelled(name: &str, known: &str) -> bool {
    name.len() == known.len() && begins(name, known)
}

/// True if a name begins with `known`, perhaps with `_` or the like in the place of `-`.
pub(super) fn begins(name: &str, known: &str) -> bool {
    let same = |(a, b): (u8, u8)| a == b || (is_read_as_dash(a) && !b.is_ascii_alphanumeric());
    name.len() >= known.len() && name.bytes().zip(known.bytes()).all(same)
}

/// The fields that `Connection` names.
pub(super) fn named(headers: &HeaderMap) -> SmallVec<[HeaderName; 2]> {
    let options = headers.get_all(CONNECTION).iter().flat_map(elements);
    options.filter_map(|option| HeaderName::from_bytes(option).ok()).collect()
}

/// The elements of a list, without blanks around them.
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

    /// What is left, in words.
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
    fn what_is_between_neighbours_goes_no_further() {
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

    /// Otherwise a client could have its address, its login or the length of its body taken away.
    #[test]
    fn connection_takes_nothing_away_that_others_rely_on() {
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
    fn only_trailers_are_passed_on_of_te() {
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
