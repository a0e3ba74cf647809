//! All charges of a request: applies them, and finds the outcome of each descriptor.

use std::convert::Infallible;

use ratewright_core::{Act, Charges, Limiter, Observe, Query, Standing, Standings, Store, Timestamp};
use smallvec::SmallVec;

use crate::matching::{ChargedDescriptor, DescriptorMatch, charge};
use crate::rules::{Compat, RuleSet};
use crate::status::DescriptorOutcome;

/// All charges of a request.
pub(crate) struct Settlement<'a, 'm> {
    pub(crate) matches: &'a [DescriptorMatch<'m>],
    pub(crate) charges: Charges<'a>,
    /// The number of the descriptor of each charge, in order.
    pub(crate) descriptor_numbers: SmallVec<[usize; 4]>,
}

impl<'a, 'm> Settlement<'a, 'm> {
    /// The charges of these descriptors, each with its query.
    pub(crate) fn new(
        rules: &'a RuleSet,
        matches: &'a [DescriptorMatch<'m>],
        charged: &[ChargedDescriptor<'_>],
        queries: &[Query<'a>],
    ) -> Self {
        let mut settlement = Self { matches, charges: Charges::new(), descriptor_numbers: SmallVec::new() };
        for (charged, query) in charged.iter().zip(queries) {
            charge(rules, &matches[charged.number], query, &mut settlement.charges);
            settlement.descriptor_numbers.resize(settlement.charges.len(), charged.number);
        }
        settlement
    }

    /// Applies all charges in one call, so that the decision takes at most one deadline of the store. If a limit of zero denies the request, the
    /// charges only look.
    ///
    /// What the one call cannot know is corrected after the response: see [`Corrections`](crate::corrections::Corrections).
    pub(crate) async fn settle<S, O>(&mut self, limiter: &Limiter<S, O>, compat: Compat) -> Standings
    where
        S: Store<Error = Infallible>,
        O: Observe,
    {
        if compat == Compat::AllOrNothing && self.matches.iter().any(DescriptorMatch::is_lost) {
            for charge in &mut self.charges {
                if let Act::Take(cost) | Act::Try(cost) = charge.act {
                    charge.act = Act::Look(cost.get());
                }
            }
        }
        limiter.apply(&self.charges).await
    }

    /// The outcome of each descriptor.
    pub(crate) fn outcomes(
        &self,
        standings: &[Standing],
        now: Timestamp,
    ) -> SmallVec<[DescriptorOutcome; 4]> {
        let mut begin = 0;
        let outcomes = self.matches.iter().enumerate().map(|(number, matches)| {
            let n_charges = self.descriptor_numbers[begin..]
                .iter()
                .take_while(|descriptor_number| **descriptor_number == number)
                .count();
            let range = begin..begin + n_charges;
            begin = range.end;
            DescriptorOutcome::of(matches, &self.charges[range.clone()], &standings[range], now)
        });
        outcomes.collect()
    }
}
