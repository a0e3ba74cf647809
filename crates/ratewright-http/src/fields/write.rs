//! The fields as bytes. All values of an answer are written into one text, and each is a part of it. What an answer says already
//! is never loosened: lists are added to, and of two `X-RateLimit-` families the tighter stays.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;

use super::{FieldStyle, Fields, LIMIT, LimitMeaning, POLICY, Shown, X_LIMIT, X_REMAINING, X_RESET};

/// The values of an answer while they are written.
struct Text {
    bytes: Vec<u8>,
    /// Which part is the value of which field.
    parts: SmallVec<[(HeaderName, Range<usize>); 6]>,
}

pub(super) fn render(fields: &Fields<'_>, style: FieldStyle, headers: &mut HeaderMap) {
    let mut text = Text::with_room_for(&fields.shown);
    if style.x_ratelimit && !says_less(headers, fields.tightest.remaining) {
        let tightest = &fields.tightest;
        let limit = match style.limit {
            LimitMeaning::Capacity => tightest.capacity,
            LimitMeaning::Rate => tightest.units,
        };
        text.field(X_LIMIT, |bytes| number(bytes, limit.into()));
        text.field(X_REMAINING, |bytes| number(bytes, tightest.remaining.into()));
        text.field(X_RESET, |bytes| number(bytes, fields.reset_at));
    }
    if style.ietf {
        text.list(POLICY, &fields.shown, |bytes, shown| {
            parameter(bytes, b";q=", shown.capacity.into());
            parameter(bytes, b";w=", shown.refill_within);
        });
        text.list(LIMIT, &fields.shown, |bytes, shown| {
            parameter(bytes, b";r=", shown.remaining.into());
            if let Some(seconds) = shown.more_after {
                parameter(bytes, b";t=", seconds);
            }
        });
    }
    if let Some(seconds) = fields.retry_after
        && style.retry_after
    {
        text.field(header::RETRY_AFTER, |bytes| number(bytes, seconds.max(1)));
    }
    text.put_into(headers);
}

impl Text {
    fn with_room_for(shown: &[Shown<'_>]) -> Self {
        let name = |shown: &Shown<'_>| shown.policy.len() + shown.quota.map_or(0, str::len);
        let room: usize = shown.iter().map(|shown| 2 * (name(shown) + 32)).sum();
        Self { bytes: Vec::with_capacity(48 + room), parts: SmallVec::new() }
    }

    /// Writes one value.
    fn field(&mut self, name: HeaderName, value: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.bytes.len();
        value(&mut self.bytes);
        self.parts.push((name, begin..self.bytes.len()));
    }

    /// Writes a list with one item for each limit.
    fn list(&mut self, name: HeaderName, shown: &[Shown<'_>], parameters: impl Fn(&mut Vec<u8>, &Shown<'_>)) {
        self.field(name, |bytes| {
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
            // Names have a-z 0-9 . _ - only, so that it always is a value.
            let Ok(value) = HeaderValue::from_maybe_shared(bytes.slice(part)) else { continue };
            if name == POLICY || name == LIMIT {
                headers.append(name, value);
            } else {
                headers.insert(name, value);
            }
        }
    }
}

/// True if an answer says already that less remains: whoever says so knows of a limit behind us.
fn says_less(headers: &HeaderMap, remaining: u32) -> bool {
    // Mostly it says nothing, and looking at all names is cheaper than looking for one.
    if !headers.keys().any(|name| *name == X_REMAINING) {
        return false;
    }
    let said = headers.get(X_REMAINING).and_then(|said| said.to_str().ok());
    said.and_then(|text| text.trim().parse::<u64>().ok()).is_some_and(|left| left < remaining.into())
}

/// A limit's name as a structured field string. No character in it needs an escape.
fn item(bytes: &mut Vec<u8>, shown: &Shown<'_>) {
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
