//! Ratewright inside a program: a layer for any tower or axum service.
//!
//! ```text
//!   request ──► RateLimit ──────────────────────────────► your service
//!                 │ identify → decide                        │
//!   429 problem ◄─┤ denied                                   │
//!   response ◄────┴── render: rate limit headers ◄───────────┘
//! ```
//!
//! ```
//! # use std::net::SocketAddr; use std::sync::Arc;
//! # use axum::{Router, extract::ConnectInfo, routing::get};
//! use ratewright_core::{Algorithm, AttributeName, Limiter, Policies, Policy, Quota, Refill};
//! use ratewright_store::{MemoryStore, SystemClock, WallClock};
//! use ratewright_tower::{RequestReader, RateLimitLayer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "10/s".parse()?)?.with_burst(50.try_into()?)?;
//! let per_client = Policy::new("per-client", quota)?.by(&[AttributeName::Ip]);
//! let store = MemoryStore::new(SystemClock::new(), 100_000);
//! let limiter = Arc::new(Limiter::new(Policies::new(vec![per_client])?, store));
//! let reader = RequestReader::new(WallClock).peer(|request| {
//!     request.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
//! });
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(limiter, reader));
//! # Ok(()) }
//! ```
//!
//! # Layout
//! - [`RequestReader`]: how requests are read: the peer, further attributes to count by, the cost.
//! - [`RateLimitLayer`]: identify, decide, render. A request in a leaky bucket's queue waits for its turn; a charge
//!   whose response does not count is refunded.
//! - [`BodyMeter`]: charges the bytes of bodies of unknown length as they arrive.
//! - [`InFlightLayer`]: limits on requests in flight, by [`Permits`] that are held until the response body ends.
//!
//! **Invariants:** no store and no server; bodies and errors of the service pass unchanged; a store that never waits
//! needs no boxed future; a request without a known peer never passes unlimited.

mod body_meter;
mod decide;
mod future;
mod in_flight;
mod layer;
mod permit_body;
mod permit_limiter;
mod permits;
mod refund_guard;
mod request_reader;

pub use body_meter::{BodyMeter, TakeFuture};
pub use future::RateLimitFuture;
pub use in_flight::{InFlight, InFlightFuture, InFlightLayer};
pub use layer::{RateLimit, RateLimitLayer};
pub use permit_body::PermitBody;
pub use permit_limiter::PermitLimiter;
pub use permits::{Permit, Permits};
pub use request_reader::{Peer, RequestReader};
