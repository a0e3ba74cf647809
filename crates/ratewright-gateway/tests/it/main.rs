//! The gateway over real sockets, with a manual clock and scripted upstreams.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod aborted_requests;
mod access_log;
mod bodies;
mod byte_costs;
mod client_errors;
mod connection_reuse;
mod connections;
mod cors;
mod early_responses;
mod explanations;
mod forwarding;
mod harness;
mod http2;
mod http2_errors;
mod http2_pool;
mod hyper_peers;
mod identity;
mod limits;
mod metrics;
mod proxy_protocol;
mod refused_streams;
mod reload;
mod shutdown;
mod slow_uploads;
mod stalled_streams;
mod streaming;
mod tls;
mod unresponsive_upstreams;
mod upgrade;
mod upstream_failures;
