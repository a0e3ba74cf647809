//! Ratewright as Envoy's rate limit service.
//!
//! ```text
//!   Envoy ──gRPC──► listen.rs ──► service.rs ──► Rls::answer ──► statuses, 1:1 with the descriptors
//!   curl  ──/json──────────────── json.rs ─────────┘   │
//!                                     ratewright_rls_rules::Domains: which rule
//!                                     ratewright_core::Limiter:  how much is left
//! ```
//!
//! # Layout, in reading order
//! - [`Rules`] are what the configuration says: the domains, and how faithful to the original the answers are.
//! - [`Rls`] answers requests.
//! - [`wire`] is the protocol, generated from the files in `proto/`.
//! - [`json`] is the same in JSON.
//! - [`serve`] takes connections.

mod bill;
mod brought;
mod calls;
mod corrections;
mod finishing;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod heard;
mod hits;
pub mod json;
mod listen;
mod lossy;
mod met;
mod refunds;
mod rls;
mod rules;
mod service;
mod status;
mod unary;
mod unmet;
pub mod wire;

pub use brought::{is_brought, policies as brought_policies};
pub use hits::{HitCounts, HitsOf};
pub use listen::{Listening, serve};
pub use refunds::Refunds;
pub use rls::{Refusal, Rls};
pub use rules::{Compat, HeaderFamily, Manner, Rules, SharedRules};
pub use service::{Door, Health};
pub use unary::Answer;
pub use unmet::Unmet;
