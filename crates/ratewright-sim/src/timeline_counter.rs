//! Requests per interval, for a log of any length.
//!
//! Intervals start at one second long. When there would be too many, they are merged into the next longer ones, so the
//! memory is bounded and the result is the same as if the length had been known before.

use ratewright_core::Timestamp;

use crate::report::Timeline;

/// Maximum number of intervals.
const INTERVALS_MAX: usize = 400;

/// Lengths of intervals in seconds; each is a multiple of the one before.
const STEPS: [u64; 11] = [1, 5, 15, 60, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 24 * 3_600, 7 * 24 * 3_600];

/// Counts requests per interval.
#[derive(Debug)]
pub(crate) struct TimelineCounter {
    /// Seconds of one interval.
    step: u64,
    /// The number of the first interval, counted from the epoch.
    first: u64,
    /// Allowed and denied requests.
    counts: Vec<[u64; 2]>,
    /// The index of the last interval, and the microseconds at which it begins and ends.
    last: (usize, u64, u64),
}

impl Default for TimelineCounter {
    fn default() -> Self {
        Self { step: STEPS[0], first: 0, counts: Vec::new(), last: (0, 0, 0) }
    }
}

impl TimelineCounter {
    /// Counts a request. Requests come in time order.
    #[inline]
    pub(crate) fn count(&mut self, at: Timestamp, is_denied: bool) {
        let micros = at.as_micros();
        if !(self.last.1..self.last.2).contains(&micros) {
            self.move_to(micros);
        }
        if let Some(count) = self.counts.get_mut(self.last.0) {
            count[usize::from(is_denied)] += 1;
        }
    }

    fn move_to(&mut self, micros: u64) {
        let second = micros / 1_000_000;
        if self.counts.is_empty() {
            self.first = second / self.step;
        }
        // A request that is earlier than the first counts in the first interval.
        while (second / self.step).saturating_sub(self.first) >= INTERVALS_MAX as u64 && self.widen() {}
        let index = (second / self.step).saturating_sub(self.first);
        let index = usize::try_from(index).unwrap_or(usize::MAX).min(INTERVALS_MAX - 1);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, [0; 2]);
        }
        let begin = second / self.step * self.step;
        self.last = (index, begin * 1_000_000, (begin + self.step) * 1_000_000);
    }

    /// Merges intervals into longer ones. False if there are no longer ones: 400 weeks.
    fn widen(&mut self) -> bool {
        let Some(&step) = STEPS.iter().find(|step| self.step < **step) else { return false };
        let first = self.first * self.step / step;
        let mut counts: Vec<[u64; 2]> = Vec::new();
        for (n, [allowed, denied]) in (self.first..).zip(std::mem::take(&mut self.counts)) {
            let index = usize::try_from(n * self.step / step - first).unwrap_or(0);
            if counts.len() <= index {
                counts.resize(index + 1, [0; 2]);
            }
            counts[index][0] += allowed;
            counts[index][1] += denied;
        }
        (self.step, self.first, self.counts) = (step, first, counts);
        true
    }

    pub(crate) fn report(&self) -> Timeline {
        Timeline {
            from: (!self.counts.is_empty())
                .then(|| Timestamp::from_micros(self.first * self.step * 1_000_000)),
            interval_seconds: self.step,
            allowed: self.counts.iter().map(|count| count[0]).collect(),
            denied: self.counts.iter().map(|count| count[1]).collect(),
        }
    }
}

impl Timeline {
    /// The same counts over the intervals of another timeline, which covers this one: so that charts have the same axis.
    pub(crate) fn align(&mut self, whole: &Self) {
        let Some(start) = whole.from.map(|from| from.as_micros() / 1_000_000) else { return };
        let own_start = self.from.map_or(start, |from| from.as_micros() / 1_000_000);
        let merge = |counts: &[u64]| {
            let mut merged = vec![0; whole.allowed.len()];
            for (n, count) in (0u64..).zip(counts) {
                let second = own_start + n * self.interval_seconds;
                let index = second.saturating_sub(start) / whole.interval_seconds.max(1);
                let last = merged.len().saturating_sub(1);
                if let Some(interval) = merged.get_mut(usize::try_from(index).unwrap_or(last).min(last)) {
                    *interval += count;
                }
            }
            merged
        };
        let (allowed, denied) = (merge(&self.allowed), merge(&self.denied));
        *self = Self { from: whole.from, interval_seconds: whole.interval_seconds, allowed, denied };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Widening on the way gives the same intervals as counting with the final length from the start.
        #[test]
        fn every_request_is_in_its_interval(
            steps in prop::collection::vec(prop_oneof![0u64..5, 0u64..1_000, 0u64..100_000_000], 1..100),
        ) {
            let mut counter = TimelineCounter::default();
            let mut now = 1_700_000_000;
            let times: Vec<u64> = steps.iter().map(|step| { now += step; now }).collect();
            times.iter().for_each(|at| counter.count(Timestamp::from_micros(at * 1_000_000 + 7), at % 3 == 0));
            let timeline = counter.report();
            let step = timeline.interval_seconds;
            let from = timeline.from.unwrap().as_micros() / 1_000_000;
            prop_assert!(timeline.allowed.len() <= INTERVALS_MAX);
            prop_assert!(from.is_multiple_of(step) && from <= times[0] && times[0] < from + step);
            let (mut allowed, mut denied) = (vec![0; timeline.allowed.len()], vec![0; timeline.denied.len()]);
            for at in times {
                let index = usize::try_from((at - from) / step).unwrap().min(INTERVALS_MAX - 1);
                (if at % 3 == 0 { &mut denied } else { &mut allowed })[index] += 1;
            }
            prop_assert_eq!((timeline.allowed, timeline.denied), (allowed, denied));
        }
    }

    proptest! {
        /// A timeline of some of the requests, over the intervals of all of them.
        #[test]
        fn aligned_counts_are_in_the_intervals_of_the_whole(
            steps in prop::collection::vec((prop_oneof![0u64..5, 0u64..100_000], any::<bool>()), 1..100),
        ) {
            let (mut whole, mut some) = (TimelineCounter::default(), TimelineCounter::default());
            let mut now = 1_700_000_000;
            let mut times = Vec::new();
            for (step, is_counted) in steps {
                now += step;
                whole.count(Timestamp::from_micros(now * 1_000_000), false);
                if is_counted {
                    some.count(Timestamp::from_micros(now * 1_000_000), true);
                    times.push(now);
                }
            }
            let (whole, mut some) = (whole.report(), some.report());
            some.align(&whole);
            let from = whole.from.unwrap().as_micros() / 1_000_000;
            let mut expected = vec![0; whole.allowed.len()];
            for at in times {
                expected[usize::try_from((at - from) / whole.interval_seconds).unwrap()] += 1;
            }
            prop_assert_eq!((some.from, some.interval_seconds, some.denied), (whole.from, whole.interval_seconds, expected));
        }
    }

    #[test]
    fn without_requests_there_are_no_intervals() {
        assert_eq!(TimelineCounter::default().report().from, None);
    }
}
