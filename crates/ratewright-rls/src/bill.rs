//! All charges of a request: how they are applied, and how each descriptor stands then.

use std::convert::Infallible;

use ratewright_core::{Act, Charges, Limiter, Observe, Query, Standing, Standings, Store, Timestamp};
use smallvec::SmallVec;

use crate::met::{Asking, Met, charge};
use crate::rules::{Compat, Rules};
use crate::status::Told;

/// All charges of a request.
pub(crate) struct Bill<'a, 'm> {
    pub(crate) met: &'a [Met<'m>],
    pub(crate) charges: Charges<'a>,
    /// Whose each of them is: the number of a descriptor, in their order.
    pub(crate) payers: SmallVec<[usize; 4]>,
}

impl<'a, 'm> Bill<'a, 'm> {
    /// The charges of those that ask, each with its query.
    pub(crate) fn new(
        rules: &'a Rules,
        met: &'a [Met<'m>],
        asking: &[Asking<'_>],
        queries: &[Query<'a>],
    ) -> Self {
        let mut bill = Self { met, charges: Charges::new(), payers: SmallVec::new() };
        for (asking, query) in asking.iter().zip(queries) {
            charge(rules, &met[asking.number], query, &mut bill.charges);
            bill.payers.resize(bill.charges.len(), asking.number);
        }
        bill
    }

    /// Applies all charges in one call, so that the decision takes one deadline of the store at most. A request that a limit of zero
    /// denies is only weighed.
    ///
    /// What the one call cannot know is put right after the answer: see [`Corrections`](crate::corrections::Corrections).
    pub(crate) async fn settle<S, O>(&mut self, limiter: &Limiter<S, O>, compat: Compat) -> Standings
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        if compat == Compat::AllOrNothing && self.met.iter().any(Met::is_lost) {
            for charge in &mut self.charges {
                if let Act::Take(cost) | Act::Try(cost) = charge.act {
                    charge.act = Act::Look(cost.get());
                }
            }
        }
        limiter.apply(&self.charges).await
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
