//! `ratewright check`: reads a policy file as the program would, and says what it means.

use std::fmt::Write;
use std::path::Path;

use crate::config::{Config, ConfigError, Environment, Source, StoreConfig, explain, explain_envoy};

/// What a file means.
pub(crate) struct Checked {
    /// In plain words.
    pub(crate) words: String,
    /// What is valid, but can never act, or is probably not what was meant.
    pub(crate) warnings: Vec<ConfigError>,
}

/// What a file means.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn check(source: &Source, environment: Environment<'_>) -> Result<Checked, Vec<ConfigError>> {
    if let Some(path) = source.path.as_ref().filter(|_| source.is_envoy()) {
        return check_envoy(path).map(|words| Checked { words, warnings: Vec::new() });
    }
    let config = Config::read(source, environment)?;
    let name = match (&source.path, &source.profile) {
        (None, _) => "no file: the defaults count".to_owned(),
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

/// What rules for Envoy mean, by themselves.
fn check_envoy(path: &Path) -> Result<String, Vec<ConfigError>> {
    let config = Config::of_envoy(path)?;
    let words = config.envoy.map(|envoy| explain_envoy(&envoy, &config.policies)).unwrap_or_default();
    Ok(format!(
        "{} is valid; rules for Envoy, to be named in envoy.files\n{}",
        path.display(),
        indented(&words)
    ))
}

/// A text with its lines moved in.
pub(crate) fn indented(lines: &str) -> String {
    let mut text = String::new();
    for line in lines.lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {line}");
    }
    text
}
