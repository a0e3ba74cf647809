//! Ratewright's policy file as a library: text in; policies and settings out; errors with file, line and column.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ratewright_config::ConfigErrors> {
//! use ratewright_config::FromYaml;
//! use ratewright_core::query::{Attribute, AttributeName};
//! use ratewright_core::{Limiter, Query, Verdict};
//!
//! let limiter = Limiter::from_yaml("
//! policies:
//!   - { name: per-user, by: user, missing: skip, quota: { rate: 10/s, burst: 50 } }
//!   - { name: per-ip, by: ip, quota: { rate: 100/min } }
//! ")?; // feature "memory"
//! let attributes = [Attribute { name: AttributeName::Ip, value: "192.0.2.1" }];
//! let decision = limiter.decide(&Query::new(&attributes)).await;
//! assert_eq!(decision.verdict(), Verdict::Allow); // also retry_after(), standings()
//! # Ok(())
//! # }
//! ```
//!
//! `Policies::from_yaml` needs no feature and fits any store; [`Limits::read`] takes several files and environment variables, and
//! returns warnings.
//!
//! ```text
//!   SourceFile ─► nodes: names checked ─► merge ─► File ─► Reader: values parsed, one function per section ─► Limits
//!                                                          all errors collected, with positions
//! ```
//!
//! # What it does not do
//! - It opens no file and reads no environment. The caller passes texts, a lookup of variables ([`Environment`]) and a [`FileReader`]
//!   for files that a policy file names.
//! - It knows no listener, gateway or Redis client. Their sections have their names and schema here, in [`program_api::file`]; their values
//!   are parsed where those components are known, in the program, with the same [`program_api::Reader`]. So a user of the policies does not compile tokio,
//!   hyper, rustls and redis. docs/decisions/0034-policy-file-crate.md has the alternatives.

mod api_defaults;
mod clients;
mod conditions;
mod envoy_rules;
mod error;
#[expect(
    missing_debug_implementations,
    missing_docs,
    reason = "values may be secrets; comments are the reference of the policy file, where some types need none"
)]
mod file;
mod from_yaml;
mod in_flight;
mod ineffective_policies;
mod merge;
mod policies;
pub mod program_api;
mod quotas;
#[expect(missing_debug_implementations, reason = "values may be secrets, so they cannot be printed")]
mod raw_value;
mod reader;
mod referenced_files;
mod schema;
#[expect(missing_debug_implementations, reason = "values may be secrets, so they cannot be printed")]
mod settings_by_path;
mod source_file;
#[expect(missing_debug_implementations, reason = "values may be secrets, so they cannot be printed")]
mod values;
mod yaml_errors;
mod yaml_tree;

pub use error::{ConfigError, ConfigErrors};
pub use from_yaml::{FromYaml, Limits};
pub use reader::Environment;
pub use referenced_files::{FileKind, FileReader, NoFiles};
pub use source_file::SourceFile;

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
