//! The store that the policy file configures: memory, or Redis with memory as its fallback.

use std::convert::Infallible;
use std::sync::Arc;

use ratewright_core::Store;
use ratewright_core::store::{Basis, Charge, Key, Refund, Standings};
use ratewright_store::{Failover, MemoryStats, MemoryStore, RedisStore, SystemClock};

use crate::config::{RedisConfig, StoreConfig};

/// The store that holds the buckets.
#[derive(Debug)]
pub(crate) enum ConfiguredStore {
    Memory(MemoryStore<SystemClock>),
    Redis(Box<Failover<RedisStore, Arc<SystemClock>>>),
}

impl ConfiguredStore {
    /// Opens the store. Does not wait for Redis.
    pub(crate) fn open(config: StoreConfig) -> Self {
        match config {
            StoreConfig::Memory { n_keys_max } => {
                Self::Memory(MemoryStore::new(SystemClock::new(), n_keys_max))
            }
            StoreConfig::Redis(config) => {
                let RedisConfig { servers, settings, failover } = *config;
                let shared = RedisStore::new(servers, settings);
                Self::Redis(Box::new(Failover::new(shared, Arc::new(SystemClock::new()), failover)))
            }
        }
    }

    /// Keys and bytes in the memory of this process.
    pub(crate) fn memory_stats(&self) -> MemoryStats {
        match self {
            Self::Memory(store) => store.stats(),
            Self::Redis(failover) => failover.local_stats(),
        }
    }

    /// True if the store is reachable. Memory always is.
    pub(crate) fn is_up(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(failover) => failover.shared().status().is_up,
        }
    }

    /// The store's location, for messages.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Memory(_) => "memory".to_owned(),
            Self::Redis(failover) => format!("Redis at {}", failover.shared().endpoint()),
        }
    }
}

impl Store for ConfiguredStore {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        match self {
            Self::Memory(store) => store.apply(charges, standings).await,
            // Boxed, to keep the future of a decision in memory small.
            Self::Redis(store) => Box::pin(store.apply(charges, standings)).await,
        }
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, Infallible> {
        match self {
            Self::Memory(store) => store.refund(refunds).await,
            Self::Redis(store) => store.refund(refunds).await,
        }
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, Infallible> {
        match self {
            Self::Memory(store) => store.reset(keys).await,
            Self::Redis(store) => store.reset(keys).await,
        }
    }

    fn never_waits(&self) -> bool {
        matches!(self, Self::Memory(_))
    }
}
