//! What every store must do, and what each does besides.
//!
//! On each store, which they know only as a [`World`](world::World):
//! - `laws`: the law suite.
//! - `edges`: examples at the edges of the laws.
//! - `several_quotas`: overrides and policy files that meet on one key.
//! - `rationals`: a slow reference with big rationals, to which buckets are held.
//! - `requirements`: the user's own figures, by requirement id.
//!
//! Besides:
//! - `twins`: the memory store and Redis give the same answers to the same history.
//! - `limiter`: the engine over a store: decisions, refunds, reloads.
//! - `decide_all`: several queries that are decided together.
//! - `memory`: caps, floods and threads of the memory store.
//! - `redis`: keys, times to live and instances of the Redis store.
//! - `topology`: Redis as a Cluster, behind a Sentinel, and behind TLS.
//! - `exact`: several instances, far more load than the limits allow.
//! - `failover`: what happens without it.
//! - `outages`: what several outages grant together.
//! - `chaos`: faults while under load.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]
#![expect(clippy::duplicate_mod, reason = "each store goes through the same tests")]

mod bounds;
mod chaos;
mod decide_all;
mod exact;
mod failover;
mod generate;
mod keyed;
mod limiter;
mod memory;
mod on_memory;
mod on_redis;
mod outages;
mod redis;
mod topology;
mod twins;
mod world;
