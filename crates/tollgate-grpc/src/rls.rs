//! Answers requests: finds the rule of each descriptor, charges all of them in one step, and tells how each stands.
//!
//! ```text
//!   descriptors ─Domains::find─► rules ─charges─► Limiter ─standings─► statuses ─► overall code
//! ```
//!
//! # Laws
//! - There is one status for each descriptor, in their order.
//! - The overall code is never UNKNOWN.
//! - [`Compat::AllOrNothing`]: who is denied has charged nothing but rules in record mode. [`Compat::Strict`]: every descriptor is
//!   charged.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::{
    Charges, Clock, Limiter, Observe, Outcome, Query, Receipt, Refund, Standing, Standings, Store, Timestamp,
    Verdict,
};

use crate::headers;
use crate::met::{Met, asking, charge, meet, query};
use crate::rules::{Compat, Rules, SharedRules};
use crate::status::{self, Told};
use crate::unmet::Unmet;
use crate::wire::{Code, RateLimitRequest, RateLimitResponse};

/// Answers requests.
#[derive(Debug)]
pub struct Rls<S, O, C> {
    /// Decides.
    pub limiter: Arc<Limiter<S, O>>,
    /// What the configuration says.
    pub rules: SharedRules,
    /// The wall clock: it tells when a window ends of which no store was asked.
    pub clock: C,
    /// What met no rule.
    pub unmet: Unmet,
}

/// Why a request has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It names no domain.
    #[error("rate limit domain must not be empty")]
    Domain,
    /// It has no descriptors.
    #[error("rate limit descriptor list must not be empty")]
    Descriptors,
    /// It has more than anybody needs.
    #[error(
        "more than {} rate limit descriptors in one request; send them in several",
        Refusal::DESCRIPTORS_MAX
    )]
    TooMany,
}

impl Refusal {
    /// The most descriptors of a request.
    pub const DESCRIPTORS_MAX: usize = 256;
}

/// All charges of a request.
struct Bill<'a, 'm> {
    met: &'a [Met<'m>],
    charges: Charges<'a>,
    /// Whose each of them is: the number of a descriptor, in their order.
    payers: SmallVec<[usize; 4]>,
}

impl<S, O, C> Rls<S, O, C>
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    /// Answers a request.
    ///
    /// # Errors
    /// If it is no request. What is not configured is no error: it has no limit.
    pub async fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Refusal> {
        if request.domain.is_empty() {
            return Err(Refusal::Domain);
        }
        match request.descriptors.len() {
            0 => return Err(Refusal::Descriptors),
            1..=Refusal::DESCRIPTORS_MAX => {}
            _ => return Err(Refusal::TooMany),
        }
        let rules = self.rules.load_full();
        let manner = &rules.manner;
        let met = meet(&rules, request);
        self.count_unmet(&rules, &request.domain, &met);
        let asking = asking(&request.domain, &met);
        let queries: SmallVec<[Query<'_>; 4]> =
            asking.iter().map(|asking| query(asking, &met[asking.number], manner.compat)).collect();
        let mut bill = Bill { met: &met, charges: Charges::new(), payers: SmallVec::new() };
        for (asking, query) in asking.iter().zip(&queries) {
            charge(&rules, &met[asking.number], query, &mut bill.charges);
            bill.payers.resize(bill.charges.len(), asking.number);
        }
        let mut standings = self.limiter.apply(&bill.charges).await;
        if met.iter().any(|met| met.given_back() > 0) {
            self.give_back(&bill, &mut standings, |payer, _| payer.given_back()).await;
        }
        let mut told = bill.tell(&standings, self.clock.now());
        let is_over = status::is_over(&told, manner.quota_mode);
        let was_vetoed = Verdict::judge(&bill.charges, &standings) == Verdict::Deny;
        if is_over && !was_vetoed && manner.compat == Compat::AllOrNothing {
            // Some are past their limits that could not veto: the others get back what they paid.
            let units = |payer: &Met<'_>, paid: &Receipt| if payer.is_record() { 0 } else { paid.cost };
            self.give_back(&bill, &mut standings, units).await;
            told = bill.tell(&standings, self.clock.now());
        }
        let against = standings.iter().position(Standing::is_over).map_or(0, |charge| bill.payers[charge]);
        bill.forgive_reports(&mut standings);
        drop(bill);
        let is_denied = is_over && !manner.shadow_mode;
        let is_report = met.iter().all(Met::is_report);
        let verdict = if is_denied && !is_report { Verdict::Deny } else { Verdict::Allow };
        let against = asking.iter().position(|asking| asking.number == against);
        if let Some(query) = queries.get(against.unwrap_or(0)) {
            let policies = Guard::from_inner(Arc::clone(&rules.policies));
            self.limiter.conclude(policies, verdict, standings, query);
        }
        let overall_code = if is_denied { Code::OverLimit } else { Code::Ok };
        Ok(RateLimitResponse {
            overall_code: overall_code.into(),
            response_headers_to_add: headers::render(&manner.headers, &told, is_denied, self.clock.now()),
            statuses: told.into_iter().map(|told| told.status).collect(),
            ..RateLimitResponse::default()
        })
    }

    fn count_unmet(&self, rules: &Rules, domain: &str, met: &[Met<'_>]) {
        if rules.domains.has(domain) {
            self.unmet.descriptors(met.iter().filter(|met| met.is_nothing()).count() as u64);
        } else {
            self.unmet.domain(domain, self.clock.now());
        }
    }

    /// Gives back so many units of each charge that was paid. Those of which none come back stay paid. A bucket past its limit takes none.
    async fn give_back(
        &self,
        bill: &Bill<'_, '_>,
        standings: &mut Standings,
        units: impl Fn(&Met<'_>, &Receipt) -> u32,
    ) {
        let both = bill.charges.iter().zip(&bill.payers).zip(standings.iter_mut());
        let refunds = both.filter_map(|((charge, payer), standing)| {
            let cost = match &standing.outcome {
                Outcome::Paid(receipt) => units(&bill.met[*payer], receipt),
                Outcome::Fits | Outcome::Short { .. } | Outcome::Never | Outcome::Unknown => 0,
            };
            let receipt = if cost > 0 { standing.take_receipt() } else { None }?;
            let (quota, basis) = (charge.quota, standing.basis);
            if !receipt.is_past {
                standing.remaining = standing.remaining.saturating_add(cost).min(quota.capacity().get());
            }
            Some(Refund { key: charge.key, quota, receipt: Receipt { cost, ..receipt }, basis })
        });
        let refunds: Vec<_> = refunds.collect();
        let Ok(()) = self.limiter.store().refund(&refunds).await;
    }
}

impl Bill<'_, '_> {
    /// What is reported after an answer denies nobody, and is not to be counted so.
    fn forgive_reports(&self, standings: &mut Standings) {
        for (standing, payer) in standings.iter_mut().zip(&self.payers) {
            if let Outcome::Paid(receipt) = &mut standing.outcome
                && self.met[*payer].is_report()
            {
                receipt.is_past = false;
            }
        }
    }

    /// How each descriptor stands.
    fn tell(&self, standings: &[Standing], now: Timestamp) -> SmallVec<[Told; 4]> {
        let mut begin = 0;
        let told = self.met.iter().enumerate().map(|(number, met)| {
            let n_charges = self.payers[begin..].iter().take_while(|payer| **payer == number).count();
            let range = begin..begin + n_charges;
            begin = range.end;
            Told::of(&met.matched, met.brought.as_ref(), &self.charges[range.clone()], &standings[range], now)
        });
        told.collect()
    }
}
