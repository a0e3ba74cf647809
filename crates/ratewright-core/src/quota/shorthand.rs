//! Short constructors for quotas in code: `Quota::per_second(10).burst(50)`.

use std::num::NonZeroU32;

use super::{Algorithm, Quota};
use crate::quantity::Micros;
use crate::rate::Rate;

impl Quota {
    /// `units` per second, as a token bucket: that many at once, then evenly.
    ///
    /// ```
    /// use ratewright_core::Quota;
    ///
    /// let quota = Quota::per_second(10).burst(50);
    /// assert_eq!((quota.units(), quota.capacity().get()), (10, 50));
    /// ```
    ///
    /// # Panics
    /// If `units` is 0. For values from a user, [`Quota::new`] returns an error instead.
    #[must_use]
    pub fn per_second(units: u32) -> Self {
        Self::per(units, Micros::from_secs(1))
    }

    /// `units` per minute, as a token bucket.
    ///
    /// # Panics
    /// If `units` is 0.
    #[must_use]
    pub fn per_minute(units: u32) -> Self {
        Self::per(units, Micros::from_secs(60))
    }

    /// `units` per hour, as a token bucket.
    ///
    /// # Panics
    /// If `units` is 0.
    #[must_use]
    pub fn per_hour(units: u32) -> Self {
        Self::per(units, Micros::from_secs(3_600))
    }

    /// `units` per day, as a token bucket.
    ///
    /// # Panics
    /// If `units` is 0.
    #[must_use]
    pub fn per_day(units: u32) -> Self {
        Self::per(units, Micros::from_secs(86_400))
    }

    /// The same quota with another burst: the most that can be spent at once.
    ///
    /// # Panics
    /// If `burst` is 0, or would take over 100 years to refill. For values from a user, [`Quota::with_burst`] returns an error instead.
    #[must_use]
    pub fn burst(self, burst: u32) -> Self {
        let burst = NonZeroU32::new(burst).expect("a burst of at least 1");
        self.with_burst(burst).expect("a token bucket that refills within 100 years")
    }

    fn per(units: u32, window: Micros) -> Self {
        let units = NonZeroU32::new(units).expect("a quota of at least 1 unit");
        let rate = Rate::new(units, window).expect("a window of at most a day");
        Self::new(Algorithm::default(), rate).expect("a token bucket takes every rate")
    }
}
