//! Real servers for tests and benchmarks, on loopback, in folders of their own, ended with whoever started them; and the requests of
//! ordinary clients.

#![expect(clippy::disallowed_methods, reason = "processes and sockets live in real time")]
#![expect(clippy::missing_panics_doc, reason = "a test without its server must stop")]

mod caddy;
mod certificates;
mod cluster;
mod command;
mod deadline;
mod envoy;
mod haproxy;
mod http;
mod nginx;
mod port;
mod printed;
mod prometheus;
mod proxy;
mod redis;
mod resp;
mod sentinel;
mod server_process;
mod skip;
mod stream;
mod traffic;

pub use caddy::Caddy;
pub use certificates::write_certificates;
pub use cluster::Cluster;
pub use command::{
    end, foreign, output, output_of, output_within, wait, without_environment, without_settings,
};
pub use deadline::{Load, PATIENCE, accept, all_of, join, lines_of, receive, wait_until, within};
pub use envoy::{Envoy, Filter, Trust};
pub use haproxy::Haproxy;
pub use http::Client;
pub use nginx::Nginx;
pub use port::free_port;
pub use printed::Printed;
pub use prometheus::{Prometheus, Range, Sample, Target};
pub use proxy::{Fault, Proxy};
pub use redis::Redis;
pub use sentinel::Sentinel;
pub use skip::{is_full_run, seed, skip, skip_here};
pub use stream::Stream;
pub use traffic::{LIMITS, OrdinaryRequest, ordinary_requests};
