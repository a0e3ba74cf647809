//! What is counted and told of the decisions that are made.
//!
//! ```text
//!   Limiter ─observe→ Watch ─ how long it took ──────→ Checks      rate_limiter_*
//!                           ├ what each policy said ──→ Decisions   ratewright_decisions_total, _near_limit_total
//!                           └ each denial, at its time → Denials    who is being denied
//!                                                      → the log    a bounded rate of warnings
//! ```
//!
//! A decision counts once in `Checks`, under the algorithm of the policy that decided it, and once for each policy in
//! `Decisions`. A limit on requests in flight has none of the algorithms, so its decisions are in `Decisions` only.
//!
//! A denial by a policy in shadow mode is recorded and logged too, marked as `shadow`: the request was let through.
//!
//! Counting must cost next to nothing where most requests go through: an allowed decision adds to one atomic for
//! each of its policies (two, near its limit) and to two for its duration, reads a cheap clock twice, takes no lock and
//! allocates nothing. A denial may cost a little more.
//!
//! No client ever becomes a label: labels are bounded by what an administrator wrote, clients by nobody. Who is being
//! denied is kept apart, in a sketch of fixed size.
//!
//! A look at how things stand lets nobody through and holds nobody back; it is not counted.

mod checks;
mod decisions;
mod denials;
mod tally;
#[cfg(test)]
mod tests;
mod warn;

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::key::Escaped;
use aws_lc_rs::digest::{SHA256, digest};
use ratewright_core::{
    Algorithm, Ask, Attribute, AttributeName, Basis, Clock, Decision, Key, Limit, Micros, Mode, Observe,
    Outcome, Policy, Query, Standing, Timestamp, Verdict, sounds_secret,
};

pub use checks::{Check, Checks};
pub use decisions::{Count, Decisions, NearLimit};
pub use denials::{Denial, Denials, Denied};
pub use warn::{WarnLimit, Warnings};

/// The longest text kept of a client, a method or a path, in bytes.
const TEXT_MAX: usize = 256;

/// Is told of each decision: counts it, remembers whom it denied, and logs it.
pub struct Watch<C> {
    checks: Checks,
    decisions: Decisions,
    denials: Denials,
    warnings: WarnLimit,
    /// A flood of shadow denials must not silence the others.
    shadow_warnings: WarnLimit,
    /// Tells the time of day of a denial.
    clock: C,
    /// Measures how long decisions take.
    timer: Arc<dyn Clock>,
}

/// Observes one limiter for a [`Watch`].
#[derive(Debug)]
pub enum Watcher<C> {
    /// A limiter on rates.
    Rates(Arc<Watch<C>>),
    /// A limiter on requests in flight.
    InFlight(Arc<Watch<C>>),
}

/// What one policy says of a query, over all its limits.
struct Word<'a> {
    policy: &'a Policy,
    mode: Mode,
    is_against: bool,
    /// True if a limit has less than a fifth of its capacity left.
    is_near: bool,
    /// What it rests on; nothing if it needed no store to say so.
    ground: Option<Ground<'a>>,
}

/// What a policy's word rests on.
struct Ground<'a> {
    /// The first of the policy's limits.
    limit: &'a Limit,
    /// The policy's number within the rule set.
    index: usize,
    /// The least firm basis of all its limits.
    basis: Basis,
}

/// A text that takes as much as there is room for.
struct Short<'a>(&'a mut String);

impl<C: Clock> Watch<C> {
    /// Nothing seen yet. `clock` is the wall clock; it is read at denials only. `timer` is read twice for each decision.
    pub fn new(warnings: Warnings, clock: C, timer: Arc<dyn Clock>) -> Self {
        Self {
            checks: Checks::default(),
            decisions: Decisions::default(),
            denials: Denials::default(),
            warnings: WarnLimit::new(warnings),
            shadow_warnings: WarnLimit::new(warnings),
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

    /// Who is being denied.
    pub fn denials(&self) -> &Denials {
        &self.denials
    }

    /// The wall clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }
}

impl<C: Clock> Observe for Watcher<C> {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::Rates(watch) => watch.timer.now(),
            Self::InFlight(_) => Timestamp::default(),
        }
    }

    #[inline]
    fn observe(&self, query: &Query<'_>, decision: &Decision, begun_at: Timestamp) {
        if matches!(query.ask, Ask::Look(_)) {
            return;
        }
        match self {
            Self::Rates(watch) => {
                watch.measure(decision, begun_at);
                watch.count(query, decision);
            }
            Self::InFlight(watch) => watch.count(query, decision),
        }
    }
}

impl<C: Clock> Watch<C> {
    /// Counts a decision with its duration, under the algorithm of the policy that decided.
    #[inline]
    fn measure(&self, decision: &Decision, begun_at: Timestamp) {
        if let Some(algorithm) = deciding(decision) {
            self.checks.observe(algorithm, decision.verdict(), self.timer.now().since(begun_at));
        }
    }

    /// Counts what each policy said, and records a denial.
    #[inline]
    fn count(&self, query: &Query<'_>, decision: &Decision) {
        let is_shadow_denied = self.decisions.count(decision, query.entrypoint);
        match decision.verdict() {
            Verdict::Deny => self.denied(query, decision),
            Verdict::Allow if is_shadow_denied => self.denied(query, decision),
            Verdict::Allow => warn::allowed(query, decision),
        }
    }

    /// Remembers and logs a denial, or what would have been one if the policy were enforced.
    #[cold]
    fn denied(&self, query: &Query<'_>, decision: &Decision) {
        let now = self.clock.now();
        self.denials.record(query, decision, now);
        let warnings = match decision.verdict() {
            Verdict::Deny => &self.warnings,
            Verdict::Allow => &self.shadow_warnings,
        };
        if let Some(suppressed) = warnings.admit(now) {
            warn::denied(query, decision, suppressed);
        }
    }
}

/// What each policy says, in the order of selection. The limits of a policy stand together there.
#[inline]
fn words(decision: &Decision) -> impl Iterator<Item = Word<'_>> {
    let mut standings = decision.standings().peekable();
    let words = std::iter::from_fn(move || {
        let (policy, limit, standing) = standings.next()?;
        let (mut is_against, mut basis) = (standing.is_over(), standing.basis);
        let mut is_near = is_near(limit, standing);
        while let Some((_, limit, more)) = standings.next_if(|(next, _, _)| std::ptr::eq(*next, policy)) {
            is_against |= more.is_over();
            is_near |= self::is_near(limit, more);
            basis = basis.max(more.basis);
        }
        let ground = Some(Ground { limit, index: standing.limit.policy(), basis });
        Some(Word { policy, mode: standing.limit.mode(), is_against, is_near, ground })
    });
    words.chain(decision.refused().map(|(policy, _)| {
        // It lacks what it is counted by.
        Word { policy, mode: Mode::Enforce, is_against: true, is_near: false, ground: None }
    }))
}

/// True if less than a fifth of a limit's capacity is left. Nobody knows how much is left without an answer of a store.
#[inline]
fn is_near(limit: &Limit, standing: &Standing) -> bool {
    let (left, capacity) = (u64::from(standing.remaining), u64::from(limit.quota().capacity().get()));
    5 * left < capacity && standing.outcome != Outcome::Unknown
}

/// The algorithm of the policy that decided: that which denied, else that which the headers speak of, else the first in
/// shadow mode. None: no policy covers the query.
#[inline]
fn deciding(decision: &Decision) -> Option<Algorithm> {
    let of = |limit: &Limit| limit.quota().algorithm();
    if let Some((policy, _)) = decision.refused() {
        return policy.limits().first().map(of);
    }
    let limit = decision.tightest().or_else(|| decision.standings().next());
    limit.map(|(_, limit, _)| of(limit))
}

/// The policy that an account of a decision names, if it can name one only, and the limit.
fn speaker(decision: &Decision) -> Option<(&Policy, Option<&Limit>)> {
    let refused = decision.refused().map(|(policy, _)| (policy, None));
    refused.or_else(|| decision.tightest().map(|(policy, limit, _)| (policy, Some(limit))))
}

/// A denial as it is recorded and logged.
struct Account<'a> {
    policy: &'a Policy,
    /// The limit that had no room. None: the query could not be counted.
    limit: Option<&'a Limit>,
    mode: Mode,
    /// None: never.
    retry_after: Option<Micros>,
    basis: Option<Basis>,
}

/// The account of a denial. Of an allowed query: of the first policy in shadow mode that would have denied it.
fn account(decision: &Decision) -> Option<Account<'_>> {
    if decision.verdict() == Verdict::Deny {
        let (policy, limit) = speaker(decision)?;
        let (retry_after, basis) = (decision.retry_after(), decision.basis());
        return Some(Account { policy, limit, mode: Mode::Enforce, retry_after, basis });
    }
    let is_denied = |standing: &Standing| standing.limit.mode() == Mode::Shadow && standing.is_over();
    let (policy, limit, standing) = decision.standings().find(|(_, _, standing)| is_denied(standing))?;
    let (mode, basis) = (Mode::Shadow, Some(standing.basis));
    Some(Account { policy, limit: Some(limit), mode, retry_after: standing.retry_after(), basis })
}

/// Writes who a limit counts a query for: its key, as one can ask for it. Who is counted under no limit is known
/// by their address. What stands in a header, a cookie or a parameter may be a secret, so only a digest of it is told.
fn write_client(client: &mut String, query: &Query<'_>, limit: Option<&Limit>) {
    let Some(key) = limit.and_then(|limit| Key::new(limit.name(), query.attributes)) else {
        return push(client, query.values(&AttributeName::<&str>::Ip).next());
    };
    for (n, (value, attribute)) in key.values().zip(key.attributes()).enumerate() {
        let bar = if n > 0 { "|" } else { "" };
        // There is always room for none of it.
        let _ = match attribute.name {
            AttributeName::Header(_) | AttributeName::Cookie(_) | AttributeName::Param(_) => {
                digested(client, bar, attribute)
            }
            // Entries are all of a descriptor in one text, for limits that a request brought along.
            AttributeName::Named(name) if sounds_secret(name) || name == "entries" => {
                digested(client, bar, attribute)
            }
            AttributeName::Ip
            | AttributeName::User
            | AttributeName::Method
            | AttributeName::Path
            | AttributeName::Host
            | AttributeName::Route
            | AttributeName::Key
            | AttributeName::Claim(_)
            | AttributeName::Named(_) => {
                push(client, Some(bar));
                write!(Escaped(Short(client)), "{value}")
            }
        };
    }
}

/// Writes what tells a value from others without telling the value, since it may be a secret.
fn digested(client: &mut String, bar: &str, attribute: Attribute<'_>) -> fmt::Result {
    let digest = digest(&SHA256, attribute.value.as_bytes());
    let [a, b, c, d, ..] = digest.as_ref() else { return Ok(()) };
    write!(Short(client), "{bar}{}:#{a:02x}{b:02x}{c:02x}{d:02x}", attribute.name)
}

/// What a decision rests on, as metrics and logs write it.
pub(crate) fn basis_name(basis: Option<Basis>) -> &'static str {
    basis.map_or("none", Basis::name)
}

/// Adds as much of a text as there is room for.
fn push(text: &mut String, more: Option<&str>) {
    let _ = Short(text).write_str(more.unwrap_or_default());
}

impl fmt::Write for Short<'_> {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = TEXT_MAX.saturating_sub(self.0.len());
        self.0.push_str(more.split_at(more.floor_char_boundary(room)).0);
        Ok(())
    }
}

impl<C> Clone for Watcher<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Rates(watch) => Self::Rates(Arc::clone(watch)),
            Self::InFlight(watch) => Self::InFlight(Arc::clone(watch)),
        }
    }
}

impl<C: fmt::Debug> fmt::Debug for Watch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("checks", &self.checks)
            .field("decisions", &self.decisions)
            .finish_non_exhaustive()
    }
}
