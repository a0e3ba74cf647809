//! What was found: differences, which fail the check, and warnings.

use super::node::Node;
use crate::config::{ConfigError, SourceFile};

/// What was found so far.
pub(super) struct Findings<'a> {
    files: &'a [SourceFile],
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<ConfigError>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(files: &'a [SourceFile]) -> Self {
        Self { files, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Notes that something is wrong here.
    pub(super) fn wrong(&mut self, node: &Node, problem: String) {
        self.errors.push(self.at(node, problem));
    }

    /// Notes something that works, and is probably not what was meant.
    pub(super) fn warn(&mut self, node: &Node, problem: String) {
        self.warnings.push(self.at(node, problem));
    }

    /// A problem at its place. Of a section the line is not shown: a variable's value may stand there too.
    fn at(&self, node: &Node, problem: String) -> ConfigError {
        ConfigError::at(self.files, node.place, problem, node.text().is_none())
    }

    /// Where something stands, for a message about something else: `expect.yaml:3`.
    pub(super) fn whereabouts(&self, node: &Node) -> String {
        let Some(place) = node.place else { return String::new() };
        let file = self.files.get(place.file).map(|file| file.path.display().to_string());
        format!("{}:{}", file.unwrap_or_default(), place.line)
    }
}
