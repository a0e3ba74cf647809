//! The rate limit header fields, rendered and parsed.
//!
//! The wire knows whole seconds only. Waits are rounded up and remainders down, so that a client who
//! believes them is never told no: that happens here and nowhere else.
//!
//! ```text
//!   X-RateLimit-Limit: 10                 of the tightest limit: what it holds, or its rate as written
//!   X-RateLimit-Remaining: 3              units left
//!   X-RateLimit-Reset: 1700000042         Unix time, in seconds, when all is back
//!   RateLimit-Policy: "login";q=10;w=60   of each limit: it holds q, and refills them in w seconds
//!   RateLimit: "login";r=3;t=6            of each limit: r are left, and no more for t seconds
//!   Retry-After: 6                        on denials only, at least 1
//! ```
//!
//! The second family is draft-ietf-httpapi-ratelimit-headers-11. Its two fields are lists, so ours are added
//! to those that an upstream has sent.
//!
//! # Laws
//! - Rendered fields parse back.
//! - `Retry-After` is never 0, and never earlier than `t` of the limit that denied: when the same query
//!   fits, more than `r` can be spent.
//! - A policy in shadow mode is never shown.

mod read;
mod shown;
mod write;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use ratewright_core::{Decision, Limit, Micros, Standing, Timestamp, Uncountable, Verdict};
use smallvec::SmallVec;

pub use read::{QuotaPolicy, Received, ServiceLimit};
pub use shown::Shown;

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// All names, for scripts in a browser.
const EXPOSED_NAMES: &str =
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, Retry-After";
const EXPOSED: HeaderValue = HeaderValue::from_static(EXPOSED_NAMES);

/// Which fields answers carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldStyle {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit`.
    pub ietf: bool,
    /// `Retry-After` on denials.
    pub retry_after: bool,
    /// What `X-RateLimit-Limit` says.
    pub limit: LimitMeaning,
}

/// What `X-RateLimit-Limit` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LimitMeaning {
    /// What the limit holds when full, so that no more can remain than that.
    #[default]
    Capacity,
    /// The units of the rate, as it is written.
    Rate,
}

/// What the rate limit fields of an answer say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fields<'a> {
    tightest: Shown<'a>,
    reset_after: u64,
    reset_at: u64,
    retry_after: Option<u64>,
    shown: SmallVec<[Shown<'a>; 2]>,
}

impl Default for FieldStyle {
    fn default() -> Self {
        Self { x_ratelimit: true, ietf: true, retry_after: true, limit: LimitMeaning::default() }
    }
}

impl<'a> Fields<'a> {
    /// The most limits that are shown. Of more than these only the tightest is.
    pub const SHOWN_MAX: usize = 16;

    /// The fields of a decision, with the wall clock's `now`; nothing if it has no standing to show.
    pub fn of(decision: &'a Decision, now: Timestamp) -> Option<Self> {
        decision.tightest().map(|(_, limit, standing)| Self::about(decision, limit, standing, now))
    }

    /// The fields of a decision whose tightest limit and its standing are known.
    pub fn about(decision: &'a Decision, limit: &'a Limit, standing: &Standing, now: Timestamp) -> Self {
        let mut fields = Self::one(Shown::of(limit, standing), standing.reset_after, now);
        fields.retry_after = Self::seconds_to_wait(decision);
        let n_shown = decision.enforced().take(Self::SHOWN_MAX + 1).count();
        if (2..=Self::SHOWN_MAX).contains(&n_shown) {
            let shown = decision.enforced().map(|(_, limit, standing)| Shown::of(limit, standing));
            fields.shown = shown.collect();
        }
        fields
    }

    /// The fields of a limit from which nothing is spent.
    pub fn untouched(limit: &'a Limit, now: Timestamp) -> Self {
        Self::one(Shown::untouched(limit), Micros::ZERO, now)
    }

    fn one(tightest: Shown<'a>, reset_after: Micros, now: Timestamp) -> Self {
        Self {
            tightest,
            reset_after: reset_after.as_secs_ceil(),
            reset_at: Micros::new((now + reset_after).as_micros()).as_secs_ceil(),
            retry_after: None,
            shown: SmallVec::from_slice(&[tightest]),
        }
    }

    /// Seconds after which a denied query would be allowed, at least 1; nothing if it was not denied, or never will be
    /// allowed.
    pub(crate) fn seconds_to_wait(decision: &Decision) -> Option<u64> {
        match decision.verdict() {
            Verdict::Allow => None,
            Verdict::Deny => decision.retry_after().map(|wait| wait.as_secs_ceil().max(1)),
        }
    }

    /// The limit that the `X-RateLimit-` fields speak of.
    pub fn tightest(&self) -> &Shown<'a> {
        &self.tightest
    }

    /// Seconds until all of it is back.
    pub fn reset_after(&self) -> u64 {
        self.reset_after
    }

    /// Seconds to wait, at least 1; only on a denial, and only if waiting helps.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Adds the fields to an answer.
    pub fn render(&self, style: FieldStyle, headers: &mut HeaderMap) {
        write::render(self, style, headers);
    }

    /// Reads the fields of an answer, anyone's.
    pub fn parse(headers: &HeaderMap) -> Received {
        read::parse(headers)
    }

    /// Reads `RateLimit` alone: what is left of each limit. Also the older form `limit=10, remaining=0, reset=5`, a limit
    /// without a name.
    pub fn parse_limits(headers: &HeaderMap) -> Vec<ServiceLimit> {
        read::limits(headers)
    }

    /// Reads `RateLimit-Policy` alone: what each limit allows.
    pub fn parse_policies(headers: &HeaderMap) -> Vec<QuotaPolicy> {
        read::policies(headers)
    }

    /// Lets scripts of other origins read the fields. An answer that exposes others goes on doing so.
    pub fn expose(headers: &mut HeaderMap) {
        headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }

    /// The names of all fields, for `Access-Control-Expose-Headers`.
    pub fn exposed_names() -> impl Iterator<Item = &'static str> {
        EXPOSED_NAMES.split(", ")
    }

    /// The status of a decision's response. A request that cannot be counted is not too fast, but unknown or ambiguous.
    pub fn status(decision: &Decision) -> StatusCode {
        match decision.verdict() {
            Verdict::Allow => StatusCode::OK,
            Verdict::Deny => match decision.refused() {
                None => StatusCode::TOO_MANY_REQUESTS,
                Some((_, Uncountable::Missing)) => StatusCode::FORBIDDEN,
                Some((_, Uncountable::Repeated | Uncountable::TooMany)) => StatusCode::BAD_REQUEST,
            },
        }
    }
}

#[cfg(test)]
#[cfg(feature = "identify")]
mod tests;
