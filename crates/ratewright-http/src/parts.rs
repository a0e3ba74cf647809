//! The parts of a request that a policy can count by: headers, cookies, query parameters, the host.
//!
//! What is not clearly there is not there: an empty value, bytes that are no text, two `Host` fields. A policy
//! says itself what happens to a request without its attribute (`missing`). Of several values the first counts, always.

use std::borrow::Cow;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header as field};
use percent_encoding::percent_decode_str;

/// The first line of a header field, without blanks around it.
pub fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    text(headers.get(name)?.as_bytes())
}

/// The value of the first cookie of exactly this name, without quotes around it.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(field::COOKIE).iter().map(HeaderValue::as_bytes);
    text(values.find_map(|line| cookie_bytes(line, name))?)
}

/// The value of the first cookie of exactly this name in one `Cookie` field, without quotes around it.
pub fn cookie_in<'a>(field: &'a [u8], name: &str) -> Option<&'a str> {
    text(cookie_bytes(field, name)?)
}

fn cookie_bytes<'a>(field: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let value = field.split(|&byte| byte == b';').find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        (pair[..at].trim_ascii() == name.as_bytes()).then(|| pair[at + 1..].trim_ascii())
    })?;
    match value {
        [b'"', inner @ .., b'"'] => Some(inner),
        plain => Some(plain),
    }
}

/// The value of the first query parameter of this name, decoded.
pub fn param<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let value = query.split('&').find_map(|pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (found == name || form_decoded(found).is_some_and(|found| found == name)).then_some(value)
    })?;
    form_decoded(value).filter(|value| !value.is_empty())
}

/// The host that is asked for: in lower case, without port, user and the dot of a full name.
pub fn host(parts: &Parts) -> Option<Cow<'_, str>> {
    if let Some(authority) = parts.uri.authority() {
        return host_of(authority.as_str());
    }
    let mut lines = parts.headers.get_all(field::HOST).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => host_of(text(line.as_bytes())?),
        _ => None,
    }
}

/// `user@Example.com.:8080` is `example.com`; an IPv6 address keeps its brackets.
pub fn host_of(authority: &str) -> Option<Cow<'_, str>> {
    // Most are a plain name or address, with or without a port.
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let bytes = authority.as_bytes();
    let end = bytes.iter().position(|byte| !is_plain(*byte)).unwrap_or(bytes.len());
    let is_port =
        matches!(bytes[end..], [] | [b':', ..]) && bytes[end..].iter().skip(1).all(u8::is_ascii_digit);
    if end > 0 && is_port && bytes[end - 1] != b'.' {
        return Some(Cow::Borrowed(authority.split_at(end).0));
    }
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let end =
        if place.starts_with('[') { place.find(']')? + 1 } else { place.find(':').unwrap_or(place.len()) };
    let (name, port) = place.split_at(end);
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_port = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let is_name = !name.is_empty()
        && !name.ends_with('.')
        && !name.contains(|c: char| c.is_whitespace() || "/\\?#,".contains(c));
    (is_port && is_name).then(|| lower_case(name))
}

fn lower_case(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// `%` and `+` undone, as forms write them.
fn form_decoded(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Some(Cow::Owned(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned()));
    }
    percent_decode_str(text).decode_utf8().ok()
}

/// The bytes as text, if they are some that can be seen.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes.trim_ascii()).ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let parsed = lines.iter().map(|&(name, value)| (name, HeaderValue::from_bytes(value).unwrap()));
        parsed.fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        })
    }

    #[test]
    fn a_header_is_its_first_line() {
        let name = HeaderName::from_static("x-api-key");
        let key = |lines: &[&[u8]]| {
            let lines: Vec<_> = lines.iter().map(|line| ("x-api-key", *line)).collect();
            header(&headers(&lines), &name).map(str::to_owned)
        };
        assert_eq!(key(&[b" a b\t", b"c"]).as_deref(), Some("a b"));
        assert_eq!(key(&["clé".as_bytes()]).as_deref(), Some("clé"));
        for nothing in [&b""[..], b" ", b"a\tb", b"\xff"] {
            assert_eq!(key(&[nothing, b"c"]), None, "{nothing:?}");
        }
        assert_eq!(key(&[]), None);
    }

    #[test]
    fn a_cookie_is_the_first_of_its_name() {
        let cookie = |line: &[u8], name: &str| cookie(&headers(&[("cookie", line)]), name).map(str::to_owned);
        assert_eq!(cookie(b"a=1; sid=x=y ;sid=z", "sid").as_deref(), Some("x=y"));
        assert_eq!(cookie(b"sid=\"x\"", "sid").as_deref(), Some("x"));
        assert_eq!(cookie(b"\xff=1; sid=x", "sid").as_deref(), Some("x"));
        for nothing in [&b"Sid=x"[..], b"xsid=x", b"sid", b"sid=", b"sid=\"\"", b"sid=\xff", b"", b";;="] {
            assert_eq!(cookie(nothing, "sid"), None, "{nothing:?}");
        }
        let lines = headers(&[("cookie", b"a=1"), ("cookie", b"sid=x"), ("cookie", b"sid=y")]);
        assert_eq!(super::cookie(&lines, "sid"), Some("x"));
    }

    #[test]
    fn a_parameter_is_the_first_of_its_name() {
        for (query, value) in [
            ("key=a&key=b", "a"),
            ("x=1&key=a=b", "a=b"),
            ("k%65y=a+b%2Bc%C3%A9", "a b+cé"),
            ("?=&&key=%26", "&"),
            ("%ff=1&key=a", "a"),
        ] {
            assert_eq!(param(query, "key").as_deref(), Some(value), "{query}");
        }
        for nothing in ["", "key", "key=", "Key=a", "xkey=a", "key=%ff", "key=+%ff", "key=&key=a"] {
            assert_eq!(param(nothing, "key"), None, "{nothing}");
        }
    }

    #[track_caller]
    fn check_host(uri: &str, lines: &[&[u8]], expected: Option<&str>) {
        let mut request = http::Request::builder().uri(uri);
        for line in lines {
            request = request.header("host", *line);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(host(&parts).as_deref(), expected, "{uri} {lines:?}");
    }

    #[test]
    fn a_host_has_one_spelling() {
        check_host("/", &[b"Example.COM.:8080"], Some("example.com"));
        check_host("/", &[b" example.com "], Some("example.com"));
        check_host("/", &[b"user:word@example.com:80"], Some("example.com"));
        check_host("/", &[b"[2001:DB8::1]:443"], Some("[2001:db8::1]"));
        check_host("/", &[b"example.com:"], Some("example.com"));
        check_host("http://a.example/", &[b"b.example"], Some("a.example"));
        check_host("http://user@A.example:1/", &[], Some("a.example"));
    }

    #[test]
    fn what_is_no_host_is_none() {
        check_host("/", &[], None);
        check_host("/", &[b"a.example", b"a.example"], None);
        let names = ["", ":80", ".", "a b", "a/b", "a:b", "a:1:2", "user@", "a, b", "a.."];
        let brackets = ["[::1", "[::1]x", "[::1]80", "[]é", "[::1]é:80"];
        for odd in names.into_iter().chain(brackets) {
            check_host("/", &[odd.as_bytes()], None);
        }
    }

    proptest! {
        #[test]
        fn rubbish_is_survived(bytes in prop::collection::vec(prop_oneof![32u8..127, 128u8..=255], 0..60), name: String) {
            let headers = headers(&[("cookie", &bytes), ("host", &bytes)]);
            cookie(&headers, &name);
            header(&headers, &field::HOST);
            let query = String::from_utf8_lossy(&bytes);
            param(&query, &name);
            host_of(&query);
        }

        /// Short, and of what a host is cut at; half of them as if they were addresses in brackets.
        #[test]
        fn a_host_of_rubbish_is_a_host_or_none(
            text in prop_oneof![r"[\[\]:@.aZé0 /]{0,8}", r"\[[:a0]{0,2}\][:.aé0]{0,3}"],
        ) {
            if let Some(host) = host_of(&text) {
                let again = host_of(&host);
                prop_assert_eq!(again.as_deref(), Some(&*host), "{}", text);
            }
        }
    }
}
