//! Who is being denied: the most denied of the last five minutes, and the last thousand denials.
//!
//! Everything is bounded. At most 1,000 policies have a tally, the one idle for longest makes room for another; a
//! tally remembers at most 480 clients; of each text at most 256 bytes are kept. At the very worst that is 150 MB, with
//! a thousand policies flooded at once by clients with long names.
//!
//! Only denials come here. They share a lock that is held while a few short texts are copied, and what a denial that
//! falls out of the thousand occupied is used for the next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use ratewright_core::{AttributeName, Basis, Decision, Micros, Mode, Query, Timestamp};

use super::tally::Tally;
use super::{push, speaker, words, write_client};

/// The most policies that have a tally.
const POLICIES_MAX: usize = 1_000;

/// The denials that are remembered one by one.
pub(super) const RECENT_MAX: usize = 1_000;

/// Remembers denials.
#[derive(Debug, Default)]
pub struct Denials {
    kept: Mutex<Kept>,
}

/// One denial.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Denial {
    /// When, by the wall clock.
    pub at: Timestamp,
    /// The policy that denied; of several the one that does so for longest.
    pub policy: String,
    /// Whom it counted the query for: its key, as one can ask for it.
    pub client: String,
    /// The request's method, as far as it is known.
    pub method: String,
    /// The request's path, as far as it is known.
    pub path: String,
    /// When the query would be allowed; nothing if never.
    pub retry_after: Option<Micros>,
    /// On what ground it was denied; nothing if no store was asked.
    pub basis: Option<Basis>,
}

/// How often a client was denied under a policy, in the last five minutes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The policy.
    pub policy: Arc<str>,
    /// The client: its key, as one can ask for it.
    pub client: String,
    /// So often for certain.
    pub at_least: u64,
    /// And not more often.
    pub at_most: u64,
}

#[derive(Debug, Default)]
struct Kept {
    tallies: HashMap<Arc<str>, Tally>,
    /// The latest last.
    recent: VecDeque<Arc<Denial>>,
    /// Where a client's text is put together.
    client: String,
}

/// How much is remembered.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct KeptCounts {
    pub(super) n_policies: usize,
    pub(super) n_clients: usize,
    pub(super) n_recent: usize,
}

impl Denied {
    /// How far back denials are counted.
    pub const WINDOW: Micros = super::tally::WINDOW;
}

impl Denials {
    /// Remembers a denial: for each policy that spoke against the query, and once by itself.
    pub fn record(&self, query: &Query<'_>, decision: &Decision, now: Timestamp) {
        let mut kept = self.kept.lock();
        let Kept { tallies, recent, client } = &mut *kept;
        for word in words(decision).filter(|word| word.is_against && word.mode == Mode::Enforce) {
            client.clear();
            write_client(client, query, word.ground.map(|ground| ground.limit));
            tally(tallies, word.policy.name()).add(client, now);
        }
        if let Some((policy, limit)) = speaker(decision) {
            let mut denial = next(recent);
            let filled = Arc::make_mut(&mut denial);
            filled.policy.push_str(policy.name());
            write_client(&mut filled.client, query, limit);
            push(&mut filled.method, query.values(&AttributeName::<&str>::Method).next());
            push(&mut filled.path, query.values(&AttributeName::<&str>::Path).next());
            (filled.at, filled.retry_after, filled.basis) = (now, decision.retry_after(), decision.basis());
            recent.push_back(denial);
        }
    }

    /// The `n` most denied clients, of one policy or of all.
    pub fn top(&self, policy: Option<&str>, n: usize, now: Timestamp) -> Vec<Denied> {
        // One policy after the other, so that nobody waits for the lock for long.
        let mut top = Vec::new();
        for policy in self.policies(policy) {
            let tallied = self.kept.lock().tallies.get(&policy).map(|tally| tally.read(now));
            top.extend(tallied.into_iter().flatten().map(|tallied| Denied {
                policy: policy.clone(),
                client: tallied.client,
                at_least: tallied.at_least,
                at_most: tallied.at_most,
            }));
            top.sort_by(|a, b| {
                let order = |denied: &Denied| std::cmp::Reverse((denied.at_least, denied.at_most));
                let named = || (&a.policy, &a.client).cmp(&(&b.policy, &b.client));
                order(a).cmp(&order(b)).then_with(named)
            });
            top.truncate(n);
        }
        top
    }

    /// The last `n` denials, the latest first.
    pub fn recent(&self, n: usize) -> Vec<Arc<Denial>> {
        self.kept.lock().recent.iter().rev().take(n).cloned().collect()
    }

    /// How much is remembered.
    #[cfg(test)]
    pub(super) fn kept(&self) -> KeptCounts {
        let Kept { tallies, recent, .. } = &*self.kept.lock();
        let n_clients = tallies.values().map(Tally::n_clients).sum();
        KeptCounts { n_policies: tallies.len(), n_clients, n_recent: recent.len() }
    }

    /// The policies that have a tally, or the one that is asked for.
    fn policies(&self, policy: Option<&str>) -> Vec<Arc<str>> {
        match policy {
            Some(policy) => vec![policy.into()],
            None => self.kept.lock().tallies.keys().cloned().collect(),
        }
    }
}

/// A policy's tally. If there is no room for another, the one that has been idle for longest goes.
fn tally<'a>(tallies: &'a mut HashMap<Arc<str>, Tally>, policy: &str) -> &'a mut Tally {
    if !tallies.contains_key(policy) && tallies.len() >= POLICIES_MAX {
        let idlest = tallies.iter().min_by_key(|(_, tally)| tally.last_at).map(|(name, _)| name.clone());
        idlest.map(|name| tallies.remove(&name));
    }
    if !tallies.contains_key(policy) {
        tallies.insert(policy.into(), Tally::default());
    }
    tallies.get_mut(policy).expect("it is there")
}

/// An empty denial, in the place of the oldest if there is no room for another.
fn next(recent: &mut VecDeque<Arc<Denial>>) -> Arc<Denial> {
    if recent.len() < RECENT_MAX {
        return Arc::default();
    }
    let mut denial = recent.pop_front().unwrap_or_default();
    let Denial { policy, client, method, path, .. } = Arc::make_mut(&mut denial);
    [policy, client, method, path].into_iter().for_each(String::clear);
    denial
}
