//! The reverse proxy: which route a request takes, which server it is sent to, and what is passed on.
//!
//! # Layout, in reading order
//! - [`Settings`]: what the policy file says of the gateway.
//! - [`Target`]: the one path that is matched, limited and forwarded.
//! - [`Routes`]: from host, path and method to a [`Route`], the most specific first.
//! - [`Upstream`]: the servers behind a route, in turn or by how busy they are; those that fail are left alone for a while.
//! - [`headers`]: what is refused, taken away and added before a request is passed on.
//!
//! **Invariant:** none of these reads a clock or opens a socket; time is a parameter.

pub mod headers;
mod path_pattern;
mod route;
mod routes;
mod server;
mod settings;
mod target;
mod upstream;

pub use path_pattern::{PathPattern, PathPatternError};
pub use route::{HostPolicy, Match, Route, RouteError, Timeouts};
pub use routes::{Found, Routes};
pub use server::{Server, ServerError};
pub use settings::Settings;
pub use target::{Target, TargetError};
pub use upstream::{Balance, Health, Lease, Protocol, ServerState, Tried, Upstream};
