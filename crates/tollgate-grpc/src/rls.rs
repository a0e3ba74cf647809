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
    Act, Ask, Charge, Charges, Clock, Limiter, Micros, Mode, Observe, Outcome, Query, Receipt, Refund,
    Standing, Standings, Store, Timestamp, Verdict,
};
use tollgate_envoy::Entry;

use crate::headers;
use crate::hits::{HitCounts, Named};
use crate::met::{Asking, Hits, Met, asking, charge, entries, meet, query};
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
    /// What met one.
    pub hits: HitCounts,
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

/// Whether something was given back, so that standings are others.
enum GivenBack {
    Nothing,
    Something,
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
    /// The service with these rules, of which nobody has asked anything yet.
    pub fn new(limiter: Arc<Limiter<S, O>>, rules: SharedRules, clock: C) -> Self {
        Self { limiter, rules, clock, unmet: Unmet::default(), hits: HitCounts::default() }
    }

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
        if manner.is_off {
            return Ok(status::all_pass(request.descriptors.len()));
        }
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
        let mut standings = match manner.compat {
            Compat::Strict => self.limiter.apply(&bill.charges).await,
            Compat::AllOrNothing => self.settle(&mut bill).await,
        };
        let told = bill.tell(&standings, self.clock.now());
        let is_over = status::is_over(&told);
        let is_denied = is_over && !manner.shadow_mode;
        let told = match self.give_back(&bill, &mut standings, is_over, manner.compat).await {
            GivenBack::Nothing => told,
            GivenBack::Something => bill.tell(&standings, self.clock.now()),
        };
        self.count_hits(&rules, request, &met, &told);
        if met.iter().all(Met::is_report) {
            forgive(&mut standings);
        }
        // The one that a decision speaks of: the last that has to wait longest.
        let over = standings.iter().zip(&bill.payers).filter(|(standing, _)| is_denial(standing));
        let against = over.max_by_key(|(standing, _)| longest(standing)).map(|(_, payer)| *payer);
        drop(bill);
        // A limit of zero is no policy, and no other is to be blamed for it.
        let verdict = if is_denied && against.is_some() { Verdict::Deny } else { Verdict::Allow };
        let speaks = |(asking, query): &(&Asking<'_>, &Query<'_>)| match against {
            Some(against) => asking.number == against,
            None => !matches!(query.ask, Ask::Look(_)), // one that only looks is not counted
        };
        let query = asking.iter().zip(&queries).find(speaks).map(|(_, query)| query);
        if let Some(query) = query.or(queries.first()) {
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
            self.unmet.descriptors(met.iter().filter(|met| met.is_unknown).count() as u64);
        } else {
            self.unmet.domain(domain, self.clock.now());
        }
    }

    fn count_hits(&self, rules: &Rules, request: &RateLimitRequest, met: &[Met<'_>], told: &[Told]) {
        let each = met.iter().zip(told).zip(&request.descriptors);
        for ((met, told), descriptor) in each {
            let (Some(rule), Hits::Spend(hits)) = (met.matched.rule(), met.hits) else { continue };
            let mut name = None;
            if rules.domains.has_values_in_metrics() {
                let entries: SmallVec<[Entry<'_>; 8]> = entries(descriptor).collect();
                name = rules.domains.metric_name(&request.domain, &entries);
            }
            match name.filter(|name| *name != rule.path()) {
                None => self.hits.add(rule.path(), Named::ByFile, hits, told.has_no_room),
                Some(name) => self.hits.add(&name, Named::ByClient, hits, told.has_no_room),
            }
        }
    }

    /// Records what is to be recorded, and charges all of the rest, or nothing. What is lost already is only weighed.
    async fn settle(&self, bill: &mut Bill<'_, '_>) -> Standings {
        let mut is_lost = bill.met.iter().any(Met::is_lost);
        let is_record = |charge: &Charge<'_>| matches!(charge.act, Act::Record(_));
        let recorded: Charges<'_> = bill.charges.iter().filter(|charge| is_record(charge)).cloned().collect();
        let mut standings = Standings::new();
        if !recorded.is_empty() {
            standings = self.limiter.apply(&recorded).await;
            let payers = bill.charges.iter().zip(&bill.payers).filter(|(charge, _)| is_record(charge));
            let both = payers.zip(&standings);
            is_lost |= both
                .into_iter()
                .any(|((_, payer), standing)| bill.met[*payer].can_deny() && standing.is_past());
        }
        if is_lost {
            for charge in &mut bill.charges {
                if let Act::Take(cost) | Act::Try(cost) = charge.act {
                    charge.act = Act::Look(cost.get());
                }
            }
        }
        if recorded.is_empty() {
            return self.limiter.apply(&bill.charges).await;
        }
        let others: Charges<'_> = bill.charges.iter().filter(|charge| !is_record(charge)).cloned().collect();
        let mut others = match others.is_empty() {
            true => Standings::new(),
            false => self.limiter.apply(&others).await,
        }
        .into_iter();
        let mut recorded = standings.into_iter();
        let each = bill.charges.iter();
        each.filter_map(|charge| if is_record(charge) { recorded.next() } else { others.next() }).collect()
    }

    /// Gives back what a request must not have paid, and what it says itself.
    ///
    /// Quotas are charged where they fit, since nobody knows before whether all of them are used up; if they are, or if one of several limits
    /// of a quota is, what was paid comes back.
    async fn give_back(
        &self,
        bill: &Bill<'_, '_>,
        standings: &mut Standings,
        is_over: bool,
        compat: Compat,
    ) -> GivenBack {
        let is_over_of = |payer: usize| {
            bill.payers
                .iter()
                .zip(standings.iter())
                .any(|(other, other_standing)| *other == payer && other_standing.is_over())
        };
        let units = |charge: usize, receipt: &Receipt| {
            let payer = bill.payers[charge];
            match (bill.met[payer].hits, bill.charges[charge].act) {
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
        for ((charge, standing), cost) in bill.charges.iter().zip(standings.iter_mut()).zip(&costs) {
            if *cost > 0
                && let Some(receipt) = standing.take_receipt()
            {
                let (key, quota, basis) = (charge.key, charge.quota, standing.basis);
                refunds.push(Refund { key, quota, receipt: Receipt { cost: *cost, ..receipt }, basis });
                again.push(Charge { act: Act::Look(0), ..charge.clone() });
            }
        }
        let Ok(()) = self.limiter.store().refund(&refunds).await;
        let looked = self.limiter.apply(&again).await;
        let given = standings.iter_mut().zip(&costs).filter(|(_, cost)| **cost > 0).map(|(given, _)| given);
        given.zip(looked).for_each(|(given, looked)| *given = looked);
        GivenBack::Something
    }
}

impl Bill<'_, '_> {
    /// How each descriptor stands.
    fn tell(&self, standings: &[Standing], now: Timestamp) -> SmallVec<[Told; 4]> {
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

/// What is reported after an answer denies nobody, and is not to be counted so.
fn forgive(standings: &mut Standings) {
    for standing in standings {
        if let Outcome::Paid(receipt) = &mut standing.outcome {
            receipt.is_past = false;
        }
    }
}

/// True if it speaks against its request, and that counts.
fn is_denial(standing: &Standing) -> bool {
    standing.is_over() && standing.limit.mode() == Mode::Enforce
}

/// How long it has to wait, in an order in which never is longest.
fn longest(standing: &Standing) -> (bool, Micros) {
    standing.retry_after().map_or((true, Micros::ZERO), |wait| (false, wait))
}
