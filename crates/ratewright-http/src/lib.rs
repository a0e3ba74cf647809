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
//! **Invariant:** no other crate makes a status code or a header field out of a decision.

pub mod address;
mod correlation;
mod dialect;
pub mod explain;
mod fields;
mod identify;
pub mod jwt;
mod known;
mod lenient_base64;
pub mod parts;
pub mod path;
mod problem;
#[cfg(test)]
mod testing;

pub use correlation::{CorrelationId, correlation_id, given_id, given_id_in};
pub use dialect::{Dialect, SharedDialect};
pub use fields::{FieldStyle, Fields, LimitMeaning, QuotaPolicy, Received, ServiceLimit, Shown};
pub use identify::{
    AmbiguousPaths, Attributes, Facts, METHOD_OVERRIDES, Rules, Token, TokenUser, identify, identify_known,
    is_by_token,
};
pub use known::{BodyLength, Known, Report, Verified};
pub use parts::{VALUE_MAX, Values};
pub use problem::{Occasion, Problem, iso};
