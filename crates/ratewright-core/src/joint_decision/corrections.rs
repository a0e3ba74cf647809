//! Corrections that follow a decision over several queries.
//!
//! The decision makes one call to the store, so it waits for one deadline at most. Corrections that depend on the result follow:
//!
//! | result | correction |
//! |---|---|
//! | the request is denied: a record exceeds its limit, or every query with `Veto::Together` does | refund all but the records |
//! | one limit of a query is used up, its other limits were charged | refund these charges |
//! | a veto denied the request, so no record was applied | apply the records |
//! | a query has `gives_back` | refund those units |
//!
//! The decision shows the standings after these corrections, as far as they are known, and never more units than are left. Until
//! they are made, a bucket with a pending refund has too few units, and a bucket with a pending record has too many.

use smallvec::SmallVec;

use super::{GiveBack, JointCharges, JointQuery, JointQuota};
use crate::charge::{Act, Charge, Charges, Refund};
use crate::policies::{LimitId, Policies};
use crate::quota::{Algorithm, Quota, Refill, Share};
use crate::standing::{Basis, Outcome, Receipt, Standing, Standings};

/// Refunds and records that follow a decision.
#[derive(Debug, Default)]
pub(crate) struct Corrections {
    refunds: Vec<DueRefund>,
    records: Vec<DueRecord>,
}

/// Units to give back.
#[derive(Debug)]
struct DueRefund {
    /// The number of the query that was charged.
    number: usize,
    limit: LimitId,
    receipt: Receipt,
    basis: Basis,
    share: Option<Share>,
}

/// Units to record.
#[derive(Debug)]
struct DueRecord {
    /// The number of the query that records them.
    number: usize,
    limit: LimitId,
    units: u32,
}

impl Corrections {
    /// Finds the corrections, and updates the standings to what they will be.
    pub(crate) fn of(joint: &JointCharges<'_>, standings: &mut Standings, is_over: bool) -> Self {
        let due: SmallVec<[u32; 4]> = joint
            .numbers()
            .enumerate()
            .map(|(n, number)| units_due(joint, standings, (n, number), is_over))
            .collect();
        let mut corrections = Self::default();
        for (n, (number, units)) in joint.numbers().zip(due).enumerate() {
            let (charge, standing) = (&joint.charges[n], &mut standings[n]);
            if units > 0
                && let Some(receipt) = standing.take_receipt()
            {
                if is_known_to_return(charge, &receipt, joint.queries[number].gives_back) {
                    standing.give_back(units, charge.quota);
                }
                let (limit, basis, share) = (charge.limit, standing.basis, standing.share);
                let receipt = Receipt { cost: units, ..receipt };
                corrections.refunds.push(DueRefund { number, limit, receipt, basis, share });
            }
            if let Act::Record(units @ 1..) = charge.act
                && was_not_applied(standing)
            {
                let quota = standing.quota_in_force(charge.quota);
                record(standing, &quota, units);
                corrections.records.push(DueRecord { number, limit: charge.limit, units });
            }
        }
        corrections
    }

    /// The refunds, for the queries that were decided. Each is there once.
    pub(crate) fn take_refunds<'a>(
        &mut self,
        policies: &'a Policies,
        queries: &'a [JointQuery<'a>],
    ) -> Vec<Refund<'a>> {
        let due = std::mem::take(&mut self.refunds).into_iter();
        let refunds = due.filter_map(|DueRefund { number, limit, receipt, basis, share }| {
            let Charge { key, quota, .. } = charge(policies, queries.get(number)?, limit, Act::Record(0))?;
            Some(Refund { key, quota, receipt, basis, share, id: None })
        });
        refunds.collect()
    }

    /// The records, for the queries that were decided.
    pub(crate) fn records<'a>(&self, policies: &'a Policies, queries: &'a [JointQuery<'a>]) -> Charges<'a> {
        let records = self.records.iter().filter_map(|DueRecord { number, limit, units }| {
            charge(policies, queries.get(*number)?, *limit, Act::Record(*units))
        });
        records.collect()
    }
}

/// The charge of a query under one limit.
fn charge<'a>(
    policies: &'a Policies,
    joint: &'a JointQuery<'a>,
    limit: LimitId,
    act: Act,
) -> Option<Charge<'a>> {
    let (policy, found) = policies.limit(limit)?;
    let quota = match joint.quota {
        JointQuota::Instead(quota) => quota,
        JointQuota::OfPolicy | JointQuota::Zero(_) => found.quota(),
    };
    let key = joint.query.key(found.name(), limit)?;
    let (patience, on_failure) = (joint.query.patience, policy.on_failure());
    Some(Charge { limit, key, quota, act, patience, on_failure })
}

/// How many units of a charge are given back: those that a denied request was charged, and those that its query gives back. `n` is
/// the number of the charge, `number` that of its query.
fn units_due(
    joint: &JointCharges<'_>,
    standings: &[Standing],
    (n, number): (usize, usize),
    is_over: bool,
) -> u32 {
    let Outcome::Charged(receipt) = &standings[n].outcome else { return 0 };
    match (joint.queries[number].gives_back, joint.charges[n].act) {
        (Some(gives_back), _) => gives_back.units(is_over),
        (None, Act::Record(_) | Act::Look(_)) => 0,
        (None, Act::Take(_) | Act::Try(_) | Act::Join(_)) => {
            let mut own = joint.numbers().zip(standings).filter(|(other, _)| *other == number);
            let is_in_vain = is_over || own.any(|(_, standing)| standing.is_over());
            if is_in_vain { receipt.cost } else { 0 }
        }
    }
}

/// True if a record was not applied because another charge vetoed. One without a response from the store may have been applied.
fn was_not_applied(standing: &Standing) -> bool {
    match standing.outcome {
        Outcome::Charged(_) => false,
        Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never => true,
        Outcome::Unknown => standing.basis == Basis::Shared,
    }
}

/// True if all units are sure to return. Units that a query gives back return to a counter or a bucket that is within its limit; a
/// sliding window needs to know when they were spent.
fn is_known_to_return(charge: &Charge<'_>, receipt: &Receipt, gives_back: Option<GiveBack>) -> bool {
    match (gives_back, charge.quota.algorithm()) {
        (None, _) => true,
        (Some(_), Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter) => false,
        (Some(_), Algorithm::FixedWindow(_) | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_)) => {
            !receipt.is_past
        }
    }
}

/// Updates a standing for units that are recorded.
fn record(standing: &mut Standing, quota: &Quota, units: u32) {
    standing.remaining = standing.remaining.saturating_sub(units);
    if is_continuous(quota) {
        standing.reset_after = standing.reset_after + quota.time_to_earn(units.into()).ceil();
    } else if standing.reset_after.is_zero() && !matches!(quota.algorithm(), Algorithm::FixedWindow(_)) {
        standing.reset_after = quota.window();
    }
}

/// True for a bucket to which each unit returns as soon as it is due.
fn is_continuous(quota: &Quota) -> bool {
    match quota.algorithm() {
        Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => true,
        Algorithm::TokenBucket(Refill::Stepped)
        | Algorithm::SlidingWindow
        | Algorithm::SlidingWindowCounter
        | Algorithm::FixedWindow(_) => false,
    }
}
