//! Replays access logs through Ratewright's engine: what would these limits have done?

mod format;
mod record;
pub mod report;

pub use format::{FieldMap, FieldMapError, Format, FormatError, Line, LineError, Parser};
pub use record::{LoggedDecision, Record};
pub use report::Report;
