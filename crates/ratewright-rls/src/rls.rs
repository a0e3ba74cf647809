//! Answers requests: finds the rule of each descriptor, charges all of them in one step, and tells how each stands.
//!
//! ```text
//!   descriptors ─Domains::find─► rules ─charges─► Limiter ─standings─► statuses ─► overall code ─► answer
//!                                                    ▲                                               │
//!                                                    └── corrections: refunds, records ◄── then ─────┘
//! ```
//!
//! # Laws
//! - There is one status for each descriptor, in their order.
//! - The overall code is never UNKNOWN.
//! - An answer waits for one call to the store, so for one deadline of the store, in every mode.
//! - [`Compat::AllOrNothing`](crate::Compat::AllOrNothing): a denied request charges nothing but rules in record mode; what it was
//!   charged before that was known is given back. [`Compat::Strict`](crate::Compat::Strict): every descriptor is charged.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::Guard;
use ratewright_core::{
    Ask, Clock, Entrypoint, Limiter, Micros, Mode, Observe, Outcome, Query, Standing, Standings, Store,
    Timestamp, Verdict,
};
use ratewright_rls_rules::Entry;
use smallvec::SmallVec;

use crate::bill::Bill;
use crate::corrections::Corrections;
use crate::headers;
use crate::hits::{HitCounts, Named};
use crate::met::{Asking, Hits, Met, asking, entries, meet, query};
use crate::refunds::{IgnoredRefunds, Refunds};
use crate::rules::{Manner, Rules, SharedRules};
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
    ignored: IgnoredRefunds,
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

impl<S, O, C> Rls<S, O, C>
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    /// The service with these rules, of which nobody has asked anything yet.
    pub fn new(limiter: Arc<Limiter<S, O>>, rules: SharedRules, clock: C) -> Self {
        let (unmet, hits, ignored) = (Unmet::default(), HitCounts::default(), IgnoredRefunds::default());
        Self { limiter, rules, clock, unmet, hits, ignored }
    }

    /// Answers a request, and waits until all is put right that follows the answer.
    ///
    /// # Errors
    /// If it is no request. What is not configured is no error: it has no limit.
    pub async fn answer(
        &self,
        request: &RateLimitRequest,
        refunds: Refunds,
    ) -> Result<RateLimitResponse, Refusal> {
        let mut answer = Ok(RateLimitResponse::default());
        self.answer_first(request, refunds, Entrypoint::Grpc, |told| answer = told).await;
        answer
    }

    /// Answers a request by `reply`, after one call to the store at most, and then puts right what that call could not know. An error
    /// is the same as of [`Rls::answer`].
    pub async fn answer_first(
        &self,
        request: &RateLimitRequest,
        refunds: Refunds,
        entrypoint: Entrypoint,
        reply: impl FnOnce(Result<RateLimitResponse, Refusal>),
    ) {
        if let Err(refusal) = check(request) {
            return reply(Err(refusal));
        }
        let rules = self.rules.load_full();
        let manner = &rules.manner;
        if manner.is_off {
            return reply(Ok(status::all_pass(request.descriptors.len())));
        }
        let met = meet(&rules, request, refunds);
        self.count_unmet(&rules, &request.domain, &met);
        self.report_ignored(request, refunds);
        let asking = asking(&request.domain, &met);
        let query = |asking| query(asking, &met[asking.number], manner.compat, entrypoint);
        let queries: SmallVec<[Query<'_>; 4]> = asking.iter().map(query).collect();
        let mut bill = Bill::new(&rules, &met, &asking, &queries);
        let begun_at = self.limiter.begin();
        let mut standings = bill.settle(&self.limiter, manner.compat).await;
        let mut told = bill.tell(&standings, self.clock.now());
        let is_over = status::is_over(&told);
        let is_denied = is_over && !manner.shadow_mode;
        let corrections = Corrections::of(&bill, &mut standings, is_over, manner.compat);
        if !corrections.is_empty() {
            told = bill.tell(&standings, self.clock.now());
        }
        self.count_hits(&rules, request, &met, &told);
        if met.iter().all(Met::is_report) {
            forgive(&mut standings);
        }
        self.conclude(&rules, (&asking, &queries), (&bill, begun_at), standings, is_denied);
        reply(Ok(self.response(manner, told, is_denied)));
        corrections.apply(&self.limiter).await;
    }

    /// Tells the observer of the decision.
    fn conclude(
        &self,
        rules: &Rules,
        (asking, queries): (&[Asking<'_>], &[Query<'_>]),
        (bill, begun_at): (&Bill<'_, '_>, Timestamp),
        standings: Standings,
        is_denied: bool,
    ) {
        // The one that a decision speaks of: the last that has to wait longest.
        let over = standings.iter().zip(&bill.payers).filter(|(standing, _)| is_denial(standing));
        let against = over.max_by_key(|(standing, _)| longest(standing)).map(|(_, payer)| *payer);
        // A limit of zero is no policy, and no other is to be blamed for it.
        let verdict = if is_denied && against.is_some() { Verdict::Deny } else { Verdict::Allow };
        let speaks = |(asking, query): &(&Asking<'_>, &Query<'_>)| match against {
            Some(against) => asking.number == against,
            None => !matches!(query.ask, Ask::Look(_)), // one that only looks is not counted
        };
        let query = asking.iter().zip(queries).find(speaks).map(|(_, query)| query);
        if let Some(query) = query.or(queries.first()) {
            let policies = Guard::from_inner(Arc::clone(&rules.policies));
            self.limiter.conclude(policies, verdict, standings, query, begun_at);
        }
    }

    fn response(&self, manner: &Manner, told: SmallVec<[Told; 4]>, is_denied: bool) -> RateLimitResponse {
        let overall_code = if is_denied { Code::OverLimit } else { Code::Ok };
        RateLimitResponse {
            overall_code: overall_code.into(),
            response_headers_to_add: headers::render(&manner.headers, &told, is_denied, self.clock.now()),
            statuses: told.into_iter().map(|told| told.status).collect(),
            ..RateLimitResponse::default()
        }
    }

    fn count_unmet(&self, rules: &Rules, domain: &str, met: &[Met<'_>]) {
        if rules.domains.has(domain) {
            self.unmet.descriptors(met.iter().filter(|met| met.is_unknown).count() as u64);
        } else {
            self.unmet.domain(domain, self.clock.now());
        }
    }

    fn report_ignored(&self, request: &RateLimitRequest, refunds: Refunds) {
        if let Refunds::Ignored { peer } = refunds
            && request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits)
        {
            self.ignored.report(peer, self.clock.now());
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
}

/// Refuses what is no request.
fn check(request: &RateLimitRequest) -> Result<(), Refusal> {
    match request.descriptors.len() {
        _ if request.domain.is_empty() => Err(Refusal::Domain),
        0 => Err(Refusal::Descriptors),
        1..=Refusal::DESCRIPTORS_MAX => Ok(()),
        _ => Err(Refusal::TooMany),
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
