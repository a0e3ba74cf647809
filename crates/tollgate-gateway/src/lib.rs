//! The reverse proxy: which route a request takes, which server it is sent to, and what is passed on.
//!
//! # Layout, in reading order
//! - [`Target`]: the one path that is matched, limited and forwarded.
//! - [`headers`]: what is refused, taken away and added before a request is passed on.
//!
//! **Invariant:** none of these reads a clock or opens a socket; time is a parameter.

pub mod headers;
mod target;

pub use target::{Target, TargetError};
