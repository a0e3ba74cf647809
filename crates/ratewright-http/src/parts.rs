//! The parts of a request that a policy can count by: headers, cookies, query parameters, the host.
//!
//! Of a repeated value, some upstreams read the first and some the last. So all distinct values are collected
//! ([`Values`]). A value that is unreadable (not text, or too long), or that parsers read differently, counts as
//! unreadable; an empty one is ignored. The policy decides what happens to a request without its attribute
//! (`missing`).

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

/// The longest value that is read, in bytes. A longer one is unreadable, unless it is the path.
pub const VALUE_MAX: usize = 4_096;

/// The most distinct values of one attribute that a request may send. Other spellings of a value are not counted.
pub const SENT_MAX: u8 = 4;

/// The most candidates: values that only some parsers read.
const CANDIDATES_MAX: u8 = 3;

/// The most values of one attribute, with all spellings and candidates. One less than a policy can charge, because the
/// address may be charged too.
const VALUES_MAX: usize = Policies::READINGS_MAX as usize - 1;

/// The values that a request has for one attribute.
#[derive(Debug, Default)]
pub struct Values<'a> {
    /// The distinct readable values, in their order.
    pub readable: SmallVec<[Cow<'a, str>; 1]>,
    /// True if a value is unreadable, or parsers read it differently.
    pub is_unreadable: bool,
    /// True if the header has more than one line.
    pub is_repeated: bool,
    /// True if `readable` has no room for all values and spellings.
    pub is_truncated: bool,
    /// How many readable values were sent in this spelling.
    n_sent: u8,
    /// How many readable values are candidates.
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

    /// Adds another spelling of a sent value: an upstream may treat both as one.
    fn add_spelling(&mut self, value: Cow<'a, str>) {
        if is_readable(&value) && !self.readable.contains(&value) {
            self.push(value);
        }
    }

    /// Adds a value that only some parsers read.
    pub fn add_candidate(&mut self, value: Option<Cow<'a, str>>) {
        self.is_unreadable = true;
        let value = value.filter(|value| is_readable(value) && !self.readable.contains(value));
        if let Some(value) = value.filter(|_| self.n_candidates < CANDIDATES_MAX) {
            self.n_candidates += 1;
            self.push(value);
        }
    }

    /// Adds a value from a trusted caller: any text without NUL.
    pub fn add_trusted(&mut self, value: &'a str) {
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

    /// Adds bytes that are not UTF-8. Some upstreams skip bytes that are not ASCII.
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

/// True if parsers treat a byte in a value differently.
fn is_odd(byte: u8) -> bool {
    !byte.is_ascii_graphic() || b"\"'\\[]{}".contains(&byte)
}

/// The lines of a header, trimmed.
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

/// The host of a request: in lower case, without port, user and trailing dot.
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

/// All hosts that a request names, normalised: in its target, and in each line of `Host`. An application may read any of
/// them.
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
            // Some upstreams read only up to the first colon or comma; some read the user as the host.
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
    // Most hosts are a plain name or address, with or without a port.
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let bytes = authority.as_bytes();
    let end = bytes.iter().position(|byte| !is_plain(*byte)).unwrap_or(bytes.len());
    let is_port =
        matches!(bytes[end..], [] | [b':', ..]) && bytes[end..].iter().skip(1).all(u8::is_ascii_digit);
    if end > 0 && is_port && bytes[end - 1] != b'.' {
        return Some(Cow::Borrowed(authority.split_at(end).0));
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, port) = host.split_at(end);
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

/// The bytes as trimmed text; `None` if they are empty, not UTF-8, or contain control characters.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes.trim_ascii()).ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests;
