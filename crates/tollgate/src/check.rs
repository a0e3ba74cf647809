//! `tollgate check`: reads a policy file as the program would, and says what it means.

use std::fmt::Write;

use crate::config::{Config, ConfigError, Environment, Source, StoreConfig, words};

/// What a file means, in plain words.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn check(source: &Source, environment: Environment<'_>) -> Result<String, Vec<ConfigError>> {
    let config = Config::read(source, environment)?;
    let name = match (&source.path, &source.profile) {
        (None, _) => "no file: the defaults count".to_owned(),
        (Some(path), None) => format!("{} is sound", path.display()),
        (Some(path), Some(profile)) => format!("{} with profile {profile} is sound", path.display()),
    };
    let place = match config.store {
        StoreConfig::Memory { .. } => "memory",
        StoreConfig::Redis(_) => "Redis",
    };
    let mut text = format!("{name}; buckets in {place}\n");
    for line in words(&config).lines() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {line}");
    }
    Ok(text)
}
