//! The middle: policies, a store, and nothing else.

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
use crate::shared_policies::{LoadedPolicies, SharedPolicies};
use crate::standing::{Basis, Receipt, Standing, Standings};
use crate::store::Store;

/// Answers queries.
#[derive(Debug)]
pub struct Limiter<S, O = Unobserved> {
    policies: SharedPolicies,
    store: S,
    observer: O,
}

impl<S: Store<Error = Infallible>> Limiter<S> {
    /// A limiter that nobody watches.
    pub fn new(policies: Policies, store: S) -> Self {
        Self::observed(policies, store, Unobserved)
    }
}

impl<S: Store<Error = Infallible>, O: Observe> Limiter<S, O> {
    /// A limiter that tells `observer` of each decision.
    pub fn observed(policies: Policies, store: S, observer: O) -> Self {
        Self { policies: SharedPolicies::new(Arc::new(policies)), store, observer }
    }

    /// Answers one query. Cannot fail: what to do without the store is part of the store.
    #[inline(always)]
    pub async fn decide(&self, query: &Query<'_>) -> Decision {
        let mut decision = Decision::under(self.policies.load());
        self.settle(query, &mut decision).await;
        decision
    }

    /// Answers one query under the rule set that it was made for: see [`Limiter::load`].
    #[inline(always)]
    pub async fn decide_under(&self, policies: impl Into<LoadedPolicies>, query: &Query<'_>) -> Decision {
        let mut decision = Decision::under(policies.into());
        self.settle(query, &mut decision).await;
        decision
    }

    /// Selects, charges and judges.
    #[inline(always)]
    async fn settle(&self, query: &Query<'_>, decision: &mut Decision) {
        let begun_at = self.observer.now();
        let mut charges = Charges::new();
        decision.refused = decision.policies.select(query, &mut charges);
        let Ok(()) = self.store.apply(&charges, &mut decision.standings).await;
        Standing::complete(&charges, &mut decision.standings);
        decision.verdict = Verdict::judge(&charges, &decision.standings);
        drop(charges);
        if decision.refused.is_some() {
            decision.verdict = Verdict::Deny;
        }
        self.observer.observe(query, decision, begun_at);
    }

    /// Applies charges. The observer does not see them.
    async fn apply(&self, charges: &[Charge<'_>]) -> Standings {
        let mut standings = Standings::new();
        let Ok(()) = self.store.apply(charges, &mut standings).await;
        Standing::complete(charges, &mut standings);
        standings
    }

    /// Takes more units for a request that was let through before all of its cost was known: the bytes of a body, as they come. `query` is
    /// the one that was decided. All limits are charged or none; a denial is reported to the observer.
    pub async fn take_more(&self, query: &Query<'_>, open: &OpenCharges, units: NonZeroU32) -> ExtraCharge {
        let OpenCharges { policies, limits } = open;
        let charges: Charges<'_> = limits
            .iter()
            .filter_map(|&limit| {
                let (policy, found) = policies.limit(limit)?;
                let act = match limit.mode() {
                    Mode::Enforce => Act::Take(units),
                    Mode::Shadow | Mode::Off => Act::Try(units),
                };
                let key = query.key(found.name(), limit)?;
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

    /// Gives back what a decision charged, as far as time has not repaid it. `query` is the one that was
    /// decided. Where the quota was changed meanwhile nothing is given back: what a unit was worth then says
    /// nothing of what it is worth now.
    pub async fn refund(&self, query: &Query<'_>, mut decision: Decision) {
        self.refund_where(query, &mut decision, |_| true).await;
    }

    /// Gives back what a decision charged under those policies that count no answer of this status. What was given back is
    /// no longer paid.
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
        let paid = standings.iter_mut().filter_map(|standing| {
            let (policy, _) = policies.limit(standing.limit)?;
            let receipt = if is_due(policy) { standing.take_receipt()? } else { return None };
            let (key, quota) = policies.key(standing.limit, query, &current)?;
            Some(Refund { key, quota, receipt, basis: standing.basis, id: None })
        });
        let refunds: Vec<_> = paid.collect();
        let Ok(_) = self.store.refund(&refunds).await;
    }

    /// Gives back what was paid, by what the payer was told. Tells how many charges were given back: those whose
    /// limit is still in force, and that were not given back before.
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
                id: Some(paid.id),
            })
        });
        let refunds: Vec<_> = refunds.collect();
        let Ok(n_refunded) = self.store.refund(&refunds).await;
        n_refunded
    }

    /// Forgets the buckets that a query would be charged to, and tells where: in the store that all instances
    /// share, or only in this one.
    pub async fn reset(&self, query: &Query<'_>) -> Basis {
        self.reset_under(&self.policies.load(), query).await
    }

    /// The same, under the rule set that the query was made for.
    pub async fn reset_under(&self, policies: &Policies, query: &Query<'_>) -> Basis {
        let Ok(basis) = self.store.reset(&policies.keys(query)).await;
        basis
    }

    /// True if every answer is there at the first poll: see [`Store::never_waits`].
    #[inline(always)]
    pub fn never_waits(&self) -> bool {
        self.store.never_waits()
    }

    /// The rule set in force, for one decision: it says which attributes a query must tell.
    #[inline(always)]
    pub fn load(&self) -> LoadedPolicies {
        self.policies.load()
    }

    /// The rule set in force.
    pub fn policies(&self) -> Arc<Policies> {
        self.policies.load_full()
    }

    /// Puts another rule set in force, for every query that is not being decided yet. Buckets stay.
    pub fn swap(&self, policies: Policies) {
        self.policies.store(Arc::new(policies));
    }
}
