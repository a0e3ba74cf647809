//! The real clocks. Nothing else in the libraries reads time.
//!
//! [`SystemClock`] is read for every decision, so it must be cheap: about 10 ns, where the operating
//! system's takes 26. It counts the processor's own ticks and corrects itself by the system's monotonic
//! clock a hundred times a second.
//!
//! It never goes back. Ticks are counted a thousandth too slowly, which is more than the error of their frequency, so a
//! correction moves the clock forward, by about ten microseconds; a correction that would move it back is skipped. So
//! the clock is never ahead of the true time either, and no bucket refills early.
//!
//! It is set by the wall clock once, at its start, and ignores later changes of the wall clock: a bucket measures
//! durations, and no administrator should be able to refill all buckets with `date -s`.
//!
//! [`WallClock`] is for responses that name a time of day. It follows the wall clock.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ratewright_core::{Clock, Timestamp};

/// How often ticks are compared with the system's clock, in microseconds.
const CORRECTED_EVERY: u64 = 10_000;

/// Ticks lose one part in 2^10.
const SLOWER_BY_BITS: u32 = 10;

/// The time since the epoch as it was at the start, plus what has passed since.
///
/// ```
/// use ratewright_core::Clock;
/// use ratewright_store::SystemClock;
///
/// let clock = SystemClock::new();
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Debug)]
pub struct SystemClock {
    ticks: quanta::Clock,
    start: Instant,
    epoch_at_start: u64,
    /// Microseconds since the start by the system's clock, less those by ticks.
    correction: AtomicI64,
    /// When it was corrected last, in microseconds by ticks. Written after `correction` and read before it.
    corrected_at: AtomicU64,
    correcting: Mutex<()>,
}

/// The wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl SystemClock {
    /// A clock that is set by the wall clock now.
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    pub fn new() -> Self {
        let clock = Self {
            ticks: quanta::Clock::new(),
            start: Instant::now(),
            epoch_at_start: WallClock.now().as_micros(),
            correction: AtomicI64::new(i64::MIN),
            corrected_at: AtomicU64::new(0),
            correcting: Mutex::new(()),
        };
        clock.corrected();
        clock
    }

    /// Microseconds by ticks, counted from the counter's own beginning: it may be set anew.
    #[inline(always)]
    fn by_ticks(&self) -> u64 {
        let nanos = self.ticks.delta_as_nanos(0, self.ticks.raw());
        (nanos - (nanos >> SLOWER_BY_BITS)) / 1_000
    }

    /// Compares ticks with the system's clock, and tells the microseconds since the start.
    #[cold]
    fn corrected(&self) -> u64 {
        let _one_at_a_time = self.correcting.lock();
        // In this order, what happens between the two readings makes the clock late, not early.
        let by_system = micros(self.start.elapsed().as_micros());
        let by_ticks = self.by_ticks();
        // Both are rounded down; one less, and their difference is too.
        let needed = by_system.cast_signed() - by_ticks.cast_signed() - 1;
        // Ticks that fell far below those of the last time were set anew, as when a machine moves.
        let set_anew = by_ticks + CORRECTED_EVERY < self.corrected_at.load(Relaxed);
        let correction = if set_anew { needed } else { needed.max(self.correction.load(Relaxed)) };
        self.correction.store(correction, Relaxed);
        self.corrected_at.store(by_ticks, Release);
        by_ticks.saturating_add_signed(correction)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        let by_ticks = self.by_ticks();
        // Wraps to a long time if ticks fell back.
        let since_corrected = by_ticks.wrapping_sub(self.corrected_at.load(Acquire));
        let passed = if since_corrected < CORRECTED_EVERY {
            by_ticks.saturating_add_signed(self.correction.load(Relaxed))
        } else {
            self.corrected()
        };
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
    use std::time::Duration;

    use ratewright_lab::{PATIENCE, wait_until};

    use super::*;

    #[test]
    fn the_system_clock_never_goes_back_and_is_never_ahead() {
        let clock = SystemClock::new();
        let system = |clock: &SystemClock| clock.epoch_at_start + micros(clock.start.elapsed().as_micros());
        let mut last = clock.now();
        let mut n_corrected = 0;
        while n_corrected < 3 {
            let corrected_at = clock.corrected_at.load(Relaxed);
            let now = clock.now();
            n_corrected += u32::from(corrected_at != clock.corrected_at.load(Relaxed));
            assert!(last <= now && now.as_micros() <= system(&clock), "{last:?} then {now:?}");
            assert!(clock.start.elapsed() < PATIENCE, "{n_corrected} corrections");
            last = now;
        }
    }

    #[test]
    fn ticks_that_were_set_anew_do_not_stop_the_clock() {
        let clock = SystemClock::new();
        let before = clock.now();
        // A machine does not move within two microseconds, by which the clock may be late.
        let moves_at = clock.start.elapsed() + Duration::from_micros(2);
        wait_until("a moment passes", || clock.start.elapsed() > moves_at);
        // As if the counter had shown much more a moment ago.
        clock.corrected_at.store(1 << 60, Relaxed);
        clock.correction.store(-(1 << 60), Relaxed);
        let after = clock.now();
        assert!(before <= after, "{before:?} then {after:?}");
        wait_until("it goes on", || clock.now() != after);
        assert!(after < clock.now());
    }
}
