//! Answers requests: matches each descriptor with a rule, charges all of them in one step, and renders their statuses.
//!
//! ```text
//!   descriptors ─match→ rules, queries ─Limiter::decide_all→ JointDecision ─render→ statuses, overall code
//!                                                                 └── then Limiter::correct: refunds, records
//! ```
//!
//! # Laws
//! - There is one status for each descriptor, in their order.
//! - The overall code is never UNKNOWN.
//! - A response waits for one call to the store, so for one deadline of the store, in every mode: see [`ratewright_core::joint_decision`].
//! - [`Compat::AllOrNothing`](crate::Compat::AllOrNothing): a denied request charges nothing but rules in record mode; what it was
//!   charged before that was known is given back. [`Compat::Strict`](crate::Compat::Strict): every descriptor is charged.

use std::convert::Infallible;
use std::sync::Arc;

use ratewright_core::decision::Observe;
use ratewright_core::query::Entrypoint;
use ratewright_core::{Clock, Limiter, Store, Timestamp, Verdict};
use ratewright_rls_rules::Entry;
use smallvec::SmallVec;

use crate::headers;
use crate::hit_counts::{HitCounts, NameSource};
use crate::matching::{DescriptorMatch, Hits, bucket_names, entries, match_descriptors, queries, terms};
use crate::refund_access::{IgnoredRefunds, Refunds};
use crate::settings::{RlsSettings, RuleSet, SharedRuleSet};
use crate::status::{self, DescriptorOutcome};
use crate::unmatched::Unmatched;
use crate::wire::{Code, RateLimitRequest, RateLimitResponse};

/// Answers requests.
#[derive(Debug)]
pub struct Rls<S, O, C> {
    /// The limiter.
    pub limiter: Arc<Limiter<S, O>>,
    /// The configuration.
    pub rules: SharedRuleSet,
    /// The wall clock, for windows about which no store was asked.
    pub clock: C,
    /// Requests and descriptors without a rule.
    pub unmatched: Unmatched,
    /// Hits by rule.
    pub hits: HitCounts,
    ignored: IgnoredRefunds,
}

/// Why a request is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It names no domain.
    #[error("rate limit domain must not be empty")]
    Domain,
    /// It has no descriptors.
    #[error("rate limit descriptor list must not be empty")]
    Descriptors,
    /// It has too many descriptors.
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
    /// A service with these rules, whose counters are zero.
    pub fn new(limiter: Arc<Limiter<S, O>>, rules: SharedRuleSet, clock: C) -> Self {
        let (unmatched, hits, ignored) =
            (Unmatched::default(), HitCounts::default(), IgnoredRefunds::default());
        Self { limiter, rules, clock, unmatched, hits, ignored }
    }

    /// Answers a request, and waits for the corrections that follow the response.
    ///
    /// # Errors
    /// If the request is invalid. A domain or descriptor without a rule is valid, and has no limit.
    pub async fn answer(
        &self,
        request: &RateLimitRequest,
        refunds: Refunds,
    ) -> Result<RateLimitResponse, Refusal> {
        let mut answer = Ok(RateLimitResponse::default());
        self.answer_first(request, refunds, Entrypoint::Grpc, |outcomes| answer = outcomes).await;
        answer
    }

    /// Answers a request by `reply`, after at most one call to the store, and then makes the corrections that follow the response. Errors are those
    /// of [`Rls::answer`].
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
        let settings = &rules.settings;
        if settings.is_off {
            return reply(Ok(status::all_pass(request.descriptors.len())));
        }
        let matches = match_descriptors(&rules, request, refunds);
        self.report_ignored(request, refunds);
        let names = bucket_names(&request.domain, &matches);
        let queries = queries(&matches, &names, settings.compat, entrypoint);
        let decision = self.limiter.decide_all(&rules.policies, &queries, terms(&matches, settings)).await;
        let now = self.clock.now();
        let outcomes = status::outcomes(&matches, &decision, now);
        self.count(&rules, request, &matches, &outcomes);
        reply(Ok(render(settings, outcomes, decision.verdict(), now)));
        self.limiter.correct(&queries, decision).await;
    }

    /// Counts the hits of each rule, and what matched none.
    fn count(
        &self,
        rules: &RuleSet,
        request: &RateLimitRequest,
        matches: &[DescriptorMatch<'_>],
        outcomes: &[DescriptorOutcome],
    ) {
        self.count_unmatched(rules, &request.domain, matches);
        self.count_hits(rules, request, matches, outcomes);
    }

    fn count_unmatched(&self, rules: &RuleSet, domain: &str, matches: &[DescriptorMatch<'_>]) {
        if rules.domains.has_domain(domain) {
            self.unmatched.descriptors(matches.iter().filter(|matches| matches.is_unknown).count() as u64);
        } else {
            self.unmatched.domain(domain, self.clock.now());
        }
    }

    fn report_ignored(&self, request: &RateLimitRequest, refunds: Refunds) {
        if let Refunds::Ignored { peer } = refunds
            && request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits)
        {
            self.ignored.report(peer, self.clock.now());
        }
    }

    fn count_hits(
        &self,
        rules: &RuleSet,
        request: &RateLimitRequest,
        matches: &[DescriptorMatch<'_>],
        outcomes: &[DescriptorOutcome],
    ) {
        let each = matches.iter().zip(outcomes).zip(&request.descriptors);
        for ((matches, outcomes), descriptor) in each {
            let (Some(rule), Hits::Spend(hits)) = (matches.matched.rule(), matches.hits) else { continue };
            let mut name = None;
            if rules.domains.has_values_in_metrics() {
                let entries: SmallVec<[Entry<'_>; 8]> = entries(descriptor).collect();
                name = rules.domains.metric_name(&request.domain, &entries);
            }
            match name.filter(|name| *name != rule.path()) {
                None => self.hits.add(rule.path(), NameSource::ByFile, hits, outcomes.has_no_room),
                Some(name) => self.hits.add(&name, NameSource::ByClient, hits, outcomes.has_no_room),
            }
        }
    }
}

/// Rejects invalid requests.
fn check(request: &RateLimitRequest) -> Result<(), Refusal> {
    match request.descriptors.len() {
        _ if request.domain.is_empty() => Err(Refusal::Domain),
        0 => Err(Refusal::Descriptors),
        1..=Refusal::DESCRIPTORS_MAX => Ok(()),
        _ => Err(Refusal::TooMany),
    }
}

/// The response.
fn render(
    settings: &RlsSettings,
    outcomes: SmallVec<[DescriptorOutcome; 4]>,
    verdict: Verdict,
    now: Timestamp,
) -> RateLimitResponse {
    let is_denied = verdict == Verdict::Deny;
    RateLimitResponse {
        overall_code: if is_denied { Code::OverLimit } else { Code::Ok }.into(),
        response_headers_to_add: headers::render(&settings.headers, &outcomes, is_denied, now),
        statuses: outcomes.into_iter().map(|outcome| outcome.status).collect(),
        ..RateLimitResponse::default()
    }
}
