//! The replay: each logged request becomes a query, is decided by the engine at its own time, and is counted.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ratewright_core::query::AttributeName;
use ratewright_core::store::Key;
use ratewright_core::{Decision, Limiter, ManualClock, Micros, Policies, Query, Timestamp, Verdict};
use ratewright_http::IdentityRules;
use ratewright_http::explain::is_secret;
use ratewright_store::MemoryStore;
use smallvec::SmallVec;

use crate::clients::{ClientHasher, ClientId};
use crate::policy_counts::{PolicyCounts, PolicyOutcome};
use crate::record::Record;
use crate::record_facts;

/// Maximum number of buckets at a time: about 2 GB if they are all in use. With more, the least used ones are evicted.
const KEYS_MAX: usize = 40_000_000;

/// A policy file to simulate.
#[non_exhaustive]
pub struct SimulatedFile {
    /// Its name in the report.
    pub name: String,
    /// Its policies.
    pub policies: Policies,
    /// Which proxies are trusted, and how paths and addresses are read.
    pub identity: IdentityRules,
    /// The gateway's routes. `None`: the file has none, so policies do not depend on routes.
    pub routes: Option<Box<dyn Routes>>,
    /// How long the gateway would delay a request.
    pub patience: Micros,
}

impl SimulatedFile {
    /// A policy file without routes and with default identity rules.
    pub fn new(name: impl Into<String>, policies: Policies) -> Self {
        Self {
            name: name.into(),
            policies,
            identity: IdentityRules::default(),
            routes: None,
            patience: Micros::ZERO,
        }
    }
}

/// The routes of a gateway.
pub trait Routes {
    /// The name of the route of a request, and the policies listed under it. `None`: no route matches, and the gateway responds
    /// with 404 or 405 before it asks the limiter. The path is in normal form.
    fn find(&self, host: Option<&str>, path: &str, method: &str) -> Option<(&str, &[String])>;

    /// True if a route lists this policy.
    fn lists(&self, policy: &str) -> bool;

    /// True if a route is only for some hosts.
    fn match_hosts(&self) -> bool;
}

/// Replaces a value that may be a secret.
pub(crate) type Conceal = fn(&str) -> String;

/// One policy file, and its buckets.
pub(crate) struct Replay {
    /// The file, with the policies that are simulated.
    file: SimulatedFile,
    limiter: Limiter<Arc<MemoryStore<ManualClock>>>,
    store: Arc<MemoryStore<ManualClock>>,
    clock: ManualClock,
}

/// The result of replaying a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplayOutcome {
    Allowed,
    Denied,
    /// It is allowed because it is exempt.
    Exempt,
    /// It is allowed because no policy covers it.
    NoPolicy,
    /// The gateway rejects it before it asks the limiter: no route matches, or its path is ambiguous.
    Rejected,
}

/// Counts the requests of all policies of a file.
pub(crate) struct AllPolicyCounts {
    pub(crate) policies: Vec<PolicyCounts>,
    hasher: ClientHasher,
    conceal: Conceal,
}

impl Replay {
    /// `policies` are those of the file that are simulated.
    pub(crate) fn new(file: SimulatedFile, policies: Policies) -> Self {
        let clock = ManualClock::default();
        let store = Arc::new(MemoryStore::new(clock.clone(), KEYS_MAX));
        let limiter = Limiter::new(policies.clone(), Arc::clone(&store));
        Self { file: SimulatedFile { policies, ..file }, limiter, store, clock }
    }

    pub(crate) fn policies(&self) -> &Policies {
        &self.file.policies
    }

    pub(crate) fn identity(&self) -> &IdentityRules {
        &self.file.identity
    }

    /// Buckets that were evicted before they were full again.
    pub(crate) fn n_evicted(&self) -> u64 {
        self.store.stats().n_evicted
    }

    /// Decides a request. Requests come in time order.
    pub(crate) fn decide(
        &self,
        at: Timestamp,
        record: &Record<'_>,
        address: Option<IpAddr>,
        all_counts: Option<&mut AllPolicyCounts>,
    ) -> ReplayOutcome {
        self.clock.set(at);
        let path = record_facts::path_seen(record, &self.file);
        let Some((facts, policies)) = record_facts::facts(record, address, &self.file, &path) else {
            return ReplayOutcome::Rejected;
        };
        let named: SmallVec<[&str; 4]> = policies.iter().map(String::as_str).collect();
        let attributes = facts.attributes();
        let query = Query {
            select: facts.select(&named),
            address: facts.address,
            patience: self.file.patience,
            ..Query::new(&attributes)
        };
        let mut decision = ready(self.limiter.decide(&query));
        let outcome = match decision.verdict() {
            Verdict::Allow if decision.standings().next().is_some() => ReplayOutcome::Allowed,
            Verdict::Allow if is_exempt(&self.file.policies, &query) => ReplayOutcome::Exempt,
            Verdict::Allow => ReplayOutcome::NoPolicy,
            Verdict::Deny => ReplayOutcome::Denied,
        };
        if let Some(all_counts) = all_counts {
            all_counts.count(at, record, &query, &decision);
        }
        if outcome == ReplayOutcome::Allowed
            && decision.awaits_response()
            && let Some(status) = record.status
        {
            ready(self.limiter.refund_uncounted(&query, &mut decision, status));
        }
        outcome
    }
}

impl AllPolicyCounts {
    /// Clients, counted once for each policy.
    pub(crate) fn n_clients(&self) -> u64 {
        self.policies.iter().map(PolicyCounts::n_clients).sum()
    }

    pub(crate) fn new(n_policies: usize, n_top: usize, conceal: Conceal) -> Self {
        let policies = (0..n_policies).map(|_| PolicyCounts::new(n_top)).collect();
        Self { policies, hasher: ClientHasher::default(), conceal }
    }

    /// Counts a decision under each policy that applied.
    fn count(&mut self, at: Timestamp, record: &Record<'_>, query: &Query<'_>, decision: &Decision) {
        let request = || {
            let (path, _) = record_facts::path_and_query(&record.target);
            (record.method.clone().into_owned(), path.to_owned())
        };
        let address = query.values(&AttributeName::<&str>::Ip).next();
        if let Some(refused) = decision.refused() {
            let (policy, _) = refused;
            let index = decision.policies().iter().position(|other| other.name() == policy.name());
            if let Some(counts) = index.and_then(|index| self.policies.get_mut(index)) {
                let client = address.map(|address| self.hasher.id(address.as_bytes()));
                let outcome = PolicyOutcome { is_denied: true, is_near: false };
                counts.count(at, outcome, client, || address.unwrap_or("unknown").to_owned(), request);
            }
            return;
        }
        // A policy may have several limits: the request counts once.
        let mut applied: SmallVec<[(usize, PolicyOutcome, Key<'_>); 4]> = SmallVec::new();
        for (_, limit, standing) in decision.standings() {
            let Some(key) = query.key(limit.name(), standing.limit) else { continue };
            let capacity = u64::from(limit.quota().capacity().get());
            let is_denied = standing.is_over();
            let is_near = !is_denied && u64::from(standing.remaining) * 5 < capacity;
            let index = standing.limit.policy();
            match applied.iter_mut().find(|(other, ..)| *other == index) {
                None => applied.push((index, PolicyOutcome { is_denied, is_near }, key)),
                Some((_, outcome, known)) => {
                    if is_denied && !outcome.is_denied {
                        *known = key;
                    }
                    outcome.is_denied |= is_denied;
                    outcome.is_near = !outcome.is_denied && (outcome.is_near || is_near);
                }
            }
        }
        for (index, outcome, key) in applied {
            let Some(counts) = self.policies.get_mut(index) else { continue };
            let (client, conceal) = (client_id(&self.hasher, &key, address), self.conceal);
            counts.count(at, outcome, client, || client_name(&key, address, conceal), request);
        }
    }
}

/// True if a request that no policy covers is exempt.
pub(crate) fn is_exempt(policies: &Policies, query: &Query<'_>) -> bool {
    policies.exempt().iter().any(|condition| condition.holds(query))
}

/// The client of a key: its values, or the address if the policy counts all requests together.
pub(crate) fn client_id(hasher: &ClientHasher, key: &Key<'_>, address: Option<&str>) -> Option<ClientId> {
    if let Some(value) = key.single_value() {
        return Some(hasher.id(value.as_bytes()));
    }
    if key.name().partition().is_empty() {
        return address.map(|address| hasher.id(address.as_bytes()));
    }
    let mut text = SmallVec::<[u8; 128]>::new();
    for value in key.values() {
        text.extend_from_slice(value.exact().as_bytes());
        text.push(0xff);
    }
    Some(hasher.id(&text))
}

/// The name of the client in the report: values that may be secret are concealed.
pub(crate) fn client_name(key: &Key<'_>, address: Option<&str>, conceal: Conceal) -> String {
    if key.name().partition().is_empty() {
        return address.unwrap_or("unknown").to_owned();
    }
    let values = key.values().zip(key.attributes()).map(|(value, attribute)| {
        if is_secret(&attribute.name) { conceal(value.text) } else { value.to_string() }
    });
    values.collect::<Vec<_>>().join(" | ")
}

/// The output of a future that never waits.
#[inline(always)]
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

impl std::fmt::Debug for SimulatedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedFile").field("name", &self.name).finish_non_exhaustive()
    }
}
