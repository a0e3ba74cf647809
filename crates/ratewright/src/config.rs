//! The configuration: from policy files to what the program needs.
//!
//! ```text
//!   source ──► ratewright-config ──► SectionReader: one function for each section ──► Config
//!   opens      names, merging,       listeners, gateway, routes, store, Envoy;
//!   files      policies, clients     errors of both in one list, with positions
//! ```
//!
//! `ratewright-config` opens nothing: [`source`] reads policy files, [`referenced_files`] the files that they name. Reading never opens a
//! socket, and can be done again while the program runs.

mod changes;
mod cors;
mod envoy;
mod explain;
mod gateway;
mod listen;
mod referenced_files;
mod routes;
mod source;
mod store;
mod upstream;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ratewright_core::policy::OnFailure;
use ratewright_core::{Micros, Policies};
use ratewright_gateway::{ExplainTokens, GatewaySettings};
use ratewright_http::identify::original_request::AuthorizeProtocol;
use ratewright_http::{HeaderStyle, IdentityRules, Problem};
use ratewright_server::admin::Labels;
use ratewright_server::{Access, TokenDigest};
use tracing::level_filters::LevelFilter;

use crate::jwks::JwksSource;

use ratewright_config::program_api::file::{self, File};
use ratewright_config::program_api::raw_value::RawValue;
use ratewright_config::program_api::settings_by_path::Outline;
use ratewright_config::program_api::values::{Family, LogLevel};
use ratewright_config::program_api::yaml_errors::unknown_name;
use ratewright_config::program_api::{
    AvailableAttributes, ClientSettings, PolicyContext, Reader, RuleSets, policy_names,
};

pub(crate) use changes::{Change, Contents, changes, short as changes_in_short};
pub(crate) use envoy::{EnvoyConfig, of_text as envoy_of_text};
pub(crate) use explain::{Explainer, PolicyWords, exemptions, explain, explain_envoy};
use listen::EnabledListeners;
pub(crate) use listen::{ListenConfig, ListenerConfig};
pub(crate) use ratewright_config::program_api::schema::{SCHEMA, reference};
pub(crate) use ratewright_config::program_api::values::{LogDenials, LogFormat};
pub(crate) use ratewright_config::program_api::yaml_errors::closest;
pub(crate) use ratewright_config::{ConfigError, Environment, SourceFile};
use referenced_files::ReferencedFiles;
pub(crate) use source::Source;
pub(crate) use store::{RedisConfig, StoreConfig};

/// What the program runs with.
pub(crate) struct Config {
    pub(crate) listen: ListenConfig,
    pub(crate) stop: StopConfig,
    pub(crate) store: StoreConfig,
    pub(crate) clients: ClientsConfig,
    /// The switch for everything; the policies are off if it is.
    pub(crate) is_enabled: bool,
    /// The rule set.
    pub(crate) policies: Policies,
    /// The policies on requests in flight: the capacity of each is the most at once. No name is in both sets.
    pub(crate) permits: Policies,
    /// The reverse proxy, and where requests go.
    pub(crate) gateway: GatewaySettings,
    /// The rules for Envoy. Their policies are in the rule set.
    pub(crate) envoy: Option<EnvoyConfig>,
    /// True if the file has the section `policies`, even an empty one.
    pub(crate) lists_policies: bool,
    /// How many policies each file lists, of the files that have the section.
    listing: BTreeMap<PathBuf, usize>,
    /// True if the file has the section `routes`, even an empty one.
    pub(crate) lists_routes: bool,
    /// Which policies of ad hoc keys the file sets. The others have their defaults.
    pub(crate) ad_hoc: Vec<&'static str>,
    /// Which callers are allowed.
    pub(crate) access: Access,
    /// How proxies send the client's request to `/api/v1/authorize`. None: it is disabled.
    pub(crate) authorize: Option<AuthorizeProtocol>,
    pub(crate) answers: AnswersConfig,
    /// Labels that every series carries.
    pub(crate) labels: Labels,
    pub(crate) log: LogConfig,
    /// Where traces go, if anywhere.
    pub(crate) traces: Option<TracesConfig>,
    /// A digest of the store section, to detect changes.
    pub(crate) store_digest: String,
    /// True if all is denied while the store is out of reach.
    pub(crate) is_store_required: bool,
    /// Valid settings that have no effect, or are probably mistakes.
    pub(crate) warnings: Vec<ConfigError>,
    /// What it was read from, to tell whether that has changed.
    pub(crate) fingerprint: Fingerprint,
    /// All settings as they are written, to tell which have changed.
    outline: Outline,
}

/// How clients are identified.
pub(crate) struct ClientsConfig {
    pub(crate) rules: IdentityRules,
    /// Where the keys of tokens are fetched from, if they are.
    pub(crate) jwks: Option<JwksSource>,
}

/// Reads the sections that only the program uses, besides those that `ratewright-config` reads.
struct SectionReader<'a> {
    base: Reader<'a>,
    /// A hash of logins and certificates of the store, which its settings do not show.
    hidden_settings: DefaultHasher,
}

impl<'a> SectionReader<'a> {
    fn new(base: Reader<'a>) -> Self {
        Self { base, hidden_settings: DefaultHasher::new() }
    }
}

impl<'a> Deref for SectionReader<'a> {
    type Target = Reader<'a>;

    fn deref(&self) -> &Reader<'a> {
        &self.base
    }
}

impl DerefMut for SectionReader<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.base
    }
}

/// Denials that are logged in each second, at most.
const DENIALS: NonZeroU32 = NonZeroU32::new(10).expect("not zero");

/// Modules that log: our crates, `ratewright` for all of them, and the HTTP/2 library.
const LOGGING: [&str; 8] = [
    "ratewright",
    "ratewright_gateway",
    "ratewright_listen",
    "ratewright_rls",
    "ratewright_server",
    "ratewright_store",
    "ratewright_tower",
    "h2",
];

/// How the program stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StopConfig {
    /// How long connections are still accepted after SIGTERM.
    pub(crate) delay: Duration,
    /// How long requests in flight may take to finish after that.
    pub(crate) drain_timeout: Duration,
}

/// The two together leave some of the 30 s that Kubernetes gives a process to stop.
impl Default for StopConfig {
    fn default() -> Self {
        Self { delay: Duration::from_secs(5), drain_timeout: Duration::from_secs(20) }
    }
}

/// What responses look like.
#[derive(Clone, Debug)]
pub(crate) struct AnswersConfig {
    pub(crate) fields: HeaderStyle,
    /// The type of a denial.
    pub(crate) problem_type: String,
}

/// What is logged.
#[derive(Clone, Debug)]
pub(crate) struct LogConfig {
    pub(crate) level: LevelFilter,
    pub(crate) modules: Vec<(String, LevelFilter)>,
    pub(crate) format: LogFormat,
    pub(crate) denials: LogDenials,
}

/// Where traces go.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TracesConfig {
    pub(crate) endpoint: String,
    /// How many of the requests without a `traceparent` are traced.
    pub(crate) ratio: f64,
}

/// What a configuration was read from: the policy files, and those that they name. Equal ones mean the same, but for the
/// environment.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Fingerprint {
    files: Vec<SourceFile>,
    referenced: ReferencedFiles,
}

impl Config {
    /// The configuration of these files, or the defaults without any.
    pub(crate) fn read(source: &Source, environment: Environment<'_>) -> Result<Self, Vec<ConfigError>> {
        Self::of(&mut Fingerprint::default().again(source)?, environment)
    }

    /// The configuration that these texts describe. Files that they name are read, unless they have been.
    pub(crate) fn of(
        texts: &mut Fingerprint,
        environment: Environment<'_>,
    ) -> Result<Self, Vec<ConfigError>> {
        let mut reader = SectionReader::new(Reader::new(&texts.files, &mut texts.referenced, environment));
        let config = reader.merged_file().map(|file| reader.config(file));
        let Reader { mut errors, mut warnings, .. } = reader.base;
        texts.referenced = std::mem::take(&mut texts.referenced).forget_unused();
        errors.sort_by_key(ConfigError::order);
        warnings.sort_by_key(ConfigError::order);
        match config {
            Some(config) if errors.is_empty() => Ok(Self { warnings, fingerprint: texts.clone(), ..config }),
            _ => Err(errors),
        }
    }

    /// The listeners that are opened, by name.
    pub(crate) fn open_listeners(&self) -> impl Iterator<Item = (&'static str, &ListenerConfig)> {
        let ListenConfig { gateway, api, grpc, admin, control: _ } = &self.listen;
        let gateway = (!self.gateway.routes.is_empty()).then_some(("gateway", gateway));
        let grpc = self.envoy.is_some().then_some(("grpc", grpc));
        let admin = admin.as_ref().map(|admin| ("admin", admin));
        [gateway, Some(("api", api)), grpc, admin].into_iter().flatten()
    }

    /// The defaults, with the rules for Envoy in this file or folder.
    pub(crate) fn of_envoy(path: &Path) -> Result<Self, Vec<ConfigError>> {
        let mut referenced = ReferencedFiles::default();
        let mut reader = SectionReader::new(Reader::new(&[], &mut referenced, &|_| None));
        let config = reader.config(File { envoy: Some(envoy::section_naming(path)), ..File::default() });
        reader.errors.sort_by_key(ConfigError::order);
        let errors = reader.base.errors;
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }

    /// The configuration of this source, for commands that serve nothing. Files that it names are not read: certificates and keys may be on
    /// another machine.
    pub(crate) fn read_alone(
        source: &Source,
        environment: Environment<'_>,
    ) -> Result<Self, Vec<ConfigError>> {
        let Fingerprint { files, .. } = Fingerprint::default().again(source)?;
        Self::of_elsewhere(files, environment)
    }

    /// The configuration that texts from another machine describe. Files that they name are not read.
    pub(crate) fn of_elsewhere(
        files: Vec<SourceFile>,
        environment: Environment<'_>,
    ) -> Result<Self, Vec<ConfigError>> {
        Self::of(&mut Fingerprint { files, referenced: ReferencedFiles::elsewhere() }, environment)
    }

    /// The configuration in force with the policies of another text, and what else that has of clients and routes. Files that they name
    /// are not read. The text may come from a browser, so variables are not expanded in it: their values would show in names.
    pub(crate) fn with_policies_of(
        edited: SourceFile,
        in_force: &[SourceFile],
        environment: Environment<'_>,
    ) -> Result<Self, Vec<ConfigError>> {
        let files: Vec<_> = std::iter::once(edited).chain(in_force.iter().cloned()).collect();
        let mut referenced = ReferencedFiles::elsewhere();
        let mut reader = SectionReader::new(Reader::new(&files, &mut referenced, environment));
        reader.without_variables = Some(0);
        let (new, old) = (reader.merged_files(0..1), reader.merged_files(1..files.len()));
        let config = new.zip(old).map(|(new, old)| {
            reader.config(File {
                policies: new.policies,
                exempt: new.exempt,
                enabled: new.enabled,
                clients: new.clients.or(old.clients),
                routes: new.routes.or(old.routes),
                gateway: new.gateway.or(old.gateway),
                ..File::default()
            })
        });
        let Reader { mut errors, mut warnings, .. } = reader.base;
        errors.sort_by_key(ConfigError::order);
        warnings.retain(|warning| Some(warning.file()) == files.first().map(|file| file.path.as_path()));
        match config {
            Some(config) if errors.is_empty() => Ok(Self { warnings, ..config }),
            _ => Err(errors),
        }
    }

    /// The configuration that a text describes, without an environment.
    pub(crate) fn of_text(text: &str) -> Result<Self, Vec<ConfigError>> {
        Self::of_input("t.yaml", text.to_owned(), &|_| None)
    }

    /// The configuration that a text describes, which errors call by this name.
    pub(crate) fn of_input(
        name: &str,
        text: String,
        environment: Environment<'_>,
    ) -> Result<Self, Vec<ConfigError>> {
        let file = SourceFile { path: name.into(), text, is_profile: false };
        Self::of(&mut Fingerprint { files: vec![file], ..Fingerprint::default() }, environment)
    }
}

impl Fingerprint {
    /// The policy files as they are now, and what these texts named as it is now.
    pub(crate) fn again(&self, source: &Source) -> Result<Self, Vec<ConfigError>> {
        let files = source.read();
        let files = files.map_err(|error| vec![ConfigError::of_file(error.path, error.problem)])?;
        Ok(Self { files, referenced: self.referenced.reread() })
    }

    /// The policy files.
    pub(crate) fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The folders in which a change of the files that are named shows.
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.referenced.folders()
    }
}

impl SectionReader<'_> {
    fn config(&mut self, file: File) -> Config {
        let outline = Outline::of(&file, &mut |text| self.expanded(text));
        let store = file.store.unwrap_or_default();
        let api = file.api.unwrap_or_default();
        let clients = file.clients.unwrap_or_default();
        let has_jwt = clients.user.as_ref().is_some_and(|user| user.jwt.is_some());
        let clients = self.clients_config(clients);
        let gateway = self.gateway(file.gateway.unwrap_or_default());
        let (lists_policies, lists_routes) = (file.policies.is_some(), file.routes.is_some());
        let routes = self.routes(file.routes, &gateway, clients.rules.case);
        let routed = routes::named(&routes);
        let raw = policy_names(file.policies.as_deref());
        let enabled = self.read_if("enabled", &file.enabled).unwrap_or(true);
        let envoy = file.envoy.map(|raw| self.envoy(raw, enabled));
        let others = envoy.iter().flat_map(|envoy: &EnvoyConfig| envoy.domains.policies()).cloned();
        let brought = envoy.iter().flat_map(|_| ratewright_rls::override_policies());
        let others: Vec<_> = others.chain(brought).collect();
        self.available = AvailableAttributes {
            routes: routes::ids(&routes),
            has_tokens: clients.rules.token.is_some() || (has_jwt && self.referenced.unavailable().is_some()),
            has_user_header: clients.rules.user_header.is_some(),
        };
        let context = PolicyContext {
            others: &others,
            routed: &routed,
            enabled,
            on_failure: self.read_if("store.on_failure", &store.on_failure).unwrap_or(OnFailure::Local),
            case: clients.rules.case,
        };
        let tokens = self.read_all("api.tokens", &api.tokens).unwrap_or_default();
        let access = Access::new(tokens.iter().map(|token| TokenDigest::of(&token.0)).collect());
        let authorize = self.authorize(&api, &clients.rules, access.has_tokens());
        let exempt = file.exempt.unwrap_or_default();
        let defaults = api.defaults.unwrap_or_default();
        let store = self.store(store);
        let ad_hoc = defaults.names_set();
        let enabled = EnabledListeners {
            has_tokens: access.has_tokens(),
            has_routes: !routes.is_empty(),
            has_envoy: envoy.is_some(),
        };
        let RuleSets { policies, permits } = self.rule_sets(file.policies, defaults, exempt, context);
        Config {
            is_enabled: context.enabled,
            envoy,
            lists_policies,
            listing: std::mem::take(&mut self.listing),
            lists_routes,
            ad_hoc,
            store_digest: format!("{store:?} {:x}", self.hidden_settings.finish()),
            is_store_required: matches!(store, StoreConfig::Redis(_))
                && context.on_failure == OnFailure::Closed,
            listen: self.listen(file.listen.unwrap_or_default(), enabled),
            stop: self.stop(&file.stop_delay, &file.drain_timeout),
            gateway: GatewaySettings {
                routes: self.all_routes(routes, raw, [&policies, &permits]),
                explain_tokens: explain_tokens(&access),
                ..gateway
            },
            policies,
            permits,
            store,
            clients,
            access,
            authorize,
            answers: self.answers(&file.headers.unwrap_or_default(), &file.problem.unwrap_or_default()),
            labels: self.labels(file.metrics.unwrap_or_default()),
            log: self.log(file.log.unwrap_or_default()),
            traces: file.traces.and_then(|traces| self.traces(&traces)),
            warnings: Vec::new(),
            fingerprint: Fingerprint::default(),
            outline,
        }
    }

    /// How proxies send the client's request to `/api/v1/authorize`.
    fn authorize(
        &mut self,
        api: &file::Api,
        rules: &IdentityRules,
        has_tokens: bool,
    ) -> Option<AuthorizeProtocol> {
        let raw = api.authorize.as_ref()?;
        let protocol = self.read("api.authorize", raw)??;
        if rules.proxies.trusted.is_empty() && !has_tokens {
            self.warn(
                raw.position,
                "api.authorize: no proxy is trusted, so callers without a client certificate get 401; add your proxy's address to clients.trusted_proxies, or set api.tokens".to_owned(),
            );
        }
        if let Some(network) = rules.proxies.trusted.iter().find(|network| network.prefix_len() == 0) {
            self.warn(
                raw.position,
                format!("api.authorize: clients.trusted_proxies contains {network}, so every caller is trusted and can exhaust the limits of any client; list your proxies only"),
            );
        }
        if let Some(name) = &rules.user_header {
            self.warn(
                raw.position,
                format!("api.authorize: clients can forge their user, because the proxy relays their {name} header (clients.user.header); configure the proxy to replace {name} in requests to /api/v1/authorize"),
            );
        }
        Some(protocol)
    }

    fn clients_config(&mut self, raw: file::Clients) -> ClientsConfig {
        let ClientSettings { rules, jwks } = self.clients(raw);
        let jwks = jwks.and_then(|jwks| {
            let error = |error| self.error(jwks.position, format!("clients.user.jwt.jwks: {error}"));
            let mut source = JwksSource::new(&jwks.url).map_err(error).ok()?;
            source.refresh = jwks.refresh.unwrap_or(source.refresh);
            Some(source)
        });
        ClientsConfig { rules, jwks }
    }

    fn stop(
        &mut self,
        delay: &Option<RawValue<Micros>>,
        drain_timeout: &Option<RawValue<Micros>>,
    ) -> StopConfig {
        let default = StopConfig::default();
        StopConfig {
            delay: self.time_or_zero("stop_delay", delay).unwrap_or(default.delay),
            drain_timeout: self.time_or_zero("drain_timeout", drain_timeout).unwrap_or(default.drain_timeout),
        }
    }

    fn answers(&mut self, headers: &file::Headers, problem: &file::Problem) -> AnswersConfig {
        let default = HeaderStyle::default();
        let families = self.read_all("headers.families", &headers.families);
        let has = |family| families.as_ref().is_none_or(|families| families.contains(&family));
        let fields = HeaderStyle::default()
            .x_ratelimit(has(Family::XRateLimit))
            .ietf(has(Family::Ietf))
            .retry_after(
                self.read_if("headers.retry_after", &headers.retry_after).unwrap_or(default.retry_after),
            )
            .limit(self.read_if("headers.limit", &headers.limit).unwrap_or(default.limit));
        let kind = self.read_if("problem.type", &problem.kind);
        AnswersConfig { fields, problem_type: kind.unwrap_or_else(|| Problem::BLANK.to_owned()) }
    }

    fn labels(&mut self, raw: file::Metrics) -> Labels {
        let mut labels = BTreeMap::new();
        for (name, value) in raw.labels.unwrap_or_default() {
            let Some(text) = self.read(&format!("metrics.labels.{name}"), &value) else { continue };
            match Labels::new([(name.clone(), text.clone())].into()) {
                Ok(_) => drop(labels.insert(name, text)),
                Err(error) => self.error(value.position, format!("metrics.labels: {error}")),
            }
        }
        let labels = Labels::new(labels);
        labels.map_err(|error| self.error(None, format!("metrics.labels: {error}"))).unwrap_or_default()
    }

    fn traces(&mut self, raw: &file::Traces) -> Option<TracesConfig> {
        let position = raw.endpoint.as_ref().and_then(|endpoint| endpoint.position);
        let endpoint = self.read_if("traces.endpoint", &raw.endpoint);
        let ratio = self.read_if("traces.ratio", &raw.ratio).map_or(0.01, |ratio| ratio.0);
        let Some(endpoint) = endpoint.filter(|endpoint| endpoint.starts_with("http://")) else {
            let problem =
                "traces.endpoint must be a collector's http:// address, for example http://127.0.0.1:4318";
            self.error(position, problem.to_owned());
            return None;
        };
        if !cfg!(feature = "otel") {
            let problem =
                "traces are not supported by this build; build with --features otel, or remove traces";
            self.error(position, problem.to_owned());
        }
        Some(TracesConfig { endpoint, ratio })
    }

    fn log(&mut self, raw: file::Log) -> LogConfig {
        for (module, level) in raw.modules.iter().flatten() {
            let name = module.split("::").next().unwrap_or_default();
            if !LOGGING.contains(&name) {
                let problem = format!("log.modules: unknown module {name:?}");
                self.error(level.position, unknown_name(&problem, name, &LOGGING));
            }
        }
        LogConfig {
            level: self.read_if("log.level", &raw.level).map_or(LevelFilter::INFO, level_filter),
            modules: self
                .read_table("log.modules", raw.modules)
                .into_iter()
                .map(|(name, level)| (name, level_filter(level)))
                .collect(),
            format: self.read_if("log.format", &raw.format).unwrap_or(LogFormat::Auto),
            denials: self.read_if("log.denials", &raw.denials).unwrap_or(LogDenials::PerSecond(DENIALS)),
        }
    }
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Writes warnings to the log.
pub(crate) fn log_warnings(warnings: &[ConfigError]) {
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}

/// The tokens that may ask the gateway for explanations: those of the API.
fn explain_tokens(access: &Access) -> Option<ExplainTokens> {
    let access = access.clone();
    access.has_tokens().then(|| ExplainTokens::new(move |token| access.has_token(token)))
}

#[cfg(test)]
mod tests;
