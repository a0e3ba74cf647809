//! The findings of a check: errors, which fail it, and warnings.

use crate::config::{ConfigError, SourceFile};
use crate::yaml_node::YamlNode;

/// The findings so far.
pub(super) struct Findings<'a> {
    files: &'a [SourceFile],
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<ConfigError>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(files: &'a [SourceFile]) -> Self {
        Self { files, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Adds an error at this node.
    pub(super) fn error(&mut self, node: &YamlNode, problem: String) {
        self.errors.push(self.at(node, problem));
    }

    /// Adds a warning at this node: the setting works, but probably not as intended.
    pub(super) fn warn(&mut self, node: &YamlNode, problem: String) {
        self.warnings.push(self.at(node, problem));
    }

    /// A problem with its position. The line of a section is not shown: it may contain the value of a variable.
    fn at(&self, node: &YamlNode, problem: String) -> ConfigError {
        ConfigError::at(self.files, node.place, problem, node.text().is_none())
    }

    /// A node's position, for a message about another node: `expect.yaml:3`.
    pub(super) fn whereabouts(&self, node: &YamlNode) -> String {
        let Some(place) = node.place else { return String::new() };
        let file = self.files.get(place.file).map(|file| file.path.display().to_string());
        format!("{}:{}", file.unwrap_or_default(), place.line)
    }
}
