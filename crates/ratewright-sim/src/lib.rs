//! Replays access logs through Ratewright's engine: what would these limits have done?

mod clients;
mod decompress;
pub mod format;
mod identity;
mod lines;
mod log_contents;
mod logs;
mod record;
mod reorder;
mod replay;
pub mod report;
mod simulate;
mod stored_record;
mod suggest;
mod tally;
mod timeline;

pub use format::{FieldMap, Format};
pub use logs::{Log, LogError};
pub use replay::{Routes, SimulatedFile};
pub use report::{Report, Suggestion};
pub use simulate::{SimulateError, SimulationSettings, simulate};
pub use suggest::{DeniedShare, EventFile, ShareOf, SuggestOptions, suggest};
