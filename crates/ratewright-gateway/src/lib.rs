//! The reverse proxy: finds a request's route, picks a server of its upstream, and forwards the request.
//!
//! # Layout, in reading order
//! - [`Settings`]: the gateway's part of the policy file; [`Snapshot`]: settings and policies of one file.
//! - [`Target`]: the one path that is matched, limited and forwarded.
//! - [`Routes`]: from host, path and method to a [`Route`], most specific first.
//! - [`Upstream`]: the servers of a route, balanced in turn or by load; failing servers are ejected for a while.
//! - [`Cors`]: which other origins may read responses.
//! - [`headers`]: header checks and changes before a request is forwarded.
//! - [`Gateway`]: accepts connections and serves requests; `stages.rs` lists the stages of a request.
//! - [`AccessLog`]: gets every request, if the settings say so.
//!
//! **Invariant:** routes, targets, upstreams and headers read no clock and open no socket; time is a parameter.

mod access_log;
mod body;
mod body_rate;
mod cors;
mod dial;
mod explain;
mod forward;
mod forward_error;
mod framing_guard;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod h1;
mod h2;
pub mod headers;
mod idle;
mod idle_timer;
mod loaded_file;
mod metrics;
mod ows;
mod parse_errors;
mod path_pattern;
mod pool;
mod request_body;
mod route;
mod routes;
mod routing;
mod scheme;
mod server;
mod settings;
mod stages;
mod stalled_stream;
mod target;
mod tunnel;
mod unread_bodies;
mod upload_progress;
mod upstream;
mod upstream_log;
mod upstream_tls;
mod worker;

pub use access_log::{AccessLog, AccessLogEntry, NoAccessLog};
pub use body_rate::BodyRate;
pub use cors::{AllowedHeaders, AllowedOrigin, Cors, CorsError, CorsRules, Depth, OriginError};
pub use explain::ExplainTokens;
pub use gateway::{Gateway, GatewayOptions, StartedGateway};
pub use loaded_file::{SharedSnapshot, Snapshot};
pub use metrics::{CLIENT_CLOSED_REQUEST, NO_ROUTE, RequestMetrics, RouteMetrics};
pub use path_pattern::{PathPattern, PathPatternError};
pub use route::{HostPolicy, Match, Route, RouteError, Timeouts};
pub use routes::{RouteLookup, Routes};
pub use scheme::Scheme;
pub use server::{Server, ServerError};
pub use settings::Settings;
pub use target::{Target, TargetError};
pub use upstream::{Balance, Health, Lease, Protocol, ServerStatus, Tried, Upstream};
pub use upstream_tls::ClientTls;
