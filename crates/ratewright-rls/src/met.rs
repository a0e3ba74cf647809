//! What the descriptors of a request meet, and what they are charged for it.

use std::num::NonZeroU32;

use ratewright_core::{Act, Ask, Attribute, AttributeName, Charges, Entrypoint, Micros, Query, Select};
use ratewright_rls_rules::{Entry, Matched, Rule, replace};
use smallvec::SmallVec;

use crate::brought::{self, Brought};
use crate::refunds::Refunds;
use crate::rules::{Compat, Rules};
use crate::wire::{RateLimitDescriptor, RateLimitRequest};

/// The most of a value that tells buckets apart, in bytes: it stands in Redis' keys.
const VALUE_MAX: usize = 4_096;

/// What a descriptor meets, and how much it asks for.
pub(crate) struct Met<'a> {
    pub(crate) matched: Matched<'a>,
    pub(crate) brought: Option<Brought>,
    pub(crate) hits: Hits,
    /// Whether it denies only if all quotas of the request do.
    pub(crate) is_quota: bool,
    /// Whether the descriptor tells its hits itself.
    has_own_hits: bool,
    /// Whether nothing is written for it anywhere, with a limit or without.
    pub(crate) is_unknown: bool,
}

/// How many units a descriptor asks for.
#[derive(Clone, Copy)]
pub(crate) enum Hits {
    /// So many are spent.
    Spend(u32),
    /// So many are given back.
    GiveBack(u32),
}

/// A descriptor that is to be charged.
pub(crate) struct Asking<'a> {
    /// Which one.
    pub(crate) number: usize,
    policy: [&'a str; 1],
    attributes: SmallVec<[Attribute<'a>; 4]>,
}

impl Met<'_> {
    /// True if it is counted even past its limit.
    pub(crate) fn is_record(&self) -> bool {
        self.matched.rule().is_some_and(Rule::is_record)
    }

    /// True if it tells what an answer cost that is sent already: a rule in record mode, and hits of its own.
    pub(crate) fn is_report(&self) -> bool {
        self.is_record() && self.has_own_hits && matches!(self.hits, Hits::Spend(1..))
    }

    /// True if being over its limit denies the request, whatever the others say.
    pub(crate) fn can_deny(&self) -> bool {
        let is_shadow = self.matched.rule().is_some_and(Rule::is_shadow);
        matches!(self.hits, Hits::Spend(_)) && !self.is_quota && !is_shadow
    }

    /// True if its limit is zero, so that all is lost whatever has been spent.
    pub(crate) fn is_lost(&self) -> bool {
        let is_zero = match &self.brought {
            Some(brought) => brought.quota.is_none(),
            None => matches!(self.matched, Matched::Blocked(_)),
        };
        is_zero && self.can_deny()
    }
}

/// What each descriptor meets.
pub(crate) fn meet<'a>(
    rules: &'a Rules,
    request: &'a RateLimitRequest,
    refunds: Refunds,
) -> SmallVec<[Met<'a>; 4]> {
    let has_domain = rules.domains.has(&request.domain);
    let mut alone: SmallVec<[(Option<Brought>, bool); 4]> = SmallVec::new();
    let mut matched: SmallVec<[Matched<'a>; 4]> = SmallVec::new();
    for descriptor in &request.descriptors {
        let entries: SmallVec<[Entry<'a>; 8]> = entries(descriptor).collect();
        let own = descriptor.limit.as_ref().filter(|_| has_domain);
        let own = own.and_then(|limit| Brought::new(limit, &request.domain, &entries));
        let rule = match own {
            Some(_) => Matched::Nothing,
            None => rules.domains.find(&request.domain, &entries),
        };
        let is_nothing = own.is_none() && matches!(rule, Matched::Nothing);
        alone.push((own, is_nothing && !rules.domains.knows(&request.domain, &entries)));
        matched.push(rule);
    }
    replace(&mut matched);
    let each = matched.into_iter().zip(alone).zip(&request.descriptors);
    let met = each.map(|((matched, (brought, is_unknown)), descriptor)| Met {
        is_quota: rules.manner.quota_mode || matched.rule().is_some_and(Rule::is_quota),
        matched,
        brought,
        hits: hits(descriptor, request.hits_addend, refunds),
        has_own_hits: descriptor.hits_addend.is_some(),
        is_unknown,
    });
    met.collect()
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

/// As much of a value as tells buckets apart. Refusing a longer one would let its request through, so it is counted with all that begin
/// like it.
fn shortened(value: &str) -> &str {
    value.split_at(value.floor_char_boundary(VALUE_MAX)).0
}

/// Those that have to be charged.
pub(crate) fn asking<'a>(domain: &'a str, met: &'a [Met<'_>]) -> SmallVec<[Asking<'a>; 4]> {
    let asking = met.iter().enumerate().filter_map(|(number, met)| match (&met.brought, &met.matched) {
        (Some(brought), _) => brought.quota.as_ref().map(|_| Asking {
            number,
            policy: [brought.policy()],
            attributes: [(brought::DOMAIN, domain), (brought::ENTRIES, &*brought.entries)]
                .map(|(name, value)| Attribute { name: AttributeName::Named(name), value: shortened(value) })
                .into_iter()
                .collect(),
        }),
        (None, Matched::Limited(limited)) => {
            let mut attributes = limited.attributes();
            attributes.iter_mut().for_each(|attribute| attribute.value = shortened(attribute.value));
            Some(Asking { number, policy: [limited.policy()], attributes })
        }
        (None, Matched::Nothing | Matched::Unlimited(_) | Matched::Blocked(_)) => None,
    });
    asking.collect()
}

/// What the limiter is asked for a descriptor.
pub(crate) fn query<'a>(
    asking: &'a Asking<'_>,
    met: &Met<'_>,
    compat: Compat,
    entrypoint: Entrypoint,
) -> Query<'a> {
    let ask = match met.hits {
        Hits::GiveBack(0) => Ask::Look(0),
        Hits::GiveBack(_) => Ask::Record(0), // which tells the time by the store's clock
        Hits::Spend(hits) if compat == Compat::Strict || met.is_record() => Ask::Record(hits),
        Hits::Spend(hits) => NonZeroU32::new(hits).map_or(Ask::Look(0), Ask::Spend),
    };
    let (select, attributes) = (Select::Named(&asking.policy), &*asking.attributes);
    Query { select, attributes, address: None, ask, patience: Micros::ZERO, id: None, entrypoint }
}

/// Adds the charges of a descriptor.
pub(crate) fn charge<'a>(rules: &'a Rules, met: &'a Met<'_>, query: &Query<'a>, charges: &mut Charges<'a>) {
    let mut own = Charges::new();
    rules.policies.select(query, &mut own);
    for charge in &mut own {
        if let Some(quota) = met.brought.as_ref().and_then(|brought| brought.quota.as_ref()) {
            charge.quota = quota;
        }
        // Alone it never denies.
        if let Act::Take(cost) = charge.act
            && met.is_quota
        {
            charge.act = Act::Try(cost);
        }
    }
    charges.extend(own);
}
