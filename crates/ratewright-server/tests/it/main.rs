//! The REST listener over real connections.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod attack;
mod proxy_protocol;
mod test_server;
mod tls;
