//! The log of decisions: a warning for each denial, a debug line for the rest.
//!
//! A flood of denials must not become a flood of lines. The first few of each second are logged; the next line says
//! how many were suppressed. `Warnings::All` logs every denial.

use std::num::NonZeroU32;
use std::time::Duration;

use ratewright_core::policy::Mode;
use ratewright_core::query::AttributeName;
use ratewright_core::{Decision, Query};
use ratewright_http::RateLimitHeaders;
use ratewright_listen::LogThrottle;
use tracing::{Level, debug, warn};

use super::{basis_name, deciding_policy, denial_summary, write_client};

/// How many denials are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warnings {
    /// Every denial.
    All,
    /// At most this many in a second.
    PerSecond(NonZeroU32),
}

impl Default for Warnings {
    /// Ten: enough to see what happens, and at most a gigabyte a week.
    fn default() -> Self {
        Self::PerSecond(const { NonZeroU32::new(10).expect("not zero") })
    }
}

impl Warnings {
    /// Limits the log accordingly.
    pub(super) fn throttle(self) -> LogThrottle {
        let n_max = match self {
            Self::All => NonZeroU32::MAX, // nobody writes so many lines in a second
            Self::PerSecond(n_max) => n_max,
        };
        LogThrottle::several(n_max, Duration::from_secs(1))
    }
}

/// Logs a denial, or a request that a policy in shadow mode would have denied. If the request can never be allowed, no status
/// is logged, because the entrypoint may use another one than 429.
#[cold]
pub(super) fn denied(query: &Query<'_>, decision: &Decision, suppressed: u64) {
    let Some(summary) = denial_summary(decision) else { return };
    let retry_after = summary.retry_after.map(|wait| wait.as_secs_ceil().max(1));
    let is_enforced = summary.mode == Mode::Enforce;
    let status = retry_after.filter(|_| is_enforced).map(|_| RateLimitHeaders::status(decision).as_u16());
    let mut client = String::new();
    write_client(&mut client, query, summary.limit);
    warn!(
        client,
        method = query.values(&AttributeName::<&str>::Method).next(),
        path = query.values(&AttributeName::<&str>::Path).next(),
        policy = summary.policy.name(),
        mode = (!is_enforced).then_some(summary.mode.name()),
        retry_after,
        status,
        basis = basis_name(summary.basis),
        correlation_id = query.id.map(tracing::field::display),
        suppressed,
        "{}",
        if is_enforced { "denied" } else { "would be denied (shadow)" }
    );
}

/// Logs an allowed query, at level debug.
#[inline]
pub(super) fn allowed(query: &Query<'_>, decision: &Decision) {
    if !tracing::enabled!(Level::DEBUG) {
        return;
    }
    debug!(
        client = client(query, decision),
        method = query.values(&AttributeName::<&str>::Method).next(),
        path = query.values(&AttributeName::<&str>::Path).next(),
        policy = deciding_policy(decision).map(|(policy, _)| policy.name()),
        basis = basis_name(decision.basis()),
        correlation_id = query.id.map(tracing::field::display),
        "allowed"
    );
}

/// The client according to the deciding policy.
fn client(query: &Query<'_>, decision: &Decision) -> String {
    let mut client = String::new();
    write_client(&mut client, query, deciding_policy(decision).and_then(|(_, limit)| limit));
    client
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b7_a_flood_of_denials_is_throttled_unless_all_are_to_be_logged() {
        let n_logged = |warnings: Warnings| {
            let throttle = warnings.throttle();
            (0..1_000).filter(|_| throttle.admit_at(0).is_some()).count()
        };
        assert_eq!(n_logged(Warnings::default()), 10);
        assert_eq!(n_logged(Warnings::All), 1_000);
    }
}
