//! Rate limiting over HTTP, without a server.
//!
//! # Layout
//! - [`RateLimitHeaders`] renders and parses both families of rate limit headers, and does their rounding;
//!   [`HeaderStyle`] chooses which of them a response carries.
//! - [`identify`](identify()) turns a request into the attributes of a query: the client and what it requests.
//! - [`HttpSettings`] has the trust rules and the response format; a reload replaces all of it.
//! - [`address`] finds the client's address, and the bucket that it belongs to.
//! - [`jwt`] finds the user in a signed token; verifying one needs the feature `jwt`.
//! - [`parts`] reads headers, cookies, query parameters and the host.
//! - [`path`] gives each resource one path.
//! - [`explain`] says in words why a request is limited or not.
//! - [`Problem`] renders error bodies of RFC 9457, including denials; [`problem::iso`] formats their timestamps.
//! - [`identify::original_request`] reads the client's request from a proxy's authorization request.
//! - [`correlation`] finds or makes the id of a request.
//!
//! Without the feature `identify`, the crate contains [`headers`] only, for clients.
//!
//! **Invariant:** no other crate derives the status code or the rate limit headers of an HTTP response from a decision. Other formats
//! have code of their own: Envoy's statuses and headers in `ratewright-rls`, JSON members in `ratewright-server`. They round in the
//! same direction.

#[cfg(feature = "identify")]
pub mod address;
#[cfg(feature = "identify")]
pub mod correlation;
#[cfg(feature = "identify")]
pub mod explain;
pub mod headers;
#[cfg(feature = "identify")]
mod http_settings;
#[cfg(feature = "identify")]
pub mod identify;
#[cfg(feature = "identify")]
pub mod jwt;
#[cfg(feature = "identify")]
mod lenient_base64;
#[cfg(feature = "identify")]
pub mod parts;
#[cfg(feature = "identify")]
pub mod path;
#[cfg(feature = "identify")]
pub mod problem;
#[cfg(feature = "identify")]
pub mod request_context;
#[cfg(test)]
#[cfg(feature = "identify")]
mod testing;

pub use headers::{HeaderStyle, RateLimitHeaders};
#[cfg(feature = "identify")]
pub use {
    correlation::CorrelationId,
    http_settings::{HttpSettings, SharedHttpSettings},
    identify::{Facts, IdentityRules, identify},
    problem::{Problem, ProblemContext},
    request_context::RequestContext,
};

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
