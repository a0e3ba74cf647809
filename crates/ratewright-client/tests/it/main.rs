//! The client against the vectors, a stopped clock, real sockets, and as a herd in simulated time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod calls;
mod herd;
mod http2;
mod laws;
mod layer;
mod script;
mod sockets;
mod vectors;
