//! Counts and reports requests and descriptors without a rule. They are valid, but a typo in a name looks the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratewright_core::Timestamp;
use ratewright_listen::LogThrottle;
use tracing::warn;

/// The longest part of a name that is logged, in bytes.
const NAME_MAX: usize = 100;

/// Requests and descriptors without a rule, since the start.
#[derive(Debug)]
pub struct Unmatched {
    n_requests: AtomicU64,
    n_descriptors: AtomicU64,
    warnings: LogThrottle,
}

impl Unmatched {
    /// Requests for domains that no file has.
    pub fn n_requests(&self) -> u64 {
        self.n_requests.load(Ordering::Relaxed)
    }

    /// Descriptors of known domains for which there is no rule.
    pub fn n_descriptors(&self) -> u64 {
        self.n_descriptors.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn domain(&self, domain: &str, now: Timestamp) {
        self.n_requests.fetch_add(1, Ordering::Relaxed);
        if let Some(suppressed) = self.warnings.admit_at(now.as_micros()) {
            let domain = domain.split_at(domain.floor_char_boundary(NAME_MAX)).0;
            warn!(
                domain,
                suppressed, "requests for a domain that no file of envoy.files has; they have no limits"
            );
        }
    }

    pub(crate) fn descriptors(&self, n: u64) {
        if n > 0 {
            self.n_descriptors.fetch_add(n, Ordering::Relaxed);
        }
    }
}

impl Default for Unmatched {
    fn default() -> Self {
        let (n_requests, n_descriptors) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { n_requests, n_descriptors, warnings: LogThrottle::new(Duration::from_secs(10)) }
    }
}
