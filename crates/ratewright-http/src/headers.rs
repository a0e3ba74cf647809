//! The rate limit headers, rendered and parsed.
//!
//! Headers have whole seconds only. Waits are rounded up and remaining units down, so that a client that obeys them is
//! never denied. JSON responses and Envoy's service round their numbers elsewhere, in the same direction.
//!
//! ```text
//!   X-RateLimit-Limit: 10                 of the tightest limit: what it holds, or its rate as written
//!   X-RateLimit-Remaining: 3              units left
//!   X-RateLimit-Reset: 1700000042         Unix time, in seconds, when the limit is full again
//!   RateLimit-Policy: "login";q=10;w=60   of each limit: it holds q, and refills them in w seconds
//!   RateLimit: "login";r=3;t=6            of each limit: r are left, and no more for t seconds
//!   Retry-After: 6                        on denials only, at least 1
//! ```
//!
//! The second family is draft-ietf-httpapi-ratelimit-headers-11. Its two headers are lists, so ours are appended to
//! those of an upstream.
//!
//! # Laws
//! - Rendered headers parse back.
//! - `Retry-After` is never 0, and never earlier than `t` of the limit that denied: when the same query passes, more
//!   than `r` can be spent.
//! - A policy in shadow mode is never shown.

mod parse;
mod render;
mod shown_limit;
mod value_cache;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use ratewright_core::policy::{Limit, UncountableReason};
use ratewright_core::store::Standing;
use ratewright_core::{Decision, Micros, Timestamp, Verdict};
use smallvec::SmallVec;

pub use parse::{QuotaPolicy, ReceivedHeaders, ServiceLimit};
pub use render::WrittenHeaders;
pub use shown_limit::ShownLimit;

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The rate limit headers and the correlation id, for `Access-Control-Expose-Headers`.
const EXPOSED_NAMES: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, \
                             Retry-After, X-Correlation-Id";
const EXPOSED: HeaderValue = HeaderValue::from_static(EXPOSED_NAMES);

/// Which rate limit headers responses carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HeaderStyle {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit`.
    pub ietf: bool,
    /// `Retry-After` on denials.
    pub retry_after: bool,
    /// The meaning of `X-RateLimit-Limit`.
    pub limit: LimitMeaning,
}

/// The meaning of `X-RateLimit-Limit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum LimitMeaning {
    /// What the limit holds when full, so that `remaining` never exceeds it.
    #[default]
    Capacity,
    /// The units of the rate, as written in the policy.
    Rate,
}

/// The rate limit headers of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimitHeaders<'a> {
    tightest: ShownLimit<'a>,
    reset_after: u64,
    reset_at: u64,
    retry_after: Option<u64>,
    shown: SmallVec<[ShownLimit<'a>; 2]>,
}

impl Default for HeaderStyle {
    fn default() -> Self {
        Self { x_ratelimit: true, ietf: true, retry_after: true, limit: LimitMeaning::default() }
    }
}

/// Setters, to be chained after `HeaderStyle::default()`.
impl HeaderStyle {
    /// Sets `x_ratelimit`: `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    #[must_use]
    pub fn x_ratelimit(mut self, x_ratelimit: bool) -> Self {
        self.x_ratelimit = x_ratelimit;
        self
    }

    /// Sets `ietf`: `RateLimit-Policy` and `RateLimit`.
    #[must_use]
    pub fn ietf(mut self, ietf: bool) -> Self {
        self.ietf = ietf;
        self
    }

    /// Sets `retry_after`: `Retry-After` on denials.
    #[must_use]
    pub fn retry_after(mut self, retry_after: bool) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Sets `limit`: the meaning of `X-RateLimit-Limit`.
    #[must_use]
    pub fn limit(mut self, limit: LimitMeaning) -> Self {
        self.limit = limit;
        self
    }
}

impl<'a> RateLimitHeaders<'a> {
    /// The most limits that are shown. If more apply, only the tightest is shown.
    pub const LIMITS_MAX: usize = 16;

    /// The headers of a decision, at the wall clock's `now`. `None` if no enforced limit applies.
    pub fn of(decision: &'a Decision, now: Timestamp) -> Option<Self> {
        decision.tightest().map(|(_, limit, standing)| Self::about(decision, limit, standing, now))
    }

    /// The headers of a decision whose tightest limit and standing are known.
    pub fn about(decision: &'a Decision, limit: &'a Limit, standing: &Standing, now: Timestamp) -> Self {
        let mut headers = Self::one(ShownLimit::of(limit, standing), standing.reset_after, now);
        headers.retry_after = Self::seconds_to_wait(decision);
        let n_shown = decision.enforced().take(Self::LIMITS_MAX + 1).count();
        if (2..=Self::LIMITS_MAX).contains(&n_shown) {
            let shown = decision.enforced().map(|(_, limit, standing)| ShownLimit::of(limit, standing));
            headers.shown = shown.collect();
        }
        headers
    }

    /// The headers of an unused limit.
    pub fn untouched(limit: &'a Limit, now: Timestamp) -> Self {
        Self::one(ShownLimit::untouched(limit), Micros::ZERO, now)
    }

    fn one(tightest: ShownLimit<'a>, reset_after: Micros, now: Timestamp) -> Self {
        Self {
            tightest,
            reset_after: reset_after.as_secs_ceil(),
            reset_at: Micros::new((now + reset_after).as_micros()).as_secs_ceil(),
            retry_after: None,
            shown: SmallVec::from_slice(&[tightest]),
        }
    }

    /// Seconds after which a denied query would be allowed, at least 1. `None` if it was allowed, or never will be.
    pub(crate) fn seconds_to_wait(decision: &Decision) -> Option<u64> {
        match decision.verdict() {
            Verdict::Allow => None,
            Verdict::Deny => decision.retry_after().map(|wait| wait.as_secs_ceil().max(1)),
        }
    }

    /// The limit that the `X-RateLimit-` headers show.
    pub fn tightest(&self) -> &ShownLimit<'a> {
        &self.tightest
    }

    /// Seconds until the limit is full again.
    pub fn reset_after(&self) -> u64 {
        self.reset_after
    }

    /// Seconds to wait, at least 1. `None` unless the query was denied and waiting helps.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Adds the headers to a response.
    pub fn render(&self, style: HeaderStyle, headers: &mut HeaderMap) {
        self.write(style).put_into(headers);
    }

    /// Writes the headers for a response that does not exist yet.
    pub fn write(&self, style: HeaderStyle) -> WrittenHeaders {
        render::write(self, style)
    }

    /// Parses the headers of any server's response.
    pub fn parse(headers: &HeaderMap) -> ReceivedHeaders {
        parse::parse(headers)
    }

    /// Parses `RateLimit` only: what is left of each limit. Also the older form `limit=10, remaining=0, reset=5`, a limit
    /// without a name.
    pub fn parse_limits(headers: &HeaderMap) -> Vec<ServiceLimit> {
        parse::limits(headers)
    }

    /// Parses `RateLimit-Policy` only: what each limit allows.
    pub fn parse_policies(headers: &HeaderMap) -> Vec<QuotaPolicy> {
        parse::policies(headers)
    }

    /// Lets scripts of other origins read the rate limit headers and `X-Correlation-Id`, in addition to the headers that the
    /// response exposes already.
    pub fn expose(headers: &mut HeaderMap) {
        headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }

    /// The names of all rate limit headers and of the correlation id, for `Access-Control-Expose-Headers`.
    pub fn exposed_names() -> impl Iterator<Item = &'static str> {
        EXPOSED_NAMES.split(", ")
    }

    /// The status of a decision's response. A request that cannot be counted gets 403 (an attribute is missing) or 400 (it is
    /// ambiguous), not 429.
    pub fn status(decision: &Decision) -> StatusCode {
        match decision.verdict() {
            Verdict::Allow => StatusCode::OK,
            Verdict::Deny => match decision.refused() {
                None => StatusCode::TOO_MANY_REQUESTS,
                Some((_, UncountableReason::Missing)) => StatusCode::FORBIDDEN,
                Some((_, UncountableReason::Repeated | UncountableReason::TooMany)) => {
                    StatusCode::BAD_REQUEST
                }
            },
        }
    }
}

#[cfg(test)]
#[cfg(feature = "identify")]
mod tests;
