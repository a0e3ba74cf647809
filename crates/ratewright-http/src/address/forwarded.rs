//! The `Forwarded` header of RFC 7239, read from the right.
//!
//! ```text
//!   for=192.0.2.60;proto=http, For="[2001:db8::1]:4711";host="a, \"b\""
//!                              ◄────────────────────── one element ───
//! ```
//!
//! A quoted value may contain commas, semicolons and escaped quotes; `host` comes from the client. Read from the
//! right, the first quote of a pair is always the closing one, and the opening one is the next that no backslash
//! escapes. So an element from a proxy is read completely, even if the client put an unclosed quote to the left of it.

use std::net::IpAddr;

use super::forwarded_hop;

/// The hops of one line, the last first; `None` for an element without an address.
pub(super) fn from_the_right(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let comma = last(line, b',');
        rest = comma.map(|at| &line[..at]);
        Some(hop(comma.map_or(line, |at| &line[at + 1..])))
    })
}

/// The position of the last `wanted` outside quotes.
fn last(text: &[u8], wanted: u8) -> Option<usize> {
    let mut quoted = false;
    for at in (0..text.len()).rev() {
        match text[at] {
            b'"' if !quoted => quoted = true,
            b'"' => quoted = is_escaped(text, at),
            byte if byte == wanted && !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// True if an odd number of backslashes precedes `at`.
fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The address in an element's only `for`.
fn hop(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = Some(element);
    while let Some(text) = rest {
        let semicolon = last(text, b';');
        rest = semicolon.map(|at| &text[..at]);
        let (name, value) = split(semicolon.map_or(text, |at| &text[at + 1..]).trim_ascii())?;
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
    }
    forwarded_hop::parse(unquote(found?)?)
}

/// A parameter's name and value.
fn split(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = pair.iter().position(|&byte| byte == b'=')?;
    Some((&pair[..at], &pair[at + 1..]))
}

/// The value without its quotes. Addresses never need escapes, so none are undone.
fn unquote(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', inner @ .., b'"'] => Some(inner),
        _ if value.contains(&b'"') => None,
        _ => Some(value),
    }
}
