//! Durations, counted in buckets with fixed bounds.
//!
//! An observation is two additions and takes no lock. A reading at the same time may include it in the count and not
//! yet in the sum; both only grow.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ratewright_core::Micros;

/// The bounds, in microseconds. A decision in memory takes one or two, a call to Redis a few hundred; the latency
/// targets are 5 and 10 milliseconds.
const BOUNDS: [u64; 15] =
    [10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000];

/// Counts durations by their length.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Those up to each bound and above the one before, then those above all.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

/// What a histogram held when it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Durations so far.
    pub n: u64,
    /// All of them together.
    pub sum: Micros,
    counts: [u64; BOUNDS.len() + 1],
}

impl Histogram {
    /// Counts one.
    #[inline]
    pub fn observe(&self, took: Micros) {
        let took = took.as_micros();
        let step = BOUNDS.partition_point(|bound| *bound < took);
        self.counts[step].fetch_add(1, Relaxed);
        self.sum.fetch_add(took, Relaxed);
    }

    /// All so far.
    pub fn read(&self) -> Reading {
        let counts = std::array::from_fn(|step| self.counts[step].load(Relaxed));
        Reading { n: counts.iter().sum(), sum: Micros::new(self.sum.load(Relaxed)), counts }
    }
}

impl Reading {
    /// How many durations are above the previous bound and at most this one. The last step has no bound (`None`).
    pub fn steps(&self) -> impl Iterator<Item = (Option<Micros>, u64)> {
        let bounds = BOUNDS.iter().map(|bound| Some(Micros::new(*bound))).chain([None]);
        bounds.zip(self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(observed: &[u64]) -> Vec<(Option<u64>, u64)> {
        let histogram = Histogram::default();
        observed.iter().for_each(|took| histogram.observe(Micros::new(*took)));
        let reading = histogram.read();
        assert_eq!((reading.n, reading.sum.as_micros()), (observed.len() as u64, observed.iter().sum()));
        let filled = reading.steps().filter(|(_, n)| *n > 0);
        filled.map(|(bound, n)| (bound.map(Micros::as_micros), n)).collect()
    }

    #[test]
    fn a_duration_counts_up_to_its_bound_and_the_bound_itself_is_in() {
        assert_eq!(steps(&[0, 1, 10, 11]), [(Some(10), 3), (Some(25), 1)]);
        assert_eq!(steps(&[5_000, 5_001, 10_000]), [(Some(5_000), 1), (Some(10_000), 2)]);
        assert_eq!(steps(&[1_000_000, 1_000_001]), [(Some(1_000_000), 1), (None, 1)]);
    }

    /// C8: the promises of 5 and 10 milliseconds can be read off.
    #[test]
    fn c8_the_bounds_that_were_asked_for_are_there() {
        for millis in [1, 5, 10, 25, 50, 100, 250, 1_000] {
            assert!(BOUNDS.contains(&(millis * 1_000)), "{millis} ms");
        }
        assert!(BOUNDS.is_sorted());
    }
}
