//! The parts of a request that a policy can count by: headers, cookies, query parameters, the host.
//!
//! What a request has twice, upstreams read differently: some the first, some the last. So all values are told, each once
//! ([`Values`]). A value that is there but cannot be read (bytes that are no text, or too many of them) is told too; an empty one is
//! none. A policy says itself what happens to a request without its attribute (`missing`).

use std::borrow::Cow;

use http::request::Parts;
use http::{HeaderMap, HeaderName, header as field};
use percent_encoding::percent_decode_str;
use ratewright_core::Policies;
use smallvec::SmallVec;

use crate::{jwt, lenient_base64};

/// The longest value that is read, in bytes. A longer one cannot be read, unless it is the path.
pub const VALUE_MAX: usize = 4_096;

/// The most values of one attribute that are told: one more than any policy charges.
const VALUES_MAX: usize = 1 + Policies::READINGS_MAX as usize;

/// The values that a request has for one attribute.
#[derive(Debug, Default)]
pub struct Values<'a> {
    /// Those that can be read, each once, in their order.
    pub readable: SmallVec<[Cow<'a, str>; 1]>,
    /// True if there is one that cannot.
    pub is_unreadable: bool,
    /// True if there is more than one line of a header.
    pub is_repeated: bool,
    /// True if more values can be read than `readable` has.
    pub is_truncated: bool,
}

impl<'a> Values<'a> {
    /// Adds a value. An empty one is none.
    pub fn add(&mut self, value: Option<Cow<'a, str>>) {
        match value {
            Some(value) if value.is_empty() || self.readable.contains(&value) => {}
            Some(value) if value.len() <= VALUE_MAX && !value.contains(char::is_control) => self.push(value),
            Some(_) | None => self.is_unreadable = true,
        }
    }

    /// Adds a value that somebody says who may speak for the client: any text, but for a NUL.
    pub fn add_told(&mut self, value: &'a str) {
        match value {
            "" => {}
            _ if value.len() <= VALUE_MAX && !value.contains('\0') => {
                if !self.readable.iter().any(|known| known == value) {
                    self.push(Cow::Borrowed(value));
                }
            }
            _ => self.is_unreadable = true,
        }
    }

    fn push(&mut self, value: Cow<'a, str>) {
        if self.readable.len() < VALUES_MAX {
            self.readable.push(value);
        } else {
            self.is_truncated = true;
        }
    }

    fn add_bytes(&mut self, bytes: &'a [u8]) {
        self.add(str::from_utf8(bytes.trim_ascii()).ok().map(Cow::Borrowed));
    }
}

/// The lines of a header, without blanks around them.
pub fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Values<'a> {
    let mut values = Values::default();
    for (n, line) in headers.get_all(name).iter().enumerate() {
        if *name == field::AUTHORIZATION {
            match str::from_utf8(line.as_bytes()) {
                Ok(line) => add_credentials(line, &mut values),
                Err(_) => values.is_unreadable = true,
            }
        } else {
            values.add_bytes(line.as_bytes());
        }
        values.is_repeated = n > 0;
    }
    values
}

/// Adds credentials in their canonical spelling: schemes ignore case, any blanks may follow them, and base64 is decoded leniently. Of
/// base64 that goes on after its padding, both what comes before it and all of it count: decoders differ.
pub fn add_credentials<'a>(line: &'a str, values: &mut Values<'a>) {
    let line = line.trim_ascii();
    let Some((scheme, rest)) = line.split_once([' ', '\t']) else {
        return values.add(Some(Cow::Borrowed(line)));
    };
    let (scheme, rest) = (scheme.to_ascii_lowercase(), rest.trim_ascii());
    if scheme == "basic" {
        let start = rest.split_once('=').map_or(rest, |(start, _)| start);
        for spelling in [start, rest] {
            values.add(Some(Cow::Owned(format!("basic {}", lenient_base64::canonical(spelling)))));
        }
    } else {
        let word = rest.split_ascii_whitespace().next().unwrap_or_default();
        for spelling in [word, rest] {
            values.add(Some(Cow::Owned(format!("{scheme} {}", jwt::canonical(spelling)))));
        }
    }
}

/// Adds the methods that lines of a header name, in capitals. Of a list each counts, and upstreams drop what is no letter around them.
pub fn methods<'l>(lines: impl Iterator<Item = &'l [u8]>, values: &mut Values<'_>) {
    for method in lines.flat_map(|line| line.split(|byte| *byte == b',')) {
        let letters = method.iter().filter(|byte| byte.is_ascii_alphanumeric() || **byte == b'-');
        values.add(Some(letters.map(|byte| char::from(byte.to_ascii_uppercase())).collect()));
    }
}

/// Adds the methods that the query parameter `_method` names, in capitals.
pub fn method_param(query: &str, values: &mut Values<'_>) {
    let may_name_one = |bytes: &[u8]| bytes.eq_ignore_ascii_case(b"method");
    if !query.contains('%') && !query.as_bytes().windows(6).any(may_name_one) {
        return; // as most do
    }
    for pair in query.split(['&', ';']) {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        if param_name(found, "_method") != Named::No {
            methods(form_decoded(value).iter().map(|value| value.as_bytes()), values);
        }
    }
}

/// The values of all cookies of this name, without quotes around them.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Values<'a> {
    let mut values = Values::default();
    for line in headers.get_all(field::COOKIE) {
        cookie_in(line.as_bytes(), name, &mut values);
    }
    values
}

/// Adds the values of all cookies of this name in one `Cookie` header. Many upstreams decode what is percent-encoded, and some
/// undo backslashes within quotes, so that is undone here too: one session has one bucket.
///
/// Where parsers differ, nobody can say what the upstream reads: some find names anywhere in the line, drop blanks of many kinds, or end a
/// value at a blank, a comma, a quote or a bracket. What may be such a cookie counts as one that cannot be read, beside those that can.
pub fn cookie_in<'a>(line: &'a [u8], name: &str, values: &mut Values<'a>) {
    for pair in line.split(|&byte| byte == b';') {
        let Some(at) = pair.iter().position(|&byte| byte == b'=') else { continue };
        let (found, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        match Named::of(found, name) {
            Named::Yes => add_cookie(value, values),
            Named::Perhaps => values.is_unreadable = true,
            Named::No => values.is_unreadable |= value.contains(&b'=') && names_another(value, name),
        }
    }
}

/// True if a value holds what some parsers take for a cookie of this name: `1 sid =a`.
fn names_another(value: &[u8], name: &str) -> bool {
    let end = value.iter().rposition(|&byte| byte == b'=').unwrap_or(0);
    value[..end].split(|&byte| byte == b'=').any(|text| Named::of(text, name) != Named::No)
}

fn add_cookie<'a>(value: &'a [u8], values: &mut Values<'a>) {
    let value = match value {
        [b'"', inner @ .., b'"'] if inner.contains(&b'\\') => decoded(&unescaped(inner)).map(Cow::Owned),
        [b'"', inner @ .., b'"'] => plain(inner),
        whole => plain(whole),
    };
    let text = value.as_deref().unwrap_or_default();
    // Padding of base64 stands at the end only; some ignore what follows it.
    let is_padded = text.trim_end_matches('=').contains('=');
    values.is_unreadable |= is_padded || text.bytes().any(|byte| byte == b',' || is_odd(byte));
    values.add(value);
}

/// A cookie's value, decoded.
fn plain(bytes: &[u8]) -> Option<Cow<'_, str>> {
    if bytes.contains(&b'%') {
        decoded(bytes).map(Cow::Owned)
    } else {
        str::from_utf8(bytes).ok().map(Cow::Borrowed)
    }
}

/// Whether the name of a cookie or parameter is the one that a policy counts by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// It is, also to upstreams that ignore case (ASP.NET), and to PHP, which drops blanks before a name, ends it at a NUL and reads `.`,
    /// blanks and `[` as `_`.
    Yes,
    /// Some upstreams may take it for that: `a[]`, `[a]`, or a name among bytes that some skip.
    Perhaps,
    /// It is another.
    No,
}

impl Named {
    /// Whether `found` is called `name`.
    pub fn of(found: &[u8], name: &str) -> Self {
        let fold = |byte: u8| if b". [".contains(&byte) { b'_' } else { byte.to_ascii_lowercase() };
        let is_same = |found: &[u8]| {
            found.len() == name.len() && found.iter().zip(name.bytes()).all(|(a, b)| fold(*a) == fold(b))
        };
        let blanks = found.iter().take_while(|byte| **byte == b' ').count();
        let end = found.iter().position(|byte| *byte == 0).unwrap_or(found.len()).max(blanks);
        if is_same(found) || is_same(&found[blanks..end]) {
            return Self::Yes;
        }
        let separates = |byte: &u8| is_odd(*byte) || b",&".contains(byte);
        if found.iter().any(separates) && found.split(separates).any(is_same) {
            Self::Perhaps
        } else {
            Self::No
        }
    }
}

/// True if parsers differ in what they do with a byte in a name or a value.
fn is_odd(byte: u8) -> bool {
    !byte.is_ascii_graphic() || b"\"'\\[]{}".contains(&byte)
}

/// Whether the name of a query parameter, as it was written, is this one.
fn param_name(written: &str, name: &str) -> Named {
    if written == name {
        return Named::Yes; // as most are
    }
    let spaced = written.replace('+', " ");
    Named::of(&Cow::from(percent_decode_str(&spaced)), name)
}

/// What is percent-encoded decoded, or if that is no text, the bytes as they are.
fn decoded(bytes: &[u8]) -> Option<String> {
    let decoded = percent_encoding::percent_decode(bytes).decode_utf8().ok();
    let decoded = decoded.filter(|text| !text.contains(char::is_control));
    decoded.map(Cow::into_owned).or_else(|| String::from_utf8(bytes.to_vec()).ok())
}

/// What stands in quotes, without backslashes: three octal digits are a byte, anything else is itself.
fn unescaped(quoted: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(quoted.len());
    let mut rest = quoted;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                plain.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            (b'\\', [next, after @ ..]) => {
                plain.push(*next);
                rest = after;
            }
            _ => plain.push(first),
        }
    }
    plain
}

/// Adds the values of all query parameters of this name, decoded. Some upstreams separate them by `;` too, and then read less of a value
/// that has one: nobody can say what.
pub fn param<'a>(query: &'a str, name: &str, values: &mut Values<'a>) {
    let mut add = |pair: &'a str| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        match param_name(found, name) {
            Named::Yes => {
                values.add(form_decoded(value));
                values.is_unreadable |= value.contains(';');
            }
            Named::Perhaps => values.is_unreadable = true,
            Named::No => {}
        }
    };
    for pair in query.split('&') {
        add(pair);
        pair.split(';').skip(1).for_each(&mut add);
    }
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

/// All hosts that a request names, each in its one spelling: in its target, and in each line of `Host`. An application may
/// read any of them.
pub fn hosts<'a>(target: Option<&'a str>, lines: impl Iterator<Item = &'a [u8]>) -> Values<'a> {
    let mut values = Values::default();
    let lines = lines.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    for authority in target.map(str::as_bytes).into_iter().chain(lines) {
        let host = str::from_utf8(authority).ok().and_then(host_of);
        if host.is_none() {
            // Some read what comes before the first colon or comma, whatever follows.
            let end = authority.iter().position(|byte| b":,".contains(byte)).unwrap_or(0);
            let start = str::from_utf8(&authority[..end]).ok().and_then(host_of);
            values.readable.extend(start.filter(|start| !values.readable.contains(start)));
        }
        values.add(host);
    }
    values
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

    use http::HeaderValue;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let parsed = lines.iter().map(|&(name, value)| (name, HeaderValue::from_bytes(value).unwrap()));
        parsed.fold(HeaderMap::new(), |mut headers, (name, value)| {
            headers.append(name, value);
            headers
        })
    }

    fn told(values: &Values<'_>) -> String {
        let mut text: Vec<&str> = values.readable.iter().map(AsRef::as_ref).collect();
        text.extend(values.is_unreadable.then_some("?"));
        text.extend(values.is_repeated.then_some("twice"));
        text.extend(values.is_truncated.then_some("…"));
        text.join(" ")
    }

    #[test]
    fn all_lines_of_a_header_are_told() {
        let name = HeaderName::from_static("x-api-key");
        let key = |lines: &[&[u8]]| {
            let lines: Vec<_> = lines.iter().map(|line| ("x-api-key", *line)).collect();
            told(&header(&headers(&lines), &name))
        };
        assert_eq!(key(&[b" a-b\t", b"c"]), "a-b c twice");
        assert_eq!(key(&["clé".as_bytes()]), "clé");
        assert_eq!(key(&[b"\xff", b"c"]), "c ? twice");
        assert_eq!(key(&[b"a", b"a"]), "a twice");
        for nothing in [&b""[..], b" "] {
            assert_eq!(key(&[nothing]), "", "{nothing:?}");
        }
        for unreadable in [&b"a\tb"[..], b"\xff", "k".repeat(VALUE_MAX + 1).as_bytes()] {
            assert_eq!(key(&[unreadable]), "?", "{unreadable:?}");
        }
        assert_eq!(key(&[]), "");
    }

    #[test]
    fn all_cookies_of_a_name_are_told_each_once() {
        let cookie = |line: &[u8], name: &str| told(&cookie(&headers(&[("cookie", line)]), name));
        assert_eq!(cookie(b"a=1; sid=x=y ;sid=z; sid=z", "sid"), "x=y z ?");
        assert_eq!(cookie(b"sid=\"x\"", "sid"), "x");
        assert_eq!(cookie(b"\xff=1; sid=x", "sid"), "x");
        assert_eq!(cookie(b"sid=\xff; sid=REAL", "sid"), "REAL ?");
        assert_eq!(cookie(b"sid=\xff", "sid"), "?");
        for nothing in [&b"sidx=x"[..], b"xsid=x", b"sid", b"sid=", b"sid=\"\"", b"", b";;="] {
            assert_eq!(cookie(nothing, "sid"), "", "{nothing:?}");
        }
        let lines = headers(&[("cookie", b"a=1"), ("cookie", b"sid=x"), ("cookie", b"sid=y")]);
        assert_eq!(told(&super::cookie(&lines, "sid")), "x y", "the crumbs of HTTP/2 are one header");
        let many = "sid=1; sid=2; sid=3; sid=4; sid=5; sid=6; sid=7";
        assert_eq!(cookie(many.as_bytes(), "sid"), "1 2 3 4 5 …", "enough to see that there are too many");
        assert_eq!(cookie(b"sid=%61bc", "sid"), "abc");
        assert_eq!(cookie(b"sid=%ff; sid=%00", "sid"), "%ff %00");
        assert_eq!(cookie(br#"sid="\141b\c""#, "sid"), "abc");
        assert_eq!(cookie(b"x=1 sid=abc, sid=d", "sid"), "?");
        assert_eq!(cookie(b"sid=a b; x=1", "sid"), "a b ?");
        for (line, values) in [
            (&b"x=1 sid =REAL"[..], "?"),
            (b"x=1 sid= REAL", "?"),
            (b"x=1\tsid\t=\tREAL", "?"),
            (b"sid= REAL x=7", "REAL x=7 ?"),
            (b"[sid=REAL", "?"),
            (b"sid=REAL]7", "REAL]7 ?"),
            (b"sid=\"REAL7", "\"REAL7 ?"),
            (b"SID=REAL; sid=b", "REAL b"),
            (b"\xa0sid=REAL", "?"),
            (b"sid\xa0=REAL", "?"),
            (b"x\xffsid=REAL", "?"),
            (b"\"sid=REAL", "?"),
            (b"\xe3\x80\x80sid=REAL", "?"),
            (b"sid=REAL\xc2\xa0", "REAL\u{a0} ?"),
            (b"sid=j:\"REAL\"%20x", "j:\"REAL\" x ?"),
            (b"sid=signed=JN", "signed=JN ?"),
            (b"sid=YWJj==", "YWJj=="),
            (b"xsid=REAL; sidx=REAL; ga={\"sid\":\"REAL\"}", ""),
        ] {
            assert_eq!(cookie(line, "sid"), values, "{}", String::from_utf8_lossy(line));
        }
        assert_eq!(
            cookie(b"my.sid=a; my[sid=b; my_sid[0]=c; my_sid=d; my_sid[x]=e", "my_sid"),
            "a b d ?",
            "as PHP reads names"
        );
    }

    #[test]
    fn all_parameters_of_a_name_are_told_each_once() {
        let param = |query: &str| {
            let mut values = Values::default();
            param(query, "key", &mut values);
            told(&values)
        };
        for (query, value) in [
            ("key=a&key=b", "a b"),
            ("x=1&key=a=b", "a=b"),
            ("k%65y=a+b%2Bc%C3%A9", "a b+cé"),
            ("?=&&key=%26", "&"),
            ("%ff=1&key=a", "a"),
            ("key=&key=a", "a"),
            ("key=%ff&key=a", "a ?"),
            ("x=1;key=a", "a"),
            ("key=a;b", "a;b ?"),
        ] {
            assert_eq!(param(query), value, "{query}");
        }
        for nothing in ["", "key", "key=", "xkey=a", "keyx=a", "filter.key=a"] {
            assert_eq!(param(nothing), "", "{nothing}");
        }
        for unreadable in ["key=%ff", "key=+%ff", "key=%00", "key=a%0ab"] {
            assert_eq!(param(unreadable), "?", "{unreadable}");
        }
    }

    #[test]
    fn names_are_read_as_frameworks_read_them() {
        for query in ["api_key[]=R", "api_key%5B0%5D=R", "[api_key]=R", "%5Bapi_key%5Dx=R", "api_key%ff=R"] {
            let mut values = Values::default();
            param(query, "api_key", &mut values);
            assert_eq!(told(&values), "?", "{query}");
        }
        for query in [
            "Api_Key=R",
            "+api_key=R",
            "%20api_key=R",
            "api.key=R",
            "api%20key=R",
            "api[key=R",
            "api_key%00=R",
            "api_key%00x=R",
            "api_key%00%ff=R",
        ] {
            let mut values = Values::default();
            param(query, "api_key", &mut values);
            assert_eq!(told(&values), "R", "{query}");
        }
        for query in
            ["_method=PUT", ".method=PUT", "+_method=PUT", "%20.method=PUT", "_method%00=PUT", "_Method=put"]
        {
            let mut values = Values::default();
            method_param(query, &mut values);
            assert_eq!(told(&values), "PUT", "{query}");
        }
    }

    #[test]
    fn credentials_have_one_spelling() {
        let credentials = |line| {
            let mut values = Values::default();
            add_credentials(line, &mut values);
            told(&values)
        };
        for line in ["Basic YW5uYTpzM2NyZXQ=", "basic\tYW5u~YTpzM2NyZXQ", "BASIC YW5uYTpzM2NyZXR"] {
            assert_eq!(credentials(line), "basic YW5uYTpzM2NyZXQ", "{line}");
        }
        assert_eq!(
            credentials("Basic YW5uYTpzM2NyZXQ=AAAA"),
            "basic YW5uYTpzM2NyZXQ basic YW5uYTpzM2NyZXQAAAA"
        );
        for line in ["Bearer a.b.QQ", "bearer  a.b.QR", "BEARER a.b.Q~Q="] {
            assert_eq!(credentials(line), "bearer a.b.QQ", "{line}");
        }
        assert_eq!(credentials("key "), "key");
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
    fn every_host_that_is_named_counts() {
        let check = |target, lines: &[&'static str], expected: &[&str], is_unreadable| {
            let values = hosts(target, lines.iter().map(|line| line.as_bytes()));
            assert_eq!(
                (&values.readable[..], values.is_unreadable),
                (&expected.iter().map(|host| Cow::Borrowed(*host)).collect::<Vec<_>>()[..], is_unreadable)
            );
        };
        check(None, &["A.example:80", "a.example", "b.example"], &["a.example", "b.example"], false);
        check(Some("a.example"), &["b.example"], &["a.example", "b.example"], false);
        check(Some("a.example:443"), &["a.example"], &["a.example"], false);
        check(None, &["a b", ""], &[], true);
        check(None, &["A.example:x"], &["a.example"], true);
        check(None, &["a.example, y"], &["a.example"], true);
        check(None, &["", " "], &[], false);
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
            param(&query, &name, &mut Values::default());
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
