//! Where buckets live.
//!
//! # Layout
//! - [`MemoryStore`]: a sharded table in this process's memory, bounded in keys.
//! - [`SystemClock`]: the real time, cheap to read and never going back.
//!
//! `tests/it/laws.rs` holds the laws that every store must keep; it plays the same histories through each.

mod clock;
mod memory;
mod redis;
mod settle;

pub use clock::{SystemClock, WallClock};
pub use memory::{MemoryStats, MemoryStore};
pub use redis::{
    Certificates, Endpoint, LinkStatus, RedisSettings, RedisStore, Servers, ServersError, StoreError,
};
