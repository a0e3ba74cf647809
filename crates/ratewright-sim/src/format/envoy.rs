//! Envoy's default text format, and Istio's.
//!
//! ```text
//!   [time] "METHOD PATH PROTOCOL" status flags received sent duration upstream-time
//!       "x-forwarded-for" "user-agent" "request-id" "authority" "upstream"
//! ```
//!
//! Istio adds three texts after the flags (one of them in quotes), and six words at the end; the fourth of these is the
//! address of the client.
//!
//! Envoy does not escape quotes. Of the quoted texts only the user agent is usually free text, so the texts after it
//! are counted from the end.

use std::borrow::Cow;

use ratewright_core::query::AttributeName;

use super::request_line::RequestLine;
use super::text::Quoted;
use super::{Line, LineError, address, status, time};
use crate::record::Record;

const TEXTS_MISSING: LineError = LineError("quoted fields are missing after the duration");

#[inline(never)]
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, LineError> {
    let rest = line.strip_prefix(b"[").ok_or(LineError("no time in brackets at the start"))?;
    let (time, rest) = split(rest, b"] \"").ok_or(LineError("no request in quotes after the time"))?;
    let time = time::parse(time)?;
    let (request, rest) = split(rest, b"\" ").ok_or(LineError("request has no closing quote"))?;
    let (code, rest) = split(rest, b" ").ok_or(LineError("no status after the request"))?;
    let status = status(code)?;
    let (_flags, rest) = split(rest, b" ").ok_or(LineError("no flags after the status"))?;
    let (received, rest) = split_at_received(rest).ok_or(LineError("no received bytes after the flags"))?;
    let texts = Texts::read(rest).ok_or(TEXTS_MISSING)?;
    let Some(request) = RequestLine::read(Quoted { bytes: request, has_escape: false }) else {
        return Ok(Line::NotRequest);
    };
    let mut record = Record {
        at: time.at,
        is_whole_second: time.is_whole_second,
        address: texts.client.and_then(address::parse_with_port),
        forwarded_for: present(texts.forwarded_for),
        method: request.method,
        target: request.target.path,
        host: request.target.host.or_else(|| present(texts.authority)),
        status,
        request_bytes: Some(received),
        ..Record::default()
    };
    if let Some(agent) = present(texts.user_agent) {
        record.attributes.push((AttributeName::Header(Cow::Borrowed("user-agent")), agent));
    }
    Ok(Line::Request(record))
}

/// The quoted fields, and Istio's address of the client after them.
struct Texts<'a> {
    forwarded_for: &'a [u8],
    user_agent: &'a [u8],
    authority: &'a [u8],
    client: Option<&'a [u8]>,
}

impl<'a> Texts<'a> {
    /// Reads the rest of a line from the first quoted field.
    fn read(text: &'a [u8]) -> Option<Self> {
        let (_numbers, text) = split(text, b" \"")?;
        let end = memchr::memrchr(b'"', text)?;
        let (quoted, after) = text.split_at_checked(end)?;
        let client = after.split(|byte| *byte == b' ').nth(4);
        let (forwarded_for, rest) = split(quoted, b"\" \"")?;
        let (rest, _upstream) = split_last(rest, b"\" \"")?;
        let (rest, authority) = split_last(rest, b"\" \"")?;
        let (user_agent, _id) = split_last(rest, b"\" \"")?;
        Some(Self { forwarded_for, user_agent, authority, client })
    }
}

/// Reads the received bytes: the first number after the flags. Istio has three texts before it.
fn split_at_received(text: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = split(text, b" ")?;
    if let Some(received) = number(word) {
        return Some((received, rest));
    }
    let (_termination, rest) = split(rest, b" \"")?;
    let (_failure, rest) = split(rest, b"\" ")?;
    let (word, rest) = split(rest, b" ")?;
    Some((number(word)?, rest))
}

fn number(word: &[u8]) -> Option<u64> {
    str::from_utf8(word).ok()?.parse().ok()
}

/// A text, unless it is empty or `-`.
fn present(bytes: &[u8]) -> Option<Cow<'_, str>> {
    Quoted { bytes, has_escape: false }.text()
}

fn split<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, separator)?;
    Some((text.get(..at)?, text.get(at + separator.len()..)?))
}

fn split_last<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::rfind(text, separator)?;
    Some((text.get(..at)?, text.get(at + separator.len()..)?))
}
