//! The layers around services, as a program has them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod bytes;
mod counted;
mod in_flight;
mod layer;
mod ordinary;
mod readings;
mod waits;
mod world;
