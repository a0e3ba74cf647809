//! The model of Ratewright: quotas, policies, queries, and the decision.
//!
//! A request passes five steps, in one direction:
//!
//! ```text
//! request ─identify→ Query ─select→ [Charge] ─apply→ [Standing] ─judge→ Decision ─render→ response
//!      (entrypoint)        (policies)         (store)            (limiter)       (entrypoint)
//! ```
//!
//! An entrypoint describes the request as a [`Query`]. Each of the [`Policies`] that applies charges a bucket for
//! each of its quotas; the bucket's [`Key`](store::Key) combines the policy and the client. The [`Store`] applies all charges or none, and returns a
//! standing for each key: the units left, and when more return. One denied charge denies the query, unless its policy
//! is in shadow mode.
//!
//! # Layout, in reading order
//! - [`Limiter`]: the engine. `decide` and `DecideCall::run` are the three middle steps on one screen; then come refunds and
//!   extra charges. [`joint_decision`]: several queries that are decided together.
//! - [`query`]: what an entrypoint asks. [`policy`]: everything that a policy file can say, and the selection.
//! - [`quota`]: units per window. [`algorithm`]: the arithmetic, pure functions over small states.
//! - [`store`]: the trait, with its charges, keys and standings. [`decision`]: the result, and its observers.
//! - [`quantity`]: units in types: a [`Timestamp`], a duration ([`Micros`]) and a count do not mix. [`Clock`]: the time.
//!
//! **Invariant:** this crate reads no clock, does no I/O, and has no floats, no serde, no http.
#![deny(clippy::float_arithmetic)]

pub mod algorithm;
mod charge;
mod clock;
mod counted_responses;
pub mod decision;
mod explain;
mod inline_vec;
pub mod joint_decision;
mod key;
mod limiter;
mod observe;
mod pattern;
mod policies;
pub mod policy;
pub mod quantity;
pub mod query;
pub mod quota;
mod rate;
mod selector;
mod shared_policies;
mod standing;
pub mod store;

pub use clock::{Clock, ManualClock};
pub use decision::{Decision, Verdict};
pub use limiter::Limiter;
pub use policies::Policies;
pub use policy::Policy;
pub use quantity::{Micros, Timestamp};
pub use query::Query;
pub use quota::Quota;
pub use store::Store;

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
