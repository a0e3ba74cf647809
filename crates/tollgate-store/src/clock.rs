//! The real clocks. Nothing else in the libraries reads time.
//!
//! [`SystemClock`] is read for every decision, so it must be cheap: about 10 ns, where the operating
//! system's takes 26. It counts the processor's own ticks and corrects itself by the system's monotonic
//! clock several times a second, so that it keeps in step for months. It is set by the wall clock once, at
//! its start, and does not follow when that is set anew: a bucket measures durations, and no administrator
//! should be able to refill all buckets with `date -s`.
//!
//! [`WallClock`] is for answers that name a time of day. It follows the wall clock.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_core::{Clock, Timestamp};

/// How often ticks are compared with the system's clock, in microseconds. Counting ticks is off by some
/// millionths, so in this time by less than a microsecond.
const CORRECTED_EVERY: u64 = 100_000;

/// The time since the epoch as it was at the start, plus what has passed since.
#[derive(Debug)]
pub struct SystemClock {
    ticks: quanta::Clock,
    ticks_at_start: u64,
    start: Instant,
    epoch_at_start: u64,
    /// Microseconds by the system's clock, less those by ticks.
    correction: AtomicI64,
    /// When the correction is due next, in microseconds by ticks.
    correct_at: AtomicU64,
}

/// The wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl SystemClock {
    /// A clock that is set by the wall clock now.
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    pub fn new() -> Self {
        let ticks = quanta::Clock::new();
        Self {
            ticks_at_start: ticks.raw(),
            ticks,
            start: Instant::now(),
            epoch_at_start: WallClock.now().as_micros(),
            correction: AtomicI64::new(0),
            correct_at: AtomicU64::new(CORRECTED_EVERY),
        }
    }

    /// Compares ticks with the system's clock. Of several threads that find this due, one does it.
    #[cold]
    fn correct(&self, by_ticks: u64, due: u64) {
        let next = by_ticks + CORRECTED_EVERY;
        if self.correct_at.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
            let by_system = micros(self.start.elapsed().as_micros());
            self.correction.store(by_system.cast_signed() - by_ticks.cast_signed(), Relaxed);
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let by_ticks = self.ticks.delta_as_nanos(self.ticks_at_start, self.ticks.raw()) / 1_000;
        let due = self.correct_at.load(Relaxed);
        if due <= by_ticks {
            self.correct(by_ticks, due);
        }
        let passed = by_ticks.saturating_add_signed(self.correction.load(Relaxed));
        Timestamp::from_micros(self.epoch_at_start + passed)
    }
}

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(micros(since.as_micros()))
    }
}

/// A number of microseconds, or more than any clock can show.
fn micros(micros: u128) -> u64 {
    u64::try_from(micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_keeps_in_step_with_the_wall_clock_over_many_corrections() {
        let clock = SystemClock::new();
        let started = clock.now();
        let mut last = started;
        while clock.now().since(started).as_micros() < 5 * CORRECTED_EVERY {
            let now = clock.now();
            // A correction may take back what ticks were ahead: microseconds, not more.
            assert!(last.since(now).as_micros() < 1_000, "{last:?} then {now:?}");
            last = now;
        }
        let (wall, system) = (WallClock.now(), clock.now());
        let apart = wall.since(system).max(system.since(wall));
        assert!(apart.as_micros() < 1_000_000, "{wall:?} {system:?}");
    }
}
