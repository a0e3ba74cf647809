//! Errors and warnings with their position, and the line for terminals.
//!
//! ```text
//!   policies.yaml:14:12: policies.login.quota.burst is "0"; a burst of 0 would deny everything. Use at least 1
//!      |
//!   14 |     burst: 0
//!      |            ^
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use ratewright_telemetry::{has_credentials, sounds_secret};

use crate::raw_value::Position;
use crate::source_file::SourceFile;

/// The longest line that is shown.
const SHOWN_MAX: usize = 120;

/// How much of a long problem is shown: its beginning, and its end with the advice.
const PROBLEM_START_MAX: usize = 300;
const PROBLEM_END_MAX: usize = 200;

/// An error or a warning, and its position.
#[derive(Debug)]
pub struct ConfigError {
    file: PathBuf,
    position: Option<Excerpt>,
    problem: String,
}

/// All errors of some policy files, by file and line. Prints one on each line.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(crate) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(ConfigError::order);
        Self(errors)
    }

    /// The errors one by one.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

impl std::error::Error for ConfigErrors {}

/// A position and its line.
#[derive(Debug)]
struct Excerpt {
    line: u64,
    column: u64,
    text: Option<String>,
}

/// Sections without secrets.
const OPEN_SECTIONS: [&str; 10] =
    ["enabled", "listen", "exempt", "policies", "gateway", "envoy", "headers", "problem", "metrics", "log"];

/// True if a line of an invalid file may hold a secret, by the last top-level name above it. Names in quotes, with a tag or an anchor
/// are not looked up: their sections count as secret.
pub(crate) fn may_hold_secrets(text: &str, line: u64) -> bool {
    let n = usize::try_from(line).unwrap_or(usize::MAX);
    let above = text.lines().take(n);
    let is_name = |line: &&str| !line.trim().is_empty() && !continues_section(line);
    let section = above.clone().filter(is_name).last().and_then(|line| line.split_once(':'));
    let is_open = section.is_some_and(|(name, _)| OPEN_SECTIONS.contains(&name));
    let is_bare_name = above.last().and_then(|line| line.trim().strip_suffix(':')).is_some_and(is_word);
    !is_open && !is_bare_name
}

/// True if a line cannot begin a section.
pub(crate) fn continues_section(line: &str) -> bool {
    line.starts_with([' ', '\t', '#', ']', '}']) || line == "-" || line.starts_with("- ")
}

/// True if a line has a pattern for an attribute whose values are secrets, such as `'header:X-Api-Key': …`.
pub(crate) fn has_secret_pattern(line: &str) -> bool {
    const KINDS: [&str; 5] = ["header:", "cookie:", "query:", "claim:", "attribute:"];
    KINDS.iter().flat_map(|kind| line.split(kind).skip(1)).any(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        after.trim_start_matches(['\'', '"', ' ']).starts_with(':') && sounds_secret(name)
    })
}

/// A long text without its middle: values in a file may have any length.
fn abridged(text: String) -> String {
    let n = text.chars().count();
    if n <= PROBLEM_START_MAX + PROBLEM_END_MAX {
        return text;
    }
    let first = text.chars().take(PROBLEM_START_MAX);
    first.chain(['…']).chain(text.chars().skip(n - PROBLEM_END_MAX)).collect()
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

impl ConfigError {
    /// What is wrong, without its position.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// A problem of a whole file.
    pub fn of_file(file: PathBuf, problem: String) -> Self {
        Self { file, position: None, problem }
    }

    /// The file that it is in.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// A problem at a position. Without a position it belongs to the first file.
    pub(crate) fn at(
        files: &[SourceFile],
        position: Option<Position>,
        problem: String,
        is_secret: bool,
    ) -> Self {
        let file = files.get(position.map_or(0, |position| position.file));
        let line = |position: &Position| {
            if is_secret {
                return None;
            }
            let at = usize::try_from(position.line).ok()?.checked_sub(1)?;
            let text = file?.text.lines().nth(at)?;
            let is_secret = has_secret_pattern(text) || has_credentials(text);
            (!is_secret && text.len() <= SHOWN_MAX && !text.contains(char::is_control))
                .then(|| text.to_owned())
        };
        let shown = position.map(|position| Excerpt {
            line: position.line,
            column: position.column,
            text: line(&position),
        });
        let file = file.map_or_else(|| PathBuf::from("defaults"), |file| file.path.clone());
        Self { file, position: shown, problem: abridged(problem) }
    }

    /// By file and place.
    pub fn order(&self) -> (PathBuf, Option<(u64, u64)>) {
        (self.file.clone(), self.position.as_ref().map(|position| (position.line, position.column)))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        let Some(Excerpt { line, column, text }) = &self.position else {
            return write!(f, " {}", self.problem);
        };
        write!(f, "{line}:{column}: {}", self.problem)?;
        let (Some(text), true) = (text, f.alternate()) else { return Ok(()) };
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let before: String =
            text.chars().take(usize::try_from(*column).unwrap_or(1).saturating_sub(1)).map(|_| ' ').collect();
        write!(f, "\n{margin} |\n{number} | {text}\n{margin} | {before}^")
    }
}
