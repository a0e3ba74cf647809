//! One quota for each key, in this process's memory: no policies and no runtime. Only `until_ready` waits, on tokio.
//!
//! ```
//! use ratewright_store::{Denied, KeyedLimiter, Quota};
//!
//! # fn main() -> Result<(), Denied> {
//! let limiter = KeyedLimiter::in_memory(Quota::per_second(10).burst(50));
//! limiter.check("user:123")?;
//! # Ok(())
//! # }
//! ```
//!
//! The buckets are those of [`MemoryStore`]: the same arithmetic, the same laws, the same cap on keys. A denial is an `Err` here, because
//! that is what `?` needs; it charges nothing.

use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use ratewright_core::algorithm::{Charged, Fit};
use ratewright_core::store::Act;
use ratewright_core::{Clock, Quota};

use crate::clock::SystemClock;
use crate::memory::MemoryStore;

/// Keys that a limiter holds unless it is built with another number. A key takes about 50 bytes.
const KEYS_MAX: usize = 1_000_000;

/// One quota for each key.
///
/// A key is anything that implements [`Hash`]: `"user:123"`, an `IpAddr`, a tuple of both. Keys that hash alike, such as a `String` and a
/// `&str` of the same text, are the same key. Hashes are keyed by a secret of the process, so clients cannot craft two keys that collide.
///
/// At the cap, the keys that have spent the least of their quota are dropped first, so a flood of new keys evicts its own keys first.
pub struct KeyedLimiter<C = SystemClock> {
    store: MemoryStore<C>,
    quota: Quota,
}

/// A check that passed, and what is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Allowed {
    /// Whole units that can still be spent now.
    pub remaining: u32,
    /// How long until nothing counts against the key: until its bucket is full, or its window is over.
    pub reset_after: Duration,
}

/// A check that did not pass. It charged nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Denied {
    /// The same check passes after this time, and not a microsecond earlier, if nobody else spends. `None`: it asks for
    /// more than the quota's capacity, and never passes.
    pub retry_after: Option<Duration>,
    /// Whole units that can be spent now.
    pub remaining: u32,
    /// How long until nothing counts against the key.
    pub reset_after: Duration,
}

impl KeyedLimiter {
    /// A limiter by the system's clock, for at most 1,000,000 keys.
    #[must_use]
    pub fn in_memory(quota: Quota) -> Self {
        Self::new(quota, SystemClock::new(), KEYS_MAX)
    }
}

impl<C: Clock> KeyedLimiter<C> {
    /// A limiter by this clock, for at most `n_keys_max` keys. Tests move a [`ManualClock`](ratewright_core::ManualClock).
    #[must_use]
    pub fn new(quota: Quota, clock: C, n_keys_max: usize) -> Self {
        Self { store: MemoryStore::new(clock, n_keys_max), quota }
    }

    /// Spends one unit of a key.
    ///
    /// # Errors
    /// [`Denied`] if the key has none left.
    #[inline]
    pub fn check<K: Hash + ?Sized>(&self, key: &K) -> Result<Allowed, Denied> {
        self.charge(key, Act::Take(NonZeroU32::MIN))
    }

    /// Spends `n` units of a key, all or none. For `n` = 0 it only looks.
    ///
    /// # Errors
    /// [`Denied`] if the key has fewer left.
    #[inline]
    pub fn check_n<K: Hash + ?Sized>(&self, key: &K, n: u32) -> Result<Allowed, Denied> {
        self.charge(key, NonZeroU32::new(n).map_or(Act::Look(0), Act::Take))
    }

    /// Whether [`check`](Self::check) would pass, and what is left. Spends nothing.
    ///
    /// # Errors
    /// [`Denied`] if a check would not pass.
    #[inline]
    pub fn peek<K: Hash + ?Sized>(&self, key: &K) -> Result<Allowed, Denied> {
        self.charge(key, Act::Look(1))
    }

    /// Waits until the key has a unit, and spends it. Waiters are not queued: any of them may be first.
    ///
    /// Dropping the future spends nothing.
    ///
    /// # Panics
    /// If it has to wait outside a tokio runtime with time.
    pub async fn until_ready<K: Hash + ?Sized>(&self, key: &K) -> Allowed {
        loop {
            match self.check(key) {
                Ok(allowed) => return allowed,
                // A single unit is never more than the burst, so there always is a time.
                Err(denied) => tokio::time::sleep(denied.retry_after.unwrap_or_default()).await,
            }
        }
    }

    /// Forgets a key: its full quota is available again.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) {
        self.store.forget_hashed(key);
    }

    /// How many keys it holds. Those that have their full quota again are removed as new ones come.
    pub fn len(&self) -> usize {
        self.store.stats().n_keys
    }

    /// True if it holds no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The quota of each key.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    #[inline(always)]
    fn charge<K: Hash + ?Sized>(&self, key: &K, act: Act) -> Result<Allowed, Denied> {
        let Charged { fit, level, .. } = self.store.charge_hashed(key, &self.quota, act).charged();
        let (remaining, reset_after) = (level.remaining, Duration::from(level.reset_after));
        let retry_after = match fit {
            Fit::Fits { .. } => return Ok(Allowed { remaining, reset_after }),
            Fit::Short { retry_after } => Some(Duration::from(retry_after)),
            Fit::Never => None,
        };
        Err(Denied { retry_after, remaining, reset_after })
    }
}

impl<C: Clock> fmt::Debug for KeyedLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiter").field("quota", &self.quota).field("store", &self.store).finish()
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after {
            Some(retry_after) => write!(f, "rate limit exceeded; retry after {retry_after:?}"),
            None => f.write_str("rate limit exceeded; the cost is above the limit, so no retry can pass"),
        }
    }
}

impl std::error::Error for Denied {}
