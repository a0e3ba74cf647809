//! Replays access logs through Ratewright's engine: what would these limits have done?

mod format;
mod record;
pub mod report;

pub use format::{FieldMap, Format, Line, LineError};
pub use record::{LoggedDecision, Record};
pub use report::Report;
