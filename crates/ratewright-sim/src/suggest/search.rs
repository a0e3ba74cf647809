//! The search: token buckets of many rates side by side, in one pass over the events.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;

use ratewright_core::algorithm::token_bucket::TokenBucket;
use ratewright_core::algorithm::{Bucket, Demand};
use ratewright_core::policy::PolicyError;
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::store::Act;
use ratewright_core::{Limiter, ManualClock, Micros, Policies, Policy, Query, Quota, Verdict};
use ratewright_store::MemoryStore;

use super::candidate_rates::Candidate;
use super::event_file::EventReader;
use super::quota;
use crate::clients::{ClientCounts, ClientHasher};
use crate::replay::ready;
use crate::simulate::SimulateError;

/// Maximum rates in one pass: a client has a bit for each.
const RATES_PER_PASS_MAX: usize = 24;

/// Maximum bytes of bucket states.
const STATES_MAX: usize = 400_000_000;

/// Maximum keys of the confirming replay.
const KEYS_MAX: usize = 40_000_000;

/// The largest burst that is proposed if the given one is too small for any rate.
const BURST_MAX: u32 = 1_000_000;

/// How many requests and clients a rate denies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct DenialCounts {
    pub(super) n_requests: u64,
    pub(super) n_clients: u64,
}

/// The rates of the curve, as shares of the one that was found.
const CURVE_RATIOS: [(u64, u64); 13] = [
    (1, 8),
    (1, 4),
    (1, 2),
    (2, 3),
    (4, 5),
    (9, 10),
    (11, 10),
    (5, 4),
    (3, 2),
    (2, 1),
    (3, 1),
    (5, 1),
    (10, 1),
];

/// The rates that were tried.
#[derive(Debug)]
pub(super) struct Search {
    tried: BTreeMap<usize, DenialCounts>,
    /// Those that are shown.
    shown: BTreeSet<usize>,
    lowest: Option<usize>,
}

impl Search {
    /// Finds the lowest sufficient rate. A higher rate never denies more.
    pub(super) fn run(
        candidates: &[Candidate],
        events: &mut EventReader,
        is_enough: impl Fn(&DenialCounts) -> bool,
    ) -> io::Result<Self> {
        let mut search = Self { tried: BTreeMap::new(), shown: BTreeSet::new(), lowest: None };
        // The answer lies in low..=high. If `high` is the number of candidates, no candidate is enough.
        let (mut low, mut high) = (0, candidates.len());
        while low < high {
            let indices = spread(low, high - 1, n_rates_per_pass(events.n_clients()));
            search.try_all(&indices, candidates, events)?;
            for index in indices {
                if is_enough(&search.tried[&index]) {
                    high = high.min(index);
                } else {
                    low = low.max(index + 1);
                }
            }
        }
        search.lowest = (high < candidates.len()).then_some(high);
        match search.lowest {
            Some(lowest) => search.try_curve_rates(lowest, candidates, events)?,
            None => search.shown = search.tried.keys().copied().collect(),
        }
        Ok(search)
    }

    /// Tries these candidates in one pass.
    fn try_all(
        &mut self,
        indices: &[usize],
        candidates: &[Candidate],
        events: &mut EventReader,
    ) -> io::Result<()> {
        let quotas: Vec<&Quota> = indices.iter().map(|index| &candidates[*index].quota).collect();
        self.tried.extend(indices.iter().copied().zip(count_denied(events, &quotas)?));
        Ok(())
    }

    /// Tries lower and higher rates than the one that was found, for the curve.
    fn try_curve_rates(
        &mut self,
        lowest: usize,
        candidates: &[Candidate],
        events: &mut EventReader,
    ) -> io::Result<()> {
        let found = &candidates[lowest];
        let last_below = |share| candidates.iter().rposition(|candidate| candidate.is_at_most(found, share));
        self.shown = CURVE_RATIOS.into_iter().filter_map(last_below).collect();
        self.shown.extend([lowest, lowest.saturating_sub(1)]);
        let new: Vec<_> =
            self.shown.iter().filter(|index| !self.tried.contains_key(index)).copied().collect();
        for indices in new.chunks(n_rates_per_pass(events.n_clients())) {
            self.try_all(indices, candidates, events)?;
        }
        Ok(())
    }

    pub(super) fn lowest(&self) -> Option<usize> {
        self.lowest
    }

    /// The rates around the one that was found, up to the first that denies nothing.
    pub(super) fn curve(&self) -> impl Iterator<Item = (usize, &DenialCounts)> {
        let shown = self.shown.iter().filter_map(|index| Some((*index, self.tried.get(index)?)));
        let mut is_over = false;
        shown.take_while(move |(index, denied)| {
            let is_shown = !is_over || self.lowest.is_none_or(|lowest| *index <= lowest);
            is_over = denied.n_requests == 0;
            is_shown
        })
    }
}

/// How many rates are tried in one pass.
fn n_rates_per_pass(n_clients: usize) -> usize {
    (STATES_MAX / (size_of::<TokenBucket>() * n_clients.max(1))).clamp(2, RATES_PER_PASS_MAX)
}

/// At most `n` numbers, evenly spread from `first` to `last`, with both.
fn spread(first: usize, last: usize, n: usize) -> Vec<usize> {
    let width = last - first;
    let n_steps = (n - 1).min(width).max(1);
    let mut spread: Vec<_> = (0..=n_steps).map(|step| first + width * step / n_steps).collect();
    spread.dedup();
    spread
}

/// What each of these quotas denies, in one pass.
fn count_denied(events: &mut EventReader, quotas: &[&Quota]) -> io::Result<Vec<DenialCounts>> {
    let n = quotas.len();
    let full: Vec<_> = quotas.iter().map(|quota| TokenBucket::full(quota)).collect();
    let mut states: Vec<TokenBucket> = Vec::new();
    // The rates under which a client has been denied, a bit for each.
    let mut denied_under: Vec<u32> = vec![0; events.n_clients()];
    let mut denied = vec![DenialCounts::default(); n];
    let one = Act::Take(NonZeroU32::MIN);
    let demand = Demand { ahead: 0, cost: 1, patience: Micros::ZERO };
    states.reserve_exact(n * events.n_clients());
    events.each(|now, client| {
        let client = client as usize;
        if states.len() <= client * n {
            states.extend_from_slice(&full); // clients are numbered in the order of their first events
        }
        let Some(buckets) = states.get_mut(client * n..(client + 1) * n) else { return };
        for (n, (bucket, quota)) in buckets.iter_mut().zip(quotas).enumerate() {
            if bucket.charge(quota, demand, one, now).counted.is_none() {
                denied[n].n_requests += 1;
                if denied_under[client] & 1 << n == 0 {
                    denied_under[client] |= 1 << n;
                    denied[n].n_clients += 1;
                }
            }
        }
    })?;
    Ok(denied)
}

/// The smallest burst that is enough with the highest rate, if a larger one than `burst` is.
pub(super) fn sufficient_burst(
    events: &mut EventReader,
    burst: NonZeroU32,
    is_enough: impl Fn(&DenialCounts) -> bool,
) -> io::Result<Option<u32>> {
    let (mut low, mut high) = (burst.get().saturating_add(1), BURST_MAX + 1);
    while low < high {
        let of = |burst: usize| {
            let burst = NonZeroU32::new(u32::try_from(burst).ok()?)?;
            quota(super::candidate_rates::candidate_rates(burst).pop()?.quota.rate(), burst)
                .map(|quota| (burst, quota))
        };
        let tried = spread(low as usize, high as usize - 1, n_rates_per_pass(events.n_clients()));
        let quotas: Vec<_> = tried.into_iter().filter_map(of).collect();
        if quotas.is_empty() {
            return Ok(None);
        }
        let denied = count_denied(events, &quotas.iter().map(|(_, quota)| quota).collect::<Vec<_>>())?;
        for ((burst, _), denied) in quotas.iter().zip(&denied) {
            if is_enough(denied) {
                high = high.min(burst.get());
            } else {
                low = low.max(burst.get() + 1);
            }
        }
    }
    Ok((high <= BURST_MAX).then_some(high))
}

/// A quota, replayed through the engine.
#[derive(Debug)]
pub(super) struct ReplayResult {
    pub(super) denied: DenialCounts,
    /// The clients by their numbers.
    pub(super) clients: ClientCounts,
}

/// Replays all events through the engine: a policy, a limiter and the memory store.
pub(super) fn replay_quota(
    events: &mut EventReader,
    quota: &Quota,
    n_top: usize,
) -> Result<ReplayResult, SimulateError> {
    let limiter_of = |clock: &ManualClock| -> Result<_, PolicyError> {
        let policy = Policy::new("suggested", quota.clone())?.by(&[AttributeName::Named("client")]);
        Ok(Limiter::new(Policies::new(vec![policy])?, MemoryStore::new(clock.clone(), KEYS_MAX)))
    };
    let clock = ManualClock::default();
    let limiter = limiter_of(&clock)?;
    let hasher = ClientHasher::default();
    let mut clients = ClientCounts::new(n_top);
    let mut n_requests = 0;
    events.each(|now, client| {
        clock.set(now);
        let value = client.to_string();
        let attributes = [Attribute { name: AttributeName::Named("client"), value: &value }];
        let id = hasher.id(value.as_bytes());
        clients.count(id);
        if ready(limiter.decide(&Query::new(&attributes))).verdict() == Verdict::Deny {
            n_requests += 1;
            clients.deny(id, now, || value.clone());
        }
    })?;
    Ok(ReplayResult { denied: DenialCounts { n_requests, n_clients: clients.n_denied() }, clients })
}
