//! The plots of docs/concepts: each curve is what the engine decides, on a clock that is moved by hand.
//!
//! `cargo run -p ratewright-book -- plots` writes them. The tests in `tests/plots.rs` compare the files with what the engine draws now,
//! and check the numbers that the pages name.

mod engine;
pub mod first_hour;
pub mod levels;
pub mod queue;
mod svg;
pub mod window_edge;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub use engine::{Reply, most_allowed_within};

/// The folder of the files, in the repository.
const FOLDER: &str = "docs/concepts";

/// All figures, each as the name of its file and the file's text.
pub fn draw() -> Vec<(&'static str, String)> {
    vec![
        ("refill.svg", levels::refill()),
        ("sliding-window.svg", levels::sliding_window()),
        ("sliding-window-counter.svg", levels::sliding_window_counter()),
        ("fixed-window.svg", levels::fixed_window()),
        ("queue.svg", queue::figure()),
        ("window-edge.svg", window_edge::figure()),
        ("first-hour.svg", first_hour::figure()),
    ]
}

/// Where a figure of the repository at `root` is.
pub fn path(root: &Path, name: &str) -> PathBuf {
    root.join(FOLDER).join(name)
}

/// Writes all figures of the repository at `root`. Returns their paths.
pub fn write(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (name, text) in draw() {
        let path = path(root, name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}
