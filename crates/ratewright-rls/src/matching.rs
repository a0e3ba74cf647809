//! Which rule matches each descriptor of a request, and what the descriptor is charged.

use std::num::NonZeroU32;

use ratewright_core::joint_decision::{GiveBack, JointQuery, JointQuota, JointTerms, Veto};
use ratewright_core::policy::Mode;
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::{Micros, Query};
use ratewright_rls_rules::{Entry, Matched, Rule, replace};
use smallvec::SmallVec;

use crate::limit_override::{self, LimitOverride};
use crate::refund_access::Refunds;
use crate::settings::{Compat, RlsSettings, RuleSet};
use crate::wire::{RateLimitDescriptor, RateLimitRequest};

/// The longest part of a value that names a bucket, in bytes: it is part of the Redis key.
const VALUE_MAX: usize = 4_096;

/// A descriptor with the rule or override that matches it, and its hits.
pub(crate) struct DescriptorMatch<'a> {
    pub(crate) matched: Matched<'a>,
    pub(crate) limit_override: Option<LimitOverride>,
    pub(crate) hits: Hits,
    /// Whether it denies only if all quotas of the request do.
    pub(crate) is_quota: bool,
    /// Whether the descriptor has hits of its own.
    has_own_hits: bool,
    /// Whether no file mentions it, with a limit or without.
    pub(crate) is_unknown: bool,
}

/// How many units a descriptor asks for.
#[derive(Clone, Copy)]
pub(crate) enum Hits {
    /// Units to spend.
    Spend(u32),
    /// Units to give back.
    GiveBack(u32),
}

/// The buckets of a descriptor.
pub(crate) struct BucketNames<'a> {
    /// The policy that has them. `None`: nothing is charged.
    policy: Option<&'a str>,
    attributes: SmallVec<[Attribute<'a>; 4]>,
}

impl DescriptorMatch<'_> {
    /// True if it is counted even past its limit.
    fn is_record(&self) -> bool {
        self.matched.rule().is_some_and(Rule::is_record)
    }

    /// True if it reports the cost of a response that was already sent: a rule in record mode, and hits of its own.
    fn is_report(&self) -> bool {
        self.is_record() && self.has_own_hits && matches!(self.hits, Hits::Spend(1..))
    }

    /// The quota that it is charged under.
    fn quota(&self) -> JointQuota<'_> {
        match (&self.limit_override, &self.matched) {
            (Some(limit_override), _) => {
                limit_override.quota.as_ref().map_or(JointQuota::Zero(Mode::Enforce), JointQuota::Instead)
            }
            (None, Matched::Blocked(rule)) if rule.is_shadow() => JointQuota::Zero(Mode::Shadow),
            (None, Matched::Blocked(_)) => JointQuota::Zero(Mode::Enforce),
            (None, Matched::Nothing | Matched::Unlimited(_) | Matched::Limited(_)) => JointQuota::OfPolicy,
        }
    }
}

/// Finds the rule or override of each descriptor.
pub(crate) fn match_descriptors<'a>(
    rules: &'a RuleSet,
    request: &'a RateLimitRequest,
    refunds: Refunds,
) -> SmallVec<[DescriptorMatch<'a>; 4]> {
    let has_domain = rules.domains.has_domain(&request.domain);
    let mut alone: SmallVec<[(Option<LimitOverride>, bool); 4]> = SmallVec::new();
    let mut matched: SmallVec<[Matched<'a>; 4]> = SmallVec::new();
    for descriptor in &request.descriptors {
        let entries: SmallVec<[Entry<'a>; 8]> = entries(descriptor).collect();
        let own = descriptor.limit.as_ref().filter(|_| has_domain);
        let own = own.and_then(|limit| LimitOverride::new(limit, &request.domain, &entries));
        let rule = match own {
            Some(_) => Matched::Nothing,
            None => rules.domains.find(&request.domain, &entries),
        };
        let is_nothing = own.is_none() && matches!(rule, Matched::Nothing);
        alone.push((own, is_nothing && !rules.domains.has_descriptor(&request.domain, &entries)));
        matched.push(rule);
    }
    replace(&mut matched);
    let each = matched.into_iter().zip(alone).zip(&request.descriptors);
    let matches = each.map(|((matched, (limit_override, is_unknown)), descriptor)| DescriptorMatch {
        is_quota: rules.settings.quota_mode || matched.rule().is_some_and(Rule::is_quota),
        matched,
        limit_override,
        hits: hits(descriptor, request.hits_addend, refunds),
        has_own_hits: descriptor.hits_addend.is_some(),
        is_unknown,
    });
    matches.collect()
}

/// A descriptor's entries.
pub(crate) fn entries(descriptor: &RateLimitDescriptor) -> impl Iterator<Item = Entry<'_>> {
    descriptor.entries.iter().map(|entry| Entry { key: &entry.key, value: &entry.value })
}

fn hits(descriptor: &RateLimitDescriptor, of_request: u32, refunds: Refunds) -> Hits {
    let hits = match descriptor.hits_addend {
        Some(hits) => u32::try_from(hits).unwrap_or(u32::MAX),
        None => of_request.max(1),
    };
    match (descriptor.is_negative_hits, refunds) {
        (false, _) => Hits::Spend(hits),
        (true, Refunds::Allowed) => Hits::GiveBack(hits),
        (true, Refunds::Ignored { .. }) => Hits::GiveBack(0),
    }
}

/// The part of a value that names a bucket. Longer values share a bucket if they begin alike; rejecting them would let their requests pass.
fn shortened(value: &str) -> &str {
    value.split_at(value.floor_char_boundary(VALUE_MAX)).0
}

/// The buckets of each descriptor.
pub(crate) fn bucket_names<'a>(
    domain: &'a str,
    matches: &'a [DescriptorMatch<'_>],
) -> SmallVec<[BucketNames<'a>; 4]> {
    let names = matches.iter().map(|matches| match (&matches.limit_override, &matches.matched) {
        (Some(limit_override), _) => {
            let named =
                [(limit_override::DOMAIN, domain), (limit_override::ENTRIES, &*limit_override.entries)];
            let attributes = named
                .map(|(name, value)| Attribute { name: AttributeName::Named(name), value: shortened(value) });
            BucketNames {
                policy: Some(limit_override.policy()),
                attributes: attributes.into_iter().collect(),
            }
        }
        (None, Matched::Limited(limited)) => {
            let mut attributes = limited.attributes();
            attributes.iter_mut().for_each(|attribute| attribute.value = shortened(attribute.value));
            BucketNames { policy: Some(limited.policy()), attributes }
        }
        (None, Matched::Nothing | Matched::Unlimited(_) | Matched::Blocked(_)) => {
            BucketNames { policy: None, attributes: SmallVec::new() }
        }
    });
    names.collect()
}

/// The query of each descriptor.
pub(crate) fn queries<'a>(
    matches: &'a [DescriptorMatch<'_>],
    names: &'a [BucketNames<'_>],
    compat: Compat,
    entrypoint: Entrypoint,
) -> SmallVec<[JointQuery<'a>; 4]> {
    let query = |(matches, names): (&'a DescriptorMatch<'_>, &'a BucketNames<'_>)| {
        let (ask, gives_back) = ask(matches, compat);
        let (select, attributes) = (Select::Named(names.policy.as_slice()), &*names.attributes);
        let query =
            Query { select, attributes, address: None, ask, patience: Micros::ZERO, id: None, entrypoint };
        let veto = if matches.is_quota { Veto::Together } else { Veto::Alone };
        JointQuery { query, quota: matches.quota(), veto, gives_back }
    };
    matches.iter().zip(names).map(query).collect()
}

/// What a descriptor asks. In strict mode every descriptor is charged, even past its limit, and even if another one denies.
fn ask(matches: &DescriptorMatch<'_>, compat: Compat) -> (Ask, Option<GiveBack>) {
    match (matches.hits, compat) {
        (Hits::GiveBack(0), _) => (Ask::Look(0), Some(GiveBack::IfAllowed(0))),
        // Its standing has the time of the store's clock.
        (Hits::GiveBack(hits), Compat::AllOrNothing) => (Ask::Record(0), Some(GiveBack::IfAllowed(hits))),
        (Hits::GiveBack(hits), Compat::Strict) => (Ask::Record(0), Some(GiveBack::Always(hits))),
        (Hits::Spend(hits), Compat::Strict) => (Ask::Record(hits), None),
        (Hits::Spend(hits), Compat::AllOrNothing) if matches.is_record() => (Ask::Record(hits), None),
        (Hits::Spend(hits), Compat::AllOrNothing) => {
            (NonZeroU32::new(hits).map_or(Ask::Look(0), Ask::Spend), None)
        }
    }
}

/// What holds for the whole request.
pub(crate) fn terms(matches: &[DescriptorMatch<'_>], settings: &RlsSettings) -> JointTerms {
    let mode = if settings.shadow_mode { Mode::Shadow } else { Mode::Enforce };
    JointTerms { mode, is_report: matches.iter().all(DescriptorMatch::is_report) }
}
