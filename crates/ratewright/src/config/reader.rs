//! Understands what is written, and collects everything that is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::DefaultHasher;
use std::path::PathBuf;

use super::error::ConfigError;
use super::named::{Kind, Named};
use super::source::SourceFile;
use super::written::{Meaning, Place, Several, Written};

/// How the environment is read: a variable's value, if it is set.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Understands one set of files.
pub(super) struct Reader<'a> {
    pub(super) files: &'a [SourceFile],
    pub(super) environment: Environment<'a>,
    /// The files that these name, as far as they have been read.
    pub(super) named: Named,
    /// A hash of logins and certificates of the store, which its settings do not show.
    pub(super) unshown: DefaultHasher,
    /// Lines that hold a secret, by file. They are not shown, whatever else is wrong in them.
    pub(super) secret: BTreeSet<(usize, u64)>,
    pub(super) errors: Vec<ConfigError>,
    /// What is valid, but probably not what was meant.
    pub(super) warnings: Vec<ConfigError>,
    /// How many policies each file lists, of the files that have the section.
    pub(super) listing: BTreeMap<PathBuf, usize>,
    /// What of the file decides whether a condition can ever hold.
    pub(super) told: Told,
}

/// What requests can tell, by what the file says elsewhere.
#[derive(Default)]
pub(super) struct Told {
    /// What routes are called. Without any there is no gateway.
    pub(super) routes: Vec<String>,
    /// True if tokens are verified.
    pub(super) has_tokens: bool,
    /// True if trusted proxies name users.
    pub(super) has_user_header: bool,
}

impl<'a> Reader<'a> {
    /// Understands these files.
    pub(super) fn new(files: &'a [SourceFile], named: Named, environment: Environment<'a>) -> Self {
        let (unshown, secret) = (DefaultHasher::new(), BTreeSet::new());
        Self {
            files,
            environment,
            named,
            unshown,
            secret,
            errors: Vec::new(),
            warnings: Vec::new(),
            listing: BTreeMap::new(),
            told: Told::default(),
        }
    }
}

impl Reader<'_> {
    /// What a value means. If it means nothing, that is noted. `path` says where it stands, in names.
    pub(super) fn read<T: Meaning>(&mut self, path: &str, written: &Written<T>) -> Option<T> {
        let text = self.expand(path, written)?;
        match T::understand(&text) {
            Ok(value) => Some(value),
            Err(why) => {
                let problem = if T::IS_SECRET {
                    format!("{path}: {why}")
                } else {
                    format!("{path} is {:?}; {why}", shortened(&written.text))
                };
                self.wrong(written.place, problem);
                None
            }
        }
    }

    /// What a value means, if there is one.
    pub(super) fn read_if<T: Meaning>(&mut self, path: &str, written: &Option<Written<T>>) -> Option<T> {
        written.as_ref().and_then(|written| self.read(path, written))
    }

    /// What each of several values means.
    pub(super) fn read_each<T: Meaning>(&mut self, path: &str, written: &Several<T>) -> Vec<T> {
        written.items.iter().filter_map(|item| self.read(path, item)).collect()
    }

    /// What each of several values means, if there are any.
    pub(super) fn read_all<T: Meaning>(
        &mut self,
        path: &str,
        written: &Option<Several<T>>,
    ) -> Option<Vec<T>> {
        written.as_ref().map(|written| self.read_each(path, written))
    }

    /// What the values of a table mean.
    pub(super) fn read_table<T: Meaning>(
        &mut self,
        path: &str,
        written: Option<BTreeMap<String, Written<T>>>,
    ) -> Vec<(String, T)> {
        let table = written.unwrap_or_default().into_iter();
        table
            .filter_map(|(name, value)| Some((name.clone(), self.read(&format!("{path}.{name}"), &value)?)))
            .collect()
    }

    /// Notes that something is wrong.
    pub(super) fn wrong(&mut self, place: Option<Place>, problem: String) {
        let error = self.at(place, problem);
        self.errors.push(error);
    }

    /// Notes that something is valid, but can never act, or is probably not what was meant.
    pub(super) fn warn(&mut self, place: Option<Place>, problem: String) {
        let warning = self.at(place, problem);
        self.warnings.push(warning);
    }

    fn at(&self, place: Option<Place>, problem: String) -> ConfigError {
        let is_secret = place.is_some_and(|place| self.secret.contains(&(place.file, place.line)));
        ConfigError::at(self.files, place, problem, is_secret)
    }

    /// Where something stands, in words. Within the same file as `here`, the line is enough.
    pub(super) fn whereabouts(&self, there: Option<Place>, here: Option<Place>) -> String {
        let Some(there) = there else { return "elsewhere".to_owned() };
        match self.files.get(there.file) {
            Some(file) if here.is_none_or(|here| here.file != there.file) => {
                format!("in {}:{}", file.path.display(), there.line)
            }
            _ => format!("in line {}", there.line),
        }
    }

    /// A value's text, with `${NAME}` and `${NAME:-default}` replaced by variables of the environment.
    fn expand<T>(&mut self, path: &str, written: &Written<T>) -> Option<String> {
        self.expand_by(path, written, self.environment)
    }

    fn expand_by<T>(
        &mut self,
        path: &str,
        written: &Written<T>,
        variable: Environment<'_>,
    ) -> Option<String> {
        let mut text = String::new();
        let mut rest = written.text.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            let Some((inside, after)) = after.split_once('}') else {
                self.wrong(written.place, format!("{path}: a ${{ is not closed; write ${{NAME}}"));
                return None;
            };
            let (name, default) =
                inside.split_once(":-").map_or((inside, None), |(name, text)| (name, Some(text)));
            if !is_variable(name) {
                let problem = format!(
                    "{path}: {name:?} is no name of a variable; write ${{NAME}} or ${{NAME:-default}}"
                );
                self.wrong(written.place, problem);
                return None;
            }
            let value = variable(name).filter(|value| default.is_none() || !value.is_empty());
            let Some(value) = value.or_else(|| default.map(str::to_owned)) else {
                let problem = format!(
                    "{path}: the environment has no variable {name}; set it, or write a default: ${{{name}:-…}}"
                );
                self.wrong(written.place, problem);
                return None;
            };
            text.push_str(before);
            text.push_str(&value);
            rest = after;
        }
        text.push_str(rest);
        Some(text)
    }

    /// True if a text says that there is to be none of something.
    pub(super) fn is_off(&mut self, text: &str) -> bool {
        self.expanded(text) == "off"
    }

    /// A text with variables of the environment replaced, or as it is if that fails.
    pub(super) fn expanded(&mut self, text: &str) -> String {
        let n_errors = self.errors.len();
        let expanded = self.expand("", &Written::<String>::unwritten(text));
        self.errors.truncate(n_errors); // who reads it for good will note them
        expanded.unwrap_or_else(|| text.to_owned())
    }

    /// A url's text. Within an address a password may have any character; an address as a whole stays as it is.
    pub(super) fn url<T>(&mut self, path: &str, written: &Written<T>) -> Option<String> {
        // A variable's default may be an address too, and then the variable is a whole one.
        let outside =
            written.text.split("${").enumerate().map(|(n, text)| {
                if n == 0 { text } else { text.split_once('}').map_or("", |(_, after)| after) }
            });
        if !outside.collect::<String>().contains("://") {
            return self.expand(path, written);
        }
        let environment = self.environment;
        let encode = |text: String| {
            percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        self.expand_by(path, written, &|name| environment(name).map(encode))
    }

    /// Warns that a file of another machine is not checked.
    pub(super) fn warn_unread(&mut self, path: &str, place: Option<Place>, name: &str) {
        self.warn(place, format!("{path}: {name} is not checked, since the file is in the container only"));
    }

    /// The content of a file that the configuration names.
    pub(super) fn content(
        &mut self,
        path: &str,
        written: &Written<super::meaning::FileName>,
    ) -> Option<Vec<u8>> {
        let name = self.read(path, written)?.0;
        if self.named.are_elsewhere() {
            self.warn_unread(path, written.place, &name);
            return None;
        }
        let content = self.named.content(name.as_ref(), Kind::Key);
        content.map_err(|problem| self.wrong(written.place, format!("{path}: {problem}"))).ok()
    }
}

/// True if a variable of the environment can be called so.
fn is_variable(name: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.bytes().all(known)
}

/// A text as it may be shown: not longer than one reads.
fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn a_device_that_never_ends_is_no_certificate() {
        let text = "clients: {user: {jwt: {public_key: /dev/zero}}}\n";
        let errors = Config::of_text(text).err().unwrap_or_default();
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "t.yaml:1:36: clients.user.jwt.public_key: /dev/zero has more than 1048576 bytes; keys and certificates are shorter"
            ]
        );
    }
}
