//! The parts of a request that a policy can count by: headers, cookies, query parameters, the host.
//!
//! What a request has twice, upstreams read differently: some the first, some the last. So all values are told, each once
//! ([`Values`]). A value that is there but cannot be read (bytes that are no text, or too many of them), or that parsers read differently,
//! is told too; an empty one is none. A policy says itself what happens to a request without its attribute (`missing`).

use std::borrow::Cow;

use http::request::Parts;
use http::{HeaderMap, HeaderName, header as field};
use percent_encoding::percent_decode_str;
use ratewright_core::Policies;
use smallvec::SmallVec;

mod cookie;
mod credentials;
mod name;
mod param;

pub use cookie::{cookie, cookie_in};
pub use credentials::{add_credentials, credentials_pattern};
pub use name::NameMatch;
pub use param::{method_param, methods, overriding_methods, param};

/// The longest value that is read, in bytes. A longer one cannot be read, unless it is the path.
pub const VALUE_MAX: usize = 4_096;

/// The most distinct values of one attribute that a request may send. Other spellings of a value come on top.
pub const SENT_MAX: u8 = 4;

/// The most values that count because some parsers might read them.
const CANDIDATES_MAX: u8 = 3;

/// The most values of one attribute, with all spellings and candidates. With the address beside them, a policy can still charge all.
const VALUES_MAX: usize = Policies::READINGS_MAX as usize - 1;

/// The values that a request has for one attribute.
#[derive(Debug, Default)]
pub struct Values<'a> {
    /// Those that can be read, each once, in their order.
    pub readable: SmallVec<[Cow<'a, str>; 1]>,
    /// True if there is one that cannot, or one that parsers read differently.
    pub is_unreadable: bool,
    /// True if there is more than one line of a header.
    pub is_repeated: bool,
    /// True if more values were sent, or have more spellings, than `readable` may have.
    pub is_truncated: bool,
    /// How many of the readable values were sent as they are.
    n_sent: u8,
    /// How many of them only some parsers read.
    n_candidates: u8,
}

impl<'a> Values<'a> {
    /// Adds a value as it was sent. An empty one is ignored.
    pub fn add(&mut self, value: Option<Cow<'a, str>>) {
        match value {
            Some(value) if value.is_empty() || self.readable.contains(&value) => {}
            Some(value) if is_readable(&value) => self.push_sent(value),
            Some(_) | None => self.is_unreadable = true,
        }
    }

    /// Adds another spelling of a value that was sent: an upstream may take both for one.
    fn add_spelling(&mut self, value: Cow<'a, str>) {
        if is_readable(&value) && !self.readable.contains(&value) {
            self.push(value);
        }
    }

    /// Adds a value that some parsers read where others read another, or none.
    pub fn add_candidate(&mut self, value: Option<Cow<'a, str>>) {
        self.is_unreadable = true;
        let value = value.filter(|value| is_readable(value) && !self.readable.contains(value));
        if let Some(value) = value.filter(|_| self.n_candidates < CANDIDATES_MAX) {
            self.n_candidates += 1;
            self.push(value);
        }
    }

    /// Adds a value from a caller that may speak for the client: any text without NUL.
    pub fn add_told(&mut self, value: &'a str) {
        match value {
            "" => {}
            _ if value.len() <= VALUE_MAX && !value.contains('\0') => {
                if !self.readable.iter().any(|known| known == value) {
                    self.push_sent(Cow::Borrowed(value));
                }
            }
            _ => self.is_unreadable = true,
        }
    }

    fn push_sent(&mut self, value: Cow<'a, str>) {
        if self.n_sent < SENT_MAX {
            self.n_sent += 1;
            self.push(value);
        } else {
            self.is_truncated = true;
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
        let bytes = bytes.trim_ascii();
        match str::from_utf8(bytes) {
            Ok(text) => self.add_with_trimmed(Cow::Borrowed(text)),
            Err(_) => self.add_lossy(bytes),
        }
    }

    /// Adds bytes that are not UTF-8. Some upstreams skip those that are not ASCII.
    fn add_lossy(&mut self, bytes: &[u8]) {
        let ascii: String = bytes.iter().copied().filter(u8::is_ascii).map(char::from).collect();
        self.add_candidate(Some(Cow::Owned(ascii.trim().to_owned())));
    }

    /// Adds a value that the application may trim.
    pub fn add_with_trimmed(&mut self, value: Cow<'a, str>) {
        let trimmed = value.trim();
        if trimmed.len() < value.len() {
            self.add_spelling(Cow::Owned(trimmed.to_owned()));
        }
        self.add(Some(value));
    }
}

fn is_readable(value: &str) -> bool {
    (1..=VALUE_MAX).contains(&value.len()) && !value.contains(char::is_control)
}

/// True if parsers differ in what they do with a byte in a value.
fn is_odd(byte: u8) -> bool {
    !byte.is_ascii_graphic() || b"\"'\\[]{}".contains(&byte)
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
        let Ok(authority) = str::from_utf8(authority) else {
            values.is_unreadable = true;
            continue;
        };
        let host = host_of(authority);
        if host.is_none() || authority.contains('@') {
            // Some read what comes before the first colon or comma, whatever follows; some the user for the host.
            let end = authority.find([':', ',', '@']).unwrap_or(0);
            values.add_candidate(host_of(authority.split_at(end).0));
        }
        if authority.contains('%') || !authority.is_ascii() {
            let decoded = percent_decode_str(authority).decode_utf8().unwrap_or_default();
            values.add_candidate(host_of(&decoded).map(|host| Cow::Owned(host.into_owned())));
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

/// The bytes as text, if they are some that can be seen.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes.trim_ascii()).ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests;
