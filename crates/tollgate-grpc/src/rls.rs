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
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::{
    Act, Ask, Attribute, AttributeName, Charge, Charges, Clock, Limiter, Micros, Observe, Outcome, Query,
    Receipt, Refund, Select, Standing, Standings, Store, Verdict,
};
use tollgate_envoy::{Entry, Matched, Rule, replace};

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
    hits: Hits,
}

/// How many units a descriptor asks for.
#[derive(Clone, Copy)]
enum Hits {
    Spend(u32),
    /// So many are given back.
    GiveBack(u32),
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
            asking.iter().map(|asking| query(asking, &met[asking.number], rules.compat)).collect();
        let mut charges = Charges::new();
        let mut ends: SmallVec<[usize; 4]> = SmallVec::new();
        for (asking, query) in asking.iter().zip(&queries) {
            charge(&rules, &met[asking.number], query, &mut charges);
            ends.push(charges.len());
        }
        let met_by = |charge: usize| &met[asking[ends.partition_point(|end| *end <= charge)].number];
        let mut standings = self.limiter.apply(&charges).await;
        let is_giving = met.iter().any(|met| matches!(met.hits, Hits::GiveBack(_)));
        if is_giving {
            let units = |charge: usize, _: &Receipt| match met_by(charge).hits {
                Hits::GiveBack(hits) => hits,
                Hits::Spend(_) => 0,
            };
            give_back(&self.limiter, &charges, &mut standings, units).await;
        }
        let mut told = tell(&met, &asking, &ends, &charges, &standings, self.clock.now());
        let is_over = status::is_over(&told);
        let was_vetoed = Verdict::judge(&charges, &standings) == Verdict::Deny;
        if is_over && !was_vetoed && rules.compat == Compat::AllOrNothing {
            // Some are past their limits that could not veto: the others get back what they paid.
            let units =
                |charge: usize, receipt: &Receipt| if met_by(charge).is_record() { 0 } else { receipt.cost };
            give_back(&self.limiter, &charges, &mut standings, units).await;
            told = tell(&met, &asking, &ends, &charges, &standings, self.clock.now());
        }
        let against = ends.iter().position(|end| standings[..*end].iter().any(Standing::is_over));
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

impl Met<'_> {
    /// True if it is counted even past its limit.
    fn is_record(&self) -> bool {
        self.matched.rule().is_some_and(Rule::is_record)
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

fn hits(descriptor: &RateLimitDescriptor, of_request: u32) -> Hits {
    let hits = match descriptor.hits_addend {
        Some(hits) => u32::try_from(hits).unwrap_or(u32::MAX),
        None => of_request.max(1),
    };
    if descriptor.is_negative_hits { Hits::GiveBack(hits) } else { Hits::Spend(hits) }
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

fn query<'a>(asking: &'a Asking<'_>, met: &Met<'_>, compat: Compat) -> Query<'a> {
    let ask = match met.hits {
        Hits::GiveBack(_) => Ask::Record(0), // which tells the time by the store's clock
        Hits::Spend(hits) if compat == Compat::Strict || met.is_record() => Ask::Record(hits),
        Hits::Spend(hits) => NonZeroU32::new(hits).map_or(Ask::Look(0), Ask::Spend),
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
            && met.matched.rule().is_some_and(Rule::is_quota)
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

/// Gives back so many units of each charge that was paid. Those of which none come back stay paid. A bucket past its limit takes none.
async fn give_back<S, O>(
    limiter: &Limiter<S, O>,
    charges: &[Charge<'_>],
    standings: &mut Standings,
    units: impl Fn(usize, &Receipt) -> u32,
) where
    S: Store<Error = Infallible>,
    O: Observe,
{
    let both = charges.iter().zip(standings.iter_mut()).enumerate();
    let refunds = both.filter_map(|(n, (charge, standing))| {
        let cost = match &standing.outcome {
            Outcome::Paid(receipt) => units(n, receipt),
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
    let Ok(()) = limiter.store().refund(&refunds).await;
}
