//! How doors take connections, whatever they speak on them.
//!
//! - [`Tls`]: certificates that can be renewed while a door is open.
//! - [`ProxyProtocol`]: the client's address, announced by a load balancer.
//! - [`Patient`]: a stream that does not wait for ever for its reader.
//! - [`ParseErrors`]: a body for the responses that hyper sends to requests it cannot parse.
//! - [`LogThrottle`]: a log that floods do not fill.
//! - [`Alarm`]: hyper's timer, with one alarm for each connection.
//! - [`Stop`]: how listeners stop, in phases, so that no client loses a request.
//!
//! Doors never know each other; what they have in common is here, and knows no door.

mod alarm;
mod certificate;
mod connection_setup;
mod log_throttle;
mod parse_errors;
mod patient;
pub mod proxy_protocol;
mod stop;
mod tls;

pub use alarm::Alarm;
pub use connection_setup::ConnectionSetup;
pub use log_throttle::LogThrottle;
pub use parse_errors::{ParseErrorLog, ParseErrors, RenderParseError};
pub use patient::Patient;
pub use proxy_protocol::ProxyProtocol;
pub use stop::{Stop, StopPhase, StopSwitch, accept_queued};
pub use tls::{Speaks, Tls, TlsError, TlsPart};
