//! Permits: how many requests of a key are in flight.
//!
//! A limit on requests in flight is judged like any other, with the same selection, partition and modes; only its
//! buckets are counts that go up when a request begins and down when its response body ends. They are local to this
//! process.
//!
//! A key without requests in flight is not in the table, so the table is bounded by the requests in flight.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use ratewright_core::policy::{AfterAbort, Mode};
use ratewright_core::store::{Basis, Charge, Key, Outcome, Receipt, Refund, Standing, Standings};
use ratewright_core::{Decision, Micros, Query, Store, Timestamp};
use smallvec::SmallVec;

/// `retry_after` of a denial: a guess, since nothing says when the requests in flight will end.
const RETRY_AFTER: Micros = Micros::from_secs(1);

/// Counts requests in flight. A policy's capacity is the most that may be in flight at once.
#[derive(Debug, Default)]
pub struct Permits {
    in_flight: Mutex<HashMap<u64, u32>>,
    secret: RandomState,
}

/// The right of one request to be in flight, released when dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Arc<Permits>,
    taken: SmallVec<[Taken; 2]>,
}

/// Units of one key.
#[derive(Debug)]
struct Taken {
    key: u64,
    n: u32,
    after_abort: AfterAbort,
}

impl Permits {
    /// How many keys have requests in flight.
    pub fn n_keys(&self) -> usize {
        self.in_flight.lock().len()
    }

    /// How many units of a key are in flight: one for each request, unless the policy's cost says otherwise.
    pub fn n_in_flight(&self, key: &Key<'_>) -> u32 {
        self.in_flight.lock().get(&self.identity(key)).copied().unwrap_or(0)
    }

    /// The permit of an allowed query, decided by a limiter over these permits.
    pub(crate) fn permit(self: &Arc<Self>, query: &Query<'_>, decision: &Decision) -> Permit {
        let taken = decision.standings().filter_map(|(policy, limit, standing)| match &standing.outcome {
            Outcome::Charged(receipt) => {
                let key = self.identity(&query.key(limit.name(), standing.limit)?);
                // A policy in shadow mode only counts.
                let is_enforced = standing.limit.mode() == Mode::Enforce;
                let after_abort = if is_enforced { policy.after_abort() } else { AfterAbort::Free };
                Some(Taken { key, n: receipt.cost, after_abort })
            }
            Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => None,
        });
        Permit { taken: taken.collect(), permits: Arc::clone(self) }
    }

    /// A keyed hash of the key. An override shares the policy's count and only changes the maximum.
    fn identity(&self, key: &Key<'_>) -> u64 {
        let values: SmallVec<[_; 2]> = key.values().map(|value| (value.tag, value.text)).collect();
        self.secret.hash_one((key.name().policy(), key.name().partition(), values.as_slice()))
    }
}

impl Permit {
    /// Releases what is freed when a client disconnects. None if nothing is kept.
    pub(crate) fn abort(mut self) -> Option<Self> {
        let (kept, freed) = self.taken.drain(..).partition(|taken| taken.after_abort == AfterAbort::Keep);
        self.taken = kept;
        self.release(freed);
        (!self.taken.is_empty()).then_some(self)
    }

    fn release(&self, taken: SmallVec<[Taken; 2]>) {
        if taken.is_empty() {
            return;
        }
        let mut in_flight = self.permits.in_flight.lock();
        for Taken { key, n, .. } in taken {
            if let Some(count) = in_flight.get_mut(&key) {
                *count = count.saturating_sub(n);
                if *count == 0 {
                    in_flight.remove(&key);
                }
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.release(taken);
    }
}

impl Store for Permits {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        let keys: SmallVec<[u64; 4]> = charges.iter().map(|charge| self.identity(&charge.key)).collect();
        let mut in_flight = self.in_flight.lock();
        // First check each charge, counting those before it; then take all or none.
        let mut claimed: SmallVec<[u32; 4]> = SmallVec::new();
        let mut is_vetoed = false;
        for (n, charge) in charges.iter().enumerate() {
            let before = claimed.iter().zip(&keys).filter(|(_, key)| **key == keys[n]);
            let ahead: u32 = before.map(|(cost, _)| *cost).sum();
            let used = in_flight.get(&keys[n]).copied().unwrap_or(0).saturating_add(ahead);
            let (cost, capacity) = (charge.act.cost(), charge.quota.capacity().get());
            let fits = used.checked_add(cost).is_some_and(|all| all <= capacity);
            is_vetoed |= charge.act.vetoes() && !fits;
            claimed.push(if charge.act.claims(fits) { cost } else { 0 });
            standings.push(standing(charge, fits, capacity.saturating_sub(used)));
        }
        if !is_vetoed {
            for (n, (charge, standing)) in charges.iter().zip(standings.iter_mut()).enumerate() {
                let cost = charge.act.cost();
                if charge.act.spends(standing.outcome == Outcome::WouldPass) && cost > 0 {
                    *in_flight.entry(keys[n]).or_default() += cost;
                    standing.outcome =
                        Outcome::Charged(Receipt { cost, paid_at: Timestamp::default(), is_past: false });
                    standing.remaining = standing.remaining.saturating_sub(cost);
                }
            }
        }
        Ok(())
    }

    /// Dropping a [`Permit`] releases it, so there is nothing to refund.
    async fn refund(&self, _: &[Refund<'_>]) -> Result<usize, Infallible> {
        Ok(0)
    }

    /// Has no effect: requests in flight stay in flight, and release their permits when they end.
    async fn reset(&self, _: &[Key<'_>]) -> Result<Basis, Infallible> {
        Ok(Basis::Local)
    }

    fn never_waits(&self) -> bool {
        true
    }
}

fn standing(charge: &Charge<'_>, fits: bool, remaining: u32) -> Standing {
    let outcome = if fits {
        Outcome::WouldPass
    } else if charge.act.cost() > charge.quota.capacity().get() {
        Outcome::Never
    } else {
        Outcome::Denied { retry_after: RETRY_AFTER }
    };
    let (reset_after, wait) = (Micros::ZERO, Micros::ZERO);
    Standing { limit: charge.limit, outcome, remaining, reset_after, wait, basis: Basis::Local, share: None }
}
