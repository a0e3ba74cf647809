//! Ratewright inside a program: a layer for any tower or axum service.
//!
//! ```text
//!   request ──► RateLimit ──────────────────────────────► your service
//!                 │ identify → decide                        │
//!   429 problem ◄─┤ denied                                   │
//!   answer ◄──────┴── render: rate limit fields ◄────────────┘
//! ```
//!
//! ```
//! # use std::net::SocketAddr; use std::sync::Arc;
//! # use axum::{Router, extract::ConnectInfo, routing::get};
//! use ratewright_core::{Algorithm, AttributeName, Limiter, Policies, Policy, Quota, Refill};
//! use ratewright_store::{MemoryStore, SystemClock, WallClock};
//! use ratewright_tower::{Door, RateLimitLayer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "10/s".parse()?)?.with_burst(50.try_into()?)?;
//! let per_client = Policy::new("per-client", quota)?.by(&[AttributeName::Ip]);
//! let store = MemoryStore::new(SystemClock::new(), 100_000);
//! let limiter = Arc::new(Limiter::new(Policies::new(vec![per_client])?, store));
//! let door = Door::new(WallClock).peer(|request| {
//!     request.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
//! });
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter, door));
//! # Ok(()) }
//! ```
//!
//! # Layout
//! - [`Door`]: how a program's requests are read: who the peer is, what else to count by, what a request costs.
//! - [`RateLimitLayer`]: identify, decide, render. A charge that is paid with a wait waits; one whose answer does not count
//!   is given back.
//! - [`BodyMeter`]: charges the bytes of bodies of unknown length, as they come.
//! - [`InFlightLayer`]: limits on requests under way, by [`Permits`] that are held until an answer's body ends.
//!
//! **Invariants:** no store and no server; bodies and errors pass as they are; a limiter whose store never waits is asked without
//! a box; a request whose peer nobody knows is never let through unlimited.

mod body_meter;
mod claim;
mod door;
mod future;
mod gate;
mod held;
mod in_flight;
mod layer;
mod permits;

pub use body_meter::{BodyMeter, Taking};
pub use door::{Door, Peer};
pub use future::RateLimitFuture;
pub use held::Held;
pub use in_flight::{InFlight, InFlightFuture, InFlightLayer};
pub use layer::{RateLimit, RateLimitLayer};
pub use permits::{Permit, Permits};
