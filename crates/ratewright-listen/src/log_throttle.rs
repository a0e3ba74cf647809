//! Limits how often one message is logged: the first few of each interval. The next line says how many were suppressed.
//!
//! An interval begins with its first line. A clock that is set back begins a new one, so that it does not silence the
//! log.

use std::num::NonZeroU32;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Admits the first few messages of each interval.
#[derive(Debug)]
pub struct LogThrottle {
    n_max: NonZeroU32,
    /// The length of an interval, in microseconds.
    every: u64,
    /// When [`admit`](Self::admit) begins to count. Tokio's clock, as for all times in this crate.
    began_at: Instant,
    interval: Mutex<Interval>,
}

/// The current interval.
#[derive(Debug, Default)]
struct Interval {
    /// In microseconds. None: nothing was logged yet.
    since: Option<u64>,
    n_logged: u32,
    /// Since the last line.
    n_suppressed: u64,
}

impl LogThrottle {
    /// Admits one message in `every`.
    pub fn new(every: Duration) -> Self {
        Self::several(NonZeroU32::MIN, every)
    }

    /// Admits `n_max` messages in `every`.
    pub fn several(n_max: NonZeroU32, every: Duration) -> Self {
        let every = u64::try_from(every.as_micros()).unwrap_or(u64::MAX);
        Self { n_max, every, began_at: Instant::now(), interval: Mutex::default() }
    }

    /// If the message is to be logged now: how many were suppressed since the last one.
    pub fn admit(&self) -> Option<u64> {
        self.admit_at(u64::try_from(self.began_at.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The same for callers with a clock of their own. `now` is in microseconds.
    pub fn admit_at(&self, now: u64) -> Option<u64> {
        let mut interval = self.interval.lock();
        let elapsed = interval.since.and_then(|since| now.checked_sub(since));
        if elapsed.is_none_or(|elapsed| elapsed >= self.every) {
            (interval.since, interval.n_logged) = (Some(now), 0);
        }
        if interval.n_logged >= self.n_max.get() {
            interval.n_suppressed += 1;
            return None;
        }
        interval.n_logged += 1;
        Some(std::mem::take(&mut interval.n_suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_flood_is_logged_once_per_interval_with_the_number_suppressed() {
        let throttle = LogThrottle::new(Duration::from_secs(1));
        let logged = [0, 0, SECOND - 1, SECOND].map(|now| throttle.admit_at(now));
        assert_eq!(logged, [Some(0), None, None, Some(2)]);
    }

    #[test]
    fn the_first_lines_of_an_interval_are_logged_and_the_next_line_counts_the_rest() {
        let throttle = LogThrottle::several(NonZeroU32::new(2).unwrap(), Duration::from_secs(1));
        let logged = [0, 10, 20, 999, 1_000, 1_001, 1_002, 5_000, 5_000]
            .map(|millis| throttle.admit_at(millis * SECOND / 1_000));
        assert_eq!(logged, [Some(0), Some(0), None, None, Some(2), Some(0), None, Some(1), Some(0)]);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_silence_the_log() {
        let throttle = LogThrottle::new(Duration::from_secs(1));
        let logged = [100, 1, 1].map(|seconds| throttle.admit_at(seconds * SECOND));
        assert_eq!(logged, [Some(0), Some(0), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn its_own_clock_starts_with_it() {
        let throttle = LogThrottle::new(Duration::from_secs(10));
        assert_eq!([throttle.admit(), throttle.admit()], [Some(0), None]);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!([throttle.admit(), throttle.admit()], [Some(1), None]);
    }
}
