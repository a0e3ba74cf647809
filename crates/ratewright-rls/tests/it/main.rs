//! The rate limit service, asked as Envoy asks it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod answers;
mod deadline;
mod generated;
mod grpc;
mod json;
mod refunds;
mod requests;
mod world;
