//! The log, on standard error.
//!
//! Text on a terminal, JSON elsewhere. A reload can change the levels.
//!
//! Lines hold texts of clients, such as paths. Characters that no reader sees, that change how a
//! terminal shows the others, or that end a line for some readers, such as U+2028, become escapes.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

use ratewright_telemetry::{escape_hidden_in_json, escape_hidden_in_lines};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::config::{LogConfig, LogFormat, TracesConfig};

/// The handle that changes the levels.
static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Escapes what clients may have put into a line.
struct EscapingWriter<W> {
    out: W,
    is_text: bool,
}

impl<W: Write> Write for EscapingWriter<W> {
    /// Gets a whole line at a time.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let shown = if self.is_text {
            Cow::Owned(escape_hidden_in_lines(&text))
        } else {
            escape_hidden_in_json(&text)
        };
        self.out.write_all(shown.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// Starts the log.
#[cfg_attr(not(feature = "otel"), expect(unused_variables, reason = "used only with the feature otel"))]
pub(crate) fn begin(config: &LogConfig, traces: Option<&TracesConfig>) {
    let is_terminal = std::io::stderr().is_terminal();
    let is_text = match config.format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => is_terminal,
    };
    let (levels, handle) = reload::Layer::new(levels(config));
    let writer = move || EscapingWriter { out: std::io::stderr(), is_text };
    let lines = fmt::layer().with_writer(writer).with_ansi(is_terminal && is_text);
    let lines = if is_text {
        lines.with_target(false).boxed()
    } else {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
    };
    let registry = tracing_subscriber::registry().with(levels).with(lines);
    #[cfg(feature = "otel")]
    let registry = registry.with(traces.and_then(crate::traces::layer));
    registry.init();
    let _first = LEVELS.set(handle);
}

/// Changes the levels.
pub(crate) fn change(config: &LogConfig) {
    if let Some(handle) = LEVELS.get() {
        // Fails only if the subscriber is gone.
        let _ = handle.reload(levels(config));
    }
}

fn levels(config: &LogConfig) -> Targets {
    let modules = config.modules.iter().map(|(module, level)| (module.as_str(), *level));
    Targets::new().with_default(config.level).with_targets(modules)
}
