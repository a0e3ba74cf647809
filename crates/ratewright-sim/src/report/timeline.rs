//! Reads a timeline: its intervals, its peaks, and the same timeline with fewer intervals.

use ratewright_core::Timestamp;

use super::{Timeline, time};

impl Timeline {
    /// The number of intervals.
    pub(super) fn n_intervals(&self) -> usize {
        self.allowed.len().max(self.denied.len())
    }

    /// Where the n-th interval begins; with `n_intervals`, where the last one ends.
    pub(super) fn start_of(&self, n: usize) -> Timestamp {
        let from = self.from.map_or(0, Timestamp::as_micros);
        let offset = self.interval_seconds.saturating_mul(1_000_000).saturating_mul(n as u64);
        Timestamp::from_micros(from.saturating_add(offset))
    }

    /// Where the n-th interval begins: `2026-02-10 08:20`, with seconds if intervals are shorter than a minute.
    pub(super) fn start_in_words(&self, n: usize) -> String {
        let at = self.start_of(n);
        if self.interval_seconds < 60 { time::seconds(at) } else { time::minutes(at) }
    }

    /// Allowed and denied requests of the n-th interval.
    pub(super) fn interval(&self, n: usize) -> (u64, u64) {
        let of = |counts: &[u64]| counts.get(n).copied().unwrap_or(0);
        (of(&self.allowed), of(&self.denied))
    }

    /// True if there is something to draw: two intervals or more, with a start.
    pub(super) fn is_drawable(&self) -> bool {
        self.from.is_some() && self.interval_seconds > 0 && self.n_intervals() > 1
    }

    /// The same timeline with at most `n_max` intervals: adjacent intervals are added up.
    pub(super) fn merged(&self, n_max: usize) -> Self {
        let factor = self.n_intervals().div_ceil(n_max.max(1)).max(1);
        let sums = |counts: &[u64]| {
            counts
                .chunks(factor)
                .map(|chunk| chunk.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)))
                .collect()
        };
        Self {
            from: self.from,
            interval_seconds: self.interval_seconds.saturating_mul(factor as u64),
            allowed: sums(&self.allowed),
            denied: sums(&self.denied),
        }
    }
}

/// The largest count and its position; of equals, the first.
pub(super) fn peak(counts: &[u64]) -> Option<(usize, u64)> {
    let largest = counts.iter().copied().max()?;
    counts.iter().position(|n| *n == largest).map(|position| (position, largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_the_sums() {
        let timeline = Timeline {
            from: Some(Timestamp::from_micros(0)),
            interval_seconds: 60,
            allowed: vec![1, 2, 3, 4, 5],
            denied: vec![0, 0, 0, 7, 0],
        };
        let merged = timeline.merged(3);
        assert_eq!(
            (merged.interval_seconds, &*merged.allowed, &*merged.denied),
            (120, &[3, 7, 5][..], &[0, 7, 0][..])
        );
        assert_eq!(merged.start_of(1), Timestamp::from_micros(120_000_000));
        assert_eq!(timeline.merged(5), timeline);
        assert_eq!(Timeline::default().merged(3), Timeline::default());
    }

    #[test]
    fn the_first_of_equal_peaks_counts() {
        assert_eq!(peak(&[1, 4, 2, 4]), Some((1, 4)));
        assert_eq!(peak(&[]), None);
    }
}
