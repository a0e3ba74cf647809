//! The section `envoy`: rules in the files of envoyproxy/ratelimit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratewright_core::policy::Mode;
use ratewright_rls::{Compat, GrpcListenerSettings, HeaderFamily, RlsSettings};
use ratewright_rls_rules::{Domains, DuplicateDomains};

use super::ConfigError;
use super::SectionReader;
use super::source::Source;
use ratewright_config::SourceFile;
use ratewright_config::program_api::envoy_rules::{EnvoyRules, is_rules_file};
use ratewright_config::program_api::file;
use ratewright_config::program_api::raw_value::{RawList, RawValue};
use ratewright_config::program_api::values::{EnvoyCompat, EnvoyHeaders, FileName};
use ratewright_config::{FileKind, FileReader};

/// The rules, and how they are kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct EnvoyConfig {
    pub(crate) domains: Arc<Domains>,
    /// False for `files: []`, by which the file says that there are no rules.
    pub(crate) names_files: bool,
    /// How questions are answered.
    pub(crate) settings: RlsSettings,
    /// How connections are kept.
    pub(crate) listening: GrpcListenerSettings,
    /// Known keys without effect, with their positions.
    pub(crate) ignored: Vec<String>,
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

impl Source {
    /// True if these are rules for Envoy, and no policy files: there is a domain, or descriptors, in one of them.
    pub(crate) fn is_envoy(&self) -> bool {
        self.read().is_ok_and(|files| files.iter().any(|file| is_rules_file(&file.text)))
    }
}

/// What a text of rules says, or everything that is wrong with it.
pub(crate) fn of_text(text: &str) -> Result<Domains, Vec<ConfigError>> {
    let file = SourceFile { path: "t.yaml".into(), text: text.to_owned(), is_profile: false };
    let EnvoyRules { domains, errors, .. } = EnvoyRules::of(&[file], DuplicateDomains::Reject);
    if errors.is_empty() { Ok(domains) } else { Err(errors) }
}

/// The section that names this file or folder alone.
pub(super) fn section_naming(path: &Path) -> file::Envoy {
    let items = vec![RawValue::without_position(&path.to_string_lossy())];
    file::Envoy { files: Some(RawList { items, position: None }), ..file::Envoy::default() }
}

fn header_family(headers: EnvoyHeaders) -> HeaderFamily {
    match headers {
        EnvoyHeaders::XRateLimit => HeaderFamily::XRateLimit,
        EnvoyHeaders::RateLimit => HeaderFamily::RateLimit,
        EnvoyHeaders::RetryAfter => HeaderFamily::RetryAfter,
    }
}

impl SectionReader<'_> {
    /// The rules of the files that the section names.
    pub(super) fn envoy(&mut self, raw: file::Envoy, enabled: bool) -> EnvoyConfig {
        let Some(names) = &raw.files else {
            self.error(None, "envoy has no files; write files: [ratelimit.yaml], or a folder".to_owned());
            return EnvoyConfig::default();
        };
        let files: Vec<_> = names.items.iter().flat_map(|name| self.rule_files(name)).collect();
        let merges = self.read_if("envoy.merge_domains", &raw.merge_domains).unwrap_or(false);
        let same = if merges { DuplicateDomains::Merge } else { DuplicateDomains::Reject };
        let EnvoyRules { domains, ignored, errors, .. } = EnvoyRules::of(&files, same);
        self.errors.extend(errors);
        let settings = RlsSettings {
            compat: match self.read_if("envoy.compat", &raw.compat) {
                Some(EnvoyCompat::AllOrNothing) => Compat::AllOrNothing,
                Some(EnvoyCompat::Strict) => Compat::Strict,
                None => Compat::default(),
            },
            headers: self
                .read_all("envoy.headers", &raw.headers)
                .unwrap_or_default()
                .into_iter()
                .map(header_family)
                .collect(),
            shadow_mode: self.read_if("envoy.shadow_mode", &raw.shadow_mode).unwrap_or_default(),
            quota_mode: self.read_if("envoy.quota_mode", &raw.quota_mode).unwrap_or_default(),
            is_off: !enabled,
        };
        let listening = self.grpc_settings(&raw);
        let names_files = !names.items.is_empty();
        EnvoyConfig { domains: Arc::new(domains), names_files, settings, listening, ignored }
    }

    /// How connections are kept.
    fn grpc_settings(&mut self, raw: &file::Envoy) -> GrpcListenerSettings {
        let default = GrpcListenerSettings::default();
        let every = self.time_or_none("envoy.keep_alive", &raw.keep_alive);
        let within = self.time("envoy.keep_alive_timeout", &raw.keep_alive_timeout);
        let grace = self.time("envoy.connection_grace", &raw.connection_grace);
        GrpcListenerSettings {
            keep_alive_every: every.unwrap_or(default.keep_alive_every),
            keep_alive_within: within.unwrap_or(default.keep_alive_within),
            age_max: self
                .time_or_none("envoy.connection_age", &raw.connection_age)
                .unwrap_or(default.age_max),
            drain_timeout: grace.unwrap_or(default.drain_timeout),
            ..default
        }
    }

    /// The files that a name means.
    fn rule_files(&mut self, name: &RawValue<FileName>) -> Vec<SourceFile> {
        const PATH: &str = "envoy.files";
        let Some(FileName(path)) = self.read(PATH, name) else { return Vec::new() };
        if self.is_unread(PATH, name.position, &path) {
            return Vec::new();
        }
        rule_files(self.referenced, path.as_ref()).unwrap_or_else(|problem| {
            self.error(name.position, format!("{PATH}: {problem}"));
            Vec::new()
        })
    }
}

/// A file, or those of a folder.
fn rule_files(referenced: &mut dyn FileReader, path: &Path) -> Result<Vec<SourceFile>, String> {
    let paths = match referenced.list(path)? {
        None => vec![path.to_owned()],
        Some(paths) if paths.is_empty() => return Err(format!("the folder {} has no files", path.display())),
        Some(paths) => paths,
    };
    let file = |path: PathBuf| {
        let content = referenced.read(&path, FileKind::Rules)?;
        let text = String::from_utf8(content);
        let text = text.map_err(|_| format!("{} is not valid UTF-8", path.display()))?;
        Ok(SourceFile { path, text, is_profile: false })
    };
    paths.into_iter().map(file).collect()
}
