//! Names of cookies and query parameters, as upstreams read them.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::is_odd;

/// Whether a cookie or parameter has the name that a policy counts by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameMatch {
    /// It has, at least to upstreams that ignore case (ASP.NET), or to PHP, which drops blanks before a name, ends it at a
    /// NUL and reads `.`, blanks and `[` as `_`.
    Same,
    /// Only some upstreams read it as this name: `a[]`, `[a]`, `a]`, or a name among bytes that they skip.
    Ambiguous,
    /// It has another name.
    Different,
}

impl NameMatch {
    /// Compares `found` with `name`.
    pub fn of(found: &[u8], name: &str) -> Self {
        let fold = |byte: u8| if b". [".contains(&byte) { b'_' } else { byte.to_ascii_lowercase() };
        let is_same = |found: &[u8]| {
            found.len() == name.len() && found.iter().zip(name.bytes()).all(|(a, b)| fold(*a) == fold(b))
        };
        let blanks = found.iter().take_while(|byte| **byte == b' ').count();
        let end = found.iter().position(|byte| *byte == 0).unwrap_or(found.len()).max(blanks);
        if is_same(found) || is_same(&found[blanks..end]) {
            return Self::Same;
        }
        // An array's name is before a bracket, or in the first pair of brackets.
        let array = &found[blanks..];
        let is_before = |(at, byte): (usize, &u8)| *byte == b'[' && is_same(&array[..at]);
        let inner = array.strip_prefix(b"[").and_then(|inner| inner.split(|byte| *byte == b']').next());
        // Rack 2 drops brackets in front of a name, and reads up to the next one.
        let is_bracket = |byte: &u8| b"[]".contains(byte);
        let start = array.iter().position(|byte| !is_bracket(byte)).unwrap_or(array.len());
        let bare = array[start..].split(is_bracket).next().filter(|bare| bare.len() < array.len());
        let separates = |byte: &u8| is_odd(*byte) && !b"[]".contains(byte) || b",&".contains(byte);
        let is_ambiguous = array.iter().enumerate().any(is_before)
            || inner.is_some_and(is_same)
            || bare.is_some_and(is_same)
            || found.iter().any(separates) && found.split(separates).any(is_same);
        if is_ambiguous { Self::Ambiguous } else { Self::Different }
    }

    /// Compares a cookie's name. Some upstreams decode names, most do not.
    pub fn of_cookie(found: &[u8], name: &str) -> Self {
        let written = Self::of(found, name);
        if written != Self::Different || !found.contains(&b'%') {
            return written;
        }
        let decoded = Self::of_encoded(found, name);
        if decoded == Self::Different { decoded } else { Self::Ambiguous }
    }

    /// Compares a parameter's name, in which blanks may be written as `+`.
    pub(super) fn of_param(written: &str, name: &str) -> Self {
        if written == name {
            return Self::Same; // the usual case
        }
        if written.contains('+') {
            return Self::of_encoded(written.replace('+', " ").as_bytes(), name);
        }
        Self::of_encoded(written.as_bytes(), name)
    }

    /// Compares a percent-encoded name. Only ASP.NET and CGI.pm decode `%u0061`.
    fn of_encoded(found: &[u8], name: &str) -> Self {
        let decoded = Self::of(&Cow::from(percent_decode(found)), name);
        let is_other = |text: String| Self::of(text.as_bytes(), name) == Self::Different;
        if decoded != Self::Different || unicode_decoded(found).is_none_or(is_other) {
            return decoded;
        }
        Self::Ambiguous
    }
}

/// A text with `%uXXXX` decoded, and then percent-decoded; `None` if it contains no `%uXXXX`.
pub(super) fn unicode_decoded(text: &[u8]) -> Option<String> {
    if !text.windows(2).any(|pair| matches!(pair, b"%u" | b"%U")) {
        return None; // the usual case
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut is_decoded = false;
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let digits = match after {
            [b'u' | b'U', digits @ ..] if *first == b'%' => digits.first_chunk::<4>(),
            _ => None,
        };
        let number = digits.and_then(|digits| u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        if let Some(number) = number.filter(|_| digits.is_some_and(|digits| digits[0] != b'+')) {
            let char = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
            decoded.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            (is_decoded, rest) = (true, &after[5..]);
        } else {
            decoded.push(*first);
        }
    }
    is_decoded.then(|| percent_decode(&decoded).decode_utf8_lossy().into_owned())
}
