//! The log: to standard error, one line for each thing that somebody should know.

use std::io::IsTerminal;

use tollgate_core::{Decision, Observe, Query, Verdict};
use tracing::level_filters::LevelFilter;
use tracing::{Level, debug};

/// Logs each decision, for who asks for that much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

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

impl Observe for Log {
    fn observe(&self, query: &Query<'_>, decision: &Decision) {
        if !tracing::enabled!(Level::DEBUG) {
            return;
        }
        let verdict = match decision.verdict() {
            Verdict::Allow => "allowed",
            Verdict::Deny => "denied",
        };
        let client: Vec<_> = query.attributes.iter().map(|attribute| attribute.value).collect();
        let basis = decision.basis().map_or("off", |basis| basis.name());
        let policy = decision.tightest().map_or("", |(policy, _, _)| policy.name());
        debug!(client = client.join("|"), policy, basis, "{verdict}");
    }
}
