//! The state of one server: requests in flight, and whether it is ejected.
//!
//! Every request reads one number, the gate: 0 is open, any other value is the time of the next probe, with a mark
//! while a probe is running. Times stay below 2^53, which leaves room for the mark. The gate changes under a lock,
//! except for the mark, which a single compare-and-swap sets or clears: only one request can win it.
//!
//! # What counts as a failure
//! A client whose requests take too long, or break connections, must not eject servers that respond to others:
//!
//! - A missing response does not count if the server has responded to any request since this one began.
//! - Failures of one client that overlap in time count once.
//! - Failures of one client alone eject no server that has responded to another client within the last 10 s.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratewright_core::{Micros, Timestamp};

use super::{Failure, Health};

/// The mark of a gate with a running probe.
const PROBED: u64 = 1 << 63;

/// The state of one server.
#[derive(Debug, Default)]
pub(super) struct ServerHealth {
    n_in_flight: AtomicU32,
    /// 0: open. Otherwise the end of the ejection in microseconds, and the mark.
    gate: AtomicU64,
    /// When it was ejected, in microseconds.
    ejected_at: AtomicU64,
    n_ejections: AtomicU64,
    /// A copy of the record's counter, readable without the lock.
    n_failures: AtomicU32,
    /// The client that got the last response, and when; and when another client got one before that.
    last_client: AtomicU64,
    responded_at: AtomicU64,
    responded_to_others_at: AtomicU64,
    record: Mutex<FailureRecord>,
}

/// Failures since the last success.
#[derive(Debug, Default)]
struct FailureRecord {
    n_failures: u32,
    clients: FailedClients,
    /// When the last one was counted.
    counted_at: Timestamp,
    /// Ejections since the server was healthy.
    n_consecutive_ejections: u32,
}

/// Whose requests failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum FailedClients {
    #[default]
    None,
    One(u64),
    Several,
}

/// For so long, a response to one client shows that a server works, whatever another client reports.
const RECENT: Micros = Micros::from_secs(10);

/// Why a request was sent to a server. It contains the gate that the request saw, so that an outdated outcome is
/// recognized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    Healthy,
    /// To test whether it has recovered.
    Probe(u64),
    /// All other servers were tried.
    LastResort(u64),
}

/// A request that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedRequest {
    pub(super) failure: Failure,
    pub(super) admission: Admission,
    /// When it was sent.
    pub(super) began: Timestamp,
    /// False if clients have caused enough ejections.
    pub(super) may_eject: bool,
}

impl ServerHealth {
    pub(super) fn begin(&self) {
        self.n_in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.n_in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn n_in_flight(&self) -> u32 {
        self.n_in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn n_ejections(&self) -> u64 {
        self.n_ejections.load(Ordering::Relaxed)
    }

    pub(super) fn ejected_at(&self) -> u64 {
        self.ejected_at.load(Ordering::Relaxed)
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.gate() == 0
    }

    /// The right to probe, if it is time and no other probe is running.
    pub(super) fn probe(&self, now: Timestamp) -> Option<Admission> {
        let gate = self.gate();
        if gate == 0 || gate & PROBED != 0 || now.as_micros() < gate {
            return None;
        }
        self.exchange(gate, gate | PROBED).then_some(Admission::Probe(gate | PROBED))
    }

    /// Admits a request although the server is ejected.
    pub(super) fn last_resort(&self) -> Admission {
        match self.gate() {
            0 => Admission::Healthy,
            gate => Admission::LastResort(gate & !PROBED),
        }
    }

    /// Records a response to a client.
    pub(super) fn responded(&self, client: IpAddr, now: Timestamp) {
        let client = client_number(client);
        if self.last_client.load(Ordering::Relaxed) != client {
            let before = self.responded_at.load(Ordering::Relaxed);
            self.responded_to_others_at.store(before, Ordering::Relaxed);
            self.last_client.store(client, Ordering::Relaxed);
        }
        self.responded_at.store(now.as_micros(), Ordering::Relaxed);
    }

    /// True if it has responded to any client after this time.
    fn has_responded_since(&self, time: Timestamp) -> bool {
        self.responded_at.load(Ordering::Relaxed) > time.as_micros()
    }

    /// True if it has responded to another client within the last seconds.
    fn works_for_others(&self, client: u64, now: Timestamp) -> bool {
        let is_other = self.last_client.load(Ordering::Relaxed) != client;
        let at = if is_other { &self.responded_at } else { &self.responded_to_others_at };
        let at = at.load(Ordering::Relaxed);
        at > 0 && now.as_micros() < at.saturating_add(RECENT.as_micros())
    }

    /// Records a success. True if an ejected server recovered. A request that began before the ejection changes
    /// nothing.
    pub(super) fn succeeded(&self, admission: Admission) -> bool {
        let is_news = match admission {
            Admission::Healthy => self.n_failures.load(Ordering::Relaxed) > 0,
            Admission::Probe(_) | Admission::LastResort(_) => true,
        };
        if !is_news {
            return false;
        }
        let mut record = self.record();
        let gate = self.gate();
        match admission {
            Admission::Healthy if gate != 0 => return false,
            Admission::Probe(seen) | Admission::LastResort(seen) if gate & !PROBED != seen & !PROBED => {
                return false;
            }
            Admission::Healthy | Admission::Probe(_) | Admission::LastResort(_) => {}
        }
        *record = FailureRecord::default();
        self.n_failures.store(0, Ordering::Relaxed);
        self.gate.store(0, Ordering::Release);
        gate != 0
    }

    /// Records a failure. Returns the ejection time if it ejects the server.
    pub(super) fn failed(&self, failed: FailedRequest, health: &Health, now: Timestamp) -> Option<Micros> {
        let mut record = self.record();
        let FailedRequest { failure, admission, began, may_eject } = failed;
        let client = client_number(failure.client);
        let is_caused_by_clients = failure.kind.is_caused_by_clients();
        let is_of_one_client =
            |record: &FailureRecord| is_caused_by_clients && record.clients == FailedClients::One(client);
        match admission {
            Admission::Healthy => {
                let is_known = is_of_one_client(&record) && began <= record.counted_at;
                let is_refuted = failure.kind.is_refutable() && self.has_responded_since(began);
                if self.gate() != 0 || is_known || is_refuted {
                    return None;
                }
                record.add(client, now);
                self.n_failures.store(record.n_failures, Ordering::Relaxed);
                let is_enough = record.n_failures >= health.failures_max.get() && may_eject;
                let is_doubtful = is_of_one_client(&record) && self.works_for_others(client, now);
                (is_enough && !is_doubtful).then(|| self.eject(&mut record, health, now))
            }
            Admission::Probe(seen) if self.gate() == seen => {
                if is_caused_by_clients {
                    // The time does not double: the next probe may be another client's.
                    record.n_consecutive_ejections = record.n_consecutive_ejections.saturating_sub(1);
                }
                Some(self.eject(&mut record, health, now))
            }
            // Already ejected.
            Admission::Probe(_) | Admission::LastResort(_) => None,
        }
    }

    /// A request ended without an outcome: the next request may probe.
    pub(super) fn inconclusive(&self, admission: Admission) {
        if let Admission::Probe(seen) = admission {
            self.exchange(seen, seen & !PROBED);
        }
    }

    fn eject(&self, record: &mut FailureRecord, health: &Health, now: Timestamp) -> Micros {
        let eject_for = health.eject_for(record.n_consecutive_ejections);
        let until = now + eject_for;
        let n_consecutive_ejections = record.n_consecutive_ejections.saturating_add(1);
        *record = FailureRecord { n_consecutive_ejections, ..FailureRecord::default() };
        self.n_failures.store(0, Ordering::Relaxed);
        self.ejected_at.store(now.as_micros(), Ordering::Relaxed);
        self.n_ejections.fetch_add(1, Ordering::Relaxed);
        self.gate.store(until.as_micros().max(1), Ordering::Release);
        eject_for
    }

    fn gate(&self) -> u64 {
        self.gate.load(Ordering::Acquire)
    }

    fn exchange(&self, from: u64, to: u64) -> bool {
        self.gate.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn record(&self) -> MutexGuard<'_, FailureRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FailureRecord {
    fn add(&mut self, client: u64, now: Timestamp) {
        self.n_failures = self.n_failures.saturating_add(1);
        self.counted_at = now;
        self.clients = match self.clients {
            FailedClients::None => FailedClients::One(client),
            FailedClients::One(known) if known == client => FailedClients::One(client),
            FailedClients::One(_) | FailedClients::Several => FailedClients::Several,
        };
    }
}

/// A number for a client; clients of one IPv6 network of 64 bits share it.
fn client_number(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => u64::try_from(address.to_bits() >> 64).unwrap_or_default(),
    }
}
