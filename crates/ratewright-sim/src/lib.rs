//! Replays access logs through Ratewright's engine to show which requests a policy file would have denied.
//!
//! ```text
//!   Log ─decompress─► lines ─format─► Record ─reorder_buffer─► in time order ─record_facts─► Query ─replay─► Decision
//!                                                                                                   └─► counts ─► Report
//! ```
//!
//! # Layout
//! - [`simulate`](simulate()): from logs and policy files to a [`Report`]. [`suggest`](suggest()): the lowest rate that fits.
//! - [`mod@format`]: one file for each log format; `lines`, `decompress`, `logs` and `reorder_buffer` lead up to a stream of records.
//! - `policy_support`: which policies can be simulated from what the logs record. `replay`: the engine, in the time of the log.
//! - `policy_counts`, `clients`, `timeline_counter`: what is counted. [`report`]: the result, as text, HTML and JSON.
//!
//! **Invariant:** this crate opens no file and reads no clock, and has no arithmetic of limits: all decisions are the engine's.
//! Only the search of [`suggest`](suggest()) drives token buckets directly, and the engine confirms its answer.

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

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
