//! Renders the headers. All values of a response share one buffer.
//!
//! Rendering never loosens what the upstream has set: lists are appended to, and of two `X-RateLimit-` families the
//! tighter stays.
//!
//! Most responses have no headers but `Content-Type` and `Content-Length`. Their values are moved into a copy of a map that
//! has all names already: a copy hashes no name. If the response lacks one of the two, its entry is removed, and
//! the map keeps room for the `Content-Length` that the server adds.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{
    HeaderStyle, LIMIT, LimitMeaning, POLICY, RateLimitHeaders, ShownLimit, X_LIMIT, X_REMAINING, X_RESET,
};

/// The names, in the order of the values.
static NAMES: [HeaderName; 6] = [X_LIMIT, X_REMAINING, X_RESET, POLICY, LIMIT, header::RETRY_AFTER];

/// How many of the names are `X-RateLimit-`.
const N_X: usize = 3;

/// How many of the names a response to an allowed request has.
const N_ALLOWED: usize = 5;

/// A map with our names and those of most responses, to be copied. `None` if it iterates in another order than it was filled.
static TEMPLATE: LazyLock<Option<HeaderMap>> = LazyLock::new(|| {
    let names = NAMES[..N_ALLOWED].iter().chain(&[CONTENT_TYPE, CONTENT_LENGTH]);
    let headers: HeaderMap = names.clone().map(|name| (name.clone(), HeaderValue::from_static(""))).collect();
    headers.keys().eq(names).then_some(headers)
});

/// The headers of a response, written before there is a response: they are small, and do not keep the decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenHeaders {
    bytes: Vec<u8>,
    /// Where the value of each header ends. One that begins where it ends is not sent.
    ends: [u32; NAMES.len()],
    remaining: u32,
}

pub(super) fn write(rate_limit: &RateLimitHeaders<'_>, style: HeaderStyle) -> WrittenHeaders {
    let RateLimitHeaders { tightest, shown, reset_at, retry_after, .. } = rate_limit;
    let mut bytes = with_room_for(shown);
    let mut ends = [0; NAMES.len()];
    let mut end = |n: usize, bytes: &Vec<u8>| ends[n] = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if style.x_ratelimit {
        let limit = match style.limit {
            LimitMeaning::Capacity => tightest.capacity,
            LimitMeaning::Rate => tightest.units,
        };
        for (n, value) in [limit.into(), tightest.remaining.into(), *reset_at].into_iter().enumerate() {
            number(&mut bytes, value);
            end(n, &bytes);
        }
    }
    if style.ietf {
        list(&mut bytes, shown, |bytes, shown| {
            parameter(bytes, b";q=", shown.capacity.into());
            parameter(bytes, b";w=", shown.refill_within);
        });
        end(3, &bytes);
        list(&mut bytes, shown, |bytes, shown| {
            parameter(bytes, b";r=", shown.remaining.into());
            if let Some(seconds) = shown.more_after {
                parameter(bytes, b";t=", seconds);
            }
        });
        end(4, &bytes);
    }
    if let Some(seconds) = retry_after
        && style.retry_after
    {
        number(&mut bytes, (*seconds).max(1));
        end(5, &bytes);
    }
    WrittenHeaders { bytes, ends, remaining: tightest.remaining }
}

impl WrittenHeaders {
    /// Adds the headers to a response.
    pub fn put_into(self, headers: &mut HeaderMap) {
        let is_allowed = self.ends[N_ALLOWED] == 0 && self.ends[..N_ALLOWED].iter().all(|end| *end > 0);
        match &*TEMPLATE {
            Some(template) if is_allowed && is_plain(headers) => {
                *headers = self.merged_with(std::mem::take(headers), template.clone());
            }
            _ => self.add_to(headers),
        }
    }

    /// The headers of a plain response, and all of these but `Retry-After`.
    fn merged_with(self, plain: HeaderMap, mut merged: HeaderMap) -> HeaderMap {
        let Self { bytes, ends, .. } = self;
        let bytes = Bytes::from(bytes);
        let mut values = merged.values_mut();
        let mut begin = 0;
        for (end, value) in ends[..N_ALLOWED].iter().map(|end| *end as usize).zip(values.by_ref()) {
            // Always valid, as in `add_to`.
            if let Ok(written) = HeaderValue::from_maybe_shared(bytes.slice(begin..end)) {
                *value = written;
            }
            begin = end;
        }
        // `None` after the response's value was moved in.
        let (mut free_type, mut free_length) = (values.next(), values.next());
        for (name, value) in plain {
            let free = if name == Some(CONTENT_TYPE) { &mut free_type } else { &mut free_length };
            if let Some(place) = free.take() {
                *place = value;
            }
        }
        let (lacks_type, lacks_length) = (free_type.is_some(), free_length.is_some());
        if lacks_type {
            merged.remove(CONTENT_TYPE);
        }
        if lacks_length {
            merged.remove(CONTENT_LENGTH);
        }
        merged
    }

    fn add_to(self, headers: &mut HeaderMap) {
        let Self { bytes, ends, remaining } = self;
        let bytes = Bytes::from(bytes);
        headers.reserve(ends.iter().filter(|end| **end > 0).count());
        let skipped = if ends[0] > 0 && says_less(headers, remaining) { N_X } else { 0 };
        let mut begin = 0;
        for (n, (name, end)) in NAMES.iter().zip(ends.map(|end| end as usize)).enumerate() {
            // Names consist of a-z 0-9 . _ - only, so the value is always valid.
            if begin < end
                && n >= skipped
                && let Ok(value) = HeaderValue::from_maybe_shared(bytes.slice(begin..end))
            {
                if name == POLICY || name == LIMIT {
                    headers.append(name, value);
                } else {
                    headers.insert(name, value);
                }
            }
            begin = begin.max(end);
        }
    }
}

/// True if a response has no headers but `Content-Type` and `Content-Length`, each once.
fn is_plain(headers: &HeaderMap) -> bool {
    headers.len() <= 2
        && headers.keys_len() == headers.len()
        && headers.keys().all(|name| *name == CONTENT_TYPE || *name == CONTENT_LENGTH)
}

fn with_room_for(shown: &[ShownLimit<'_>]) -> Vec<u8> {
    let name = |shown: &ShownLimit<'_>| shown.policy.len() + shown.quota.map_or(0, str::len);
    let room: usize = shown.iter().map(|shown| 2 * (name(shown) + 32)).sum();
    Vec::with_capacity(48 + room)
}

/// Writes a list with one item for each limit.
fn list(bytes: &mut Vec<u8>, shown: &[ShownLimit<'_>], parameters: impl Fn(&mut Vec<u8>, &ShownLimit<'_>)) {
    for (n, shown) in shown.iter().enumerate() {
        if n > 0 {
            bytes.extend_from_slice(b", ");
        }
        item(bytes, shown);
        parameters(bytes, shown);
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
