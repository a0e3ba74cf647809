//! The gateway over real sockets: limits under a clock that is moved, and servers of all kinds.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod access_log;
mod bodies;
mod broken;
mod byte_costs;
mod connections;
mod cors;
mod counts;
mod deaf;
mod early;
mod explained;
mod faults;
mod http2;
mod identity;
mod limits;
mod passed_on;
mod peers;
mod proxy_protocol;
mod refused;
mod reload;
mod reuse;
mod servers;
mod sharing;
mod slow;
mod stop;
mod streaming;
mod tls;
mod upgrade;
mod windows;
mod world;
