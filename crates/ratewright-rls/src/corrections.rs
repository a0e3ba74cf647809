//! Corrections that follow the response.
//!
//! A decision makes one call to the store, so it waits for one deadline at most, in every mode. What that call could not know is corrected
//! after the response:
//!
//! | what the call found | what follows the response |
//! |---|---|
//! | the request is denied, by a rule in record mode or because all quotas are used up, and others were charged | their units are given back |
//! | one of several limits of a quota is used up, and the others were charged | their units are given back |
//! | the request is denied by a veto, which kept rules in record mode from being counted | they are recorded |
//! | negative hits | they are given back |
//!
//! The response shows the standings after these corrections, as far as they are known, and never more units than are left. Until the
//! corrections are applied, a bucket that is owed a refund holds too few units, and one whose record is still to come too many.

use std::convert::Infallible;

use futures_util::future::join;
use ratewright_core::{
    Act, Algorithm, Basis, Charge, Charges, Limiter, Micros, Observe, Outcome, Quota, Receipt, Refill,
    Refund, Standing, Standings, Store,
};
use smallvec::SmallVec;

use crate::matching::Hits;
use crate::rules::Compat;
use crate::settlement::Settlement;

/// Refunds and records that follow the response.
#[derive(Default)]
pub(crate) struct Corrections<'a> {
    refunds: Vec<Refund<'a>>,
    records: Charges<'a>,
}

impl<'a> Corrections<'a> {
    /// Finds the corrections, and updates the standings to what they will be.
    pub(crate) fn of(
        settlement: &Settlement<'a, '_>,
        standings: &mut Standings,
        is_over: bool,
        compat: Compat,
    ) -> Self {
        let costs: SmallVec<[u32; 4]> =
            (0..standings.len()).map(|n| to_give_back(settlement, standings, n, is_over, compat)).collect();
        let mut corrections = Self::default();
        for (n, (charge, cost)) in settlement.charges.iter().zip(costs).enumerate() {
            let standing = &mut standings[n];
            if cost > 0
                && let Some(receipt) = standing.take_receipt()
            {
                if is_known_to_return(
                    charge,
                    &receipt,
                    settlement.matches[settlement.descriptor_numbers[n]].hits,
                ) {
                    give_back(standing, charge.quota, cost);
                }
                let (key, quota, basis) = (charge.key, charge.quota, standing.basis);
                corrections.refunds.push(Refund {
                    key,
                    quota,
                    receipt: Receipt { cost, ..receipt },
                    basis,
                    id: None,
                });
            }
            if let Act::Record(hits @ 1..) = charge.act
                && was_not_applied(standing)
            {
                record(standing, charge.quota, hits);
                corrections.records.push(charge.clone());
            }
        }
        corrections
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.refunds.is_empty() && self.records.is_empty()
    }

    /// Makes the corrections, both kinds at once.
    pub(crate) async fn apply<S, O>(self, limiter: &Limiter<S, O>)
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let refunding = async {
            if !self.refunds.is_empty() {
                let Ok(_) = limiter.store().refund(&self.refunds).await;
            }
        };
        let recording = async {
            if !self.records.is_empty() {
                let _nobody_asks_any_more = limiter.apply(&self.records).await;
            }
        };
        join(refunding, recording).await;
    }
}

/// How many units of a charge are given back: those that a denied request was charged, and its negative hits.
fn to_give_back(
    settlement: &Settlement<'_, '_>,
    standings: &Standings,
    n: usize,
    is_over: bool,
    compat: Compat,
) -> u32 {
    let Outcome::Paid(receipt) = &standings[n].outcome else { return 0 };
    let descriptor_number = settlement.descriptor_numbers[n];
    let mut of_payer =
        settlement.descriptor_numbers.iter().zip(standings).filter(|(other, _)| **other == descriptor_number);
    match (settlement.matches[descriptor_number].hits, settlement.charges[n].act) {
        (Hits::GiveBack(_), _) if is_over && compat == Compat::AllOrNothing => 0,
        (Hits::GiveBack(hits), _) => hits,
        (Hits::Spend(_), Act::Record(_) | Act::Look(_)) => 0,
        (Hits::Spend(_), Act::Take(_) | Act::Try(_)) => {
            let is_in_vain = is_over || of_payer.any(|(_, standing)| standing.is_over());
            if is_in_vain { receipt.cost } else { 0 }
        }
    }
}

/// True if a record was not applied because another charge vetoed. One without a response from the store may have been applied.
fn was_not_applied(standing: &Standing) -> bool {
    match standing.outcome {
        Outcome::Paid(_) => false,
        Outcome::Fits | Outcome::Short { .. } | Outcome::Never => true,
        Outcome::Unknown => standing.basis == Basis::Shared,
    }
}

/// True if all units are sure to return. Negative hits return to a counter or a bucket that is within its limit; a sliding window needs to know
/// when they were spent.
fn is_known_to_return(charge: &Charge<'_>, receipt: &Receipt, hits: Hits) -> bool {
    match (hits, charge.quota.algorithm()) {
        (Hits::Spend(_), _) => true,
        (Hits::GiveBack(_), Algorithm::SlidingWindow | Algorithm::SlidingWindowCounter) => false,
        (
            Hits::GiveBack(_),
            Algorithm::FixedWindow(_) | Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_),
        ) => !receipt.is_past,
    }
}

/// Updates a standing for units that are given back.
fn give_back(standing: &mut Standing, quota: &Quota, units: u32) {
    let capacity = quota.capacity().get();
    standing.remaining = standing.remaining.saturating_add(units).min(capacity);
    if standing.remaining == capacity {
        standing.reset_after = Micros::ZERO;
    } else if is_continuous(quota) {
        let earned = quota.time_to_earn(units.into()).micros(); // rounded down: waiting so long is always enough
        standing.reset_after = standing.reset_after.saturating_sub(Micros::new(earned));
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
