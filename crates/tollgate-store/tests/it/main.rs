//! What every store must do, and what the memory store does besides.
//!
//! - `laws`: the law suite. It knows a store only as a [`world::World`], so each store runs it.
//! - `edges`: examples at the edges of the laws.
//! - `rationals`: a slow reference with big rationals, to which buckets are held.
//! - `requirements`: the user's own figures, by requirement id.
//! - `limiter`: the engine over a store: decisions, refunds, reloads.
//! - `memory`: caps, floods and threads of the memory store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod edges;
mod generate;
mod laws;
mod limiter;
mod memory;
mod rationals;
mod requirements;
mod world;
