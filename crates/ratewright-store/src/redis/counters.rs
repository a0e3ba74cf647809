//! Counters of the traffic with Redis.
//!
//! ```text
//!   requests ──────► calls, several requests in one ──► Redis
//!    failures, by kind   how many, how long they took      outages: how often the link went down
//! ```
//!
//! A request is a decision or a command. While the link is down requests fail without a call, so failures grow and calls
//! do not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ratewright_core::Micros;
use ratewright_telemetry::{Histogram, Reading};

use super::error::{FailureKind, StoreError};

/// Calls, failures and outages so far.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Traffic {
    /// How many calls there were and how long they took, including calls without a reply and calls that only tested the link.
    pub calls: Reading,
    /// Decisions and commands without a reply, by reason.
    pub failures: [(FailureKind, u64); FailureKind::ALL.len()],
    /// How often the link went down.
    pub n_outages: u64,
}

/// The counters of a link, behind [`Traffic`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    calls: Histogram,
    failures: [AtomicU64; FailureKind::ALL.len()],
    n_outages: AtomicU64,
}

impl Counters {
    /// Counts a call.
    pub(super) fn called(&self, took: Duration) {
        self.calls.observe(Micros::new(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)));
    }

    /// Counts a decision or command without a reply.
    #[cold]
    pub(super) fn failed(&self, error: &StoreError) {
        self.failures[error.kind() as usize].fetch_add(1, Relaxed);
    }

    /// Counts an outage.
    pub(super) fn went_down(&self) {
        self.n_outages.fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        Traffic {
            calls: self.calls.read(),
            failures: FailureKind::ALL.map(|kind| (kind, self.failures[kind as usize].load(Relaxed))),
            n_outages: self.n_outages.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_place_and_its_name() {
        for (n, kind) in FailureKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, n, "{}", kind.name());
        }
        let mut names = FailureKind::ALL.map(FailureKind::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
