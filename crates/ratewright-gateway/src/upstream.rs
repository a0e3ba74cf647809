//! The servers behind a route: who gets the next request, and who gets none for a while.
//!
//! Health is passive: nobody is asked how it is, the requests tell.
//!
//! ```text
//!            failures_max in a row            the time is over, one request comes
//!   HEALTHY ──────────────────────► EJECTED ──────────────────────────────────► PROBED
//!      ▲                               ▲  it failed: out again, twice as long      │
//!      │                               ├───────────────────────────────────────────┤
//!      │                               └──── nobody knows: the next one tries ─────┤
//!      └───────────────────────────────────────────── it succeeded ────────────────┘
//! ```
//!
//! Exactly one request probes a server; the others go on avoiding it until that one knows. If no server is left that a
//! request has not tried, one that is ejected is taken all the same, the one that was ejected first: an answer that may
//! fail is better than none for sure.
//!
//! Each route has its own view of its servers: a slow route does not take a server away from a quick one.
//!
//! # Laws
//! - A server is counted as busy from `pick` until the [`Lease`] is dropped, once for each.
//! - Of any requests in a row, while health does not change, all healthy servers get the same number, give or take one
//!   (round robin); or each goes to one that is least busy at that moment (least connections).
//! - What a request that began before an ejection says afterwards changes nothing.

mod state;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratewright_core::{Micros, Timestamp};
use smallvec::SmallVec;

use crate::client_tls::ClientTls;
use crate::server::Server;
use state::{Admission, State};

/// The servers behind a route.
#[derive(Debug)]
pub struct Upstream {
    servers: Vec<(Server, Arc<State>)>,
    balance: Balance,
    protocol: Protocol,
    health: Health,
    tls: Option<ClientTls>,
    /// Whose turn it is.
    turn: AtomicUsize,
}

/// Who gets the next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// One with the fewest requests under way.
    LeastConnections,
}

/// How servers are spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2; without TLS from the first byte on.
    Http2,
}

/// When a server is left alone, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// So many failures in a row.
    pub failures_max: NonZeroU32,
    /// How long at first. It doubles with every probe that fails, up to [`Health::EJECT_FOR_MAX`].
    pub eject_for: Micros,
}

/// The servers that one request has been sent to.
#[derive(Clone, Debug, Default)]
pub struct Tried(SmallVec<[usize; 4]>);

/// A server that one request goes to. It counts as busy until this is dropped.
#[derive(Debug)]
pub struct Lease {
    upstream: Arc<Upstream>,
    number: usize,
    admission: Admission,
    is_judged: bool,
}

/// How a server is, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct ServerState<'a> {
    /// Which one.
    pub server: &'a Server,
    /// True if it is not ejected.
    pub is_healthy: bool,
    /// Requests under way.
    pub n_busy: u32,
    /// How often it was ejected, ever.
    pub n_ejections: u64,
}

impl Default for Health {
    fn default() -> Self {
        let failures_max = const { NonZeroU32::new(3).expect("not zero") };
        Self { failures_max, eject_for: Micros::from_secs(10) }
    }
}

impl Health {
    /// The longest time that doubling leads to.
    pub const EJECT_FOR_MAX: Micros = Micros::from_secs(300);

    /// How long a server is left alone after so many probes that failed.
    fn eject_for(&self, n_in_a_row: u32) -> Micros {
        let doubled = 1_u64.checked_shl(n_in_a_row.min(32)).unwrap_or(u64::MAX);
        let longest = Self::EJECT_FOR_MAX.max(self.eject_for);
        Micros::new(self.eject_for.as_micros().saturating_mul(doubled)).min(longest)
    }
}

impl Tried {
    /// Notes where the request went.
    pub fn add(&mut self, lease: &Lease) {
        self.0.push(lease.number);
    }

    /// How many servers have been tried.
    pub fn n_servers(&self) -> usize {
        self.0.len()
    }

    fn has(&self, number: usize) -> bool {
        self.0.contains(&number)
    }
}

impl Upstream {
    /// These servers, all of them healthy as far as anybody knows.
    pub fn new(servers: Vec<Server>, balance: Balance, protocol: Protocol, health: Health) -> Self {
        let servers = servers.into_iter().map(|server| (server, Arc::default())).collect();
        Self { servers, balance, protocol, health, tls: None, turn: AtomicUsize::new(0) }
    }

    /// The same servers, where `tls` says whose certificates are good.
    #[must_use]
    pub fn trusting(self, tls: ClientTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The same servers; those that `old` has too are in the state in which it has them, from now on together.
    #[must_use]
    pub fn inheriting(&self, old: &Self) -> Self {
        let known = |server: &Server| old.servers.iter().find(|(other, _)| other == server);
        let servers = self.servers.iter().map(|(server, state)| {
            let state = known(server).map_or(state, |(_, state)| state);
            (server.clone(), state.clone())
        });
        let turn = AtomicUsize::new(old.turn.load(Ordering::Relaxed));
        Self { servers: servers.collect(), turn, tls: self.tls.clone(), ..*self }
    }

    /// How the servers are spoken to.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whose certificates are good. None: those of whom the machine trusts.
    pub fn tls(&self) -> Option<&ClientTls> {
        self.tls.as_ref()
    }

    /// Who gets the next request.
    pub fn balance(&self) -> Balance {
        self.balance
    }

    /// When a server is left alone.
    pub fn health(&self) -> Health {
        self.health
    }

    /// The servers.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().map(|(server, _)| server)
    }

    /// How the servers are, for metrics.
    pub fn states(&self) -> impl Iterator<Item = ServerState<'_>> {
        self.servers.iter().map(|(server, state)| ServerState {
            server,
            is_healthy: state.is_healthy(),
            n_busy: state.n_busy(),
            n_ejections: state.n_ejections(),
        })
    }

    /// A server for a request that has been sent to those before. None, if it has been sent to all of them.
    pub fn pick(self: &Arc<Self>, now: Timestamp, tried: &Tried) -> Option<Lease> {
        let mut healthy: SmallVec<[usize; 16]> = SmallVec::new();
        for (number, (_, state)) in self.servers.iter().enumerate().filter(|(number, _)| !tried.has(*number))
        {
            if state.is_healthy() {
                healthy.push(number);
            } else if let Some(admission) = state.probe(now) {
                return Some(self.lease(number, admission));
            }
        }
        if healthy.is_empty() {
            return self.pick_anyway(tried);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % healthy.len();
        let number = match self.balance {
            Balance::RoundRobin => healthy[turn],
            Balance::LeastConnections => self.least_busy(&healthy, turn),
        };
        Some(self.lease(number, Admission::Healthy))
    }

    /// Of these servers one that is least busy. From where the search begins changes, so that idle ones take turns.
    fn least_busy(&self, numbers: &[usize], start: usize) -> usize {
        let (late, early) = numbers.split_at(start);
        let busy = |number: &&usize| self.servers[**number].1.n_busy();
        early.iter().chain(late).min_by_key(busy).copied().unwrap_or_default()
    }

    /// A server although it is ejected: the one that was first.
    fn pick_anyway(self: &Arc<Self>, tried: &Tried) -> Option<Lease> {
        let left = self.servers.iter().enumerate().filter(|(number, _)| !tried.has(*number));
        let (number, (_, state)) = left.min_by_key(|(_, (_, state))| state.ejected_at())?;
        Some(self.lease(number, state.anyway()))
    }

    fn lease(self: &Arc<Self>, number: usize, admission: Admission) -> Lease {
        self.servers[number].1.begin();
        Lease { upstream: self.clone(), number, admission, is_judged: false }
    }
}

impl Lease {
    /// The server.
    pub fn server(&self) -> &Server {
        &self.upstream.servers[self.number].0
    }

    /// The number of the server within its upstream.
    pub fn number(&self) -> usize {
        self.number
    }

    /// True if the request finds out whether an ejected server is back.
    pub fn is_probe(&self) -> bool {
        matches!(self.admission, Admission::Probe(_))
    }

    /// The server did what a healthy one does. The first judgement counts. True if it was ejected, and is back by this.
    pub fn succeeded(&mut self) -> bool {
        !std::mem::replace(&mut self.is_judged, true) && self.state().succeeded(self.admission)
    }

    /// The server could not be reached, or did not answer as it should. The first judgement counts. If it is ejected by this, tells
    /// for how long.
    pub fn failed(&mut self, now: Timestamp) -> Option<Micros> {
        if std::mem::replace(&mut self.is_judged, true) {
            return None;
        }
        self.state().failed(self.admission, &self.upstream.health, now)
    }

    fn state(&self) -> &State {
        &self.upstream.servers[self.number].1
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_judged {
            self.state().unjudged(self.admission);
        }
        self.state().end();
    }
}

#[cfg(test)]
mod tests;
