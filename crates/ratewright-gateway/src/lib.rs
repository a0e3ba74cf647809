//! The reverse proxy: which route a request takes, which server it is sent to, and what is passed on.
//!
//! # Layout, in reading order
//! - [`Settings`]: what the policy file says of the gateway; [`Snapshot`]: the same with the policies that its routes name.
//! - [`Target`]: the one path that is matched, limited and forwarded.
//! - [`Routes`]: from host, path and method to a [`Route`], the most specific first.
//! - [`Upstream`]: the servers behind a route, in turn or by how busy they are; those that fail are left alone for a while.
//! - [`Cors`]: which other origins may read responses, by the headers that browsers go by.
//! - [`headers`]: what is refused, taken away and added before a request is passed on.
//!
//! - [`Gateway`]: takes connections and answers requests; the stages of a request are listed in `stages.rs`.
//! - [`AccessLog`]: who is told of every request, if the settings say so.
//!
//! **Invariant:** routes, targets, upstreams and headers read no clock and open no socket; time is a parameter.

mod access_log;
mod backlog;
mod body;
mod client_tls;
mod cors;
mod counts;
mod dial;
mod explain;
mod forward;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod h1;
mod h2;
pub mod headers;
mod idle;
mod inbound;
mod notes;
mod ows;
mod pace;
mod path_pattern;
mod pool;
mod progress;
mod quiet;
mod route;
mod routes;
mod routing;
mod scheme;
mod server;
mod settings;
mod snapshot;
mod stages;
mod strict;
mod target;
mod trouble;
mod tunnel;
mod unparsed;
mod upstream;
mod window;
mod worker;

pub use access_log::{AccessLog, Entry, Unlogged};
pub use client_tls::ClientTls;
pub use cors::{AllowedHeaders, AllowedOrigin, Cors, CorsError, CorsRules, Depth, OriginError};
pub use counts::{Counted, Counts, GONE, NOWHERE};
pub use explain::ExplainTokens;
pub use gateway::{Gateway, Listening, Started};
pub use pace::BodyRate;
pub use path_pattern::{PathPattern, PathPatternError};
pub use route::{HostPolicy, Match, Route, RouteError, Timeouts};
pub use routes::{Found, Routes};
pub use scheme::Scheme;
pub use server::{Server, ServerError};
pub use settings::Settings;
pub use snapshot::{SharedSnapshot, Snapshot};
pub use target::{Target, TargetError};
pub use upstream::{Balance, Health, Lease, Protocol, ServerState, Tried, Upstream};
