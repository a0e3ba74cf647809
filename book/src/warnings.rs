//! The warnings that mdBook logs while it builds.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Level;
use tracing::subscriber::with_default;

/// Collects what is logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `build`, and returns the warnings and errors that it logged.
pub(crate) fn collect(build: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Vec<String>> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    with_default(subscriber, build)?;
    let logged = lines.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(String::from_utf8_lossy(&logged).lines().map(str::to_owned).collect())
}
