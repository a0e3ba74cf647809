//! Who is being denied: the most denied of the last five minutes, and the last thousand denials.
//!
//! Everything is bounded. There are at most 1,000 tallies, one for each policy and mode; the one idle for longest makes room for another; a
//! tally remembers at most 480 clients; of each text at most 256 bytes are kept. At the very worst that is 150 MB, with
//! a thousand policies flooded at once by clients with long names.
//!
//! Only denials come here. They share a lock that is held while a few short texts are copied, and what a denial that
//! falls out of the thousand occupied is used for the next.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use ratewright_core::{AttributeName, Basis, Decision, Micros, Mode, Query, Timestamp};

use super::tally::Tally;
use super::{Short, account, push, words, write_client};

/// The most tallies, of both modes together.
const TALLIES_MAX: usize = 1_000;

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
    /// The policy that denied; of several the one that does so for longest. In shadow mode: the first that would have.
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
    /// The request's id, as far as it is known.
    pub correlation_id: String,
    /// Shadow: the policy would have denied the request, which was let through.
    pub mode: Mode,
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
    /// Shadow: the policy would have denied the requests, which were let through.
    pub mode: Mode,
}

#[derive(Debug, Default)]
struct Kept {
    enforced: Tallies,
    shadow: Tallies,
    /// The latest last.
    recent: VecDeque<Arc<Denial>>,
    /// The same of policies in shadow mode, kept apart so that a flood of them pushes no denial out.
    recent_shadow: VecDeque<Arc<Denial>>,
    /// Where a client's text is put together.
    client: String,
}

/// By policy.
type Tallies = HashMap<Arc<str>, Tally>;

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
        let Kept { enforced, shadow, recent, recent_shadow, client } = &mut *kept;
        for word in words(decision).filter(|word| word.is_against) {
            client.clear();
            write_client(client, query, word.ground.map(|ground| ground.limit));
            let (tallies, others) = match word.mode {
                Mode::Enforce => (&mut *enforced, &mut *shadow),
                Mode::Shadow | Mode::Off => (&mut *shadow, &mut *enforced),
            };
            tally(tallies, others, word.policy.name()).add(client, now);
        }
        if let Some(account) = account(decision) {
            let recent = if account.mode == Mode::Enforce { recent } else { recent_shadow };
            let mut denial = next(recent);
            let filled = Arc::make_mut(&mut denial);
            filled.policy.push_str(account.policy.name());
            write_client(&mut filled.client, query, account.limit);
            push(&mut filled.method, query.values(&AttributeName::<&str>::Method).next());
            push(&mut filled.path, query.values(&AttributeName::<&str>::Path).next());
            if let Some(id) = query.id {
                let _ = write!(Short(&mut filled.correlation_id), "{id}"); // as much as there is room for
            }
            (filled.at, filled.mode) = (now, account.mode);
            (filled.retry_after, filled.basis) = (account.retry_after, account.basis);
            recent.push_back(denial);
        }
    }

    /// The `n` most denied clients, of one policy or of all. Those of policies in shadow mode come last, so they hide nobody.
    pub fn top(&self, policy: Option<&str>, n: usize, now: Timestamp) -> Vec<Denied> {
        // One policy after the other, so that nobody waits for the lock for long.
        let mut top = Vec::new();
        for (policy, mode) in self.policies(policy) {
            let tallied = self.kept.lock().tallies(mode).get(&policy).map(|tally| tally.read(now));
            top.extend(tallied.into_iter().flatten().map(|tallied| Denied {
                policy: policy.clone(),
                client: tallied.client,
                at_least: tallied.at_least,
                at_most: tallied.at_most,
                mode,
            }));
            top.sort_by(|a, b| {
                let is_shadow = |denied: &Denied| denied.mode != Mode::Enforce;
                let order = |denied: &Denied| (is_shadow(denied), Reverse((denied.at_least, denied.at_most)));
                let named = || (&a.policy, &a.client).cmp(&(&b.policy, &b.client));
                order(a).cmp(&order(b)).then_with(named)
            });
            top.truncate(n);
        }
        top
    }

    /// The last `n` denials of each mode, the latest first: at most `n` in all, of which half may be of policies in shadow mode if
    /// there are enough others.
    pub fn recent(&self, n: usize) -> Vec<Arc<Denial>> {
        let kept = self.kept.lock();
        let n_shadow = kept.recent_shadow.len().min(n.saturating_sub(kept.recent.len()).max(n / 2));
        let enforced = kept.recent.iter().rev().take(n - n_shadow);
        let mut recent: Vec<_> =
            enforced.chain(kept.recent_shadow.iter().rev().take(n_shadow)).cloned().collect();
        drop(kept);
        recent.sort_by_key(|denial| Reverse(denial.at));
        recent
    }

    /// How much is remembered.
    #[cfg(test)]
    pub(super) fn kept(&self) -> KeptCounts {
        let Kept { enforced, shadow, recent, .. } = &*self.kept.lock();
        let n_clients = enforced.values().chain(shadow.values()).map(Tally::n_clients).sum();
        KeptCounts { n_policies: enforced.len() + shadow.len(), n_clients, n_recent: recent.len() }
    }

    /// The policies that have a tally, or the one that is asked for.
    fn policies(&self, policy: Option<&str>) -> Vec<(Arc<str>, Mode)> {
        let kept = self.kept.lock();
        let modes = [Mode::Enforce, Mode::Shadow];
        let named = |mode| move |policy: &Arc<str>| (policy.clone(), mode);
        match policy.map(Arc::<str>::from) {
            Some(policy) => modes.map(|mode| named(mode)(&policy)).to_vec(),
            None => modes.into_iter().flat_map(|mode| kept.tallies(mode).keys().map(named(mode))).collect(),
        }
    }
}

impl Kept {
    fn tallies(&self, mode: Mode) -> &Tallies {
        match mode {
            Mode::Enforce => &self.enforced,
            Mode::Shadow | Mode::Off => &self.shadow,
        }
    }
}

/// A policy's tally. If there is no room for another, the one that has been idle for longest goes.
fn tally<'a>(tallies: &'a mut Tallies, others: &mut Tallies, policy: &str) -> &'a mut Tally {
    if !tallies.contains_key(policy) && tallies.len() + others.len() >= TALLIES_MAX {
        let idlest = |tallies: &Tallies| {
            let idlest = tallies.iter().min_by_key(|(_, tally)| tally.last_at);
            idlest.map(|(name, tally)| (tally.last_at, name.clone()))
        };
        match (idlest(tallies), idlest(others)) {
            (Some((at, name)), other) if other.as_ref().is_none_or(|(other_at, _)| at <= *other_at) => {
                tallies.remove(&name);
            }
            (_, Some((_, name))) => drop(others.remove(&name)),
            (_, None) => {}
        }
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
    let Denial { policy, client, method, path, correlation_id, .. } = Arc::make_mut(&mut denial);
    [policy, client, method, path, correlation_id].into_iter().for_each(String::clear);
    denial
}
