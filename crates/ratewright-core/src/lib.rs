//! The model of Ratewright: what a limit is, what it costs, and who decides.
//!
//! One request walks through five verbs, in one direction:
//!
//! ```text
//! Parts ─identify→ Query ─select→ [Charge] ─apply→ [Standing] ─judge→ Decision ─render→ answer
//!  (a door)              (policy)         (a store)          (decision)        (a door)
//! ```
//!
//! # Layout, in reading order
//! - [`Limiter`] is the middle: the whole engine on one screen. [`joint`] is several queries at once.
//! - [`Query`] is what a door asks; [`Policies`] select the [`Charge`](store::Charge)s it brings about.
//! - [`Quota`] says how much; [`algorithm`] holds the arithmetic, pure functions over small states.
//! - [`Store`] holds buckets and applies charges; [`Standing`](store::Standing) is how a key stands afterwards.
//! - [`Decision`] is the judgement over all standings.
//! - [`quantity`] has the units in its types: a [`Timestamp`] is not a [`Micros`] is not a count.
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
pub mod joint;
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
