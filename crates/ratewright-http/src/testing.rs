//! Decisions for tests: the algorithms of the core, with a store that never waits.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ratewright_core::algorithm::fixed_window::FixedWindow;
use ratewright_core::algorithm::leaky_bucket::Queue;
use ratewright_core::algorithm::sliding_counter::SlidingCounter;
use ratewright_core::algorithm::sliding_log::SlidingLog;
use ratewright_core::algorithm::stepped::Stepped;
use ratewright_core::algorithm::token_bucket::TokenBucket;
use ratewright_core::algorithm::{Bucket, Demand};
use ratewright_core::query::{Ask, Attribute, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Leak, Refill, Share};
use ratewright_core::store::{Act, Basis, Charge, Key, Receipt, Refund, Standing, Standings};
use ratewright_core::{Decision, Limiter, Micros, Policies, Policy, Query, Quota, Store, Timestamp};

/// The time in tests: 2023-11-14T22:13:20.250Z.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_250_000);

/// A store in which every bucket had `spent` units spent `ago`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedStore {
    pub(crate) spent: u32,
    pub(crate) ago: Micros,
    pub(crate) basis: Basis,
    /// The share of each quota that the store grants. `None`: the whole.
    pub(crate) share: Option<Share>,
}

/// Unused buckets.
pub(crate) const FRESH: FixedStore = spent(0);

/// Buckets with these units spent just now.
pub(crate) const fn spent(spent: u32) -> FixedStore {
    FixedStore { spent, ago: Micros::ZERO, basis: Basis::Shared, share: None }
}

/// A quota such as `1/6s` with a burst of its own, if the algorithm has one.
pub(crate) fn quota(algorithm: Algorithm, rate: &str, burst: u32) -> Quota {
    let quota = Quota::new(algorithm, rate.parse().unwrap()).unwrap();
    if algorithm.has_burst() { quota.with_burst(NonZeroU32::new(burst).unwrap()).unwrap() } else { quota }
}

/// The policy of the examples: a burst of ten logins, and one more every six seconds.
pub(crate) fn login() -> Policy {
    Policy::new("login", quota(Algorithm::TokenBucket(Refill::Smooth), "1/6s", 10)).unwrap()
}

/// Decides a query that all these policies cover.
pub(crate) fn decide(policies: Vec<Policy>, store: FixedStore, ask: Ask) -> Decision {
    let (select, patience) = (Select::Covering(&[]), Micros::ZERO);
    decide_query(
        policies,
        store,
        &Query {
            select,
            address: None,
            attributes: &[],
            ask,
            patience,
            id: None,
            entrypoint: Entrypoint::Tower,
        },
    )
}

/// Decides a query with attributes that may have several values.
pub(crate) fn decide_readings(policies: Vec<Policy>, attributes: &[Attribute<'_>]) -> Decision {
    let (select, patience) = (Select::CoveringReadings(&[]), Micros::ZERO);
    decide_query(
        policies,
        FRESH,
        &Query {
            select,
            address: None,
            attributes,
            ask: spend(1),
            patience,
            id: None,
            entrypoint: Entrypoint::Tower,
        },
    )
}

fn decide_query(policies: Vec<Policy>, store: FixedStore, query: &Query<'_>) -> Decision {
    let limiter = Limiter::new(Policies::new(policies).unwrap(), store);
    let mut deciding = pin!(limiter.decide(query));
    match deciding.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision,
        Poll::Pending => panic!("the store never waits"),
    }
}

/// Spends these units.
pub(crate) fn spend(cost: u32) -> Ask {
    Ask::Spend(NonZeroU32::new(cost).unwrap())
}

impl FixedStore {
    fn standing(self, charge: &Charge<'_>) -> Standing {
        if matches!(self.basis, Basis::FailOpen | Basis::FailClosed) {
            return Standing::unknown(charge, self.basis);
        }
        let quota = self.share.map(|share| charge.quota.share(share));
        let charge = &Charge { quota: quota.as_ref().unwrap_or(charge.quota), ..charge.clone() };
        let standing = match charge.quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter) => {
                self.play(TokenBucket::full(charge.quota), charge)
            }
            Algorithm::LeakyBucket(Leak::Queue) => self.play(Queue(TokenBucket::full(charge.quota)), charge),
            Algorithm::TokenBucket(Refill::Stepped) => self.play(Stepped::default(), charge),
            Algorithm::SlidingWindow => self.play(SlidingLog::default(), charge),
            Algorithm::SlidingWindowCounter => self.play(SlidingCounter::default(), charge),
            Algorithm::FixedWindow(_) => self.play(FixedWindow::default(), charge),
        };
        Standing { share: self.share, ..standing }
    }

    fn play(self, mut bucket: impl Bucket, charge: &Charge<'_>) -> Standing {
        let before = Timestamp::from_micros(NOW.as_micros().saturating_sub(self.ago.as_micros()));
        bucket.spend(charge.quota, self.spent, before);
        let demand = Demand { ahead: 0, cost: charge.act.cost(), patience: charge.patience };
        let charged = bucket.charge(charge.quota, demand, charge.act, NOW);
        let receipt = charged.counted.map(|counted| Receipt::new(counted, charge.quota, NOW));
        Standing::derive(charge, charged.fit, receipt, charged.level, self.basis)
    }
}

impl Store for FixedStore {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        let vetoed = charges
            .iter()
            .any(|charge| charge.act.vetoes() && self.standing(charge).retry_after() != Some(Micros::ZERO));
        for charge in charges {
            // A veto leaves every bucket unchanged: the other charges only look.
            let act = if vetoed { Act::Look(charge.act.cost()) } else { charge.act };
            standings.push(self.standing(&Charge { act, ..charge.clone() }));
        }
        Ok(())
    }

    async fn refund(&self, _: &[Refund<'_>]) -> Result<usize, Infallible> {
        Ok(0)
    }

    async fn reset(&self, _: &[Key<'_>]) -> Result<Basis, Infallible> {
        Ok(self.basis)
    }
}
