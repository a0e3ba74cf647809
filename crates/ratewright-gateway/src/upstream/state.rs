//! How one server is: how busy, and whether it is ejected.
//!
//! What every request reads is one number, the gate: 0 is open, anything else the time at which it may be tried again,
//! with a mark while somebody tries. Times stay below 2^53, so the mark has room. The gate is changed under a lock, but for
//! the mark, which is set and taken off by a single exchange: of many only one can win it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratewright_core::{Micros, Timestamp};

use super::Health;

/// The mark of a gate at which somebody tries.
const PROBED: u64 = 1 << 63;

/// How one server is.
#[derive(Debug, Default)]
pub(super) struct State {
    n_busy: AtomicU32,
    /// 0: open. Else until when the server is left alone, in microseconds, and the mark.
    gate: AtomicU64,
    /// When it was ejected, in microseconds.
    ejected_at: AtomicU64,
    n_ejections: AtomicU64,
    /// The same as in the record, to be read without the lock.
    n_failures: AtomicU32,
    record: Mutex<Record>,
}

/// What has been found out, between one success and the next.
#[derive(Debug, Default)]
struct Record {
    n_failures: u32,
    /// Ejections since the server was healthy.
    n_in_a_row: u32,
}

/// On what ground a request is sent to a server. It names the gate that it saw, so that it can tell later whether that one is
/// still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    Healthy,
    /// To find out whether it is back.
    Probe(u64),
    /// For want of another.
    Anyway(u64),
}

impl State {
    pub(super) fn begin(&self) {
        self.n_busy.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.n_busy.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn n_busy(&self) -> u32 {
        self.n_busy.load(Ordering::Relaxed)
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

    /// The right to find out whether the server is back, if it is time and nobody else does.
    pub(super) fn probe(&self, now: Timestamp) -> Option<Admission> {
        let gate = self.gate();
        if gate == 0 || gate & PROBED != 0 || now.as_micros() < gate {
            return None;
        }
        self.exchange(gate, gate | PROBED).then_some(Admission::Probe(gate | PROBED))
    }

    /// For want of another.
    pub(super) fn anyway(&self) -> Admission {
        match self.gate() {
            0 => Admission::Healthy,
            gate => Admission::Anyway(gate & !PROBED),
        }
    }

    /// What a request has shown. One that began before the server was ejected shows nothing new.
    /// True if it was ejected, and is back.
    pub(super) fn succeeded(&self, admission: Admission) -> bool {
        let is_news = match admission {
            Admission::Healthy => self.n_failures.load(Ordering::Relaxed) > 0,
            Admission::Probe(_) | Admission::Anyway(_) => true,
        };
        if !is_news {
            return false;
        }
        let mut record = self.record();
        let gate = self.gate();
        match admission {
            Admission::Healthy if gate != 0 => return false,
            Admission::Probe(seen) | Admission::Anyway(seen) if gate & !PROBED != seen & !PROBED => {
                return false;
            }
            Admission::Healthy | Admission::Probe(_) | Admission::Anyway(_) => {}
        }
        *record = Record::default();
        self.n_failures.store(0, Ordering::Relaxed);
        self.gate.store(0, Ordering::Release);
        gate != 0
    }

    /// How long it is left alone, if it is from now on.
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
            // That it does not work was known.
            Admission::Probe(_) | Admission::Anyway(_) => None,
        }
    }

    /// A request ended without showing anything: who probed lets the next one.
    pub(super) fn unjudged(&self, admission: Admission) {
        if let Admission::Probe(seen) = admission {
            self.exchange(seen, seen & !PROBED);
        }
    }

    fn eject(&self, record: &mut Record, health: &Health, now: Timestamp) -> Micros {
        let eject_for = health.eject_for(record.n_in_a_row);
        let until = now + eject_for;
        *record = Record { n_failures: 0, n_in_a_row: record.n_in_a_row.saturating_add(1) };
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

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
