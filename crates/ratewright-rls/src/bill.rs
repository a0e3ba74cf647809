//! All charges of a request: how they are settled, what comes back, and how each descriptor stands then.

use std::convert::Infallible;

use ratewright_core::{
    Act, Charge, Charges, Limiter, Observe, Outcome, Receipt, Refund, Standing, Standings, Store, Timestamp,
};
use smallvec::SmallVec;

use crate::met::{Hits, Met};
use crate::rules::Compat;
use crate::status::Told;

/// All charges of a request.
pub(crate) struct Bill<'a, 'm> {
    pub(crate) met: &'a [Met<'m>],
    pub(crate) charges: Charges<'a>,
    /// Whose each of them is: the number of a descriptor, in their order.
    pub(crate) payers: SmallVec<[usize; 4]>,
}

/// Whether something was given back, so that standings are others.
pub(crate) enum GivenBack {
    Nothing,
    Something,
}

impl Bill<'_, '_> {
    /// Records what is to be recorded, and charges all of the rest, or nothing. What is lost already is only weighed.
    pub(crate) async fn settle<S, O>(&mut self, limiter: &Limiter<S, O>) -> Standings
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let mut is_lost = self.met.iter().any(Met::is_lost);
        let is_record = |charge: &Charge<'_>| matches!(charge.act, Act::Record(_));
        let recorded: Charges<'_> = self.charges.iter().filter(|charge| is_record(charge)).cloned().collect();
        let mut standings = Standings::new();
        if !recorded.is_empty() {
            standings = limiter.apply(&recorded).await;
            let payers = self.charges.iter().zip(&self.payers).filter(|(charge, _)| is_record(charge));
            is_lost |= payers
                .zip(&standings)
                .any(|((_, payer), standing)| self.met[*payer].can_deny() && standing.is_past());
        }
        if is_lost {
            for charge in &mut self.charges {
                if let Act::Take(cost) | Act::Try(cost) = charge.act {
                    charge.act = Act::Look(cost.get());
                }
            }
        }
        if recorded.is_empty() {
            return limiter.apply(&self.charges).await;
        }
        let others: Charges<'_> = self.charges.iter().filter(|charge| !is_record(charge)).cloned().collect();
        let mut others = match others.is_empty() {
            true => Standings::new(),
            false => limiter.apply(&others).await,
        }
        .into_iter();
        let mut recorded = standings.into_iter();
        let each = self.charges.iter();
        each.filter_map(|charge| if is_record(charge) { recorded.next() } else { others.next() }).collect()
    }

    /// Gives back what a request must not have paid, and what it says itself.
    ///
    /// Quotas are charged where they fit, since nobody knows before whether all of them are used up; if they are, or if one of several limits
    /// of a quota is, what was paid comes back.
    pub(crate) async fn give_back<S, O>(
        &self,
        limiter: &Limiter<S, O>,
        standings: &mut Standings,
        is_over: bool,
        compat: Compat,
    ) -> GivenBack
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        let is_over_of = |payer: usize| {
            self.payers
                .iter()
                .zip(standings.iter())
                .any(|(other, other_standing)| *other == payer && other_standing.is_over())
        };
        let units = |charge: usize, receipt: &Receipt| {
            let payer = self.payers[charge];
            match (self.met[payer].hits, self.charges[charge].act) {
                (Hits::GiveBack(_), _) if is_over && compat == Compat::AllOrNothing => 0,
                (Hits::GiveBack(hits), _) => hits,
                (Hits::Spend(_), Act::Record(_) | Act::Look(_)) => 0,
                (Hits::Spend(_), Act::Take(_) | Act::Try(_)) if is_over || is_over_of(payer) => receipt.cost,
                (Hits::Spend(_), Act::Take(_) | Act::Try(_)) => 0,
            }
        };
        let costs: SmallVec<[u32; 4]> = standings
            .iter()
            .enumerate()
            .map(|(charge, standing)| match &standing.outcome {
                Outcome::Paid(receipt) => units(charge, receipt),
                Outcome::Fits | Outcome::Short { .. } | Outcome::Never | Outcome::Unknown => 0,
            })
            .collect();
        if costs.iter().all(|cost| *cost == 0) {
            return GivenBack::Nothing;
        }
        let mut again = Charges::new();
        let mut refunds = Vec::new();
        for ((charge, standing), cost) in self.charges.iter().zip(standings.iter_mut()).zip(&costs) {
            if *cost > 0
                && let Some(receipt) = standing.take_receipt()
            {
                let (key, quota, basis) = (charge.key, charge.quota, standing.basis);
                refunds.push(Refund { key, quota, receipt: Receipt { cost: *cost, ..receipt }, basis });
                again.push(Charge { act: Act::Look(0), ..charge.clone() });
            }
        }
        let Ok(()) = limiter.store().refund(&refunds).await;
        let looked = limiter.apply(&again).await;
        let given = standings.iter_mut().zip(&costs).filter(|(_, cost)| **cost > 0).map(|(given, _)| given);
        given.zip(looked).for_each(|(given, looked)| *given = looked);
        GivenBack::Something
    }

    /// How each descriptor stands.
    pub(crate) fn tell(&self, standings: &[Standing], now: Timestamp) -> SmallVec<[Told; 4]> {
        let mut begin = 0;
        let told = self.met.iter().enumerate().map(|(number, met)| {
            let n_charges = self.payers[begin..].iter().take_while(|payer| **payer == number).count();
            let range = begin..begin + n_charges;
            begin = range.end;
            Told::of(met, &self.charges[range.clone()], &standings[range], now)
        });
        told.collect()
    }
}
