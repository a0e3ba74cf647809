//! The program's choice of stores: in memory, or in Redis with memory to fall back on.

use std::convert::Infallible;
use std::sync::Arc;

use ratewright_core::{Basis, Charge, Key, Refund, Standings, Store};
use ratewright_store::{Failover, MemoryStats, MemoryStore, RedisStore, SystemClock};

use crate::config::{RedisConfig, StoreConfig};

/// Where buckets live.
#[derive(Debug)]
pub(crate) enum Buckets {
    Memory(MemoryStore<SystemClock>),
    Redis(Box<Failover<RedisStore, Arc<SystemClock>>>),
}

impl Buckets {
    /// Opens the store. Redis need not be there yet.
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

    /// What this process' memory holds.
    pub(crate) fn memory_stats(&self) -> MemoryStats {
        match self {
            Self::Memory(store) => store.stats(),
            Self::Redis(failover) => failover.local_stats(),
        }
    }

    /// True if the store can be reached. Memory always can.
    pub(crate) fn is_up(&self) -> bool {
        match self {
            Self::Memory(_) => true,
            Self::Redis(failover) => failover.shared().status().is_up,
        }
    }

    /// Where, in words.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Memory(_) => "memory".to_owned(),
            Self::Redis(failover) => format!("Redis at {}", failover.shared().endpoint()),
        }
    }
}

impl Store for Buckets {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        match self {
            Self::Memory(store) => store.apply(charges, standings).await,
            // Boxed, so that decisions in memory need not have the room for it.
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
