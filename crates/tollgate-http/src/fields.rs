//! The rate limit header fields.
//!
//! The wire knows whole seconds only. Waits are rounded up and remainders down, so that a client who
//! believes them is never told no: that happens here and nowhere else.
//!
//! ```text
//!   X-RateLimit-Remaining: 95            units left
//!   X-RateLimit-Reset: 1700000010        Unix time, in seconds
//!   Retry-After: 5                       on denials only, at least 1
//! ```

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tollgate_core::{Decision, Micros, Quota, Timestamp, Verdict};

const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What the rate limit fields of an answer say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// Units left.
    pub remaining: u32,
    /// Unix seconds at which the limit resets.
    pub reset_at: u64,
    /// Seconds to wait, at least 1; only on a denial, and only if waiting helps.
    pub retry_after: Option<u64>,
}

/// Why an answer's fields could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldsError {
    /// The field that is missing or no number.
    pub field: &'static str,
}

impl Fields {
    /// The fields of a decision, with the wall clock's `now`. They speak of its tightest standing; nothing if
    /// the decision has none.
    pub fn of(decision: &Decision, now: Timestamp) -> Option<Self> {
        let (_, _, tightest) = decision.tightest()?;
        let retry_after = match decision.verdict() {
            Verdict::Allow => None,
            Verdict::Deny => decision.retry_after().map(|wait| wait.as_secs_ceil().max(1)),
        };
        Some(Self {
            remaining: tightest.remaining,
            reset_at: Micros::new((now + tightest.reset_after).as_micros()).as_secs_ceil(),
            retry_after,
        })
    }

    /// The fields of a limit from which nothing is spent.
    pub fn untouched(quota: &Quota, now: Timestamp) -> Self {
        let reset_at = Micros::new(now.as_micros()).as_secs_ceil();
        Self { remaining: quota.capacity().get(), reset_at, retry_after: None }
    }

    /// Seconds until the reset of which the fields of a decision speak.
    pub fn reset_after(decision: &Decision) -> u64 {
        decision.tightest().map_or(0, |(_, _, tightest)| tightest.reset_after.as_secs_ceil())
    }

    /// The status that a verdict is answered with.
    pub fn status(verdict: Verdict) -> StatusCode {
        match verdict {
            Verdict::Allow => StatusCode::OK,
            Verdict::Deny => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Adds the fields to an answer.
    pub fn render(&self, headers: &mut HeaderMap) {
        headers.insert(REMAINING, HeaderValue::from(self.remaining));
        headers.insert(RESET, HeaderValue::from(self.reset_at));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
    }

    /// Reads the fields of an answer.
    ///
    /// # Errors
    /// If one is missing or no number.
    pub fn parse(headers: &HeaderMap) -> Result<Self, FieldsError> {
        let number = |name: &HeaderName| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        let missing = |field| FieldsError { field };
        let remaining = number(&REMAINING).and_then(|n| u32::try_from(n).ok());
        let retry_after = match headers.get(header::RETRY_AFTER) {
            None => None,
            Some(_) => Some(number(&header::RETRY_AFTER).ok_or(missing("Retry-After"))?),
        };
        Ok(Self {
            remaining: remaining.ok_or(missing("X-RateLimit-Remaining"))?,
            reset_at: number(&RESET).ok_or(missing("X-RateLimit-Reset"))?,
            retry_after,
        })
    }
}

impl std::fmt::Display for FieldsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is missing or no number", self.field)
    }
}

impl std::error::Error for FieldsError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rendered_fields_parse_back(remaining: u32, reset_at: u64, retry_after in prop::option::of(1u64..)) {
            let fields = Fields { remaining, reset_at, retry_after };
            let mut headers = HeaderMap::new();
            fields.render(&mut headers);
            prop_assert_eq!(Fields::parse(&headers), Ok(fields));
        }
    }

    #[test]
    fn fields_that_are_missing_or_no_number_are_named() {
        let mut headers = HeaderMap::new();
        assert_eq!(Fields::parse(&headers).unwrap_err().field, "X-RateLimit-Remaining");
        headers.insert(REMAINING, HeaderValue::from(1));
        headers.insert(RESET, HeaderValue::from_static("soon"));
        assert_eq!(
            Fields::parse(&headers).unwrap_err().to_string(),
            "X-RateLimit-Reset is missing or no number"
        );
    }

    #[test]
    fn retry_after_is_never_zero() {
        let mut headers = HeaderMap::new();
        Fields { remaining: 0, reset_at: 0, retry_after: Some(0) }.render(&mut headers);
        assert_eq!(headers[header::RETRY_AFTER], "1");
    }
}
