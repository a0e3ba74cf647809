//! The layers around services, as in a program.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod address_only;
mod ambiguous_requests;
mod counted_statuses;
mod in_flight;
mod layer;
mod missing_peer;
mod ordinary_requests;
mod per_ip;
mod queue;
mod request_bytes;
mod world;
