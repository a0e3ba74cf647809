//! The servers of a route: which one gets the next request, and which ones are ejected.
//!
//! Health checks are passive: only requests test a server.
//!
//! ```text
//!            failures_max in a row            the time is over, one request comes
//!   HEALTHY ──────────────────────► EJECTED ──────────────────────────────────► PROBED
//!      ▲                               ▲  failed: ejected for twice as long        │
//!      │                               ├───────────────────────────────────────────┤
//!      │                               └──── no outcome: the next request probes ──┤
//!      └────────────────────────────────────────────── succeeded ──────────────────┘
//! ```
//!
//! Exactly one request probes a server; the others avoid it until the probe ends. If a request has tried all healthy
//! servers, it uses the one that was ejected first: a response that may fail is better than none.
//!
//! A client can cause failures: by requests that take longer than a timeout, or that crash a server. So such failures are
//! weighed, see [`ServerHealth::failed`], and eject no more than a share of the servers at a time.
//!
//! Each route has its own view of its servers: failures on a slow route do not eject a server from a fast one.
//!
//! # Laws
//! - A request counts as in flight from `pick` until its [`Lease`] is dropped, exactly once.
//! - While health does not change, all healthy servers get the same number of requests, plus or minus one (round
//!   robin), or each request goes to a server with the fewest in flight (least connections).
//! - The outcome of a request that began before an ejection changes nothing.

mod server;
mod state;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratewright_core::{Micros, Timestamp};
use smallvec::SmallVec;

use state::{Admission, FailedRequest, ServerHealth};

pub use crate::upstream_tls::ClientTls;
pub use server::{UpstreamServer, UpstreamServerError};

/// The servers of a route.
#[derive(Debug)]
pub struct Upstream {
    servers: Vec<(UpstreamServer, Arc<ServerHealth>)>,
    balance: Balance,
    protocol: Protocol,
    health: Health,
    tls: Option<ClientTls>,
    /// The next server in turn.
    turn: AtomicUsize,
}

/// Which server gets the next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Balance {
    /// In turn.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in flight.
    LeastConnections,
}

/// The protocol to the servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2; with prior knowledge if there is no TLS.
    Http2,
}

/// When a server is ejected, and for how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Health {
    /// Consecutive failures until ejection.
    pub failures_max: NonZeroU32,
    /// The first ejection time. It doubles with every probe that cannot connect, up to [`Health::EJECT_FOR_MAX`].
    pub eject_for: Micros,
    /// The largest share of the servers that is ejected at once for failures that a client can cause; at least one server may be.
    pub ejected_max: f64,
}

/// A failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What failed.
    pub kind: FailureKind,
    /// The client whose request it was.
    pub client: IpAddr,
}

/// How a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// Nothing listens there. A client cannot cause this.
    Unreachable,
    /// No connection in time. A client can fill a server's queue of connections, but not while the server responds to nobody.
    NoConnection,
    /// The response did not come in time.
    NoResponse,
    /// The connection was lost, or the response was invalid.
    Broken,
}

impl FailureKind {
    /// True if a client can cause it by itself.
    fn is_caused_by_clients(self) -> bool {
        matches!(self, Self::NoResponse | Self::Broken)
    }

    /// True if a later response to another request shows that the server works.
    fn is_refutable(self) -> bool {
        matches!(self, Self::NoResponse | Self::NoConnection)
    }
}

/// The servers that a request has tried.
#[derive(Clone, Debug, Default)]
pub struct Tried(SmallVec<[usize; 4]>);

/// A server picked for one request, which counts as in flight until this is dropped.
#[derive(Debug)]
pub struct Lease {
    upstream: Arc<Upstream>,
    number: usize,
    admission: Admission,
    began: Timestamp,
    has_outcome: bool,
}

/// The status of a server, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct ServerStatus<'a> {
    /// The server.
    pub server: &'a UpstreamServer,
    /// True if it is not ejected.
    pub is_healthy: bool,
    /// Requests in flight.
    pub n_in_flight: u32,
    /// The number of ejections so far.
    pub n_ejections: u64,
}

impl Default for Health {
    fn default() -> Self {
        let failures_max = const { NonZeroU32::new(3).expect("not zero") };
        Self { failures_max, eject_for: Micros::from_secs(10), ejected_max: 0.5 }
    }
}

impl Health {
    /// The longest ejection time after doubling.
    pub const EJECT_FOR_MAX: Micros = Micros::from_secs(300);

    /// The ejection time after this many consecutive ejections.
    fn eject_for(&self, n_consecutive_ejections: u32) -> Micros {
        let doubled = 1_u64.checked_shl(n_consecutive_ejections.min(32)).unwrap_or(u64::MAX);
        let longest = Self::EJECT_FOR_MAX.max(self.eject_for);
        Micros::new(self.eject_for.as_micros().saturating_mul(doubled)).min(longest)
    }
}

impl Tried {
    /// Adds the server of an attempt.
    pub fn add(&mut self, lease: &Lease) {
        self.0.push(lease.number);
    }

    /// The number of servers tried.
    pub fn n_servers(&self) -> usize {
        self.0.len()
    }

    fn has(&self, number: usize) -> bool {
        self.0.contains(&number)
    }
}

impl Upstream {
    /// An upstream of these servers, all healthy.
    pub fn new(servers: Vec<UpstreamServer>, balance: Balance, protocol: Protocol, health: Health) -> Self {
        let servers = servers.into_iter().map(|server| (server, Arc::default())).collect();
        Self { servers, balance, protocol, health, tls: None, turn: AtomicUsize::new(0) }
    }

    /// Uses its own TLS settings.
    #[must_use]
    pub fn with_tls(self, tls: ClientTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The same upstream, sharing the state of servers that `old` contains.
    #[must_use]
    pub fn inheriting(&self, old: &Self) -> Self {
        let known = |server: &UpstreamServer| old.servers.iter().find(|(other, _)| other == server);
        let servers = self.servers.iter().map(|(server, state)| {
            let state = known(server).map_or(state, |(_, state)| state);
            (server.clone(), state.clone())
        });
        let turn = AtomicUsize::new(old.turn.load(Ordering::Relaxed));
        Self { servers: servers.collect(), turn, tls: self.tls.clone(), ..*self }
    }

    /// The protocol to the servers.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Its own TLS settings. None: the gateway's.
    pub fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    /// Which server gets the next request.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// When a server is ejected.
    pub fn health(&self) -> Health {
        self.health
    }

    /// The servers.
    pub fn servers(&self) -> impl Iterator<Item = &UpstreamServer> {
        self.servers.iter().map(|(server, _)| server)
    }

    /// The status of each server, for metrics.
    pub fn states(&self) -> impl Iterator<Item = ServerStatus<'_>> {
        self.servers.iter().map(|(server, state)| ServerStatus {
            server,
            is_healthy: state.is_healthy(),
            n_in_flight: state.n_in_flight(),
            n_ejections: state.n_ejections(),
        })
    }

    /// Picks a server that is not in `tried`. None: all were tried.
    pub fn pick(self: &Arc<Self>, now: Timestamp, tried: &Tried) -> Option<Lease> {
        let mut healthy: SmallVec<[usize; 16]> = SmallVec::new();
        for (number, (_, state)) in self.servers.iter().enumerate().filter(|(number, _)| !tried.has(*number))
        {
            if state.is_healthy() {
                healthy.push(number);
            } else if let Some(admission) = state.probe(now) {
                return Some(self.lease(number, admission, now));
            }
        }
        if healthy.is_empty() {
            return self.pick_ejected(tried, now);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % healthy.len();
        let number = match self.balance {
            Balance::RoundRobin => healthy[turn],
            Balance::LeastConnections => self.least_loaded(&healthy, turn),
        };
        Some(self.lease(number, Admission::Healthy, now))
    }

    /// The server with the fewest requests in flight. The search starts at another server each time, so idle ones take
    /// turns.
    fn least_loaded(&self, numbers: &[usize], start: usize) -> usize {
        let (late, early) = numbers.split_at(start);
        let busy = |number: &&usize| self.servers[**number].1.n_in_flight();
        early.iter().chain(late).min_by_key(busy).copied().unwrap_or_default()
    }

    /// The untried server that was ejected first.
    fn pick_ejected(self: &Arc<Self>, tried: &Tried, now: Timestamp) -> Option<Lease> {
        let left = self.servers.iter().enumerate().filter(|(number, _)| !tried.has(*number));
        let (number, (_, state)) = left.min_by_key(|(_, (_, state))| state.ejected_at())?;
        Some(self.lease(number, state.last_resort(), now))
    }

    fn lease(self: &Arc<Self>, number: usize, admission: Admission, began: Timestamp) -> Lease {
        self.servers[number].1.begin();
        Lease { upstream: self.clone(), number, admission, began, has_outcome: false }
    }

    /// True if clients may cause no further ejection now.
    fn has_ejected_its_share(&self) -> bool {
        let number = |n: usize| u32::try_from(n).map_or(f64::MAX, f64::from);
        let n_ejected = self.servers.iter().filter(|(_, state)| !state.is_healthy()).count();
        n_ejected > 0 && number(n_ejected + 1) > number(self.servers.len()) * self.health.ejected_max
    }
}

impl Lease {
    /// The server.
    pub fn server(&self) -> &UpstreamServer {
        &self.upstream.servers[self.number].0
    }

    /// The index of the server in its upstream.
    pub fn number(&self) -> usize {
        self.number
    }

    /// True if the request tests whether an ejected server has recovered.
    pub fn is_probe(&self) -> bool {
        matches!(self.admission, Admission::Probe(_))
    }

    /// Records a response to this client; the first outcome counts. True if an ejected server recovered.
    pub fn succeeded(&mut self, client: IpAddr, now: Timestamp) -> bool {
        if std::mem::replace(&mut self.has_outcome, true) {
            return false;
        }
        self.state().responded(client, now);
        self.state().succeeded(self.admission)
    }

    /// Records a failure; the first outcome counts. Returns the ejection time if it ejects the server.
    pub fn failed(&mut self, failure: Failure, now: Timestamp) -> Option<Micros> {
        if std::mem::replace(&mut self.has_outcome, true) {
            return None;
        }
        let may_eject = !failure.kind.is_caused_by_clients() || !self.upstream.has_ejected_its_share();
        let failed = FailedRequest { failure, admission: self.admission, began: self.began, may_eject };
        self.state().failed(failed, &self.upstream.health, now)
    }

    fn state(&self) -> &ServerHealth {
        &self.upstream.servers[self.number].1
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.has_outcome {
            self.state().inconclusive(self.admission);
        }
        self.state().end();
    }
}

#[cfg(test)]
mod tests;
