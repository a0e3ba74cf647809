//! Renders the headers. All values of a response share one buffer.
//!
//! Rendering never loosens what the upstream has set: lists are appended to, and of two `X-RateLimit-` families the
//! tighter stays.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;

use super::{
    HeaderStyle, LIMIT, LimitMeaning, POLICY, RateLimitHeaders, ShownLimit, X_LIMIT, X_REMAINING, X_RESET,
};

/// The header values of a response while they are written.
struct HeaderValues {
    bytes: Vec<u8>,
    /// Which range is the value of which header.
    parts: SmallVec<[(HeaderName, Range<usize>); 6]>,
}

pub(super) fn render(rate_limit: &RateLimitHeaders<'_>, style: HeaderStyle, headers: &mut HeaderMap) {
    let mut values = HeaderValues::with_room_for(&rate_limit.shown);
    if style.x_ratelimit && !says_less(headers, rate_limit.tightest.remaining) {
        let tightest = &rate_limit.tightest;
        let limit = match style.limit {
            LimitMeaning::Capacity => tightest.capacity,
            LimitMeaning::Rate => tightest.units,
        };
        values.header(X_LIMIT, |bytes| number(bytes, limit.into()));
        values.header(X_REMAINING, |bytes| number(bytes, tightest.remaining.into()));
        values.header(X_RESET, |bytes| number(bytes, rate_limit.reset_at));
    }
    if style.ietf {
        values.list(POLICY, &rate_limit.shown, |bytes, shown| {
            parameter(bytes, b";q=", shown.capacity.into());
            parameter(bytes, b";w=", shown.refill_within);
        });
        values.list(LIMIT, &rate_limit.shown, |bytes, shown| {
            parameter(bytes, b";r=", shown.remaining.into());
            if let Some(seconds) = shown.more_after {
                parameter(bytes, b";t=", seconds);
            }
        });
    }
    if let Some(seconds) = rate_limit.retry_after
        && style.retry_after
    {
        values.header(header::RETRY_AFTER, |bytes| number(bytes, seconds.max(1)));
    }
    values.put_into(headers);
}

impl HeaderValues {
    fn with_room_for(shown: &[ShownLimit<'_>]) -> Self {
        let name = |shown: &ShownLimit<'_>| shown.policy.len() + shown.quota.map_or(0, str::len);
        let room: usize = shown.iter().map(|shown| 2 * (name(shown) + 32)).sum();
        Self { bytes: Vec::with_capacity(48 + room), parts: SmallVec::new() }
    }

    /// Writes one value.
    fn header(&mut self, name: HeaderName, value: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.bytes.len();
        value(&mut self.bytes);
        self.parts.push((name, begin..self.bytes.len()));
    }

    /// Writes a list with one item for each limit.
    fn list(
        &mut self,
        name: HeaderName,
        shown: &[ShownLimit<'_>],
        parameters: impl Fn(&mut Vec<u8>, &ShownLimit<'_>),
    ) {
        self.header(name, |bytes| {
            for (n, shown) in shown.iter().enumerate() {
                if n > 0 {
                    bytes.extend_from_slice(b", ");
                }
                item(bytes, shown);
                parameters(bytes, shown);
            }
        });
    }

    #[inline(always)]
    fn put_into(&mut self, headers: &mut HeaderMap) {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        headers.reserve(self.parts.len());
        for (name, part) in self.parts.drain(..) {
            // Names consist of a-z 0-9 . _ - only, so the value is always valid.
            let Ok(value) = HeaderValue::from_maybe_shared(bytes.slice(part)) else { continue };
            if name == POLICY || name == LIMIT {
                headers.append(name, value);
            } else {
                headers.insert(name, value);
            }
        }
    }
}

/// True if the response already says that less remains: the upstream has a tighter limit.
fn says_less(headers: &HeaderMap, remaining: u32) -> bool {
    // Most responses say nothing, and comparing all names is cheaper than a lookup.
    if !headers.keys().any(|name| *name == X_REMAINING) {
        return false;
    }
    let said = headers.get(X_REMAINING).and_then(|said| said.to_str().ok());
    said.and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|left| left < remaining.into())
}

/// A limit's name as a structured field string. No character in it needs an escape.
fn item(bytes: &mut Vec<u8>, shown: &ShownLimit<'_>) {
    bytes.push(b'"');
    bytes.extend_from_slice(shown.policy.as_bytes());
    if let Some(quota) = shown.quota {
        bytes.push(b'.');
        bytes.extend_from_slice(quota.as_bytes());
    }
    bytes.push(b'"');
}

fn parameter(bytes: &mut Vec<u8>, name: &[u8; 3], value: u64) {
    bytes.extend_from_slice(name);
    number(bytes, value);
}

fn number(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
