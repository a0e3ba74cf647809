//! The log: to standard error, one line for each thing that somebody should know.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;

/// Begins to log what is at least that important.
pub(crate) fn begin(level: LevelFilter) {
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .with_max_level(level)
        .with_target(false)
        .init();
}
