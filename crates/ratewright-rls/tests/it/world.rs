//! The service over a standing clock, with rules written down in code.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ratewright_core::decision::Unobserved;
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::{Limiter, ManualClock, Micros, Policies, Query, Store, Timestamp};
use ratewright_rls::wire::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, RateLimitUnit, Unit,
};
use ratewright_rls::{Refunds, Rls, RlsSettings, RuleSet, override_policies};
use ratewright_rls_rules::{Descriptor, Domains, DuplicateDomains, RateLimit};
use ratewright_store::MemoryStore;

pub(crate) type Memory = MemoryStore<ManualClock>;

/// 17 seconds into a minute.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_700_000_057_000_000);

pub(crate) struct World<S = Memory> {
    pub(crate) rls: Arc<Rls<Arc<S>, Unobserved, ManualClock>>,
    pub(crate) store: Arc<S>,
    pub(crate) clock: ManualClock,
}

/// A descriptor with a limit per unit.
pub(crate) fn limit(key: &str, value: &str, requests_per_unit: u32, unit: &str) -> Descriptor {
    let rate_limit = RateLimit { unit: unit.to_owned(), requests_per_unit, ..RateLimit::default() };
    Descriptor {
        key: key.to_owned(),
        value: value.to_owned(),
        rate_limits: vec![rate_limit],
        ..Descriptor::default()
    }
}

impl World {
    pub(crate) fn new(descriptors: &[Descriptor], settings: RlsSettings) -> Self {
        Self::over(descriptors, settings, |memory| memory)
    }
}

impl<S: Store<Error = Infallible>> World<S> {
    /// The same over a store that has something to do with memory.
    pub(crate) fn over(
        descriptors: &[Descriptor],
        settings: RlsSettings,
        store: impl FnOnce(Memory) -> S,
    ) -> Self {
        let mut domains = Domains::default();
        domains.add("shop", descriptors, DuplicateDomains::Reject).unwrap();
        let all = domains.policies().iter().cloned().chain(override_policies()).collect();
        let clock = ManualClock::at(NOW);
        let store = Arc::new(store(MemoryStore::new(clock.clone(), 10_000)));
        let limiter = Arc::new(Limiter::new(Policies::new(all).unwrap(), store.clone()));
        let rules = RuleSet { domains: Arc::new(domains), policies: limiter.policies(), settings };
        let rules = Arc::new(ArcSwap::from_pointee(rules));
        Self { rls: Arc::new(Rls::new(limiter, rules, clock.clone())), store, clock }
    }

    /// How many units all limits of a rule have left for a value.
    pub(crate) async fn remaining(&self, policy: &str, name: &str, value: &str) -> Vec<u32> {
        let attributes = [Attribute { name: AttributeName::Named(name), value }];
        let (select, ask) = ([policy], Ask::Look(0));
        let query = Query {
            select: Select::Named(&select),
            attributes: &attributes,
            address: None,
            ask,
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Tower,
        };
        let decision = self.rls.limiter.decide(&query).await;
        decision.standings().map(|(_, _, standing)| standing.remaining).collect()
    }

    /// Asks with these descriptors, and tells the answer in words: `OVER | OK 10/MINUTE left 3 in 43 | OK`.
    pub(crate) async fn ask(&self, descriptors: Vec<RateLimitDescriptor>) -> String {
        let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
        in_words(&self.rls.answer(&request, Refunds::Allowed).await.unwrap())
    }
}

pub(crate) fn in_words(answer: &RateLimitResponse) -> String {
    let mut words = vec![code(answer.overall_code).to_owned()];
    words.extend(answer.statuses.iter().map(status));
    words.join(" | ")
}

/// A descriptor of a request, from `key=value` pairs.
pub(crate) fn of(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn costing(hits: u64, descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor }
}

pub(crate) fn bringing(
    requests_per_unit: u32,
    unit: RateLimitUnit,
    descriptor: RateLimitDescriptor,
) -> RateLimitDescriptor {
    let limit = RateLimitOverride { requests_per_unit, unit: unit.into() };
    RateLimitDescriptor { limit: Some(limit), ..descriptor }
}

fn code(code: i32) -> &'static str {
    match Code::try_from(code).unwrap() {
        Code::Unknown => "UNKNOWN",
        Code::Ok => "OK",
        Code::OverLimit => "OVER",
    }
}

fn status(status: &DescriptorStatus) -> String {
    let mut words = code(status.code).to_owned();
    if let Some(limit) = &status.current_limit {
        let unit = Unit::try_from(limit.unit).unwrap().as_str_name();
        words.push_str(&format!(" {}/{unit}", limit.requests_per_unit));
        if !limit.name.is_empty() {
            words.push_str(&format!(" {:?}", limit.name));
        }
    }
    if status.current_limit.is_some() || status.limit_remaining > 0 {
        words.push_str(&format!(" left {}", status.limit_remaining));
    }
    if let Some(reset) = &status.duration_until_reset {
        words.push_str(&format!(" in {}", reset.seconds));
    }
    words
}
