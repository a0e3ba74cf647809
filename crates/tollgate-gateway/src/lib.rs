//! The reverse proxy: which route a request takes, which server it is sent to, and what is passed on.
//!
//! # Layout, in reading order
//! - [`Target`]: the one path that is matched, limited and forwarded.
//! - [`Upstream`]: the servers behind a route, in turn or by how busy they are; those that fail are left alone for a while.
//! - [`headers`]: what is refused, taken away and added before a request is passed on.
//!
//! **Invariant:** none of these reads a clock or opens a socket; time is a parameter.

pub mod headers;
mod server;
mod target;
mod upstream;

pub use server::{Server, ServerError};
pub use target::{Target, TargetError};
pub use upstream::{Balance, Health, Lease, Protocol, ServerState, Tried, Upstream};
