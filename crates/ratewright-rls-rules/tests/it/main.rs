//! Trees of descriptors, and the rules that match requests.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod errors;
mod matching;
mod metrics;
mod notation;
mod policies;
mod reference;
