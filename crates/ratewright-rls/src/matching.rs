//! Which rule matches each descriptor of a request, and what the descriptor is charged.

use std::num::NonZeroU32;

use ratewright_core::{Act, Ask, Attribute, AttributeName, Charges, Entrypoint, Micros, Query, Select};
use ratewright_rls_rules::{Entry, Matched, Rule, replace};
use smallvec::SmallVec;

use crate::limit_override::{self, LimitOverride};
use crate::refunds::Refunds;
use crate::rules::{Compat, RuleSet};
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

/// A descriptor that is charged.
pub(crate) struct ChargedDescriptor<'a> {
    /// Its index in the request.
    pub(crate) number: usize,
    policy: [&'a str; 1],
    attributes: SmallVec<[Attribute<'a>; 4]>,
}

impl DescriptorMatch<'_> {
    /// True if it is counted even past its limit.
    pub(crate) fn is_record(&self) -> bool {
        self.matched.rule().is_some_and(Rule::is_record)
    }

    /// True if it reports the cost of a response that was already sent: a rule in record mode, and hits of its own.
    pub(crate) fn is_report(&self) -> bool {
        self.is_record() && self.has_own_hits && matches!(self.hits, Hits::Spend(1..))
    }

    /// True if being over its limit denies the request, whatever the others say.
    pub(crate) fn can_deny(&self) -> bool {
        let is_shadow = self.matched.rule().is_some_and(Rule::is_shadow);
        matches!(self.hits, Hits::Spend(_)) && !self.is_quota && !is_shadow
    }

    /// True if its limit is zero, so that it always denies.
    pub(crate) fn is_lost(&self) -> bool {
        let is_zero = match &self.limit_override {
            Some(limit_override) => limit_override.quota.is_none(),
            None => matches!(self.matched, Matched::Blocked(_)),
        };
        is_zero && self.can_deny()
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

/// The descriptors that are charged.
pub(crate) fn charged<'a>(
    domain: &'a str,
    matches: &'a [DescriptorMatch<'_>],
) -> SmallVec<[ChargedDescriptor<'a>; 4]> {
    let charged = matches.iter().enumerate().filter_map(|(number, matches)| {
        match (&matches.limit_override, &matches.matched) {
            (Some(limit_override), _) => limit_override.quota.as_ref().map(|_| ChargedDescriptor {
                number,
                policy: [limit_override.policy()],
                attributes: [
                    (limit_override::DOMAIN, domain),
                    (limit_override::ENTRIES, &*limit_override.entries),
                ]
                .map(|(name, value)| Attribute { name: AttributeName::Named(name), value: shortened(value) })
                .into_iter()
                .collect(),
            }),
            (None, Matched::Limited(limited)) => {
                let mut attributes = limited.attributes();
                attributes.iter_mut().for_each(|attribute| attribute.value = shortened(attribute.value));
                Some(ChargedDescriptor { number, policy: [limited.policy()], attributes })
            }
            (None, Matched::Nothing | Matched::Unlimited(_) | Matched::Blocked(_)) => None,
        }
    });
    charged.collect()
}

/// The query of a descriptor.
pub(crate) fn query<'a>(
    charged: &'a ChargedDescriptor<'_>,
    matches: &DescriptorMatch<'_>,
    compat: Compat,
    entrypoint: Entrypoint,
) -> Query<'a> {
    let ask = match matches.hits {
        Hits::GiveBack(0) => Ask::Look(0),
        Hits::GiveBack(_) => Ask::Record(0), // its standing has the time of the store's clock
        Hits::Spend(hits) if compat == Compat::Strict || matches.is_record() => Ask::Record(hits),
        Hits::Spend(hits) => NonZeroU32::new(hits).map_or(Ask::Look(0), Ask::Spend),
    };
    let (select, attributes) = (Select::Named(&charged.policy), &*charged.attributes);
    Query { select, attributes, address: None, ask, patience: Micros::ZERO, id: None, entrypoint }
}

/// Adds the charges of a descriptor.
pub(crate) fn charge<'a>(
    rules: &'a RuleSet,
    matches: &'a DescriptorMatch<'_>,
    query: &Query<'a>,
    charges: &mut Charges<'a>,
) {
    let mut own = Charges::new();
    rules.policies.select(query, &mut own);
    for charge in &mut own {
        if let Some(quota) =
            matches.limit_override.as_ref().and_then(|limit_override| limit_override.quota.as_ref())
        {
            charge.quota = quota;
        }
        // A quota never denies by itself.
        if let Act::Take(cost) = charge.act
            && matches.is_quota
        {
            charge.act = Act::Try(cost);
        }
    }
    charges.extend(own);
}
