//! The log of decisions: a warning for each denial, a debug line for the rest.
//!
//! A flood of denials must not become a flood of lines. The first few of each second are logged; the next line says
//! how many were suppressed. `Warnings::All` logs every denial.

use std::num::NonZeroU32;

use parking_lot::Mutex;
use ratewright_core::{AttributeName, Decision, Mode, Query, Timestamp, quantity::SECOND};
use ratewright_http::RateLimitHeaders;
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

/// Bounds the rate of warnings.
#[derive(Debug)]
pub struct WarnLimit {
    warnings: Warnings,
    logged: Mutex<LoggedInSecond>,
}

#[derive(Debug, Default)]
struct LoggedInSecond {
    second: u64,
    n: u32,
    n_suppressed: u64,
}

impl Default for Warnings {
    /// Ten: enough to see what happens, and at most a gigabyte a week.
    fn default() -> Self {
        Self::PerSecond(const { NonZeroU32::new(10).expect("not zero") })
    }
}

impl WarnLimit {
    /// No denial logged yet.
    pub fn new(warnings: Warnings) -> Self {
        Self { warnings, logged: Mutex::default() }
    }

    /// Whether to log a denial now, and how many were suppressed since the last one.
    pub fn admit(&self, now: Timestamp) -> Option<u64> {
        let Warnings::PerSecond(n_max) = self.warnings else { return Some(0) };
        let second = now.as_micros() / SECOND;
        let mut logged = self.logged.lock();
        if logged.second != second {
            (logged.second, logged.n) = (second, 0);
        }
        if logged.n >= n_max.get() {
            logged.n_suppressed += 1;
            return None;
        }
        logged.n += 1;
        Some(std::mem::take(&mut logged.n_suppressed))
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
    use ratewright_core::Micros;

    #[test]
    fn b7_the_first_denials_of_a_second_are_logged_and_the_next_line_counts_the_rest() {
        let limit = WarnLimit::new(Warnings::PerSecond(NonZeroU32::new(2).unwrap()));
        let at = |millis| Timestamp::default() + Micros::from_millis(millis);
        let logged =
            [0, 10, 20, 999, 1_000, 1_001, 1_002, 5_000, 5_000].map(|millis| limit.admit(at(millis)));
        assert_eq!(logged, [Some(0), Some(0), None, None, Some(2), Some(0), None, Some(1), Some(0)]);
    }

    #[test]
    fn b7_all_denials_are_logged_if_configured() {
        let limit = WarnLimit::new(Warnings::All);
        assert!((0..1_000).all(|_| limit.admit(Timestamp::default()) == Some(0)));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_silence_the_log() {
        let limit = WarnLimit::new(Warnings::PerSecond(NonZeroU32::MIN));
        let [late, early] = [100, 1].map(|secs| Timestamp::default() + Micros::from_secs(secs));
        assert_eq!([late, early, early].map(|at| limit.admit(at)), [Some(0), Some(0), None]);
    }
}
