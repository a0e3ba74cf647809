//! Checks all charges of a call, then spends all or none: the same for every store.

use ratewright_core::Timestamp;
use ratewright_core::algorithm::{Demand, Fit, Level};
use ratewright_core::store::{Basis, Charge, Receipt, Standing, Standings};
use smallvec::SmallVec;

/// The buckets that a call touches, known by the number of the charge.
pub(crate) trait Buckets {
    /// True if two charges are for the same bucket.
    fn is_same(&self, n: usize, other: usize) -> bool;

    /// Checks whether a demand fits. Changes nothing, except that it may repair the state.
    fn fit(&mut self, n: usize, charge: &Charge<'_>, demand: Demand) -> Fit;

    /// Spends the charge's cost, and returns how many units were counted and what is left.
    fn spend(&mut self, n: usize, charge: &Charge<'_>) -> (u32, Level);

    /// What is left.
    fn level(&mut self, n: usize, charge: &Charge<'_>) -> Level;
}

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To spend, if none vetoes.
    Spend,
    /// To learn how things stand. Nothing is spent.
    Weigh,
}

/// Checks all charges, spends them unless one vetoes, and adds the standing of each key. False if one vetoed.
pub(crate) fn settle(
    charges: &[Charge<'_>],
    buckets: &mut impl Buckets,
    now: Timestamp,
    basis: Basis,
    purpose: Purpose,
    standings: &mut Standings,
) -> bool {
    let mut fits = SmallVec::<[Fit; 4]>::new();
    let mut vetoed = false;
    for (n, charge) in charges.iter().enumerate() {
        let ahead = charges.iter().zip(&fits).enumerate().filter(|(other, (earlier, fit))| {
            earlier.act.claims(matches!(fit, Fit::Fits { .. })) && buckets.is_same(n, *other)
        });
        let ahead = ahead.map(|(_, (earlier, _))| u64::from(earlier.act.cost())).sum();
        let demand = Demand { ahead, cost: charge.act.cost(), patience: charge.patience };
        let fit = if charge.act.is_read_only() { Fit::NOW } else { buckets.fit(n, charge, demand) };
        vetoed |= charge.act.vetoes() && !matches!(fit, Fit::Fits { .. });
        fits.push(fit);
    }
    let mut spends: SmallVec<[bool; 4]> = charges
        .iter()
        .zip(&fits)
        .map(|(charge, fit)| charge.act.spends(matches!(fit, Fit::Fits { .. })))
        .collect();
    join(charges, &mut spends);
    standings.extend(charges.iter().zip(fits).enumerate().map(|(n, (charge, fit))| {
        if vetoed || purpose == Purpose::Weigh || !spends[n] {
            return Standing::derive(charge, fit, None, buckets.level(n, charge), basis);
        }
        let (counted, level) = buckets.spend(n, charge);
        Standing::derive(charge, fit, Some(Receipt::new(counted, charge.quota, now)), level, basis)
    }));
    !vetoed
}

/// Lets charges that join the one before them spend together with it, or not at all.
fn join(charges: &[Charge<'_>], spends: &mut [bool]) {
    let mut first = 0;
    for end in 1..=charges.len() {
        if charges.get(end).is_some_and(|charge| charge.joins(&charges[end - 1])) {
            continue;
        }
        let group = &mut spends[first..end];
        if group.contains(&false) {
            group.fill(false);
        }
        first = end;
    }
}
