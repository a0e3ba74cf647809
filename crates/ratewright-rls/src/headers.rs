//! Headers that Envoy adds to the response to the client, if the configuration asks for them.
//!
//! They describe one descriptor: if some are over their limit, quotas aside, the last of those; otherwise the one with the least left.
//! `Retry-After` covers all descriptors: it ends when the last of them has room again.

use ratewright_core::Timestamp;

use crate::settings::HeaderFamily;
use crate::status::DescriptorOutcome;
use crate::wire::HeaderValue;

pub(crate) fn render(
    families: &[HeaderFamily],
    told_all: &[DescriptorOutcome],
    is_over: bool,
    now: Timestamp,
) -> Vec<HeaderValue> {
    if families.is_empty() {
        return Vec::new();
    }
    let limited = || told_all.iter().filter(|outcomes| outcomes.status.current_limit.is_some());
    let over = limited().rfind(|outcomes| outcomes.is_over && !outcomes.is_quota);
    let Some(outcomes) = over.or_else(|| limited().min_by_key(|outcomes| outcomes.status.limit_remaining))
    else {
        return Vec::new();
    };
    let limit = outcomes.status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
    let seconds = outcomes.status.duration_until_reset.as_ref().map_or(0, |reset| reset.seconds);
    let reset_at = now.as_micros().div_ceil(1_000_000).saturating_add(seconds.unsigned_abs());
    let mut fields = Vec::new();
    let mut add = |key: &str, value: String| {
        fields.push(HeaderValue { key: key.to_owned(), value, raw_value: Vec::new() });
    };
    for family in families {
        let remaining = outcomes.status.limit_remaining.to_string();
        match family {
            HeaderFamily::XRateLimit => {
                add("X-RateLimit-Limit", limit.to_string());
                add("X-RateLimit-Remaining", remaining);
                add("X-RateLimit-Reset", reset_at.to_string());
            }
            HeaderFamily::RateLimit => {
                add("RateLimit-Limit", limit.to_string());
                add("RateLimit-Remaining", remaining);
                add("RateLimit-Reset", seconds.to_string());
            }
            HeaderFamily::RetryAfter if is_over => add("Retry-After", retry_after(told_all).to_string()),
            HeaderFamily::RetryAfter => {}
        }
    }
    fields
}

/// Whole seconds until the same request would pass: all limits have room, and one of the quotas.
fn retry_after(outcomes: &[DescriptorOutcome]) -> i64 {
    let over = |is_quota| {
        let over = outcomes.iter().filter(move |outcomes| outcomes.is_over && outcomes.is_quota == is_quota);
        over.filter_map(|outcomes| Some(outcomes.status.duration_until_reset.as_ref()?.seconds))
    };
    let has_quota_left = outcomes.iter().any(|outcomes| outcomes.is_quota && !outcomes.is_over);
    let of_quotas = over(true).min().filter(|_| !has_quota_left);
    over(false).max().max(of_quotas).unwrap_or(1).max(1)
}
