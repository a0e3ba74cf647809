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
//! # use axum::{Router, routing::get};
//! # async fn hello() -> &'static str { "hello" }
//! use ratewright_tower::{Quota, RateLimitLayer};
//!
//! let app: Router = Router::new().route("/", get(hello)).layer(RateLimitLayer::per_ip(Quota::per_minute(100)));
//! ```
//!
//! With the feature `axum`, the layer finds the client's address in `ConnectInfo<SocketAddr>`; serve the router with
//! `into_make_service_with_connect_info::<SocketAddr>()`. Without axum, add the extension [`Peer`] to each request. Other stores, attributes and observers, in full:
//!
//! ```
//! # use std::net::SocketAddr; use std::sync::Arc;
//! # use axum::{Router, extract::ConnectInfo, routing::get};
//! use ratewright_core::{Limiter, Policies, Policy, Quota};
//! use ratewright_core::query::AttributeName;
//! use ratewright_store::{MemoryStore, SystemClock, WallClock};
//! use ratewright_tower::{RequestReader, RateLimitLayer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let per_client = Policy::new("per-client", Quota::per_second(10).burst(50))?.by(&[AttributeName::Ip]);
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
//! - [`RateLimitLayer`]: identify, decide, render; [`RateLimitLayer::per_ip`] in one line. A request in a leaky
//!   bucket's queue waits for its turn. If a response does not count, its charge is refunded.
//! - [`BodyMeter`]: charges the bytes of bodies of unknown length as they arrive.
//! - [`InFlightLayer`]: limits on requests in flight, by [`Permits`] that are held until the response body ends.
//!
//! **Invariants:** no Redis and no server, so that a program that limits in memory compiles neither; bodies and errors
//! of the service pass unchanged; a store that never waits needs no boxed future; a request without a known peer never
//! passes unlimited.

mod body_meter;
mod decide;
mod future;
mod in_flight;
mod in_memory;
mod layer;
mod missing_peer_log;
mod permit_body;
mod permit_limiter;
mod permits;
mod refund_guard;
mod request_reader;

pub use body_meter::{BodyMeter, TakeFuture};
pub use future::RateLimitFuture;
pub use in_flight::{InFlight, InFlightFuture, InFlightLayer, KeptPermit};
pub use layer::{RateLimit, RateLimitLayer};
pub use permit_body::PermitBody;
pub use permit_limiter::PermitLimiter;
pub use permits::{Permit, Permits};
pub use ratewright_core::Quota;
pub use ratewright_http::HeaderStyle;
pub use ratewright_http::headers::LimitMeaning;
pub use request_reader::{Peer, RequestReader};

/// The code on these pages is compiled with the documentation's.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}

    #[doc = include_str!("../../../docs/start/axum.md")]
    mod start {}

    #[doc = include_str!("../../../docs/guides/axum.md")]
    mod guide {}

    #[doc = include_str!("../../../docs/moving/governor.md")]
    mod moving_from_governor {}
}
