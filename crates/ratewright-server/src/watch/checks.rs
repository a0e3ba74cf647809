//! How long decisions took, by algorithm and verdict: `rate_limiter_check_seconds` and `rate_limiter_requests_total`.
//!
//! A duration goes from the query to the decision: it holds the selection of policies and the store's answer, not the reading
//! of a request or the writing of its answer.
//!
//! There are five algorithms and two verdicts, so all ten series are there from the start, at zero: `rate` sees the
//! first denial too. The number of requests is the number of durations; it is not counted twice.

use ratewright_core::{Algorithm, Histogram, Micros, Reading, Verdict};

/// The algorithms, as the API writes them, in the model's order.
const ALGORITHMS: [&str; 5] =
    ["TOKEN_BUCKET", "LEAKY_BUCKET", "SLIDING_WINDOW", "SLIDING_WINDOW_COUNTER", "FIXED_WINDOW"];

/// Counts checks.
#[derive(Debug, Default)]
pub struct Checks {
    allowed: [Histogram; 5],
    denied: [Histogram; 5],
}

/// The checks of one algorithm that were decided alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The algorithm, as the API writes it.
    pub algorithm: &'static str,
    /// What was decided.
    pub verdict: Verdict,
    /// How many, and how long they took.
    pub took: Reading,
}

impl Checks {
    /// Counts one check.
    #[inline]
    pub fn observe(&self, algorithm: Algorithm, verdict: Verdict, took: Micros) {
        self.of(verdict)[index(algorithm)].observe(took);
    }

    /// All so far.
    pub fn read(&self) -> impl Iterator<Item = Check> {
        let verdicts = [Verdict::Allow, Verdict::Deny];
        verdicts.into_iter().flat_map(|verdict| {
            let named = ALGORITHMS.into_iter().zip(self.of(verdict));
            named.map(move |(algorithm, took)| Check { algorithm, verdict, took: took.read() })
        })
    }

    fn of(&self, verdict: Verdict) -> &[Histogram; 5] {
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
        assert_eq!(Checks::default().read().count(), 10, "all are there from the start");
    }
}
