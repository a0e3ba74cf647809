//! Rule files of envoyproxy/ratelimit: domains, descriptors and their errors.

mod tree;
mod yaml;

use ratewright_rls_rules::{Domains, DuplicateDomains};

use crate::error::ConfigError;
use crate::raw_value::{Position, in_file};
use crate::source_file::SourceFile;
use crate::yaml_errors;
use tree::DescriptorReader;
pub use yaml::is_rules_file;

/// The rules of some files.
#[derive(Default, Debug)]
pub struct EnvoyRules {
    /// The domains.
    pub domains: Domains,
    /// Known keys without effect, with their positions.
    pub ignored: Vec<String>,
    /// All errors.
    pub errors: Vec<ConfigError>,
}

impl EnvoyRules {
    /// Reads these files.
    pub fn of(files: &[SourceFile], same: DuplicateDomains) -> Self {
        let mut rules = Self::default();
        for number in 0..files.len() {
            in_file(number, || rules.add(files, number, same));
        }
        rules
    }

    fn add(&mut self, files: &[SourceFile], number: usize, same: DuplicateDomains) {
        let Some(file) = files.get(number) else { return };
        let begin = Position { file: number, line: 1, column: 1 };
        let error = |position: Option<Position>, problem| {
            ConfigError::at(files, Some(position.unwrap_or(begin)), problem, false)
        };
        let root = match yaml::parse(&file.text) {
            Ok(root) => root,
            Err(wrong) => {
                let position = wrong.location().and_then(Position::of);
                return self.errors.push(error(position, yaml_errors::describe(&wrong)));
            }
        };
        let mut reader = DescriptorReader::default();
        let descriptors = reader.root(&root);
        let domain = root.domain.as_ref().map_or("", |domain| domain.text.as_str());
        let added = self.domains.add(domain, &descriptors, same);
        let DescriptorReader { wrong, ignored } = reader;
        self.errors.extend(wrong.into_iter().map(|(position, problem)| error(position, problem)));
        let refused = added.err().unwrap_or_default();
        self.errors
            .extend(refused.iter().map(|wrong| error(tree::position(&root, wrong), wrong.to_string())));
        self.ignored
            .extend(ignored.into_iter().map(|(position, remark)| error(position, remark).to_string()));
    }
}
