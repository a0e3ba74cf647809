//! Header checks and changes before a request is forwarded.
//!
//! ```text
//!   check_framing            reject ambiguous framing
//!   check_identity           reject ambiguous identity
//!   Upgrade::requested_by    read the upgrade before it is removed
//!   strip_hop_by_hop         remove hop-by-hop headers
//!   join_cookies             one header for all cookies, which HTTP/2 may send separately
//!   Hop::forwarding_headers  add the client's address, scheme and host; remove the client's own claims
//!   Upgrade::check           a 101 response must match the requested upgrade
//!   clean_trailers           remove trailers that are valid only in the head
//! ```
//!
//! Added headers are kept apart from the request's own until both are written: merging them would cost more than
//! writing.

mod cookies;
mod forwarded;
mod framing;
mod hop_by_hop;
mod identity;
mod trailers;
mod upgrade;

pub use cookies::join_cookies;
pub use forwarded::{ConnectionPeer, ForwardingHeaders, Hop};
pub use framing::{FramingError, check_framing};
pub(crate) use hop_by_hop::elements;
pub use hop_by_hop::strip_hop_by_hop;
pub(crate) use identity::HeaderRules;
pub use identity::{IdentityError, PolicyHeaders, check_identity};
pub use trailers::{clean_response_trailers, clean_trailers};
pub use upgrade::Upgrade;
pub(crate) use upgrade::UpgradeError;
