//! The log of decisions: a warning for a denial, a debug line for the rest.
//!
//! A flood of denials must not become a flood of lines. Of each second the first few are told; the next one that is
//! told says how many were not. `Warnings::All` tells each.

use std::num::NonZeroU32;

use parking_lot::Mutex;
use ratewright_core::{AttributeName, Decision, Mode, Query, Timestamp, quantity::SECOND};
use ratewright_http::Fields;
use tracing::{Level, debug, warn};

use super::{account, basis_name, speaker, write_client};

/// How many denials are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warnings {
    /// Each.
    All,
    /// So many in a second at most.
    PerSecond(NonZeroU32),
}

/// Bounds the rate of warnings.
#[derive(Debug)]
pub struct WarnLimit {
    warnings: Warnings,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    second: u64,
    n: u32,
    n_suppressed: u64,
}

impl Default for Warnings {
    /// Ten: enough to see what is going on, and a gigabyte a week at the worst.
    fn default() -> Self {
        Self::PerSecond(const { NonZeroU32::new(10).expect("not zero") })
    }
}

impl WarnLimit {
    /// Nothing told yet.
    pub fn new(warnings: Warnings) -> Self {
        Self { warnings, told: Mutex::default() }
    }

    /// Whether to tell of a denial now, and how many were suppressed since the last that was told.
    pub fn admit(&self, now: Timestamp) -> Option<u64> {
        let Warnings::PerSecond(n_max) = self.warnings else { return Some(0) };
        let second = now.as_micros() / SECOND;
        let mut told = self.told.lock();
        if told.second != second {
            (told.second, told.n) = (second, 0);
        }
        if told.n >= n_max.get() {
            told.n_suppressed += 1;
            return None;
        }
        told.n += 1;
        Some(std::mem::take(&mut told.n_suppressed))
    }
}

/// Logs a denial, or a request that a policy in shadow mode would have denied. If it can never be allowed, the entrypoint may answer with
/// another status than 429.
#[cold]
pub(super) fn denied(query: &Query<'_>, decision: &Decision, suppressed: u64) {
    let Some(account) = account(decision) else { return };
    let retry_after = account.retry_after.map(|wait| wait.as_secs_ceil().max(1));
    let is_enforced = account.mode == Mode::Enforce;
    let status = retry_after.filter(|_| is_enforced).map(|_| Fields::status(decision).as_u16());
    let mut client = String::new();
    write_client(&mut client, query, account.limit);
    warn!(
        client,
        method = query.values(&AttributeName::<&str>::Method).next(),
        path = query.values(&AttributeName::<&str>::Path).next(),
        policy = account.policy.name(),
        mode = (!is_enforced).then_some(account.mode.name()),
        retry_after,
        status,
        basis = basis_name(account.basis),
        correlation_id = query.id.map(tracing::field::display),
        suppressed,
        "{}",
        if is_enforced { "denied" } else { "would be denied (shadow)" }
    );
}

/// Tells of a query that was let through, to those who want to know that much.
#[inline]
pub(super) fn allowed(query: &Query<'_>, decision: &Decision) {
    if !tracing::enabled!(Level::DEBUG) {
        return;
    }
    debug!(
        client = client(query, decision),
        method = query.values(&AttributeName::<&str>::Method).next(),
        path = query.values(&AttributeName::<&str>::Path).next(),
        policy = speaker(decision).map(|(policy, _)| policy.name()),
        basis = basis_name(decision.basis()),
        correlation_id = query.id.map(tracing::field::display),
        "allowed"
    );
}

/// Whom the tightest limit counted the query for.
fn client(query: &Query<'_>, decision: &Decision) -> String {
    let mut client = String::new();
    write_client(&mut client, query, speaker(decision).and_then(|(_, limit)| limit));
    client
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratewright_core::Micros;

    #[test]
    fn b7_of_each_second_the_first_few_are_told_and_the_next_says_how_many_were_not() {
        let limit = WarnLimit::new(Warnings::PerSecond(NonZeroU32::new(2).unwrap()));
        let at = |millis| Timestamp::default() + Micros::from_millis(millis);
        let told = [0, 10, 20, 999, 1_000, 1_001, 1_002, 5_000, 5_000].map(|millis| limit.admit(at(millis)));
        assert_eq!(told, [Some(0), Some(0), None, None, Some(2), Some(0), None, Some(1), Some(0)]);
    }

    #[test]
    fn b7_all_of_them_by_a_setting() {
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
