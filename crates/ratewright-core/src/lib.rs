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
//! - [`Query`] is what a door asks; [`Policies`] select the [`Charge`]s it brings about.
//! - [`Quota`] says how much; [`algorithm`] holds the arithmetic, pure functions over small states.
//! - [`Store`] holds buckets and applies charges; [`Standing`] is how a key stands afterwards.
//! - [`Decision`] is the judgement over all standings.
//! - [`quantity`] has the units in its types: a [`Timestamp`] is not a [`Micros`] is not a count.
//!
//! **Invariant:** this crate reads no clock, does no I/O, and has no floats, no serde, no http.
#![deny(clippy::float_arithmetic)]

pub mod algorithm;
mod charge;
mod clock;
mod counted;
mod decision;
mod explain;
mod inline_vec;
pub mod joint;
mod key;
mod limiter;
mod observe;
mod pattern;
mod policies;
mod policy;
pub mod quantity;
mod query;
mod quota;
mod rate;
mod selector;
mod shared_policies;
mod standing;
mod store;

pub use charge::{Act, Charge, Charges, OnFailure, Paid, Refund};
pub use clock::{Clock, ManualClock};
pub use counted::Counted;
pub use decision::{Decision, OpenCharges, Taken, Verdict};
pub use explain::{Explained, FailedTest, Finding};
pub use inline_vec::InlineVec;
pub use key::{BucketName, Key, Part, Value};
pub use limiter::Limiter;
pub use observe::{Observe, Unobserved};
pub use pattern::{Pattern, PatternError};
pub use policies::{LimitId, Policies, PolicyError, Refused, Uncountable};
pub use policy::{Cost, Limit, Missing, Mode, OtherTerms, Policy};
pub use quantity::{Micros, Timestamp};
pub use query::{Ask, Attribute, AttributeName, Entrypoint, Query, RequestId, Select};
pub use quota::{Algorithm, Leak, Quota, QuotaError, Refill, Share, WindowStart};
pub use rate::{Rate, RateError};
pub use selector::{Condition, Selector};
pub use shared_policies::{LoadedPolicies, SharedPolicies};
pub use standing::{Basis, Outcome, Receipt, Standing, Standings};
pub use store::Store;

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
