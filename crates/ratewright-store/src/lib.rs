//! Stores: where Ratewright keeps its buckets.
//!
//! # Layout
//! - [`KeyedLimiter`]: one quota for each key, in this process's memory: the shortest way to a limit.
//! - [`MemoryStore`]: a sharded table in this process's memory, bounded in keys.
//! - `RedisStore`: in Redis, shared by any number of instances. Feature `redis`.
//! - `Failover`: the shared store, with this process's memory as the fallback. Feature `redis`.
//! - [`SystemClock`]: the real time: cheap to read, and it never goes back.
//!
//! A limiter with policies, over any store that always answers (Redis: inside a `Failover`):
//!
//! ```
//! use ratewright_core::{Limiter, Policies, Policy, Quota};
//! use ratewright_core::query::AttributeName;
//! use ratewright_store::{MemoryStore, SystemClock};
//!
//! # fn main() -> Result<(), ratewright_core::policy::PolicyError> {
//! let policy = Policy::new("per-client", Quota::per_second(10).burst(50))?.by(&[AttributeName::Ip]);
//! let store = MemoryStore::new(SystemClock::new(), 100_000);
//! let limiter = Limiter::new(Policies::new(vec![policy])?, store);
//! # Ok(())
//! # }
//! ```
//!
//! `tests/it/laws.rs` holds the laws that every store must keep; it runs the same histories on each.

mod all_or_none;
mod clock;
mod clock_setback;
#[cfg(feature = "redis")]
mod failover;
mod keyed;
mod memory;
#[cfg(feature = "redis")]
pub mod redis;

pub use clock::{SystemClock, WallClock};
#[cfg(feature = "redis")]
pub use failover::{Failover, FailoverSettings, FailoverStatus, LocalShare, Peers};
pub use keyed::{Allowed, Denied, KeyedLimiter};
pub use memory::{MemoryStats, MemoryStore};
pub use ratewright_core::Quota;
#[cfg(feature = "redis")]
pub use redis::{RedisSettings, RedisStore, Servers, StoreError};

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
