//! The fields as bytes. A value is put together on the stack and allocated once. What an answer says already is never
//! loosened: lists are added to, and of two `X-RateLimit-` families the tighter stays.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;

use super::{FieldStyle, Fields, LIMIT, LimitMeaning, POLICY, Shown, X_LIMIT, X_REMAINING, X_RESET};

/// A value while it is written. Four limits with names of usual length fit on the stack.
type Buffer = SmallVec<[u8; 256]>;

pub(super) fn render(fields: &Fields<'_>, style: FieldStyle, headers: &mut HeaderMap) {
    if style.x_ratelimit && !is_tighter(headers, fields.tightest.remaining) {
        let tightest = &fields.tightest;
        let limit = match style.limit {
            LimitMeaning::Capacity => tightest.capacity,
            LimitMeaning::Rate => tightest.units,
        };
        headers.insert(X_LIMIT, number(limit.into()));
        headers.insert(X_REMAINING, number(tightest.remaining.into()));
        headers.insert(X_RESET, number(fields.reset_at));
    }
    if style.ietf {
        append(headers, POLICY, &fields.shown, |buffer, shown| {
            parameter(buffer, b";q=", shown.capacity.into());
            parameter(buffer, b";w=", shown.refill_within);
        });
        append(headers, LIMIT, &fields.shown, |buffer, shown| {
            parameter(buffer, b";r=", shown.remaining.into());
            if let Some(seconds) = shown.more_after {
                parameter(buffer, b";t=", seconds);
            }
        });
    }
    if let Some(seconds) = fields.retry_after
        && style.retry_after
    {
        headers.insert(header::RETRY_AFTER, number(seconds.max(1)));
    }
}

/// True if an answer says already that less remains: whoever says so knows of a limit behind us.
fn is_tighter(headers: &HeaderMap, remaining: u32) -> bool {
    let Some(said) = headers.get(X_REMAINING) else { return false };
    said.to_str()
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .is_some_and(|left| left < remaining.into())
}

/// A number alone. `HeaderValue::from` allocates twice.
fn number(value: u64) -> HeaderValue {
    let digits = HeaderValue::from_str(itoa::Buffer::new().format(value));
    digits.unwrap_or(HeaderValue::from_static("0")) // digits always are a value
}

/// Appends a list with one item for each limit.
fn append(
    headers: &mut HeaderMap,
    name: HeaderName,
    shown: &[Shown<'_>],
    parameters: impl Fn(&mut Buffer, &Shown<'_>),
) {
    let mut buffer = Buffer::new();
    for shown in shown {
        if !buffer.is_empty() {
            buffer.extend_from_slice(b", ");
        }
        item(&mut buffer, shown);
        parameters(&mut buffer, shown);
    }
    // Names have a-z 0-9 . _ - only, so that it always is a value.
    if let Ok(value) = HeaderValue::from_bytes(&buffer) {
        headers.append(name, value);
    }
}

/// A limit's name as a structured field string. No character in it needs an escape.
fn item(buffer: &mut Buffer, shown: &Shown<'_>) {
    buffer.push(b'"');
    buffer.extend_from_slice(shown.policy.as_bytes());
    if let Some(quota) = shown.quota {
        buffer.push(b'.');
        buffer.extend_from_slice(quota.as_bytes());
    }
    buffer.push(b'"');
}

fn parameter(buffer: &mut Buffer, name: &[u8; 3], value: u64) {
    buffer.extend_from_slice(name);
    buffer.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
