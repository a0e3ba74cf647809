//! The reverse proxy: finds a request's route, picks a server of its upstream, and forwards the request.
//!
//! # Layout, in reading order
//! - [`GatewaySettings`]: the gateway's part of the policy file; [`Snapshot`]: settings and policies of one file.
//! - [`Target`]: the one path that is matched, limited and forwarded.
//! - [`RouteTable`]: from host, path and method to a [`Route`], most specific first. [`route`]: what a route says.
//! - [`upstream`]: the servers of a route, balanced in turn or by load; failing servers are ejected for a while.
//! - [`cors`]: which other origins may read responses.
//! - [`headers`]: header checks and changes before a request is forwarded.
//! - [`Gateway`]: accepts connections and serves requests; `stages.rs` lists the stages of a request.
//! - [`access_log`]: gets every request, if the settings say so. [`metrics`]: requests by route and status.
//!
//! **Invariant:** routes, targets, upstreams and headers read no clock and open no socket; time is a parameter.

mod abort;
pub mod access_log;
mod body;
mod body_rate;
pub mod cors;
mod dial;
mod explain_header;
mod forward;
mod forward_error;
mod framing_guard;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod h1;
mod h2;
mod header_whitespace;
pub mod headers;
mod idle_connections;
mod idle_timer;
pub mod metrics;
mod parse_errors;
mod path_pattern;
mod pool;
mod request_body;
pub mod route;
mod route_table;
mod routing;
mod scheme;
mod settings;
mod snapshot;
mod stages;
mod stalled_stream;
mod target;
mod tunnel;
mod unread_bodies;
mod upload_progress;
pub mod upstream;
mod upstream_log;
mod upstream_tls;
mod worker;

pub use explain_header::ExplainTokens;
pub use gateway::{Gateway, GatewayOptions, StartedGateway};
pub use route::Route;
pub use route_table::RouteTable;
pub use scheme::Scheme;
pub use settings::GatewaySettings;
pub use snapshot::{SharedSnapshot, Snapshot};
pub use target::{Target, TargetError};
pub use upstream::Upstream;
