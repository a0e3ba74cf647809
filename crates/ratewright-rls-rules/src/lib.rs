//! The rules of Envoy's rate limit service: domains, nested descriptors, and which of them match a request.
//!
//! ```text
//!   domain: shop                            a request's descriptor
//!   ├─ client_red          10 per minute    (client, red)                      ► client_red
//!   ├─ client               5 per minute    (client, blue)                     ► client, a bucket for blue
//!   └─ route_api*                           (client, red) (method, get)        ► nothing: client_red ends here
//!      └─ method_post       1 per second    (route, api/orders) (method, post) ► method_post, a bucket for api/orders
//! ```
//!
//! Matching follows the behaviour of envoyproxy/ratelimit:
//!
//! - An entry is looked up as the text `key_value`; then by wildcards, in the order of the file; then by its key alone.
//!   There is no backtracking: a miss further down does not try the next candidate.
//! - A limit applies only to requests with exactly as many entries as its depth.
//! - `a_b` with the value `c` and `a` with the value `b_c` are the same text, so they are the same entry.
//!
//! There is one difference. An entry whose key alone equals a descriptor's `key_value` (`a_b`, where the file has `a`
//! with the value `b`) matches that descriptor in both, but here it is counted in the descriptor's one bucket, not by
//! its value.
//!
//! # Layout, in reading order
//! - [`Descriptor`] is a descriptor of the file. [`Domains::add`] validates it, or returns [`DescriptorError`]s.
//! - [`Domains::find`] matches a request's [`Entry`]s against the tree and returns [`Matched`].
//! - A [`Rule`] has the limits of a descriptor. They form one policy of `ratewright-core`, selected by name.
//!
//! **Invariant:** no I/O, no wire and no file format: the entrypoint and the configuration have those.

mod descriptor;
mod domains;
mod error;
mod matched;
mod metric;
mod name;
mod rule;
mod tree_level;
mod unit;
mod wildcard;

pub use descriptor::{Descriptor, RateLimit};
pub use domains::{Domains, DuplicateDomains};
pub use error::{DescriptorError, DescriptorErrorKind, DescriptorField};
pub use matched::{Limited, Matched, replace};
pub use name::PREFIX;
pub use rule::{CurrentLimit, Rule};
pub use tree_level::Entry;
pub use unit::Unit;
