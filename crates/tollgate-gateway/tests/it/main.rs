//! The gateway over real sockets: limits under a clock that is moved, and servers of all kinds.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod bodies;
mod limits;
mod servers;
mod upgrade;
mod world;
