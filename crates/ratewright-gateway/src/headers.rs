//! What is refused, taken away and added before a request is passed on.
//!
//! ```text
//!   check_framing       refuse what two servers could read in two ways
//!   check_identity      reject requests with ambiguous identity
//!   Upgrade::asked_for  look, before it is taken away
//!   strip_hop_by_hop    take away what is between two neighbours only
//!   join_cookies        one field for all cookies, which HTTP/2 may send one by one
//!   Hop::tell           say for whom the request is made; take away what a client says of that itself
//!   Upgrade::check      a 101 response must agree to the upgrade that was asked for
//!   clean_trailers      at the end of a body, take away what would have counted only in the head
//! ```
//!
//! What is told stands apart from the request's own fields until all of them are written: putting it among them would cost more
//! than writing it.

mod cookies;
mod forwarded;
mod framing;
mod hop_by_hop;
mod identity;
mod trailers;
mod upgrade;

pub use cookies::join_cookies;
pub use forwarded::{Hop, Peer, Told};
pub use framing::{Framing, check_framing};
pub(crate) use hop_by_hop::elements;
pub use hop_by_hop::strip_hop_by_hop;
pub(crate) use identity::HeaderRules;
pub use identity::{IdentityError, ReadHeaders, check_identity};
pub use trailers::{clean_response_trailers, clean_trailers};
pub use upgrade::Upgrade;
pub(crate) use upgrade::UpgradeError;
