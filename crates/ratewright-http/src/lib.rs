//! How rate limiting speaks HTTP, without a server.
//!
//! # Layout
//! - [`Fields`]: the rate limit header fields of both families, rendered and parsed in one place, with their
//!   rounding; [`FieldStyle`] says which of them answers carry.
//! - [`identify()`]: who is asking, and for what: from a request to the attributes of a query.
//! - [`Dialect`]: whom to believe and what answers carry, as one thing that a reload replaces.
//! - [`address`]: who is asking, by address, and which bucket an address means.
//! - [`jwt`]: who is asking, by a signed token.
//! - [`parts`]: headers, cookies, query parameters, the host.
//! - [`path`]: one name for one resource.
//! - [`explain`]: why a request is limited or not, in words.
//! - [`Problem`]: error bodies after RFC 9457, denials among them; [`iso`] is how they write the time.
//! - [`correlation_id`]: under which id a request is found again.
//!
//! Without the feature `identify` only [`Fields`] is there, for clients.
//!
//! **Invariant:** no other crate makes a status code or a header field out of a decision.

#[cfg(feature = "identify")]
pub mod address;
#[cfg(feature = "identify")]
mod correlation;
#[cfg(feature = "identify")]
mod dialect;
#[cfg(feature = "identify")]
pub mod explain;
mod fields;
#[cfg(feature = "identify")]
mod identify;
#[cfg(feature = "identify")]
pub mod jwt;
#[cfg(feature = "identify")]
mod known;
#[cfg(feature = "identify")]
mod lenient_base64;
#[cfg(feature = "identify")]
pub mod parts;
#[cfg(feature = "identify")]
pub mod path;
#[cfg(feature = "identify")]
mod problem;
#[cfg(test)]
#[cfg(feature = "identify")]
mod testing;

pub use fields::{FieldStyle, Fields, LimitMeaning, QuotaPolicy, Received, ServiceLimit, Shown};
#[cfg(feature = "identify")]
pub use {
    correlation::{CorrelationId, correlation_id, given_id, given_id_in},
    dialect::{Dialect, SharedDialect},
    identify::{
        AmbiguousPaths, Attributes, Facts, METHOD_OVERRIDES, Rules, Token, TokenUser, identify,
        identify_known, is_by_token,
    },
    known::{BodyLength, Known, Report, Verified},
    parts::{VALUE_MAX, Values},
    problem::{Occasion, Problem, iso},
};
