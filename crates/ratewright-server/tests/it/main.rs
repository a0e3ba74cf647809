//! The doors as their clients meet them, over real connections.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod attack;
mod house;
mod proxy_protocol;
mod tls;
