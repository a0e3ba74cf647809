//! The section `envoy`: rules in the files of envoyproxy/ratelimit.

mod tree;
mod yaml;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratewright_core::Mode;
use ratewright_rls::{Listening, RlsSettings};
use ratewright_rls_rules::{Descriptor, Domains, DuplicateDomains};

use super::error::ConfigError;
use super::file;
use super::meaning::FileName;
use super::named::{Kind, Named};
use super::plain;
use super::reader::Reader;
use super::source::{Source, SourceFile};
use super::written::{Place, Several, Written, in_file};
use tree::Understanding;
use yaml::is_one;

/// The rules, and how they are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvoyConfig {
    pub(crate) domains: Arc<Domains>,
    /// False for `files: []`, by which the file says that there are no rules.
    pub(crate) names_files: bool,
    /// How questions are answered.
    pub(crate) settings: RlsSettings,
    /// How connections are kept.
    pub(crate) listening: Listening,
    /// What stands in the files and means nothing, with its place.
    pub(crate) idle: Vec<String>,
}

impl EnvoyConfig {
    /// The rules with a limit of zero: the names that their policies would have, and their modes.
    pub(super) fn blocked(&self) -> impl Iterator<Item = (String, Mode)> {
        let rules = self.domains.names().flat_map(|domain| self.domains.rules(domain));
        rules.filter_map(|rule| {
            let mode = match rule.is_shadow() {
                _ if self.settings.is_off => Mode::Off,
                true => Mode::Shadow,
                false => Mode::Enforce,
            };
            Some((rule.blocked_name()?.to_owned(), mode))
        })
    }
}

/// What some files say.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) domains: Domains,
    /// The same, as they are written.
    pub(super) written: Vec<(String, Vec<Descriptor>)>,
    pub(super) idle: Vec<String>,
    pub(super) errors: Vec<ConfigError>,
}

impl Source {
    /// True if these are rules for Envoy, and no policy files: there is a domain, or descriptors, in one of them.
    pub(crate) fn is_envoy(&self) -> bool {
        self.read().is_ok_and(|files| files.iter().any(|file| is_one(&file.text)))
    }
}

/// What a text of rules says, or everything that is wrong with it.
pub(crate) fn of_text(text: &str) -> Result<Domains, Vec<ConfigError>> {
    let file = SourceFile { path: "t.yaml".into(), text: text.to_owned(), is_profile: false };
    let Rules { domains, errors, .. } = Rules::of(&[file], DuplicateDomains::Reject);
    if errors.is_empty() { Ok(domains) } else { Err(errors) }
}

/// The descriptors of the domains in these files and folders, or everything that is wrong with them. Files of the same domain are one.
pub(crate) fn written(paths: &[PathBuf]) -> Result<Vec<(String, Vec<Descriptor>)>, Vec<ConfigError>> {
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    for path in paths {
        match rule_files(&mut Named::default(), path) {
            Ok(found) => files.extend(found),
            Err(problem) => unread.push(ConfigError::of_file(path.clone(), problem)),
        }
    }
    let Rules { written, mut errors, .. } = Rules::of(&files, DuplicateDomains::Merge);
    errors.extend(unread);
    if errors.is_empty() { Ok(written) } else { Err(errors) }
}

impl Rules {
    /// What these files say, and everything that is wrong with them.
    pub(super) fn of(files: &[SourceFile], same: DuplicateDomains) -> Self {
        let mut rules = Self::default();
        for number in 0..files.len() {
            in_file(number, || rules.add(files, number, same));
        }
        rules
    }

    fn add(&mut self, files: &[SourceFile], number: usize, same: DuplicateDomains) {
        let Some(file) = files.get(number) else { return };
        let begin = Place { file: number, line: 1, column: 1 };
        let error = |place: Option<Place>, problem| {
            ConfigError::at(files, Some(place.unwrap_or(begin)), problem, false)
        };
        let root = match yaml::parse(&file.text) {
            Ok(root) => root,
            Err(wrong) => {
                let place = wrong.location().and_then(Place::of);
                return self.errors.push(error(place, plain::words(&wrong)));
            }
        };
        let mut understanding = Understanding::default();
        let descriptors = understanding.root(&root);
        let domain = root.domain.as_ref().map_or("", |domain| domain.text.as_str());
        let added = self.domains.add(domain, &descriptors, same);
        let Understanding { wrong, idle } = understanding;
        self.errors.extend(wrong.into_iter().map(|(place, problem)| error(place, problem)));
        let refused = added.err().unwrap_or_default();
        self.errors.extend(refused.iter().map(|wrong| error(tree::place(&root, wrong), wrong.to_string())));
        self.idle.extend(idle.into_iter().map(|(place, remark)| error(place, remark).to_string()));
        match self.written.iter_mut().find(|(known, _)| known == domain) {
            Some((_, known)) => known.extend(descriptors),
            None => self.written.push((domain.to_owned(), descriptors)),
        }
    }
}

impl file::Envoy {
    /// The section that names this file or folder alone.
    pub(super) fn naming(path: &Path) -> Self {
        let items = vec![Written::unwritten(&path.to_string_lossy())];
        Self { files: Some(Several { items, place: None }), ..Self::default() }
    }
}

impl Reader<'_> {
    /// The rules of the files that the section names.
    pub(super) fn envoy(&mut self, written: file::Envoy, enabled: bool) -> EnvoyConfig {
        let Some(names) = &written.files else {
            self.wrong(None, "envoy has no files; write files: [ratelimit.yaml], or a folder".to_owned());
            return EnvoyConfig::default();
        };
        let files: Vec<_> = names.items.iter().flat_map(|name| self.rule_files(name)).collect();
        let merges = self.read_if("envoy.merge_domains", &written.merge_domains).unwrap_or(false);
        let same = if merges { DuplicateDomains::Merge } else { DuplicateDomains::Reject };
        let Rules { domains, idle, errors, .. } = Rules::of(&files, same);
        self.errors.extend(errors);
        let settings = RlsSettings {
            compat: self.read_if("envoy.compat", &written.compat).unwrap_or_default(),
            headers: self.read_all("envoy.headers", &written.headers).unwrap_or_default(),
            shadow_mode: self.read_if("envoy.shadow_mode", &written.shadow_mode).unwrap_or_default(),
            quota_mode: self.read_if("envoy.quota_mode", &written.quota_mode).unwrap_or_default(),
            is_off: !enabled,
        };
        let listening = self.grpc_listening(&written);
        let names_files = !names.items.is_empty();
        EnvoyConfig { domains: Arc::new(domains), names_files, settings, listening, idle }
    }

    /// How connections are kept.
    fn grpc_listening(&mut self, written: &file::Envoy) -> Listening {
        let default = Listening::default();
        let every = self.time_or_none("envoy.keep_alive", &written.keep_alive);
        let within = self.time("envoy.keep_alive_timeout", &written.keep_alive_timeout);
        let grace = self.time("envoy.connection_grace", &written.connection_grace);
        Listening {
            keep_alive_every: every.unwrap_or(default.keep_alive_every),
            keep_alive_within: within.unwrap_or(default.keep_alive_within),
            age_max: self
                .time_or_none("envoy.connection_age", &written.connection_age)
                .unwrap_or(default.age_max),
            drain_timeout: grace.unwrap_or(default.drain_timeout),
            ..default
        }
    }

    /// The files that a name means.
    fn rule_files(&mut self, name: &Written<FileName>) -> Vec<SourceFile> {
        const PATH: &str = "envoy.files";
        let Some(FileName(path)) = self.read(PATH, name) else { return Vec::new() };
        if self.named.are_elsewhere() {
            self.warn_unread(PATH, name.place, &path);
            return Vec::new();
        }
        rule_files(&mut self.named, path.as_ref()).unwrap_or_else(|problem| {
            self.wrong(name.place, format!("{PATH}: {problem}"));
            Vec::new()
        })
    }
}

/// A file, or those of a folder.
fn rule_files(named: &mut Named, path: &Path) -> Result<Vec<SourceFile>, String> {
    let paths = match named.list(path)? {
        None => vec![path.to_owned()],
        Some(paths) if paths.is_empty() => return Err(format!("the folder {} has no files", path.display())),
        Some(paths) => paths,
    };
    let file = |path: PathBuf| {
        let content = named.content(&path, Kind::Rules)?;
        let text = String::from_utf8(content);
        let text = text.map_err(|_| format!("{} is no text in UTF-8", path.display()))?;
        Ok(SourceFile { path, text, is_profile: false })
    };
    paths.into_iter().map(file).collect()
}
