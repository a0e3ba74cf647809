//! The limiter: policies, a store and an observer. `decide` and `DecideCall::run` are the engine on one screen: select,
//! apply, judge.

mod decide_all;

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::charge::{Act, Charge, Charges, PaidCharge, Refund};
use crate::decision::{Decision, ExtraCharge, OpenCharges, Verdict};
use crate::key::Key;
use crate::observe::{Observe, Unobserved};
use crate::policies::Policies;
use crate::policy::{Mode, Policy};
use crate::quantity::Micros;
use crate::query::Query;
use crate::quota::Algorithm;
use crate::shared_policies::{LoadedPolicies, SharedPolicies};
use crate::standing::{Basis, Receipt, Standing, Standings};
use crate::store::Store;

/// Decides queries: policies, a store, and an observer.
///
/// This store has no buckets and allows everything; `ratewright-store` has real ones.
///
/// ```
/// # use std::{convert::Infallible, future::{Future, ready}, pin::pin, task::{Context, Poll, Waker}};
/// use ratewright_core::store::{Basis, Charge, Key, Refund, Standing, Standings};
/// use ratewright_core::{Limiter, Policies, Policy, Query, Quota, Store, Verdict};
///
/// struct AllowAll;
///
/// impl Store for AllowAll {
///     type Error = Infallible;
///
///     async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
///         standings.extend(charges.iter().map(|charge| Standing::unknown(charge, Basis::FailOpen)));
///         Ok(())
///     }
///
///     async fn refund(&self, _: &[Refund<'_>]) -> Result<usize, Infallible> {
///         Ok(0)
///     }
///
///     async fn reset(&self, _: &[Key<'_>]) -> Result<Basis, Infallible> {
///         Ok(Basis::FailOpen)
///     }
/// }
///
/// # fn main() -> Result<(), ratewright_core::policy::PolicyError> {
/// let policies = Policies::new(vec![Policy::new("all", Quota::per_second(10))?])?;
/// let limiter = Limiter::new(policies, AllowAll);
/// let query = Query::new(&[]);
/// # let Poll::Ready(decision) = pin!(limiter.decide(&query)).poll(&mut Context::from_waker(Waker::noop())) else { panic!() };
/// # #[cfg(any())]
/// let decision = limiter.decide(&query).await;
/// assert_eq!(decision.verdict(), Verdict::Allow);
/// assert_eq!(decision.basis(), Some(Basis::FailOpen));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Limiter<S, O = Unobserved> {
    policies: SharedPolicies,
    store: S,
    observer: O,
}

impl<S: Store<Error = Infallible>> Limiter<S> {
    /// A limiter without an observer.
    pub fn new(policies: Policies, store: S) -> Self {
        Self::observed(policies, store, Unobserved)
    }
}

impl<S: Store<Error = Infallible>, O: Observe> Limiter<S, O> {
    /// A limiter that reports each decision to `observer`.
    pub fn observed(policies: Policies, store: S, observer: O) -> Self {
        Self { policies: SharedPolicies::new(Arc::new(policies)), store, observer }
    }

    /// Decides one query. Cannot fail: wrap a store that can fail in one that has a fallback, such as `Failover`.
    #[inline(always)]
    pub async fn decide(&self, query: &Query<'_>) -> Decision {
        let mut decision = Decision::under(self.policies.load());
        DecideCall { limiter: self, query, decision: &mut decision }.run().await;
        decision
    }

    /// Decides one query under the rule set that it was made for: see [`Limiter::load`].
    #[inline(always)]
    pub async fn decide_under(&self, policies: impl Into<LoadedPolicies>, query: &Query<'_>) -> Decision {
        let mut decision = Decision::under(policies.into());
        self.decide_into(query, &mut decision).await;
        decision
    }

    /// Like [`Limiter::decide_under`], but fills `decision`, which the caller makes with [`Decision::under`]. A decision is
    /// large, and this avoids moving it. Until the future completes, the decision is a denial without charges.
    #[doc(hidden)]
    #[inline(always)]
    pub async fn decide_into(&self, query: &Query<'_>, decision: &mut Decision) {
        DecideCall { limiter: self, query, decision }.run().await;
    }
}

/// The arguments of one decision.
///
/// `run` takes a single reference to them. A future keeps its arguments in memory: it writes them one by one, and at its first
/// poll reads two adjacent ones at once. The processor has to wait until both are written, which took 7 % of a decision.
struct DecideCall<'a, 'q, S, O> {
    limiter: &'a Limiter<S, O>,
    query: &'a Query<'q>,
    decision: &'a mut Decision,
}

impl<S: Store<Error = Infallible>, O: Observe> DecideCall<'_, '_, S, O> {
    /// Selects, charges and judges.
    #[inline(always)]
    async fn run(&mut self) {
        let Self { limiter, query, decision } = self;
        let begun_at = limiter.observer.now();
        decision.verdict = Verdict::Deny;
        decision.standings.clear();
        let mut charges = Charges::new();
        decision.refused = decision.policies.select(query, &mut charges);
        let Ok(()) = limiter.store.apply(&charges, &mut decision.standings).await;
        Standing::complete(&charges, &mut decision.standings);
        decision.verdict = Verdict::judge(&charges, &decision.standings);
        drop(charges);
        if decision.refused.is_some() {
            decision.verdict = Verdict::Deny;
        }
        limiter.observer.observe(query, decision, begun_at);
    }
}

impl<S: Store<Error = Infallible>, O: Observe> Limiter<S, O> {
    /// Applies charges. The observer does not see them.
    async fn apply(&self, charges: &[Charge<'_>]) -> Standings {
        let mut standings = Standings::new();
        let Ok(()) = self.store.apply(charges, &mut standings).await;
        Standing::complete(charges, &mut standings);
        standings
    }

    /// Takes more units for a request that was allowed before its full cost was known, such as the bytes of a body as they arrive.
    /// `query` must be the query of that decision. All enforced limits are charged or none; a denial is reported to the observer.
    pub async fn take_more(&self, query: &Query<'_>, open: &OpenCharges, units: NonZeroU32) -> ExtraCharge {
        let OpenCharges { policies, limits } = open;
        let mut policy_before = None;
        let charges: Charges<'_> = limits
            .iter()
            .filter_map(|&limit| {
                let (policy, found) = policies.limit(limit)?;
                let act = match limit.mode() {
                    Mode::Enforce => Act::Take(units),
                    Mode::Shadow | Mode::Off => Act::Try(units),
                };
                let key = query.key(found.name(), limit)?;
                let is_further = policy_before.replace(limit.policy()) == Some(limit.policy());
                let act = if is_further { act.of_further_quota() } else { act };
                let (quota, on_failure, patience) = (found.quota(), policy.on_failure(), Micros::ZERO);
                Some(Charge { limit, key, quota, act, patience, on_failure })
            })
            .collect();
        let begun_at = self.observer.now();
        let standings = self.apply(&charges).await;
        if Verdict::judge(&charges, &standings) == Verdict::Allow {
            return ExtraCharge::Charged;
        }
        drop(charges);
        let mut decision = Decision::under(policies.into());
        (decision.verdict, decision.standings) = (Verdict::Deny, standings);
        self.observer.observe(query, &decision, begun_at);
        ExtraCharge::Denied { retry_after: decision.retry_after() }
    }

    /// Refunds the units that a decision charged, except those that the bucket has already refilled. `query` must be
    /// the query of that decision. If the quota has changed since, nothing is refunded: a unit of the old quota has no value
    /// under the new one.
    pub async fn refund(&self, query: &Query<'_>, mut decision: Decision) {
        self.refund_where(query, &mut decision, |_| true).await;
    }

    /// Refunds what a decision charged under policies that do not count responses with this status. Removes the receipts
    /// from the decision, so a second call refunds nothing. If the store confirms all refunds, the standings then show the units
    /// left without these charges. Two kinds of charges still show: those past their limit, and those of a
    /// sliding window counter, because its refund is lost if the window has ended meanwhile.
    pub async fn refund_uncounted(&self, query: &Query<'_>, decision: &mut Decision, status: u16) {
        self.refund_where(query, decision, |policy| !policy.count().covers(status)).await;
    }

    async fn refund_where(
        &self,
        query: &Query<'_>,
        decision: &mut Decision,
        is_due: impl Fn(&Policy) -> bool,
    ) {
        let (policies, standings) = decision.parts_mut();
        let current = self.policies.load();
        let (mut refunds, mut charged) = (Vec::new(), Vec::new());
        for standing in &mut **standings {
            let Some((policy, limit)) = policies.limit(standing.limit) else { continue };
            let Some(receipt) = is_due(policy).then(|| standing.take_receipt()).flatten() else { continue };
            let Some((key, quota)) = policies.key(standing.limit, query, &current) else { continue };
            let Standing { basis, share, .. } = *standing;
            refunds.push(Refund { key, quota, receipt, basis, share, id: None });
            charged.push((limit, standing));
        }
        let Ok(n_refunded) = self.store.refund(&refunds).await;
        // If the store refunded only some, it is unknown which.
        if n_refunded == refunds.len() {
            for ((limit, standing), refund) in charged.into_iter().zip(&refunds) {
                let is_sure = limit.quota().algorithm() != Algorithm::SlidingWindowCounter;
                if is_sure && !refund.receipt.is_past {
                    standing.give_back(refund.receipt.cost, limit.quota());
                }
            }
        }
    }

    /// Refunds charges by their receipts. Returns how many were refunded: those whose limit is still in force and that were not
    /// refunded before.
    pub async fn refund_paid(&self, paid: &[PaidCharge<'_>]) -> usize {
        let policies = self.policies.load();
        let found = paid.iter().filter_map(|paid| {
            let limit = policies.bucket(paid)?;
            Some((limit, limit.name().attributes(&paid.values)?, paid))
        });
        let found: Vec<_> = found.collect();
        let refunds = found.iter().filter_map(|(limit, attributes, paid)| {
            let receipt = Receipt::new(paid.cost, limit.quota(), paid.paid_at);
            Some(Refund {
                key: Key::new(limit.name(), attributes)?,
                quota: limit.quota(),
                receipt,
                basis: paid.basis,
                share: paid.share,
                id: Some(paid.id),
            })
        });
        let refunds: Vec<_> = refunds.collect();
        let Ok(n_refunded) = self.store.refund(&refunds).await;
        n_refunded
    }

    /// Deletes the buckets that a query would be charged to. Returns where they were deleted: in the store that all
    /// instances share, or only in this instance.
    pub async fn reset(&self, query: &Query<'_>) -> Basis {
        self.reset_under(&self.policies.load(), query).await
    }

    /// The same, under the rule set that the query was made for.
    pub async fn reset_under(&self, policies: &Policies, query: &Query<'_>) -> Basis {
        let Ok(basis) = self.store.reset(&policies.keys(query)).await;
        basis
    }

    /// True if every future is ready at the first poll: see [`Store::never_waits`].
    #[inline(always)]
    pub fn never_waits(&self) -> bool {
        self.store.never_waits()
    }

    /// True if the observer reads attributes of queries: see [`Observe::reads_attributes`].
    #[inline(always)]
    pub fn reads_attributes(&self) -> bool {
        self.observer.reads_attributes()
    }

    /// The rule set in force, for one decision: it lists the attributes that a query needs.
    #[inline(always)]
    pub fn load(&self) -> LoadedPolicies {
        self.policies.load()
    }

    /// The rule set in force.
    pub fn policies(&self) -> Arc<Policies> {
        self.policies.load_full()
    }

    /// Replaces the rule set for all later queries. Buckets are kept.
    pub fn swap(&self, policies: Policies) {
        self.policies.store(Arc::new(policies));
    }
}
