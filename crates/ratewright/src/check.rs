//! `ratewright check`: validates a policy file, and describes its limits in words.

use std::fmt::Write;
use std::path::Path;

use crate::config::{Config, ConfigError, Environment, Source, StoreConfig, explain, explain_envoy};

/// A valid file.
pub(crate) struct Checked {
    /// Its limits, in words.
    pub(crate) words: String,
    /// Settings that have no effect, or probably another effect than intended.
    pub(crate) warnings: Vec<ConfigError>,
}

/// Validates a file, and describes it.
///
/// # Errors
/// All errors in it.
pub(crate) fn check(source: &Source, environment: Environment<'_>) -> Result<Checked, Vec<ConfigError>> {
    if let Some(path) = source.path.as_ref().filter(|_| source.is_envoy()) {
        return check_envoy(path).map(|words| Checked { words, warnings: Vec::new() });
    }
    let config = Config::read(source, environment)?;
    let name = match (&source.path, source.profile()) {
        (None, _) => "no file: defaults".to_owned(),
        (Some(path), None) => format!("{} is valid", path.display()),
        (Some(path), Some(profile)) => format!("{} with profile {profile} is valid", path.display()),
    };
    let place = match config.store {
        StoreConfig::Memory { .. } => "memory",
        StoreConfig::Redis(_) => "Redis",
    };
    let words = format!("{name}; buckets in {place}\n{}", indented(&explain(&config)));
    Ok(Checked { words, warnings: config.warnings })
}

/// Validates and describes a file of rules for Envoy.
fn check_envoy(path: &Path) -> Result<String, Vec<ConfigError>> {
    let config = Config::of_envoy(path)?;
    let words = config.envoy.map(|envoy| explain_envoy(&envoy, &config.policies)).unwrap_or_default();
    Ok(format!(
        "{} is valid; rules for Envoy, to be named in envoy.files\n{}",
        path.display(),
        indented(&words)
    ))
}

/// Indents each line.
pub(crate) fn indented(lines: &str) -> String {
    let mut text = String::new();
    for line in lines.lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {line}");
    }
    text
}
