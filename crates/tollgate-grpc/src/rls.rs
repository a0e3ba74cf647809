//! Answers requests: finds the rule of each descriptor, charges all of them in one step, and tells how each stands.
//!
//! ```text
//!   descriptors ─Domains::find─► rules ─charges─► Limiter ─standings─► statuses ─► overall code
//! ```
//!
//! # Laws
//! - There is one status for each descriptor, in their order.
//! - The overall code is never UNKNOWN.
//! - [`Compat::AllOrNothing`]: who is denied has charged nothing. [`Compat::Strict`]: every descriptor is charged.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::{
    Act, Ask, Attribute, AttributeName, Charge, Charges, Clock, Limiter, Micros, Observe, Outcome, Query,
    Refund, Select, Standing, Standings, Store, Verdict,
};
use tollgate_envoy::{Entry, Matched, replace};

use crate::brought::{self, Brought};
use crate::headers;
use crate::rules::{Compat, Rules, SharedRules};
use crate::status::{self, Told};
use crate::wire::{Code, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};

/// The most of a value that tells buckets apart, in bytes: it stands in Redis' keys.
const VALUE_MAX: usize = 4_096;

/// Answers requests.
#[derive(Debug)]
pub struct Rls<S, O, C> {
    /// Decides.
    pub limiter: Arc<Limiter<S, O>>,
    /// What the configuration says.
    pub rules: SharedRules,
    /// The wall clock: it tells when a window ends of which no store was asked.
    pub clock: C,
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

/// What a descriptor meets, and how much it asks for.
struct Met<'a> {
    matched: Matched<'a>,
    brought: Option<Brought>,
    hits: u32,
}

/// A descriptor that is to be charged.
struct Asking<'a> {
    /// Which one.
    number: usize,
    policy: [&'a str; 1],
    attributes: SmallVec<[Attribute<'a>; 4]>,
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
        let met = meet(&rules, request);
        let asking = asking(&request.domain, &met);
        let queries: SmallVec<[Query<'_>; 4]> =
            asking.iter().map(|asking| query(asking, met[asking.number].hits, rules.compat)).collect();
        let mut charges = Charges::new();
        let mut ends: SmallVec<[usize; 4]> = SmallVec::new();
        for (asking, query) in asking.iter().zip(&queries) {
            charge(&rules, &met[asking.number], query, &mut charges);
            ends.push(charges.len());
        }
        let mut standings = self.limiter.apply(&charges).await;
        let mut told = tell(&met, &asking, &ends, &charges, &standings, self.clock.now());
        let is_over = status::is_over(&told);
        let was_vetoed = Verdict::judge(&charges, &standings) == Verdict::Deny;
        if is_over && !was_vetoed && rules.compat == Compat::AllOrNothing {
            // All quotas are used up, and nobody could veto for them: the others get back what they paid.
            give_back(&self.limiter, &charges, &mut standings).await;
            told = tell(&met, &asking, &ends, &charges, &standings, self.clock.now());
        }
        let against = ends.iter().position(|end| standings[..*end].iter().any(Standing::is_against));
        drop(charges);
        let verdict = if is_over { Verdict::Deny } else { Verdict::Allow };
        if let Some(query) = queries.get(against.unwrap_or(0)) {
            let policies = Guard::from_inner(Arc::clone(&rules.policies));
            self.limiter.conclude(policies, verdict, standings, query);
        }
        let overall_code = if is_over { Code::OverLimit } else { Code::Ok };
        Ok(RateLimitResponse {
            overall_code: overall_code.into(),
            response_headers_to_add: headers::render(&rules.headers, &told, is_over, self.clock.now()),
            statuses: told.into_iter().map(|told| told.status).collect(),
            ..RateLimitResponse::default()
        })
    }
}

/// What each descriptor meets.
fn meet<'a>(rules: &'a Rules, request: &'a RateLimitRequest) -> SmallVec<[Met<'a>; 4]> {
    let has_domain = rules.domains.has(&request.domain);
    let mut brought: SmallVec<[Option<Brought>; 4]> = SmallVec::new();
    let mut matched: SmallVec<[Matched<'a>; 4]> = SmallVec::new();
    for descriptor in &request.descriptors {
        let entries = descriptor.entries.iter().map(|entry| Entry { key: &entry.key, value: &entry.value });
        let entries: SmallVec<[Entry<'a>; 8]> = entries.collect();
        let own = descriptor.limit.as_ref().filter(|_| has_domain);
        let own = own.and_then(|limit| Brought::new(limit, &entries));
        matched.push(match own {
            Some(_) => Matched::Nothing,
            None => rules.domains.find(&request.domain, &entries),
        });
        brought.push(own);
    }
    replace(&mut matched);
    let hits = request.descriptors.iter().map(|descriptor| hits(descriptor, request.hits_addend));
    let both = matched.into_iter().zip(brought).zip(hits);
    both.map(|((matched, brought), hits)| Met { matched, brought, hits }).collect()
}

/// How many units a descriptor asks for. Units cannot be given back this way; who tries only looks.
fn hits(descriptor: &RateLimitDescriptor, of_request: u32) -> u32 {
    match descriptor.hits_addend {
        _ if descriptor.is_negative_hits => 0,
        Some(hits) => u32::try_from(hits).unwrap_or(u32::MAX),
        None => of_request.max(1),
    }
}

/// As much of a value as tells buckets apart. Refusing a longer one would let its request through, so it is counted with all that begin
/// like it.
fn shortened(value: &str) -> &str {
    &value[..value.floor_char_boundary(VALUE_MAX)]
}

/// Those that have to be charged.
fn asking<'a>(domain: &'a str, met: &'a [Met<'_>]) -> SmallVec<[Asking<'a>; 4]> {
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

fn query<'a>(asking: &'a Asking<'_>, hits: u32, compat: Compat) -> Query<'a> {
    let ask = match (compat, NonZeroU32::new(hits)) {
        (Compat::Strict, _) => Ask::Record(hits),
        (Compat::AllOrNothing, Some(hits)) => Ask::Spend(hits),
        (Compat::AllOrNothing, None) => Ask::Look(0),
    };
    let (select, attributes) = (Select::Named(&asking.policy), &*asking.attributes);
    Query { select, attributes, address: None, ask, patience: Micros::ZERO }
}

/// Adds the charges of a descriptor.
fn charge<'a>(rules: &'a Rules, met: &'a Met<'_>, query: &Query<'a>, charges: &mut Charges<'a>) {
    let mut own = Charges::new();
    rules.policies.select(query, &mut own);
    for charge in &mut own {
        if let Some(quota) = met.brought.as_ref().and_then(|brought| brought.quota.as_ref()) {
            charge.quota = quota;
        }
        // Alone it never denies.
        if let Act::Take(cost) = charge.act
            && met.matched.rule().is_some_and(tollgate_envoy::Rule::is_quota)
        {
            charge.act = Act::Try(cost);
        }
    }
    charges.extend(own);
}

/// How each descriptor stands.
fn tell(
    met: &[Met<'_>],
    asking: &[Asking<'_>],
    ends: &[usize],
    charges: &[Charge<'_>],
    standings: &[Standing],
    now: tollgate_core::Timestamp,
) -> SmallVec<[Told; 4]> {
    let mut charged = asking.iter().zip(ends).scan(0, |begin, (asking, end)| {
        let range = std::mem::replace(begin, *end)..*end;
        Some((asking.number, range))
    });
    let mut next = charged.next();
    let told = met.iter().enumerate().map(|(number, met)| {
        let range = match next.take_if(|(asked, _)| *asked == number) {
            Some((_, range)) => {
                next = charged.next();
                range
            }
            None => 0..0,
        };
        Told::of(&met.matched, met.brought.as_ref(), &charges[range.clone()], &standings[range], now)
    });
    told.collect()
}

/// Gives back all that was paid.
async fn give_back<S, O>(limiter: &Limiter<S, O>, charges: &[Charge<'_>], standings: &mut Standings)
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    let paid = charges.iter().zip(standings.iter_mut()).filter_map(|(charge, standing)| {
        match std::mem::replace(&mut standing.outcome, Outcome::Fits) {
            Outcome::Paid(receipt) => {
                standing.remaining = standing.remaining.saturating_add(receipt.cost);
                Some(Refund { key: charge.key, quota: charge.quota, receipt, basis: standing.basis })
            }
            other @ (Outcome::Fits | Outcome::Short { .. } | Outcome::Never | Outcome::Unknown) => {
                standing.outcome = other;
                None
            }
        }
    });
    let refunds: Vec<_> = paid.collect();
    let Ok(()) = limiter.store().refund(&refunds).await;
}
