//! The cookies of a request.

use std::borrow::Cow;

use http::{HeaderMap, header as field};
use percent_encoding::percent_decode;

use super::name::{NameMatch, unicode_decoded};
use super::{Values, is_odd};
use crate::lenient_base64;

/// The length of the shortest session id.
const SESSION_MIN: usize = 16;

/// The length of the shortest signature, HMAC-SHA1, in base64.
const SIGNATURE_MIN: usize = 27;

/// The values of all cookies of this name, without quotes around them.
pub fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Values<'a> {
    let mut values = Values::default();
    for line in headers.get_all(field::COOKIE) {
        cookie_in(line.as_bytes(), name, &mut values);
    }
    values
}

/// Adds the values of all cookies of this name in one `Cookie` header. Many upstreams percent-decode values, and some remove
/// backslashes within quotes, so both are done here too: one session has one bucket.
///
/// Parsers differ: some find names anywhere in the line, drop blanks of many kinds, or end a value at a blank, a comma, a
/// quote or a bracket. A value that only some of them read is a candidate.
pub fn cookie_in<'a>(line: &'a [u8], name: &str, values: &mut Values<'a>) {
    for pair in line.split(|&byte| byte == b';') {
        let Some(at) = pair.iter().position(|&byte| byte == b'=') else { continue };
        let (found, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        match NameMatch::of_cookie(found, name) {
            NameMatch::Same => add(value, values),
            NameMatch::Ambiguous => values.add_candidate(plain(cut(value))),
            NameMatch::Different => add_hidden(value, name, values),
        }
    }
}

/// Adds cookies of this name that some parsers find in the value of another cookie: `1 sid =a`.
fn add_hidden<'a>(value: &'a [u8], name: &str, values: &mut Values<'a>) {
    let mut texts = value.split(|&byte| byte == b'=').peekable();
    while let Some(text) = texts.next() {
        if let Some(next) = texts.peek()
            && NameMatch::of(text, name) != NameMatch::Different
        {
            values.add_candidate(plain(cut(next.trim_ascii())));
        }
    }
}

fn add<'a>(value: &'a [u8], values: &mut Values<'a>) {
    let is_quoted = value.len() > 1 && value.starts_with(b"\"") && value.ends_with(b"\"");
    let written = if is_quoted { &value[1..value.len() - 1] } else { value };
    let text = if is_quoted && written.contains(&b'\\') {
        decoded(&unescaped(written)).map(Cow::Owned)
    } else {
        let start = cut(written);
        if start.len() < written.len() {
            values.add_candidate(plain(start));
        }
        plain(written)
    };
    if let Some(decoded) = unicode_decoded(written) {
        values.add_candidate(Some(Cow::Owned(decoded)));
    }
    let Some(text) = text else { return values.add_lossy(written) };
    // ASP.NET Core reads the value of `chunks-2` from other cookies.
    let is_in_chunks = text.starts_with("chunks-") || text.starts_with("chunks:");
    values.is_unreadable |= text.contains(char::is_whitespace) || !is_text(written) || is_in_chunks;
    let session = without_node(&text).map(str::to_owned);
    // PHP reads `+` as a blank, and applications trim blanks. Base64 decoders ignore padding.
    let trimmed = text.trim_matches(|c: char| c == '+' || c.is_whitespace());
    let unpadded = trimmed.trim_end_matches('=');
    let other = with_canonical_signature(trimmed)
        .or_else(|| (unpadded.len() < text.len()).then(|| unpadded.to_owned()));
    values.add(Some(text));
    if let Some(other) = other {
        values.add_spelling(Cow::Owned(other));
    }
    if let Some(session) = session {
        values.add_spelling(Cow::Owned(session));
    }
}

/// A session id without the node that some upstreams append and then ignore: `ID.node0` (Jetty), `ID!node` (WebLogic),
/// `ID:clone` (WebSphere). Shorter texts before the separator are not session ids.
fn without_node(value: &str) -> Option<&str> {
    let end = value.find(['.', '!', ':']).filter(|end| *end >= SESSION_MIN)?;
    let (session, rest) = value.split_at(end);
    let is_plain = session.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let has_one_dot = !rest.starts_with('.') || !rest.trim_start_matches('.').contains('.');
    (is_plain && has_one_dot).then_some(session)
}

/// The value up to where some parsers end it. Base64 padding is valid only at the end; some decoders ignore the rest.
fn cut(value: &[u8]) -> &[u8] {
    let ends = |byte: &u8| is_odd(*byte) || b",&".contains(byte);
    let value = &value[..value.iter().position(ends).unwrap_or(value.len())];
    let n_letters = value.iter().position(|byte| *byte == b'=').unwrap_or(value.len());
    let n_padding = value[n_letters..].iter().take_while(|byte| **byte == b'=').count();
    if n_letters + n_padding == value.len() { value } else { &value[..n_letters] }
}

/// The canonical spelling of a signed or encrypted value (`eyJ1c2VyIjo….ZnR1cw.c2lnbmF0dXJl`), if it differs. Decoders accept
/// either alphabet, skip bytes of neither, and ignore unused bits. A text with letters of one case only is not a signature.
fn with_canonical_signature(value: &str) -> Option<String> {
    let (message, signature) = value.split_at(value.rfind(['.', ':']).map_or(0, |at| at + 1));
    if signature.len() < SIGNATURE_MIN {
        return None; // the usual case
    }
    let canonical = lenient_base64::canonical(signature);
    let is_signature = canonical.len() >= SIGNATURE_MIN
        && canonical.bytes().any(|byte| byte.is_ascii_uppercase())
        && canonical.bytes().any(|byte| byte.is_ascii_lowercase());
    (is_signature && canonical != signature).then(|| format!("{message}{canonical}"))
}

/// True if a value decodes to text without control characters.
fn is_text(bytes: &[u8]) -> bool {
    percent_decode(bytes).decode_utf8().is_ok_and(|text| !text.contains(char::is_control))
}

/// A cookie's value, decoded.
fn plain(bytes: &[u8]) -> Option<Cow<'_, str>> {
    if bytes.contains(&b'%') {
        decoded(bytes).map(Cow::Owned)
    } else {
        str::from_utf8(bytes).ok().map(Cow::Borrowed)
    }
}

/// The percent-decoded text, or the bytes as they are if they do not decode to text.
fn decoded(bytes: &[u8]) -> Option<String> {
    let decoded = percent_decode(bytes).decode_utf8().ok();
    let decoded = decoded.filter(|text| !text.contains(char::is_control));
    decoded.map(Cow::into_owned).or_else(|| String::from_utf8(bytes.to_vec()).ok())
}

/// A quoted text without backslashes: three octal digits are a byte, any other character stands for itself.
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
