//! Durations of decisions, by algorithm and verdict: `rate_limiter_check_seconds` and `rate_limiter_requests_total`.
//!
//! A duration goes from the query to the decision: it includes selecting policies and asking the store, but not
//! reading the request or writing the response.
//!
//! Five algorithms and two verdicts make ten series, which all start at zero so that `rate` sees the first denial. The
//! number of requests is the number of durations; it is not counted separately.

use ratewright_core::quota::Algorithm;
use ratewright_core::{Micros, Verdict};
use ratewright_telemetry::{Histogram, Reading};

const N_ALGORITHMS: usize = Algorithm::NAMES.len();

/// The algorithms, as the API writes them, in the order of the core.
const ALGORITHMS: [&str; N_ALGORITHMS] =
    ["TOKEN_BUCKET", "LEAKY_BUCKET", "SLIDING_WINDOW", "SLIDING_WINDOW_COUNTER", "FIXED_WINDOW"];

/// Durations of decisions.
#[derive(Debug, Default)]
pub struct Checks {
    allowed: [Histogram; N_ALGORITHMS],
    denied: [Histogram; N_ALGORITHMS],
}

/// The decisions of one algorithm with one verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The algorithm, as the API writes it.
    pub algorithm: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// How many, and how long they took.
    pub took: Reading,
}

impl Checks {
    /// Counts one decision.
    #[inline]
    pub fn observe(&self, algorithm: Algorithm, verdict: Verdict, took: Micros) {
        self.of(verdict)[index(algorithm)].observe(took);
    }

    /// All counts.
    pub fn read(&self) -> impl Iterator<Item = Check> {
        let verdicts = [Verdict::Allow, Verdict::Deny];
        verdicts.into_iter().flat_map(|verdict| {
            let named = ALGORITHMS.into_iter().zip(self.of(verdict));
            named.map(move |(algorithm, took)| Check { algorithm, verdict, took: took.read() })
        })
    }

    fn of(&self, verdict: Verdict) -> &[Histogram; N_ALGORITHMS] {
        match verdict {
            Verdict::Allow => &self.allowed,
            Verdict::Deny => &self.denied,
        }
    }
}

const fn index(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::TokenBucket(_) => 0,
        Algorithm::LeakyBucket(_) => 1,
        Algorithm::SlidingWindow => 2,
        Algorithm::SlidingWindowCounter => 3,
        Algorithm::FixedWindow(_) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_and_verdict_is_counted_under_its_name() {
        for (n, name) in Algorithm::NAMES.iter().enumerate() {
            let checks = Checks::default();
            checks.observe(Algorithm::named(name).unwrap(), Verdict::Deny, Micros::new(7));
            let counted: Vec<_> = checks.read().filter(|check| check.took.n > 0).collect();
            assert_eq!(counted.len(), 1);
            assert_eq!((counted[0].algorithm, counted[0].verdict), (ALGORITHMS[n], Verdict::Deny));
            assert_eq!(ALGORITHMS[n].to_lowercase(), *name);
        }
        assert_eq!(Checks::default().read().count(), 10, "all series exist from the start");
    }
}
