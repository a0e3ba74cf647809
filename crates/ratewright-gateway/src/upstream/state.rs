//! The state of one server: requests in flight, and whether it is ejected.
//!
//! Every request reads one number, the gate: 0 is open, any other value is the time of the next probe, with a mark
//! while a probe is running. Times stay below 2^53, which leaves room for the mark. The gate changes under a lock,
//! except for the mark, which a single compare-and-swap sets or clears: only one request can win it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratewright_core::{Micros, Timestamp};

use super::Health;

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
    record: Mutex<FailureRecord>,
}

/// Failures since the last success.
#[derive(Debug, Default)]
struct FailureRecord {
    n_failures: u32,
    /// Ejections since the server was healthy.
    n_consecutive_ejections: u32,
}

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
    pub(super) fn failed(&self, admission: Admission, health: &Health, now: Timestamp) -> Option<Micros> {
        let mut record = self.record();
        match admission {
            Admission::Healthy => {
                if self.gate() != 0 {
                    return None;
                }
                record.n_failures = record.n_failures.saturating_add(1);
                self.n_failures.store(record.n_failures, Ordering::Relaxed);
                let is_enough = record.n_failures >= health.failures_max.get();
                is_enough.then(|| self.eject(&mut record, health, now))
            }
            Admission::Probe(seen) if self.gate() == seen => Some(self.eject(&mut record, health, now)),
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
        *record = FailureRecord {
            n_failures: 0,
            n_consecutive_ejections: record.n_consecutive_ejections.saturating_add(1),
        };
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
