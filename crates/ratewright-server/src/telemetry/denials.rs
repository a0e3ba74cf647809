//! The most denied clients of the last five minutes, and the last thousand denials.
//!
//! Everything is bounded: at most 1,000 policies (each mode counts), of which the one idle for longest is replaced; at
//! most 480 clients for each; at most 256 bytes of each text. The worst case is 150 MB, with a thousand policies
//! flooded at once by clients with long names.
//!
//! Only denials are recorded. They share a lock that is held while a few short texts are copied, and the memory of the
//! oldest denial is reused for the next.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use ratewright_core::policy::Mode;
use ratewright_core::query::AttributeName;
use ratewright_core::store::Basis;
use ratewright_core::{Decision, Micros, Query, Timestamp};

use super::top_clients::TopClients;
use super::{ObservedLimiter, Truncated, denial_summary, policy_verdicts, push_truncated, write_client};

/// The most policies with denied clients, of both modes together.
const POLICIES_MAX: usize = 1_000;

/// The most denials remembered one by one.
pub(super) const RECENT_MAX: usize = 1_000;

/// Remembers denials.
#[derive(Debug, Default)]
pub struct Denials {
    log: Mutex<DenialLog>,
}

/// One denial.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Denial {
    /// When, by the wall clock.
    pub at: Timestamp,
    /// The policy that denied; of several, the one with the longest wait. In shadow mode: the first that would have denied.
    pub policy: String,
    /// The client: its key, as `inspect` takes it.
    pub client: String,
    /// The request's method, or empty.
    pub method: String,
    /// The request's path, or empty.
    pub path: String,
    /// When the query would be allowed; `None`: never.
    pub retry_after: Option<Micros>,
    /// The basis of the denial; `None` if no store was asked.
    pub basis: Option<Basis>,
    /// The request's id, or empty.
    pub correlation_id: String,
    /// Shadow: the policy would have denied the request, which was allowed.
    pub mode: Mode,
}

/// How often a client was denied under a policy, in the last five minutes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeniedClient {
    /// The policy.
    pub policy: Arc<str>,
    /// The client: its key, as `inspect` takes it.
    pub client: String,
    /// The lower bound.
    pub at_least: u64,
    /// The upper bound.
    pub at_most: u64,
    /// Shadow: the policy would have denied the requests, which were allowed.
    pub mode: Mode,
}

#[derive(Debug, Default)]
struct DenialLog {
    enforced: TopByPolicy,
    shadow: TopByPolicy,
    /// The latest last.
    recent: VecDeque<Arc<Denial>>,
    /// Those of policies in shadow mode, separate so that a flood of them evicts no denial.
    recent_shadow: VecDeque<Arc<Denial>>,
    /// A buffer for a client's key.
    client: String,
    /// Denials so far, also those that are no longer remembered.
    n_enforced: u64,
    n_shadow: u64,
}

/// The denied clients of each policy.
type TopByPolicy = HashMap<Arc<str>, TopClients>;

/// How much is remembered.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct DenialLogSize {
    pub(super) n_policies: usize,
    pub(super) n_clients: usize,
    pub(super) n_recent: usize,
}

impl DeniedClient {
    /// How far back denials are counted.
    pub const WINDOW: Micros = super::top_clients::WINDOW;
}

impl Denials {
    /// Records a denial: once for each policy that denied, and once by itself.
    pub(super) fn record(
        &self,
        query: &Query<'_>,
        decision: &Decision,
        limiter: ObservedLimiter,
        now: Timestamp,
    ) {
        let mut log = self.log.lock();
        let DenialLog { enforced, shadow, recent, recent_shadow, client, n_enforced, n_shadow } = &mut *log;
        for verdict in policy_verdicts(decision).filter(|verdict| verdict.is_denied) {
            client.clear();
            write_client(client, query, verdict.standing.map(|standing| standing.limit));
            let (top, other_mode) = match verdict.mode {
                Mode::Enforce => (&mut *enforced, &mut *shadow),
                Mode::Shadow | Mode::Off => (&mut *shadow, &mut *enforced),
            };
            top_clients(top, other_mode, verdict.policy.name()).add(client, now);
        }
        if let Some(summary) = denial_summary(decision) {
            let is_enforced = summary.mode == Mode::Enforce;
            match limiter {
                _ if is_enforced => *n_enforced += 1,
                ObservedLimiter::Rates => *n_shadow += 1,
                // The limiter on rates counts the request, which goes on to it.
                ObservedLimiter::InFlight => {}
            }
            let recent = if is_enforced { recent } else { recent_shadow };
            let mut denial = reuse_oldest(recent);
            let filled = Arc::make_mut(&mut denial);
            filled.policy.push_str(summary.policy.name());
            write_client(&mut filled.client, query, summary.limit);
            push_truncated(&mut filled.method, query.values(&AttributeName::<&str>::Method).next());
            push_truncated(&mut filled.path, query.values(&AttributeName::<&str>::Path).next());
            if let Some(id) = query.id {
                let _ = write!(Truncated(&mut filled.correlation_id), "{id}"); // cannot fail
            }
            (filled.at, filled.mode) = (now, summary.mode);
            (filled.retry_after, filled.basis) = (summary.retry_after, summary.basis);
            recent.push_back(denial);
        }
    }

    /// The `n` most denied clients, of one policy or of all. Those of policies in shadow mode come last.
    pub fn top(&self, policy: Option<&str>, n: usize, now: Timestamp) -> Vec<DeniedClient> {
        // One policy after the other, so that the lock is never held for long.
        let mut top = Vec::new();
        for (policy, mode) in self.policies(policy) {
            let counted = self.log.lock().top(mode).get(&policy).map(|top_clients| top_clients.read(now));
            top.extend(counted.into_iter().flatten().map(|counted| DeniedClient {
                policy: policy.clone(),
                client: counted.client,
                at_least: counted.at_least,
                at_most: counted.at_most,
                mode,
            }));
            top.sort_by(|a, b| {
                let is_shadow = |denied: &DeniedClient| denied.mode != Mode::Enforce;
                let order =
                    |denied: &DeniedClient| (is_shadow(denied), Reverse((denied.at_least, denied.at_most)));
                let names = || (&a.policy, &a.client).cmp(&(&b.policy, &b.client));
                order(a).cmp(&order(b)).then_with(names)
            });
            top.truncate(n);
        }
        top
    }

    /// The last denials of one policy or of all, the latest first: at most `n`, of which at most half are of policies in
    /// shadow mode if there are enough others.
    pub fn recent(&self, policy: Option<&str>, n: usize) -> Vec<Arc<Denial>> {
        let is_meant = |denial: &&Arc<Denial>| policy.is_none_or(|policy| denial.policy == policy);
        let log = self.log.lock();
        let newest = |recent: &VecDeque<Arc<Denial>>| -> Vec<Arc<Denial>> {
            recent.iter().rev().filter(is_meant).take(n).cloned().collect()
        };
        let (mut recent, mut shadow) = (newest(&log.recent), newest(&log.recent_shadow));
        drop(log);
        shadow.truncate(n.saturating_sub(recent.len()).max(n / 2));
        recent.truncate(n - shadow.len());
        recent.append(&mut shadow);
        recent.sort_by_key(|denial| Reverse(denial.at));
        recent
    }

    /// Requests denied so far, and requests that were allowed though a policy in shadow mode would have denied them.
    pub fn totals(&self) -> (u64, u64) {
        let log = self.log.lock();
        (log.n_enforced, log.n_shadow)
    }

    /// How much is remembered.
    #[cfg(test)]
    pub(super) fn size(&self) -> DenialLogSize {
        let DenialLog { enforced, shadow, recent, .. } = &*self.log.lock();
        let n_clients = enforced.values().chain(shadow.values()).map(TopClients::n_clients).sum();
        DenialLogSize { n_policies: enforced.len() + shadow.len(), n_clients, n_recent: recent.len() }
    }

    /// The policies with denied clients, or the given one.
    fn policies(&self, policy: Option<&str>) -> Vec<(Arc<str>, Mode)> {
        let log = self.log.lock();
        let modes = [Mode::Enforce, Mode::Shadow];
        let with_mode = |mode| move |policy: &Arc<str>| (policy.clone(), mode);
        match policy.map(Arc::<str>::from) {
            Some(policy) => modes.map(|mode| with_mode(mode)(&policy)).to_vec(),
            None => modes.into_iter().flat_map(|mode| log.top(mode).keys().map(with_mode(mode))).collect(),
        }
    }
}

impl DenialLog {
    fn top(&self, mode: Mode) -> &TopByPolicy {
        match mode {
            Mode::Enforce => &self.enforced,
            Mode::Shadow | Mode::Off => &self.shadow,
        }
    }
}

/// A policy's denied clients. If there are too many policies, the one idle for longest is removed.
fn top_clients<'a>(
    top: &'a mut TopByPolicy,
    other_mode: &mut TopByPolicy,
    policy: &str,
) -> &'a mut TopClients {
    if !top.contains_key(policy) && top.len() + other_mode.len() >= POLICIES_MAX {
        let idlest = |top: &TopByPolicy| {
            let idlest = top.iter().min_by_key(|(_, top_clients)| top_clients.last_at);
            idlest.map(|(name, top_clients)| (top_clients.last_at, name.clone()))
        };
        match (idlest(top), idlest(other_mode)) {
            (Some((at, name)), other) if other.as_ref().is_none_or(|(other_at, _)| at <= *other_at) => {
                top.remove(&name);
            }
            (_, Some((_, name))) => drop(other_mode.remove(&name)),
            (_, None) => {}
        }
    }
    if !top.contains_key(policy) {
        top.insert(policy.into(), TopClients::default());
    }
    top.get_mut(policy).expect("it is there")
}

/// An empty denial, which reuses the oldest if there are too many.
fn reuse_oldest(recent: &mut VecDeque<Arc<Denial>>) -> Arc<Denial> {
    if recent.len() < RECENT_MAX {
        return Arc::default();
    }
    let mut denial = recent.pop_front().unwrap_or_default();
    let Denial { policy, client, method, path, correlation_id, .. } = Arc::make_mut(&mut denial);
    [policy, client, method, path, correlation_id].into_iter().for_each(String::clear);
    denial
}
