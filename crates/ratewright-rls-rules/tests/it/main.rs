//! The rules, as requests meet them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod counting;
mod matching;
mod metrics;
mod reference;
mod refused;
mod written;
