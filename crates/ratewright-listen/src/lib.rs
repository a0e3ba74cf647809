//! Accepting connections: everything about a listener that does not depend on the protocol it serves.
//!
//! - [`listener`]: accepts connections, limits their number, prepares each for HTTP, and drains them at a stop.
//! - [`Tls`]: certificates that can be renewed while the listener is open.
//! - [`ProxyProtocol`]: the client's address, announced by a load balancer.
//! - [`WriteTimeout`]: a stream that closes when its peer stops reading.
//! - [`ParseErrors`]: a body for the responses that hyper sends to requests it cannot parse.
//! - [`client_slots`]: how many connections or requests each client has.
//! - [`LogThrottle`]: a limit on how often one message is logged.
//! - [`LazyTimer`]: a timer whose deadline moves at no cost. [`HyperTimer`] is one for hyper.
//! - [`Shutdown`]: listeners stop in phases, so that no client loses a request.
//!
//! Entrypoints do not depend on each other; they share this crate, which depends on none of them.

mod certificate;
pub mod client_slots;
mod connection_setup;
mod hyper_timer;
mod lazy_timer;
pub mod listener;
mod log_throttle;
mod parse_errors;
pub mod proxy_protocol;
mod shutdown;
mod tls;
mod write_timeout;

pub use connection_setup::ConnectionSetup;
pub use hyper_timer::HyperTimer;
pub use lazy_timer::LazyTimer;
pub use log_throttle::LogThrottle;
pub use parse_errors::{ParseErrorLog, ParseErrors, RenderParseError};
pub use proxy_protocol::ProxyProtocol;
pub use shutdown::{Shutdown, ShutdownPhase, ShutdownTrigger};
pub use tls::{Alpn, Tls, TlsError, TlsPart};
pub use write_timeout::WriteTimeout;
