//! `combined` and `common`, the formats of nginx and Apache.
//!
//! ```text
//!   203.0.113.7 - anna [18/Nov/2026:08:24:06 +0000] "GET /a?b=1 HTTP/1.1" 200 512 "https://example.com/" "curl/8.5.0"
//!   address │ user     date                          request              status │ referer               user agent
//!           ident                                                               size
//! ```
//!
//! The user is chosen by the client and may contain spaces and brackets, but no unescaped quote. So the date is not
//! searched from the left: it is the text in brackets before the first quote. Apache's `vhost_combined` has the host and
//! the port before the address.
//!
//! Apache logs the time of arrival, nginx the time of the response. The line does not tell which.

use std::borrow::Cow;

use ratewright_core::query::AttributeName;

use super::request_line::RequestLine;
use super::text::{Quoted, plain};
use super::time::{self, ClfDates, LogTime};
use super::{Line, LineError, address, status};
use crate::record::Record;

/// Parses lines of `combined` and `common`.
#[derive(Clone, Debug, Default)]
pub(super) struct CombinedParser {
    dates: ClfDates,
}

impl CombinedParser {
    pub(super) fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Line<'a>, LineError> {
        let (head, rest) = split_at_request(line).ok_or(NO_DATE)?;
        let (client, time) = self.date(head)?;
        let (request, rest) = Quoted::split(rest).ok_or(LineError("request has no closing quote"))?;
        let (status, rest) = status_and_size(rest)?;
        let mut record =
            Record { at: time.at, is_whole_second: time.is_whole_second, status, ..Record::default() };
        read_client(client, &mut record)?;
        let mut rest = rest;
        for name in ["referer", "user-agent"] {
            let Some(after) = rest.strip_prefix(b" \"") else { break };
            let (value, after) = Quoted::split(after).ok_or(LineError("header has no closing quote"))?;
            if let Some(value) = value.text() {
                record.attributes.push((AttributeName::Header(Cow::Borrowed(name)), value));
            }
            rest = after;
        }
        let Some(request) = RequestLine::read(request) else { return Ok(Line::NotRequest) };
        record.method = request.method;
        record.target = request.target.path;
        record.host = request.target.host.or(record.host);
        Ok(Line::Request(record))
    }

    /// Splits `ADDRESS IDENT USER [DATE] ` before the date, and reads the date.
    #[inline]
    fn date<'a>(&mut self, head: &'a [u8]) -> Result<(&'a [u8], LogTime), LineError> {
        let head = head.strip_suffix(b"] ").ok_or(NO_DATE)?;
        if let Some((client, date)) = head.split_last_chunk::<26>()
            && let Some(client) = client.strip_suffix(b" [")
        {
            return Ok((client, self.dates.parse(date)?));
        }
        let at = memchr::memrchr(b'[', head).ok_or(NO_DATE)?;
        let (client, date) = head.split_at_checked(at).ok_or(NO_DATE)?;
        let client = client.strip_suffix(b" ").ok_or(NO_DATE)?;
        Ok((client, time::parse(date.strip_prefix(b"[").unwrap_or(date))?))
    }
}

const NO_DATE: LineError = LineError("no date in brackets after the client");
const NO_CLIENT: LineError = LineError("no client, identity and user before the date");

/// Splits a line at the quote that opens the request: the first one after a closing bracket.
#[inline]
fn split_at_request(line: &[u8]) -> Option<(&[u8], &[u8])> {
    memchr::memchr_iter(b'"', line).find_map(|at| {
        let (head, rest) = line.split_at_checked(at)?;
        head.ends_with(b"] ").then_some((head, rest.strip_prefix(b"\"")?))
    })
}

/// Reads ` STATUS SIZE`, and returns the rest.
#[inline]
fn status_and_size(text: &[u8]) -> Result<(Option<u16>, &[u8]), LineError> {
    let text = text.strip_prefix(b" ").ok_or(LineError("no status after the request"))?;
    let end = memchr::memchr(b' ', text).ok_or(LineError("no size after the status"))?;
    let (digits, rest) = text.split_at_checked(end).unwrap_or((text, b""));
    let status = status(digits)?;
    let size = rest.strip_prefix(b" ").unwrap_or(rest);
    let end = memchr::memchr(b' ', size).unwrap_or(size.len());
    let (size, rest) = size.split_at_checked(end).unwrap_or((size, b""));
    let is_size = size == b"-" || (!size.is_empty() && size.iter().all(u8::is_ascii_digit));
    if is_size { Ok((status, rest)) } else { Err(LineError("size after the status is not a number")) }
}

/// Reads `ADDRESS IDENT USER`, or the same after a host.
#[inline]
fn read_client<'a>(text: &'a [u8], record: &mut Record<'a>) -> Result<(), LineError> {
    let (first, rest) = split_word(text).ok_or(NO_CLIENT)?;
    let (second, rest) = split_word(rest).ok_or(NO_CLIENT)?;
    record.address = address::parse(first);
    let mut user = rest;
    if record.address.is_none()
        && second != b"-"
        && let Some(address) = address::parse(second)
        && let Some((_ident, rest)) = split_word(rest)
    {
        (record.address, record.host, user) = (Some(address), Some(plain(first)), rest);
    }
    record.user = match user {
        b"" | b"-" | b"\"\"" => None,
        user if user.contains(&b'\\') => Quoted { bytes: user, has_escape: true }.text(),
        user => Some(plain(user)),
    };
    Ok(())
}

#[inline]
fn split_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (word, rest) = text.split_at_checked(memchr::memchr(b' ', text)?)?;
    Some((word, rest.strip_prefix(b" ")?))
}
