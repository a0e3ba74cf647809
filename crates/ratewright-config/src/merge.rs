//! Merges several files into one, as trees of nodes.
//!
//! The files of a folder are equals: a setting may be in one of them only, and their policies form one list, as do their
//! routes. A profile overrides: its settings replace those of the files before it, and a policy or route of the same name
//! is changed setting by setting.
//!
//! | node | rule |
//! |---|---|
//! | a section | setting by setting |
//! | a list at the root: policies, routes | item by item; in a profile an item changes the earlier item of its name, once |
//! | a name without a value | changes nothing |
//! | all others: values, other lists, tables, and sections with a position such as `quota` | the later one replaces the earlier one |

use std::collections::HashMap;
use std::ops::Range;

use crate::error;
use crate::file::{self, File};
use crate::raw_value::{self, Position};
use crate::reader::Reader;
use crate::source_file::SourceFile;
use crate::yaml_errors;
use crate::yaml_tree::{self, Node, Recorded};

/// The settings that name an item of a list: a policy's, a route's.
const ITEM_NAMES: [&str; 2] = ["name", "id"];

/// A merge of one file into another.
struct Merging {
    mode: MergeMode,
    /// Settings in both files: the second position, then the first.
    duplicates: Vec<(Option<Position>, Option<Position>)>,
    /// Items that a profile lists twice.
    repeated: Vec<RepeatedItem>,
}

/// An item of a list in a profile whose name an earlier item of the profile has.
struct RepeatedItem {
    /// The list: `policies` or `routes`.
    list: String,
    name: String,
    position: Option<Position>,
    first: Option<Position>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeMode {
    Beside,
    Override,
}

impl Merging {
    /// Merges the roots of two files.
    fn merge_roots(&mut self, under: &mut Node, over: Node) {
        if let Node::Null = under {
            *under = Node::Section(Vec::new());
        }
        let (Node::Section(under), Node::Section(over)) = (under, over) else { return };
        for (name, over) in over {
            if let Node::List(items) = &over {
                self.note_repeated(&name, items);
            }
            match (setting(under, name), over) {
                (known, Node::List(items)) => self.merge_items(known, items),
                (known, over) => self.merge(known, over),
            }
        }
    }

    fn merge(&mut self, under: &mut Node, over: Node) {
        match (under, over) {
            (_, Node::Null) => {}
            (under @ Node::Null, over) => *under = over,
            (Node::Section(under), Node::Section(over)) => self.merge_settings(under, over),
            (under, over) => {
                if self.mode == MergeMode::Beside {
                    self.duplicates.push((over.position(), under.position()));
                }
                *under = over;
            }
        }
    }

    fn merge_settings(&mut self, under: &mut Vec<(String, Node)>, over: Vec<(String, Node)>) {
        for (name, over) in over {
            self.merge(setting(under, name), over);
        }
    }

    /// Notes items of a profile with the same name: the later one would change the earlier one.
    fn note_repeated(&mut self, list: &str, items: &[Node]) {
        if self.mode == MergeMode::Beside {
            return;
        }
        let mut known = HashMap::new();
        for (name, position) in items.iter().filter_map(item_name) {
            if let Some(&first) = known.get(name) {
                let (list, name) = (list.to_owned(), name.to_owned());
                self.repeated.push(RepeatedItem { list, name, position, first });
            } else {
                known.insert(name, position);
            }
        }
    }

    /// Merges the items of a list. Duplicate names in a folder are reported later, when policies are read.
    fn merge_items(&mut self, under: &mut Node, over: Vec<Node>) {
        if let Node::Null = under {
            *under = Node::List(Vec::new());
        }
        let Node::List(list) = under else { return };
        if self.mode == MergeMode::Beside {
            return list.extend(over);
        }
        let mut by_name = HashMap::new();
        for (n, item) in list.iter().enumerate() {
            item_name(item).map(|(name, _)| by_name.entry(name.to_owned()).or_insert(n));
        }
        for item in over {
            let known =
                item_name(&item).and_then(|(name, _)| by_name.get(name)).and_then(|n| list.get_mut(*n));
            match (known, item) {
                (Some(known), item) => self.merge_item(known, item),
                (None, item) => {
                    item_name(&item).map(|(name, _)| by_name.insert(name.to_owned(), list.len()));
                    list.push(item);
                }
            }
        }
    }

    /// Changes an item, which keeps its position.
    fn merge_item(&mut self, known: &mut Node, item: Node) {
        match (known, item) {
            (Node::Located(known), Node::Located(item)) => self.merge(&mut known.node, item.node),
            (known, item) => self.merge(known, item),
        }
    }
}

/// The setting of a name, which is added if it is missing.
fn setting(settings: &mut Vec<(String, Node)>, name: String) -> &mut Node {
    let n = settings.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
        settings.push((name, Node::Null));
        settings.len() - 1
    });
    &mut settings[n].1
}

/// The name of an item, and the name's position.
fn item_name(item: &Node) -> Option<(&str, Option<Position>)> {
    let name = item.settings().iter().find(|(setting, _)| ITEM_NAMES.contains(&setting.as_str()));
    name.and_then(|(_, name)| Some((name.text()?, name.position())))
}

impl Reader<'_> {
    /// All files merged into one. None if one of them is invalid: it may have settings that the others lack.
    pub fn merged_file(&mut self) -> Option<File> {
        self.merged_files(0..self.files.len())
    }

    /// Some of the files, by their numbers, merged into one. None if one of them is invalid.
    pub fn merged_files(&mut self, numbers: Range<usize>) -> Option<File> {
        let mut merged = Node::Null;
        let mut is_complete = true;
        for (number, source) in self.files.iter().enumerate().filter(|(number, _)| numbers.contains(number)) {
            let Some(node) = self.recorded_file(number, source) else {
                is_complete = false;
                continue;
            };
            let mode = if source.is_profile { MergeMode::Override } else { MergeMode::Beside };
            let mut merging = Merging { mode, duplicates: Vec::new(), repeated: Vec::new() };
            merging.merge_roots(&mut merged, node);
            let duplicates = merging.duplicates.into_iter();
            duplicates.for_each(|(position, other)| self.set_in_two_files(position, other));
            merging.repeated.into_iter().for_each(|item| self.listed_twice(item));
        }
        if !is_complete {
            return None;
        }
        // Each file was valid, and merging keeps the kinds of values.
        let file =
            yaml_tree::replay::<Option<File>>(&merged).map_err(|error| self.error(None, error.to_string()));
        file.ok().map(Option::unwrap_or_default)
    }

    /// The tree of a file, or None and an error.
    fn recorded_file(&mut self, number: usize, source: &SourceFile) -> Option<Node> {
        let parsed = raw_value::in_file(number, || {
            file::parse_recorded(&source.text)
                .map_err(|error| (error.location().and_then(Position::of), yaml_errors::describe(&error)))
        });
        match parsed {
            Ok(Recorded { value, node }) => {
                let file = value.unwrap_or_default();
                self.secret.extend(file.secrets().map(|position| (position.file, position.line)));
                let n_listed = file.policies.as_ref().map(Vec::len);
                self.listing.extend(n_listed.map(|n| (source.path.clone(), n)));
                Some(node)
            }
            Err((position, problem)) => {
                let position = position.unwrap_or(Position { file: number, line: 1, column: 1 });
                // Which lines are secret is unknown in an invalid file.
                if error::may_hold_secrets(&source.text, position.line) {
                    self.secret.insert((number, position.line));
                }
                self.error(Some(position), problem);
                None
            }
        }
    }

    /// Reports an item that a profile lists twice.
    fn listed_twice(&mut self, item: RepeatedItem) {
        let RepeatedItem { list, name, position, first } = item;
        let kind = if list == "policies" { "policy" } else { "route" };
        let first = self.describe_position(first, position);
        let problem = format!(
            "duplicate {kind} {name:?}, also listed {first} of this profile; a profile may change each {kind} only once, \
             merge both into one item"
        );
        self.error(position, problem);
    }

    /// Reports a setting that two files of a folder have.
    fn set_in_two_files(&mut self, position: Option<Position>, other: Option<Position>) {
        let other = self.describe_position(other, position);
        self.error(
            position,
            format!("duplicate setting, also set {other}; keep one, or move one into a profile"),
        );
    }
}

#[cfg(test)]
mod tests;
