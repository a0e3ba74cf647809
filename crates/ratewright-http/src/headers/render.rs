//! Renders the headers.
//!
//! `X-RateLimit-Limit` and `RateLimit-Policy` depend on the limit only: `value_cache.rs` keeps their values. The other
//! values of a response share one buffer.
//!
//! Rendering never loosens what the upstream has set: lists are appended to, and of two `X-RateLimit-` families the
//! tighter stays.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};

use super::value_cache::{limit_value, policy_value};
use super::{
    HeaderStyle, LIMIT, LimitMeaning, POLICY, RateLimitHeaders, ShownLimit, X_LIMIT, X_REMAINING, X_RESET,
};

/// The rendered headers, before the response exists. They are smaller than the decision, which need not be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenHeaders {
    /// `X-RateLimit-Limit`, if that family is sent.
    limit: Option<HeaderValue>,
    /// `RateLimit-Policy`, if that family is sent.
    policy: Option<HeaderValue>,
    /// The other values, one after the other.
    bytes: Vec<u8>,
    /// Where they end: `X-RateLimit-Remaining`, `-Reset`, `RateLimit`, `Retry-After`. An empty value is not sent.
    ends: [u32; 4],
    remaining: u32,
}

pub(super) fn write(rate_limit: &RateLimitHeaders<'_>, style: HeaderStyle) -> WrittenHeaders {
    let RateLimitHeaders { tightest, shown, reset_at, retry_after, .. } = rate_limit;
    let mut bytes = with_room_for(shown);
    let mut ends = [0; 4];
    let end = |bytes: &Vec<u8>| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if style.x_ratelimit {
        number(&mut bytes, tightest.remaining.into());
        ends[0] = end(&bytes);
        number(&mut bytes, *reset_at);
    }
    ends[1] = end(&bytes);
    if style.ietf {
        list(&mut bytes, shown, |bytes, shown| {
            parameter(bytes, b";r=", shown.remaining.into());
            if let Some(seconds) = shown.more_after {
                parameter(bytes, b";t=", seconds);
            }
        });
    }
    ends[2] = end(&bytes);
    if let Some(seconds) = retry_after
        && style.retry_after
    {
        number(&mut bytes, *seconds);
    }
    ends[3] = end(&bytes);
    let limit = match style.limit {
        LimitMeaning::Capacity => tightest.capacity,
        LimitMeaning::Rate => tightest.units,
    };
    let limit = style.x_ratelimit.then(|| limit_value(limit)).flatten();
    let policy = style.ietf.then(|| policy_value(shown)).flatten();
    WrittenHeaders { limit, policy, bytes, ends, remaining: tightest.remaining }
}

impl WrittenHeaders {
    /// Adds the headers to a response.
    pub fn put_into(self, headers: &mut HeaderMap) {
        let is_looser = self.limit.is_some() && says_less(headers, self.remaining);
        let Self { limit, policy, bytes, ends, .. } = self;
        // No more than needed: a map with room for seven is twice as large as one for six.
        let (n_x, n_ietf) = (if limit.is_some() { 3 } else { 0 }, if policy.is_some() { 2 } else { 0 });
        headers.reserve(n_x + n_ietf + usize::from(ends[2] < ends[3]));
        let mut values = Values { rest: Bytes::from(bytes), begin: 0 };
        let x_family = (limit, values.until(ends[0]), values.until(ends[1]));
        if let (Some(limit), Some(remaining), Some(reset)) = x_family
            && !is_looser
        {
            headers.insert(X_LIMIT, limit);
            headers.insert(X_REMAINING, remaining);
            headers.insert(X_RESET, reset);
        }
        if let (Some(policy), Some(limit)) = (policy, values.until(ends[2])) {
            headers.append(POLICY, policy);
            headers.append(LIMIT, limit);
        }
        if let Some(retry_after) = values.until(ends[3]) {
            headers.insert(header::RETRY_AFTER, retry_after);
        }
    }
}

/// The values that share a buffer.
struct Values {
    rest: Bytes,
    begin: u32,
}

impl Values {
    /// The next value, which ends here. `None` if it is empty.
    fn until(&mut self, end: u32) -> Option<HeaderValue> {
        let length = (end - self.begin) as usize;
        self.begin = end;
        // Names consist of a-z 0-9 . _ - only, so the value is always valid.
        (length > 0).then(|| HeaderValue::from_maybe_shared(self.rest.split_to(length)).ok()).flatten()
    }
}

fn with_room_for(shown: &[ShownLimit<'_>]) -> Vec<u8> {
    let name = |shown: &ShownLimit<'_>| shown.policy.len() + shown.quota.map_or(0, str::len);
    let room: usize = shown.iter().map(|shown| name(shown) + 32).sum();
    Vec::with_capacity(32 + room)
}

/// True if the response already says that less remains: the upstream has a tighter limit. A value that is not a number may be less.
fn says_less(headers: &HeaderMap, remaining: u32) -> bool {
    // Most responses say nothing, and comparing all names is cheaper than a lookup.
    if !headers.keys().any(|name| *name == X_REMAINING) {
        return false;
    }
    let is_less = |said: &HeaderValue| {
        let text = said.to_str().unwrap_or_default().trim();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that is too large for its type is larger than ours.
        !is_number || text.parse::<u64>().is_ok_and(|left| left < remaining.into())
    };
    headers.get_all(X_REMAINING).iter().any(is_less)
}

/// Writes a list with one item for each limit.
pub(super) fn list(
    bytes: &mut Vec<u8>,
    shown: &[ShownLimit<'_>],
    parameters: impl Fn(&mut Vec<u8>, &ShownLimit<'_>),
) {
    for (n, shown) in shown.iter().enumerate() {
        if n > 0 {
            bytes.extend_from_slice(b", ");
        }
        item(bytes, shown);
        parameters(bytes, shown);
    }
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

pub(super) fn parameter(bytes: &mut Vec<u8>, name: &[u8; 3], value: u64) {
    bytes.extend_from_slice(name);
    number(bytes, value);
}

pub(super) fn number(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
