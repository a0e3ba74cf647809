//! Turns raw values into typed ones, and collects all errors and warnings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ratewright_telemetry::has_credentials;

use crate::error::ConfigError;
use crate::raw_value::{ConfigValue, Position, RawList, RawText, RawValue};
use crate::referenced_files::{FileKind, FileReader};
use crate::source_file::SourceFile;
use crate::values::FileName;

/// Looks up an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads one set of files.
#[expect(missing_debug_implementations, reason = "the texts may hold secrets")]
pub struct Reader<'a> {
    /// The files.
    pub files: &'a [SourceFile],
    /// The environment.
    pub environment: Environment<'a>,
    /// The files that these name.
    pub referenced: &'a mut dyn FileReader,
    /// Lines that hold a secret, by file. They are not shown, whatever else is wrong in them.
    pub secret: BTreeSet<(usize, u64)>,
    /// The values of variables in settings, and how each is written: `${NAME}`. Messages show only the latter.
    expansions: BTreeMap<Position, Vec<(String, String)>>,
    /// All errors so far.
    pub errors: Vec<ConfigError>,
    /// Valid settings that are probably mistakes.
    pub warnings: Vec<ConfigError>,
    /// How many policies each file lists, of the files that have the section.
    pub listing: BTreeMap<PathBuf, usize>,
    /// Which attributes requests can have.
    pub available: AvailableAttributes,
    /// The number of a file in which variables are an error: the file comes from another machine, and names in reports would reveal
    /// variables' values.
    pub without_variables: Option<usize>,
}

/// Which attributes requests can have, according to the other sections.
#[derive(Default, Debug)]
pub struct AvailableAttributes {
    /// The ids of the routes. Empty without a gateway.
    pub routes: Vec<String>,
    /// True if tokens are verified.
    pub has_tokens: bool,
    /// True if trusted proxies name users.
    pub has_user_header: bool,
}

impl<'a> Reader<'a> {
    /// A reader of these files.
    pub fn new(
        files: &'a [SourceFile],
        referenced: &'a mut dyn FileReader,
        environment: Environment<'a>,
    ) -> Self {
        Self {
            files,
            environment,
            referenced,
            secret: BTreeSet::new(),
            expansions: BTreeMap::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            listing: BTreeMap::new(),
            available: AvailableAttributes::default(),
            without_variables: None,
        }
    }
}

impl Reader<'_> {
    /// The value of a text, or None and an error. `path` names the setting.
    pub fn read<T: ConfigValue>(&mut self, path: &str, raw: &RawValue<T>) -> Option<T> {
        self.read_with(path, raw, T::from_text)
    }

    /// The value of a text by a parser of the caller's, or None and an error.
    pub fn read_with<T: ConfigValue, U>(
        &mut self,
        path: &str,
        raw: &RawValue<T>,
        parse: impl Fn(&str) -> Result<U, String>,
    ) -> Option<U> {
        let text = self.expand(path, raw)?;
        let parsed = self.parse_expanded(raw, &text, parse);
        parsed.map_err(|why| self.invalid_value(path, raw.untyped(), &why, T::IS_SECRET)).ok()
    }

    /// Parses a text whose variables are expanded. The error does not show their values.
    pub fn parse_expanded<T, U>(
        &self,
        raw: &RawValue<T>,
        text: &str,
        parse: impl Fn(&str) -> Result<U, String>,
    ) -> Result<U, String> {
        parse(text).map_err(|why| {
            if !self.shows_part_of_variable(raw.position, &why) {
                return why;
            }
            // The error of the text as written cannot show the value.
            parse(&raw.text).err().unwrap_or_else(|| "the variable has an invalid value".to_owned())
        })
    }

    /// True if a message contains part of a variable's value. A whole value is replaced elsewhere.
    fn shows_part_of_variable(&self, position: Option<Position>, why: &str) -> bool {
        let Some(expansions) = position.and_then(|position| self.expansions.get(&position)) else {
            return false;
        };
        let shown = as_written(why, expansions).to_ascii_lowercase();
        expansions.iter().any(|(value, _)| {
            let value = value.to_ascii_lowercase();
            let mut words = value.split(|c: char| !c.is_alphanumeric() && c != '.');
            words.any(|word| word.len() >= HIDDEN_MIN && shown.contains(word))
        })
    }

    fn invalid_value(&mut self, path: &str, raw: RawText<'_>, why: &str, is_secret: bool) {
        let problem = if is_secret || has_credentials(raw.text) {
            format!("{path}: {why}")
        } else {
            format!("{path} is {:?}; {why}", shortened(raw.text))
        };
        self.error(raw.position, problem);
    }

    /// The value of a setting, if it is set.
    pub fn read_if<T: ConfigValue>(&mut self, path: &str, raw: &Option<RawValue<T>>) -> Option<T> {
        raw.as_ref().and_then(|raw| self.read(path, raw))
    }

    /// The values of a list.
    pub fn read_each<T: ConfigValue>(&mut self, path: &str, raw: &RawList<T>) -> Vec<T> {
        raw.items.iter().filter_map(|item| self.read(path, item)).collect()
    }

    /// The values of a list, if it is set.
    pub fn read_all<T: ConfigValue>(&mut self, path: &str, raw: &Option<RawList<T>>) -> Option<Vec<T>> {
        raw.as_ref().map(|raw| self.read_each(path, raw))
    }

    /// The values of a table.
    pub fn read_table<T: ConfigValue>(
        &mut self,
        path: &str,
        raw: Option<BTreeMap<String, RawValue<T>>>,
    ) -> Vec<(String, T)> {
        let table = raw.unwrap_or_default().into_iter();
        table
            .filter_map(|(name, value)| Some((name.clone(), self.read(&format!("{path}.{name}"), &value)?)))
            .collect()
    }

    /// Adds an error.
    pub fn error(&mut self, position: Option<Position>, problem: String) {
        let error = self.at(position, problem);
        self.errors.push(error);
    }

    /// Adds a warning: the setting is valid, but has no effect, or is probably a mistake.
    pub fn warn(&mut self, position: Option<Position>, problem: String) {
        let warning = self.at(position, problem);
        self.warnings.push(warning);
    }

    fn at(&self, position: Option<Position>, problem: String) -> ConfigError {
        let is_secret =
            position.is_some_and(|position| self.secret.contains(&(position.file, position.line)));
        let problem = match position.and_then(|position| self.expansions.get(&position)) {
            Some(expansions) => as_written(&problem, expansions),
            None => problem,
        };
        ConfigError::at(self.files, position, problem, is_secret)
    }

    /// Notes the value of a variable, which may be a secret. It is not shown.
    fn note_expansion(&mut self, position: Option<Position>, value: &str, written: &str) {
        let Some(position) = position else { return };
        let known = self.expansions.entry(position).or_default();
        if value.len() >= HIDDEN_MIN && !known.iter().any(|(known, _)| known == value) {
            known.push((value.to_owned(), written.to_owned()));
        }
    }

    /// Describes a position. Within the same file as `here`, the line is enough.
    pub fn describe_position(&self, there: Option<Position>, here: Option<Position>) -> String {
        let Some(there) = there else { return "elsewhere".to_owned() };
        match self.files.get(there.file) {
            Some(file) if here.is_none_or(|here| here.file != there.file) => {
                format!("in {}:{}", file.path.display(), there.line)
            }
            _ => format!("in line {}", there.line),
        }
    }

    /// A value's text, with `${NAME}` and `${NAME:-default}` replaced by variables of the environment.
    fn expand<T>(&mut self, path: &str, raw: &RawValue<T>) -> Option<String> {
        self.expand_by(path, raw.untyped(), self.environment)
    }

    fn expand_by(&mut self, path: &str, raw: RawText<'_>, variable: Environment<'_>) -> Option<String> {
        let mut text = String::new();
        let mut rest = raw.text;
        while let Some((before, after)) = rest.split_once("${") {
            if self
                .without_variables
                .is_some_and(|file| raw.position.is_none_or(|position| position.file == file))
            {
                self.error(raw.position, format!("{path}: variables are not expanded here; write the value"));
                return None;
            }
            let Some((inside, after)) = after.split_once('}') else {
                self.error(raw.position, format!("{path}: unclosed ${{; write ${{NAME}}"));
                return None;
            };
            let (name, default) =
                inside.split_once(":-").map_or((inside, None), |(name, text)| (name, Some(text)));
            if !is_variable(name) {
                let problem =
                    format!("{path}: {name:?} is not a variable name; write ${{NAME}} or ${{NAME:-default}}");
                self.error(raw.position, problem);
                return None;
            }
            let value = variable(name).filter(|value| default.is_none() || !value.is_empty());
            for value in value.iter().chain(&(self.environment)(name)) {
                self.note_expansion(raw.position, value, &format!("${{{inside}}}"));
            }
            let Some(value) = value.or_else(|| default.map(str::to_owned)) else {
                let problem = format!(
                    "{path}: the environment has no variable {name}; set it, or write a default: ${{{name}:-…}}"
                );
                self.error(raw.position, problem);
                return None;
            };
            text.push_str(before);
            text.push_str(&value);
            rest = after;
        }
        text.push_str(rest);
        Some(text)
    }

    /// True if a text is `off`, or YAML's `false`.
    pub fn is_off(&mut self, text: &str) -> bool {
        let text = self.expanded(text);
        text == "off" || text.eq_ignore_ascii_case("false")
    }

    /// A text with variables of the environment replaced, or as it is if that fails.
    pub fn expanded(&mut self, text: &str) -> String {
        let n_errors = self.errors.len();
        let expanded = self.expand("", &RawValue::<String>::without_position(text));
        self.errors.truncate(n_errors); // the setting's own reader reports them
        expanded.unwrap_or_else(|| text.to_owned())
    }

    /// Reads a URL. If `://` is written outside of variables, the variables are percent-encoded, so a password may have any
    /// character. Otherwise a variable contains the URL itself, and is inserted unchanged.
    pub fn url<T>(&mut self, path: &str, raw: &RawValue<T>) -> Option<String> {
        // Only `://` outside of variables counts: a variable's default may contain it too, and such a variable is a whole URL.
        let outside =
            raw.text.split("${").enumerate().map(|(n, text)| {
                if n == 0 { text } else { text.split_once('}').map_or("", |(_, after)| after) }
            });
        if !outside.collect::<String>().contains("://") {
            return self.expand(path, raw);
        }
        let environment = self.environment;
        let encode = |text: String| {
            percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        self.expand_by(path, raw.untyped(), &|name| environment(name).map(encode))
    }

    /// True if no file can be read; warns that this one is not checked.
    pub fn is_unread(&mut self, path: &str, position: Option<Position>, name: &str) -> bool {
        let Some(reason) = self.referenced.unavailable() else { return false };
        self.warn(position, format!("{path}: {name} is not checked: {reason}"));
        true
    }

    /// The content of a file that the configuration names.
    pub fn content(&mut self, path: &str, raw: &RawValue<FileName>) -> Option<Vec<u8>> {
        let name = self.read(path, raw)?.0;
        if self.is_unread(path, raw.position, &name) {
            return None;
        }
        let content = self.referenced.read(name.as_ref(), FileKind::Key);
        content.map_err(|problem| self.error(raw.position, format!("{path}: {problem}"))).ok()
    }
}

/// The length in bytes from which the value of a variable is hidden. Shorter ones are no secrets, and are parts of many words.
const HIDDEN_MIN: usize = 4;

/// A message with the values of variables as they are written: `${NAME}`. In one pass, since a value may be a part of a name.
fn as_written(problem: &str, expansions: &[(String, String)]) -> String {
    let forms = expansions.iter().flat_map(|(value, written)| {
        let escaped = value.escape_debug().to_string();
        let (lower, upper) = (value.to_ascii_lowercase(), value.to_ascii_uppercase());
        [written.clone(), value.clone(), escaped, lower, upper].map(|form| (form, written))
    });
    let mut forms: Vec<_> = forms.collect();
    forms.sort_by_key(|(form, _)| std::cmp::Reverse(form.len())); // a value may be a part of another
    let (mut shown, mut rest) = (String::new(), problem);
    while !rest.is_empty() {
        let found =
            forms.iter().find_map(|(form, written)| Some((rest.strip_prefix(form.as_str())?, written)));
        if let Some((after, written)) = found {
            shown.push_str(written);
            rest = after;
        } else {
            let mut chars = rest.chars();
            shown.extend(chars.next());
            rest = chars.as_str();
        }
    }
    shown
}

/// True for a valid name of an environment variable.
fn is_variable(name: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.bytes().all(known)
}

/// The beginning of a text, short enough to be shown.
fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
