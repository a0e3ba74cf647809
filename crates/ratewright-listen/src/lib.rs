//! Accepting connections: the parts that all listeners share, whatever protocol they serve.
//!
//! - [`Tls`]: certificates that can be renewed while the listener is open.
//! - [`ProxyProtocol`]: the client's address, announced by a load balancer.
//! - [`WriteTimeout`]: a stream that closes when its peer stops reading.
//! - [`ParseErrors`]: a body for the responses that hyper sends to requests it cannot parse.
//! - [`LogThrottle`]: a limit on how often one message is logged.
//! - [`LazyTimer`]: a timer for hyper that sets one runtime timer for each connection.
//! - [`Shutdown`]: listeners stop in phases, so that no client loses a request.
//!
//! Entrypoints do not depend on each other; they share this crate, which depends on none of them.

mod certificate;
mod connection_setup;
mod lazy_timer;
mod log_throttle;
mod parse_errors;
pub mod proxy_protocol;
mod shutdown;
mod tls;
mod write_timeout;

pub use connection_setup::ConnectionSetup;
pub use lazy_timer::LazyTimer;
pub use log_throttle::LogThrottle;
pub use parse_errors::{ParseErrorLog, ParseErrors, RenderParseError};
pub use proxy_protocol::ProxyProtocol;
pub use shutdown::{Shutdown, ShutdownPhase, ShutdownTrigger, accept_queued};
pub use tls::{Alpn, Tls, TlsError, TlsPart};
pub use write_timeout::WriteTimeout;
