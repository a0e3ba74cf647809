//! What the crates need to report on themselves, in metrics, logs and lists.
//!
//! - [`Histogram`] counts durations. The caller reads the clock.
//! - [`sounds_secret`], [`may_be_secret`] and [`has_credentials`] say which values must not be shown.
//! - [`escape_hidden`] makes a client's text safe to print, [`escape_hidden_in_lines`] and
//!   [`escape_hidden_in_json`] lines of a log that hold it.
//!
//! Stores and entrypoints both report, and must not depend on each other; `ratewright-core` does not report.

mod escape;
mod histogram;
mod secret;

pub use escape::{ascii_json, escape_hidden, escape_hidden_in_json, escape_hidden_in_lines, push_visible};
pub use histogram::{Histogram, Reading};
pub use secret::{has_credentials, may_be_secret, sounds_secret};

/// The README's code is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
