//! Clocks: the time is a parameter.
//!
//! The memory store reads a [`Clock`]; Redis has its own. This crate reads none. Tests move a [`ManualClock`] instead of sleeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::quantity::{Micros, Timestamp};

/// A source of the current time.
///
/// ```
/// use ratewright_core::{Clock, ManualClock, Micros, Timestamp};
///
/// let clock = ManualClock::at(Timestamp::from_micros(0));
/// clock.advance(Micros::from_secs(60));
/// assert_eq!(clock.now(), Timestamp::from_micros(60_000_000));
/// ```
pub trait Clock: Send + Sync {
    /// The current time. It may stand still or go back; buckets then allow less, never more.
    fn now(&self) -> Timestamp;
}

/// A clock that stands still until it is moved. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Moves the clock to `now`, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Micros) {
        self.micros.fetch_add(by.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}
