//! Ratewright's policy file as a library.
mod ad_hoc;
mod clients;
mod conditions;
pub mod envoy_rules;
mod error;
#[expect(
    missing_debug_implementations,
    missing_docs,
    reason = "values may be secrets; comments are the reference of the policy file, where some types need none"
)]
pub mod file;
mod file_reader;
mod in_flight;
pub mod ineffective;
mod merge;
#[expect(missing_debug_implementations, reason = "values may be secrets, so they cannot be printed")]
pub mod outline;
mod policies;
mod quotas;
#[expect(missing_debug_implementations, reason = "values may be secrets, so they cannot be printed")]
pub mod raw_value;
mod reader;
pub mod reference;
mod source_file;
#[expect(missing_debug_implementations, reason = "values may be secrets, so they cannot be printed")]
pub mod values;
pub mod yaml_errors;

pub use clients::{ClientSettings, JwksUrl};
pub use error::ConfigError;
pub use file_reader::{FileKind, FileReader, NoFiles};
pub use policies::{PolicyContext, RuleSets, policy_names};
pub use reader::{AvailableAttributes, Environment, Reader};
pub use source_file::SourceFile;
