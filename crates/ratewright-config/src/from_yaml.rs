//! The policy file inside a program of your own: its limits, without listeners, gateway and Redis.

use ratewright_core::Policies;
use ratewright_core::policy::OnFailure;

use crate::error::{ConfigError, ConfigErrors};
use crate::file::File;
use crate::policies::{PolicyContext, RuleSets};
use crate::raw_value::{Located, Position};
use crate::reader::{AvailableAttributes, Environment, Reader};
use crate::referenced_files::NoFiles;
use crate::source_file::SourceFile;

/// The path in errors of a text without a file.
const NAMELESS: &str = "<yaml>";

/// Something that a policy file describes.
///
/// | section | effect |
/// |---|---|
/// | `policies`, `exempt`, `enabled`, `api.defaults`, `clients.case`, `store.on_failure` | the limits |
/// | `store.local.max_keys` | the most keys in memory |
/// | `routes` | a policy listed under a route applies only to queries that name the policy |
/// | the rest of `clients`, such as `trusted_proxies` | ignored: a limiter gets attributes, not requests. With the tower layer, use `RateLimitLayer::trusted_proxies` or `RequestReader::http_settings` |
/// | all others, such as `listen` | accepted and ignored, so that one file can serve the gateway and your program |
///
/// The default `exempt` holds here too: queries with the path `/health` or `/metrics` are not limited. The rule set also has the
/// five policies of `api.defaults`, named after the algorithms; they apply only to queries that name them.
/// [`program_api::file::File`](crate::program_api::file::File) lists all settings.
///
/// Warnings, for example of a policy that can never apply, are dropped; [`Limits`] has them:
///
/// ```
/// # fn main() -> Result<(), ratewright_config::ConfigErrors> {
/// # let text = "policies: [{name: a, group: g, quota: {rate: 1/s}}, {name: b, group: g, quota: {rate: 2/s}}]";
/// use ratewright_config::{FromYaml, Limits};
/// let limits = Limits::from_yaml(text)?;
/// limits.warnings.iter().for_each(|warning| eprintln!("{warning}"));
/// # assert!(!limits.warnings.is_empty());
/// # Ok(())
/// # }
/// ```
pub trait FromYaml: Sized {
    /// Reads it from the text of a policy file, without environment variables.
    ///
    /// # Errors
    /// All errors at once, each with its line: invalid values, unknown names, and limits that this type cannot enforce: `in_flight`, which only
    /// the gateway and the tower layer enforce, and `store.redis` for a limiter in memory.
    fn from_yaml(text: &str) -> Result<Self, ConfigErrors>;
}

/// The limits of one or several policy files.
#[derive(Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The rate limits.
    pub policies: Policies,
    /// The limits on requests in flight. The capacity of a policy is the most requests that may be in flight at once.
    pub permits: Policies,
    /// Valid settings that have no effect, or are probably mistakes.
    pub warnings: Vec<ConfigError>,
    /// The most keys in memory (`store.local.max_keys`), if the file says so.
    pub keys_max: Option<usize>,
    /// The position of the first policy with `in_flight`, and its name.
    in_flight: Option<(Option<Position>, String)>,
    /// The position of `store.redis`, if the section is there.
    redis: Option<Option<Position>>,
}

impl Limits {
    /// Reads these files: later profiles override earlier files. `environment` looks up the variables of `${NAME}`.
    pub fn read(files: &[SourceFile], environment: Environment<'_>) -> Result<Self, ConfigErrors> {
        let mut referenced = NoFiles;
        let mut reader = Reader::new(files, &mut referenced, environment);
        let limits = reader.merged_file().map(|file| reader.limits(file));
        let Reader { errors, mut warnings, .. } = reader;
        warnings.sort_by_key(ConfigError::order);
        match limits {
            Some(limits) if errors.is_empty() => Ok(Self { warnings, ..limits }),
            _ => Err(ConfigErrors::new(errors)),
        }
    }

    /// Reads a text, and rejects settings that a [`Limiter`](ratewright_core::Limiter) would silently not enforce.
    fn of_text(text: &str, is_in_memory: bool) -> Result<Self, ConfigErrors> {
        let files = [nameless(text)];
        let limits = Self::read(&files, &|_| None)?;
        let mut errors = Vec::new();
        if let Some((position, name)) = &limits.in_flight {
            let problem = format!(
                "policies.{name}.in_flight is not enforced by a Limiter: only the gateway and the tower layer count requests in flight; \
                 read the file with Limits::read, or remove the policy"
            );
            errors.push(ConfigError::at(&files, *position, problem, false));
        }
        if let Some(position) = limits.redis.filter(|_| is_in_memory) {
            let problem = "store.redis is not supported by Limiter::from_yaml, which counts in memory; \
                 use Policies::from_yaml and a Failover over a RedisStore, or remove the section";
            errors.push(ConfigError::at(&files, position, problem.to_owned(), true));
        }
        if errors.is_empty() { Ok(limits) } else { Err(ConfigErrors::new(errors)) }
    }
}

/// A text without a file.
fn nameless(text: &str) -> SourceFile {
    SourceFile { path: NAMELESS.into(), text: text.to_owned(), is_profile: false }
}

/// Keeps the warnings and the limits on requests in flight. The caller must enforce the latter.
impl FromYaml for Limits {
    fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        Self::read(&[nameless(text)], &|_| None)
    }
}

impl FromYaml for Policies {
    fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        Limits::of_text(text, false).map(|limits| limits.policies)
    }
}

#[cfg(feature = "memory")]
impl FromYaml for ratewright_core::Limiter<ratewright_store::MemoryStore<ratewright_store::SystemClock>> {
    fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        use ratewright_store::{MemoryStore, SystemClock};
        let limits = Limits::of_text(text, true)?;
        let store = MemoryStore::new(SystemClock::new(), limits.keys_max.unwrap_or(1_000_000));
        Ok(Self::new(limits.policies, store))
    }
}

impl Reader<'_> {
    /// The limits of a file. Sections of the program are not read.
    fn limits(&mut self, file: File) -> Limits {
        let routes = file.routes.unwrap_or_default();
        let ids = routes.iter().filter_map(|route| route.value.id.as_ref());
        let named =
            routes.iter().filter_map(|route| route.value.policies.as_ref()).flat_map(|names| &names.items);
        let routed = named.map(|name| self.expanded(&name.text)).collect();
        // The caller knows its requests, so it may have every attribute.
        let routes = ids.map(|id| self.expanded(&id.text)).collect();
        self.available = AvailableAttributes { routes, has_tokens: true, has_user_header: true };
        let clients = file.clients.unwrap_or_default();
        let store = file.store.unwrap_or_default();
        let context = PolicyContext {
            enabled: self.read_if("enabled", &file.enabled).unwrap_or(true),
            on_failure: self.read_if("store.on_failure", &store.on_failure).unwrap_or(OnFailure::Local),
            case: self.read_if("clients.case", &clients.case).unwrap_or_default(),
            others: &[],
            routed: &routed,
        };
        let in_flight = file.policies.iter().flatten().find_map(|policy| {
            let Located { value: policy, .. } = policy;
            let name = policy.name.as_ref().map(|name| name.text.clone()).unwrap_or_default();
            policy.in_flight.as_ref().map(|in_flight| (in_flight.position, name))
        });
        let max_keys = store.local.and_then(|local| self.read_if("store.local.max_keys", &local.max_keys));
        let defaults = file.api.and_then(|api| api.defaults).unwrap_or_default();
        let RuleSets { policies, permits } =
            self.rule_sets(file.policies, defaults, file.exempt.unwrap_or_default(), context);
        Limits {
            policies,
            permits,
            warnings: Vec::new(),
            keys_max: max_keys.and_then(|n| usize::try_from(n.get()).ok()),
            in_flight,
            redis: store.redis.map(|redis| redis.url.and_then(|url| url.position)),
        }
    }
}

#[cfg(test)]
mod tests;
