//! The rules of Envoy's rate limit service: domains, nested descriptors, and which of them a request meets.
//!
//! ```text
//!   domain: shop                            a request's descriptor
//!   ├─ client_red          10 per minute    (client, red)                      ► client_red
//!   ├─ client               5 per minute    (client, blue)                     ► client, a bucket for blue
//!   └─ route_api*                           (client, red) (method, get)        ► nothing: client_red ends here
//!      └─ method_post       1 per second    (route, api/orders) (method, post) ► method_post, a bucket for api/orders
//! ```
//!
//! The meaning is that of envoyproxy/ratelimit, in what it does rather than in what one would wish:
//!
//! - An entry is looked up as the text `key_value`; then by patterns with stars, in the order in which they are written; then by
//!   its key alone. What is chosen stays chosen: a miss further down does not try the next.
//! - A limit counts for requests that are as deep as it, and for no others.
//! - `a_b` with the value `c` and `a` with the value `b_c` are the same text, so they are the same entry.
//!
//! In one thing it differs. An entry whose key alone reads like a descriptor's key and value (`a_b`, where `a` with the value `b` is written)
//! meets that descriptor, as there, but counts in its one bucket, and not by the entry's own value.
//!
//! # Layout, in reading order
//! - [`Descriptor`] is what is written. [`Domains::add`] understands it, or tells what is wrong ([`Error`]).
//! - [`Domains::find`] takes a request's [`Entry`]s down the tree; [`Matched`] is what they meet.
//! - A [`Rule`] is what a descriptor says. Its limits are one policy of `ratewright-core`, asked for by name.
//!
//! **Invariant:** no I/O, no wire and no file format. A door and a reader stand around it.

mod descriptor;
mod domains;
mod error;
mod level;
mod matched;
mod metric;
mod name;
mod rule;
mod unit;
mod wildcard;

pub use descriptor::{Descriptor, RateLimit};
pub use domains::{Domains, SameDomain};
pub use error::{Error, Field, Wrong};
pub use level::Entry;
pub use matched::{Limited, Matched, replace};
pub use name::PREFIX;
pub use rule::{Limit, Rule};
pub use unit::Unit;
