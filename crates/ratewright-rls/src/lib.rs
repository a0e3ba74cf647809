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
//! - [`RuleSet`] is the configuration: the domains, and how closely responses follow envoyproxy/ratelimit.
//! - [`Rls`] answers requests.
//! - [`wire`] is the protocol, generated from the files in `proto/`.
//! - [`json`] is the same in JSON.
//! - [`serve`] accepts connections.

#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod hit_counts;
mod inline_executor;
mod invalid_utf8;
pub mod json;
mod limit_override;
mod listen;
mod matching;
mod preface_timeout;
mod refund_access;
mod rls;
mod run_to_completion;
mod service;
mod settings;
mod status;
mod unary;
mod unmatched;
pub mod wire;

pub use hit_counts::{HitCounts, HitsOf};
pub use limit_override::{is_override_policy, policies as override_policies};
pub use listen::{GrpcListenerSettings, serve};
pub use refund_access::Refunds;
pub use rls::{Refusal, Rls};
pub use service::{GrpcHealth, GrpcService};
pub use settings::{Compat, HeaderFamily, RlsSettings, RuleSet, SharedRuleSet};
pub use unary::ResponseBody;
pub use unmatched::Unmatched;
