//! `combined` and `common`, the formats of nginx and Apache.
//!
//! ```text
//!   203.0.113.7 - anna [18/Nov/2026:08:24:06 +0000] "GET /a?b=1 HTTP/1.1" 200 512 "https://example.com/" "curl/8.5.0"
//!   address │ user     date                          request              status │ referer               user agent
//!           ident                                                               size
//! ```
//!
//! The user is chosen by the client and may contain spaces and brackets, but no unescaped quote. So the date is not
//! searched from the left: it ends at the first `] "`. Apache's `vhost_combined` has the host
//! and the port before the address.
//!
//! Apache logs the time of arrival, nginx the time of the response. The line does not tell which.

use std::borrow::Cow;
use std::net::IpAddr;

use ratewright_core::query::AttributeName;

use super::request_line::RequestLine;
use super::text::{Quoted, plain};
use super::time::{self, ClfDates, LogTime};
use super::{Line, LineError, address, status};
use crate::record::{Attributes, Record};

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
        let client = ClientFields::read(client).ok_or(NO_CLIENT)?;
        let (referer, rest) = header(rest)?;
        let (user_agent, _) = header(rest)?;
        let Some(request) = RequestLine::read(request) else { return Ok(Line::NotRequest) };
        if request.is_irregular && status == Some(400) {
            return Ok(Line::NotRequest);
        }
        let attributes = match (referer.text(), user_agent.text()) {
            (Some(referer), Some(user_agent)) => {
                Attributes::from_buf([(REFERER, referer), (USER_AGENT, user_agent)])
            }
            (Some(referer), None) => Attributes::from_iter([(REFERER, referer)]),
            (None, Some(user_agent)) => Attributes::from_iter([(USER_AGENT, user_agent)]),
            (None, None) => Attributes::new(),
        };
        Ok(Line::Request(Record {
            at: time.at,
            is_whole_second: time.is_whole_second,
            address: client.address,
            forwarded_for: None,
            method: request.method,
            target: request.target.path,
            host: request.target.host.or_else(|| client.host.map(plain)),
            user: client.user(),
            route: None,
            status,
            request_bytes: None,
            attributes,
            decision: None,
        }))
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

const REFERER: AttributeName<Cow<'static, str>> = AttributeName::Header(Cow::Borrowed("referer"));
const USER_AGENT: AttributeName<Cow<'static, str>> = AttributeName::Header(Cow::Borrowed("user-agent"));

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
    let (digits, size) = split_word(text).ok_or(LineError("no size after the status"))?;
    let status = status(digits)?;
    let end = size.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(size.len());
    match size.split_at(end) {
        ([], [b'-', rest @ ..]) => Ok((status, rest)),
        ([_, ..], rest @ ([] | [b' ', ..])) => Ok((status, rest)),
        _ => Err(LineError("size after the status is not a number")),
    }
}

/// Reads a header in quotes. It is empty if the line has none.
#[inline]
fn header(text: &[u8]) -> Result<(Quoted<'_>, &[u8]), LineError> {
    match text.strip_prefix(b" \"") {
        Some(inside) => Quoted::split(inside).ok_or(LineError("header has no closing quote")),
        None => Ok((Quoted { bytes: b"", has_escape: false }, b"")),
    }
}

/// What is before the date.
struct ClientFields<'a> {
    host: Option<&'a [u8]>,
    address: Option<IpAddr>,
    user: &'a [u8],
}

impl<'a> ClientFields<'a> {
    /// Reads `ADDRESS IDENT USER`, or the same after a host.
    #[inline]
    fn read(text: &'a [u8]) -> Option<Self> {
        let (first, rest) = split_word(text)?;
        let (second, user) = split_word(rest)?;
        let address = address::parse(first);
        if address.is_none()
            && second != b"-"
            && let Some(address) = address::parse(second)
            && let Some((_ident, user)) = split_word(user)
        {
            return Some(Self { host: Some(first), address: Some(address), user });
        }
        Some(Self { host: None, address, user })
    }

    #[inline(always)]
    fn user(&self) -> Option<Cow<'a, str>> {
        match self.user {
            b"" | b"-" | b"\"\"" => None,
            bytes => Quoted { bytes, has_escape: bytes.contains(&b'\\') }.text(),
        }
    }
}

#[inline]
fn split_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    // Words are short: a loop finds the space before memchr has begun.
    let (word, rest) = text.split_at_checked(text.iter().position(|byte| *byte == b' ')?)?;
    Some((word, rest.strip_prefix(b" ")?))
}
