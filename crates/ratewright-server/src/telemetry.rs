//! Counts and logs decisions.
//!
//! ```text
//!   Limiter ─observe→ Telemetry ─ duration ──────────────→ Checks        rate_limiter_*
//!                               ├ verdict of each policy ─→ Decisions     ratewright_decisions_total, _near_limit_total
//!                               └ denial and its time ────→ Denials       the most denied clients, the last denials
//!                                                         → decision_log  warnings at a bounded rate
//! ```
//!
//! A decision counts once in `Checks`, under the algorithm of the deciding policy, and once for each policy in
//! `Decisions`. A limit on requests in flight has no algorithm, so its decisions are in `Decisions` only.
//!
//! A denial by a policy in shadow mode is recorded and logged too, marked as `shadow`: the request was allowed.
//!
//! Counting an allowed decision must be cheap: it adds to one atomic for each of its policies (two near the limit) and
//! to two for its duration, reads a cheap clock twice, takes no lock and allocates nothing. A denial may cost a little
//! more.
//!
//! A client never becomes a label: the policy file bounds the number of labels, nothing bounds the number of clients.
//! Denied clients are counted in a sketch of fixed size instead.
//!
//! A query that only looks at a bucket (`Ask::Look`) is not counted.

mod decision_durations;
mod decision_log;
mod decisions;
mod denials;
mod history;
mod recorder;
#[cfg(test)]
mod tests;
mod top_clients;

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::key::Escaped;
use aws_lc_rs::digest::{SHA256, digest};
use ratewright_core::decision::Observe;
use ratewright_core::policy::{Limit, Mode};
use ratewright_core::query::{Ask, Attribute, AttributeName};
use ratewright_core::quota::Algorithm;
use ratewright_core::store::{Basis, Key, Outcome, Standing};
use ratewright_core::{Clock, Decision, Micros, Policy, Query, Timestamp, Verdict};
use ratewright_listen::LogThrottle;
use ratewright_telemetry::may_be_secret;

use decisions::AfterCount;

pub use decision_durations::{Check, Checks};
pub use decision_log::Warnings;
pub use decisions::{DecisionCount, Decisions, NearLimit, PolicyTotals};
pub use denials::{Denial, Denials, DeniedClient};
pub use history::{History, HistoryUpdate, PolicyStep, SecondCounts};
pub use recorder::{RecordedDecisions, Recorder};

/// The most bytes kept of a client, a method or a path.
const TEXT_MAX: usize = 256;

/// Counts decisions, remembers denials, and logs both.
pub struct Telemetry<C> {
    checks: Checks,
    decisions: Decisions,
    denials: Denials,
    history: History,
    recorder: Recorder,
    /// Decisions on requests that no policy on rates covers.
    n_uncovered: AtomicU64,
    warnings: LogThrottle,
    /// Separate, so that a flood of shadow denials does not suppress other warnings.
    shadow_warnings: LogThrottle,
    /// The wall clock, for the time of denials.
    clock: C,
    /// Measures how long decisions take.
    timer: Arc<dyn Clock>,
}

/// Observes one limiter for a [`Telemetry`].
#[derive(Debug)]
pub enum TelemetryObserver<C> {
    /// A limiter on rates.
    Rates(Arc<Telemetry<C>>),
    /// A limiter on requests in flight.
    InFlight(Arc<Telemetry<C>>),
}

/// The limiter that decided. A request through the gateway is decided by both, first by the one on requests in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ObservedLimiter {
    Rates,
    InFlight,
}

/// The verdict of one policy on a query, over all its limits.
struct PolicyVerdict<'a> {
    policy: &'a Policy,
    mode: Mode,
    is_denied: bool,
    /// True if a limit has less than a fifth of its capacity left.
    is_near: bool,
    /// `None` if the policy denied without asking the store.
    standing: Option<StandingSummary<'a>>,
}

/// The standings of a policy's limits.
struct StandingSummary<'a> {
    /// The first of the policy's limits.
    limit: &'a Limit,
    /// The policy's index in the rule set.
    index: usize,
    /// The least reliable basis of all its limits.
    basis: Basis,
}

/// A text that is cut off at [`TEXT_MAX`] bytes.
struct Truncated<'a>(&'a mut String);

impl<C: Clock> Telemetry<C> {
    /// Empty counters. `clock` is the wall clock; it is read at denials only. `timer` is read twice for each decision.
    pub fn new(warnings: Warnings, clock: C, timer: Arc<dyn Clock>) -> Self {
        Self {
            checks: Checks::default(),
            decisions: Decisions::default(),
            denials: Denials::default(),
            history: History::default(),
            recorder: Recorder::default(),
            n_uncovered: AtomicU64::new(0),
            warnings: warnings.throttle(),
            shadow_warnings: warnings.throttle(),
            clock,
            timer,
        }
    }

    /// How long decisions took, by algorithm.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// Decisions so far, by policy.
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The most denied clients and the last denials.
    pub fn denials(&self) -> &Denials {
        &self.denials
    }

    /// The last 15 minutes.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Decisions one by one, while the live page is open.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Records decisions until as many calls of [`Telemetry::close_page`]. False if `n_max` pages are open already.
    pub(crate) fn open_page(&self, n_max: usize) -> bool {
        self.recorder.open(n_max, |is_open| self.decisions.set_recording(is_open))
    }

    /// Ends the recording that [`Telemetry::open_page`] started.
    pub(crate) fn close_page(&self) {
        self.recorder.close(|is_open| self.decisions.set_recording(is_open));
    }

    /// Reads the counters into the history. To be called about once a second.
    pub fn sample(&self) {
        self.history.sample(self, self.recorder.is_open());
        self.recorder.end_second();
    }

    /// Decisions on requests that no policy on rates covers.
    fn n_uncovered(&self) -> u64 {
        self.n_uncovered.load(Relaxed)
    }

    /// The wall clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }
}

impl<C: Clock> Observe for TelemetryObserver<C> {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::Rates(telemetry) => telemetry.timer.now(),
            Self::InFlight(_) => Timestamp::default(),
        }
    }

    #[inline]
    fn observe(&self, query: &Query<'_>, decision: &Decision, begun_at: Timestamp) {
        if matches!(query.ask, Ask::Look(_)) {
            return;
        }
        match self {
            Self::Rates(telemetry) => {
                telemetry.measure(decision, begun_at);
                telemetry.count(query, decision, ObservedLimiter::Rates);
            }
            Self::InFlight(telemetry) => telemetry.count(query, decision, ObservedLimiter::InFlight),
        }
    }
}

impl<C: Clock> Telemetry<C> {
    /// Counts a decision with its duration, under the algorithm of the deciding policy.
    #[inline]
    fn measure(&self, decision: &Decision, begun_at: Timestamp) {
        match deciding_algorithm(decision) {
            Some(algorithm) => {
                self.checks.observe(algorithm, decision.verdict(), self.timer.now().since(begun_at));
            }
            None => drop(self.n_uncovered.fetch_add(1, Relaxed)),
        }
    }

    /// Counts the verdict of each policy, and records a denial.
    #[inline]
    fn count(&self, query: &Query<'_>, decision: &Decision, limiter: ObservedLimiter) {
        let after_count = self.decisions.count(decision, query.entrypoint);
        if decision.verdict() == Verdict::Allow && after_count.is_nothing() {
            decision_log::allowed(query, decision);
        } else {
            self.note(query, decision, after_count, limiter);
        }
    }

    /// Remembers and logs a denial, or what would be one if the policy were enforced. Records the decision for the live page,
    /// if it is open. A request that a limit on requests in flight allows is recorded by the limiter on rates, which decides next.
    #[cold]
    fn note(
        &self,
        query: &Query<'_>,
        decision: &Decision,
        after_count: AfterCount,
        limiter: ObservedLimiter,
    ) {
        let is_final = limiter == ObservedLimiter::Rates || decision.verdict() == Verdict::Deny;
        if is_final && after_count.is_recorded() && self.recorder.is_sampled(query.address) {
            self.recorder.record(query, decision, after_count.is_shadow_denied(), self.clock.now());
        }
        if decision.verdict() == Verdict::Deny || after_count.is_shadow_denied() {
            self.denied(query, decision, limiter);
        } else {
            decision_log::allowed(query, decision);
        }
    }

    fn denied(&self, query: &Query<'_>, decision: &Decision, limiter: ObservedLimiter) {
        let now = self.clock.now();
        self.denials.record(query, decision, limiter, now);
        let warnings = match decision.verdict() {
            Verdict::Deny => &self.warnings,
            Verdict::Allow => &self.shadow_warnings,
        };
        if let Some(suppressed) = warnings.admit_at(now.as_micros()) {
            decision_log::denied(query, decision, suppressed);
        }
    }
}

/// The verdict of each policy, in the order of selection. The limits of a policy are adjacent there.
#[inline]
fn policy_verdicts(decision: &Decision) -> impl Iterator<Item = PolicyVerdict<'_>> {
    let mut standings = decision.standings().peekable();
    let verdicts = std::iter::from_fn(move || {
        let (policy, limit, standing) = standings.next()?;
        let (mut is_denied, mut basis) = (standing.is_over(), standing.basis);
        let mut is_near = is_near(limit, standing);
        while let Some((_, limit, more)) = standings.next_if(|(next, _, _)| std::ptr::eq(*next, policy)) {
            is_denied |= more.is_over();
            is_near |= self::is_near(limit, more);
            basis = basis.max(more.basis);
        }
        let summary = Some(StandingSummary { limit, index: standing.limit.policy(), basis });
        Some(PolicyVerdict { policy, mode: standing.limit.mode(), is_denied, is_near, standing: summary })
    });
    verdicts.chain(decision.refused().map(|(policy, _)| {
        // The request lacks an attribute that the policy counts by.
        PolicyVerdict { policy, mode: Mode::Enforce, is_denied: true, is_near: false, standing: None }
    }))
}

/// True if less than a fifth of a limit's capacity is left. False if the store gave no answer.
#[inline]
fn is_near(limit: &Limit, standing: &Standing) -> bool {
    let (left, capacity) = (u64::from(standing.remaining), u64::from(standing.capacity(limit).get()));
    5 * left < capacity && standing.outcome != Outcome::Unknown
}

/// The algorithm of the deciding policy: the one that denied, else the one that the headers show, else the first in shadow
/// mode. `None`: no policy covers the query.
#[inline]
fn deciding_algorithm(decision: &Decision) -> Option<Algorithm> {
    let of = |limit: &Limit| limit.quota().algorithm();
    if let Some((policy, _)) = decision.refused() {
        return policy.limits().first().map(of);
    }
    let limit = decision.tightest().or_else(|| decision.standings().next());
    limit.map(|(_, limit, _)| of(limit))
}

/// The deciding policy and its limit: the policy that denied, else the tightest.
fn deciding_policy(decision: &Decision) -> Option<(&Policy, Option<&Limit>)> {
    let refused = decision.refused().map(|(policy, _)| (policy, None));
    refused.or_else(|| decision.tightest().map(|(policy, limit, _)| (policy, Some(limit))))
}

/// A denial as it is recorded and logged.
struct DenialSummary<'a> {
    policy: &'a Policy,
    /// The limit that denied. `None`: the query could not be counted.
    limit: Option<&'a Limit>,
    mode: Mode,
    /// `None`: retrying never helps.
    retry_after: Option<Micros>,
    basis: Option<Basis>,
}

/// The summary of a denial. For an allowed query: of the first policy in shadow mode that would have denied it.
fn denial_summary(decision: &Decision) -> Option<DenialSummary<'_>> {
    if decision.verdict() == Verdict::Deny {
        let (policy, limit) = deciding_policy(decision)?;
        let (retry_after, basis) = (decision.retry_after(), decision.basis());
        return Some(DenialSummary { policy, limit, mode: Mode::Enforce, retry_after, basis });
    }
    let is_denied = |standing: &Standing| standing.limit.mode() == Mode::Shadow && standing.is_over();
    let (policy, limit, standing) = decision.standings().find(|(_, _, standing)| is_denied(standing))?;
    let (mode, basis) = (Mode::Shadow, Some(standing.basis));
    Some(DenialSummary { policy, limit: Some(limit), mode, retry_after: standing.retry_after(), basis })
}

/// Writes the client that a limit counts the query for: its key, as `inspect` takes it. Without a limit, its address. The
/// value of a header, a cookie or a parameter may be a secret, so only a digest of it is written.
fn write_client(client: &mut String, query: &Query<'_>, limit: Option<&Limit>) {
    let Some(key) = limit.and_then(|limit| Key::new(limit.name(), query.attributes)) else {
        return push_truncated(client, query.values(&AttributeName::<&str>::Ip).next());
    };
    for (n, (value, attribute)) in key.values().zip(key.attributes()).enumerate() {
        let bar = if n > 0 { "|" } else { "" };
        // Writing to a truncated text cannot fail.
        let _ = if may_be_secret(&attribute.name) {
            write_digest(client, bar, attribute)
        } else {
            push_truncated(client, Some(bar));
            write!(Escaped(Truncated(client)), "{value}")
        };
    }
}

/// Writes a digest that distinguishes values without revealing them: a value may be a secret.
fn write_digest(client: &mut String, bar: &str, attribute: Attribute<'_>) -> fmt::Result {
    let digest = digest(&SHA256, attribute.value.as_bytes());
    let [a, b, c, d, ..] = digest.as_ref() else { return Ok(()) };
    write!(Truncated(client), "{bar}{}:#{a:02x}{b:02x}{c:02x}{d:02x}", attribute.name)
}

/// The basis of a decision, as metrics and logs write it.
pub(crate) fn basis_name(basis: Option<Basis>) -> &'static str {
    basis.map_or("none", Basis::name)
}

/// Appends a text, cut off at [`TEXT_MAX`] bytes.
fn push_truncated(text: &mut String, more: Option<&str>) {
    let _ = Truncated(text).write_str(more.unwrap_or_default());
}

impl fmt::Write for Truncated<'_> {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = TEXT_MAX.saturating_sub(self.0.len());
        self.0.push_str(more.split_at(more.floor_char_boundary(room)).0);
        Ok(())
    }
}

impl<C> Clone for TelemetryObserver<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Rates(telemetry) => Self::Rates(Arc::clone(telemetry)),
            Self::InFlight(telemetry) => Self::InFlight(Arc::clone(telemetry)),
        }
    }
}

impl<C: fmt::Debug> fmt::Debug for Telemetry<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("checks", &self.checks)
            .field("decisions", &self.decisions)
            .finish_non_exhaustive()
    }
}
