//! Several queries that are decided together: [`Limiter::decide_all`](crate::Limiter::decide_all).
//!
//! Envoy sends a request with several descriptors. Each becomes a query; the request passes if none of them denies it.
//!
//! | a query that | is charged by | denies the request |
//! |---|---|---|
//! | spends, [`Veto::Alone`] | [`Act::Take`] | if it does not fit |
//! | spends, [`Veto::Together`] | [`Act::Try`] | if it does not fit, and no other query with this veto fits |
//! | records | [`Act::Record`] | if it exceeds its limit; the units are charged anyway |
//! | looks | [`Act::Look`] | if it would not fit |
//! | gives back | [`Act::Record`] of 0, then a refund | never |
//!
//! A policy in shadow mode never denies. A limit of zero always denies, without a call to the store.
//!
//! # Laws
//! - The decision makes one call to the store. Corrections that depend on its result follow:
//!   [`Limiter::correct`](crate::Limiter::correct).
//! - A denied request is charged only for its queries that record.
//! - The observer sees one decision, or none if no query has a limit.
//!
//! [`Act::Take`]: crate::store::Act::Take
//! [`Act::Try`]: crate::store::Act::Try
//! [`Act::Record`]: crate::store::Act::Record
//! [`Act::Look`]: crate::store::Act::Look

mod charges;
mod corrections;

pub(crate) use charges::{JointCharges, hide_past, show_past};
pub(crate) use corrections::Corrections;

use smallvec::SmallVec;

use crate::decision::{Decision, Verdict};
use crate::policy::{Limit, Mode, Policy};
use crate::query::Query;
use crate::quota::Quota;
use crate::standing::Standing;

/// One of several queries that are decided together.
#[derive(Clone, Debug)]
pub struct JointQuery<'a> {
    /// The query.
    pub query: Query<'a>,
    /// Which quota it is charged under.
    pub quota: JointQuota<'a>,
    /// Whether it denies the request by itself.
    pub veto: Veto,
    /// Units that it refunds. A query with a refund records 0 units, or looks at 0 if there is nothing to refund.
    pub gives_back: Option<GiveBack>,
}

/// Which quota a query is charged under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JointQuota<'a> {
    /// The quota of each limit that the query selects.
    OfPolicy,
    /// This one, in place of the policy's.
    Instead(&'a Quota),
    /// A limit of zero in this mode. The query selects nothing; if the limit is enforced, the query is over it.
    Zero(Mode),
}

/// How a query that is over its limit denies the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Veto {
    /// By itself.
    Alone,
    /// Only if every query with this veto is over its limit. Queries without a limit are ignored.
    Together,
}

/// Units that a query gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveBack {
    /// Unless the request is denied.
    IfAllowed(u32),
    /// Whether the request is denied or not.
    Always(u32),
}

/// Settings for all queries of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JointTerms {
    /// Whether the request can be denied. In shadow mode it is charged as if it could.
    pub mode: Mode,
    /// True if the request reports the cost of a response that was already sent. The verdict says whether a limit is
    /// exceeded; the observer sees no denial.
    pub is_report: bool,
}

/// The result of several queries.
#[must_use = "`Limiter::correct` gives back what a denied request was charged"]
#[derive(Debug)]
pub struct JointDecision {
    pub(crate) decision: Decision,
    pub(crate) verdict: Verdict,
    pub(crate) members: Members,
    pub(crate) corrections: Corrections,
}

/// The results of all queries.
pub(crate) type Members = SmallVec<[Member; 4]>;

/// The result of one query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// The index after its last charge.
    pub(crate) end: usize,
    /// Whether it has a limit.
    pub(crate) has_limit: bool,
    /// Whether it is over its limit. Its veto decides whether that denies the request.
    pub(crate) is_over: bool,
}

impl JointDecision {
    /// Whether the request may pass.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// True if the query of this number is over its limit. False in shadow mode, and for a query that refunds.
    pub fn is_over(&self, number: usize) -> bool {
        self.members.get(number).is_some_and(|member| member.is_over)
    }

    /// The standings of one query after its corrections, with policy and limit, in the order of selection.
    pub fn standings(&self, number: usize) -> impl Iterator<Item = (&Policy, &Limit, &Standing)> {
        let end = |number: usize| self.members.get(number).map_or(0, |member| member.end);
        let begin = number.checked_sub(1).map_or(0, end);
        let standings = self.decision.standings.get(begin..end(number)).unwrap_or_default();
        standings.iter().filter_map(|standing| {
            let (policy, limit) = self.decision.policies.limit(standing.limit)?;
            Some((policy, limit, standing))
        })
    }
}

impl GiveBack {
    /// The units to refund. `is_over`: the request is over its limits.
    pub(crate) fn units(self, is_over: bool) -> u32 {
        match self {
            Self::IfAllowed(_) if is_over => 0,
            Self::IfAllowed(units) | Self::Always(units) => units,
        }
    }
}
