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

/// Adds the methods that lines of a header name, in capitals. Each method of a list counts, without the other bytes that upstreams trim.
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

/// The percent-decoded text, or the bytes as they are if they do not decode to text.
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
mod tests;
