//! The access log of an AWS Application Load Balancer: words, and quoted fields.
//!
//! ```text
//!    0 type    1 time     2 balancer   3 client:port   4 target:port   5-7 durations   8 status   9 target's status
//!   10 received   11 sent   12 "request"   13 "user agent"   14-20 …   21 time of arrival   22 …
//! ```
//!
//! The received bytes include the headers, so they are not the size of the body. Old logs end after the user agent;
//! their only time is that of the response.

use std::borrow::Cow;

use ratewright_core::query::AttributeName;

use super::request_line::RequestLine;
use super::text::Quoted;
use super::{Line, LineError, address, status, time};
use crate::record::Record;

/// The number of words that are read.
const WORDS_MAX: usize = 22;

const TOO_SHORT: LineError = LineError("line ends before the request and the user agent");

#[inline(never)]
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, LineError> {
    let mut words = Words { rest: Some(line) };
    let mut found = [Quoted { bytes: b"", has_escape: false }; WORDS_MAX];
    let mut n_found = 0;
    for slot in &mut found {
        let Some(word) = words.next_word()? else { break };
        *slot = word;
        n_found += 1;
    }
    let [_, responded_at, _, client, _, _, _, _, code, _, _, _, request, user_agent, .., arrived_at] = found;
    if n_found < 14 {
        return Err(TOO_SHORT);
    }
    let is_known = |time: &Quoted<'_>| !matches!(time.bytes, b"" | b"-");
    let time = if is_known(&arrived_at) { arrived_at } else { responded_at };
    let time = time::parse(time.bytes)?;
    let status = status(code.bytes)?;
    let Some(request) = RequestLine::read(request) else { return Ok(Line::NotRequest) };
    let mut record = Record {
        at: time.at,
        is_whole_second: time.is_whole_second,
        address: address::parse_before_port(client.bytes),
        method: request.method,
        target: request.target.path,
        host: request.target.host,
        status,
        ..Record::default()
    };
    if let Some(agent) = user_agent.text() {
        record.attributes.push((AttributeName::Header(Cow::Borrowed("user-agent")), agent));
    }
    Ok(Line::Request(record))
}

/// The words of a line that are not read yet; `None` at its end.
struct Words<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Words<'a> {
    fn next_word(&mut self) -> Result<Option<Quoted<'a>>, LineError> {
        let Some(text) = self.rest else { return Ok(None) };
        let (word, after) = if let [b'"', inside @ ..] = text {
            Quoted::split(inside).ok_or(LineError("quoted field has no closing quote"))?
        } else {
            let end = memchr::memchr(b' ', text).unwrap_or(text.len());
            let (bytes, after) = text.split_at(end);
            (Quoted { bytes, has_escape: false }, after)
        };
        self.rest = match after {
            [] => None,
            [b' ', rest @ ..] => Some(rest),
            _ => return Err(LineError("no space after a quoted field")),
        };
        Ok(Some(word))
    }
}
