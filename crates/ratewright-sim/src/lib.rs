//! Replays access logs through Ratewright's engine to show which requests a policy file would have denied.

mod clients;
mod decompress;
pub mod format;
mod lines;
mod logs;
mod policy_counts;
mod policy_support;
mod record;
mod record_facts;
mod reorder_buffer;
mod replay;
pub mod report;
mod simulate;
mod stored_record;
mod suggest;
mod timeline_counter;

pub use format::{FieldMap, Format};
pub use logs::{Log, LogError};
pub use replay::{Routes, SimulatedFile};
pub use report::{Report, Suggestion};
pub use simulate::{SimulateError, SimulationSettings, simulate};
pub use suggest::{DeniedShare, EventFile, ShareOf, SuggestOptions, suggest};
