//! The configuration: from what a person wrote to what the program needs.
//!
//! Two stages. [`mod@file`] has the file as written, strings and numbers, nothing understood. Here each section
//! is understood by a function of its own, and everything that is wrong is told at once, with its place.
//! Reading never opens a socket.

mod file;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde_saphyr::{Location, Spanned};
use tollgate_core::{Algorithm, AttributeName, Mode, Policies, Policy, Quota, Rate, Refill, Selector};

use tollgate_server::admin::Labels;
use tollgate_store::{FailoverSettings, RedisSettings, Servers};
use tracing::level_filters::LevelFilter;

use file::Place;

/// What the program runs with.
#[derive(Debug)]
pub(crate) struct Config {
    /// Where the REST door listens.
    pub(crate) listen_api: SocketAddr,
    /// Where the admin door listens.
    pub(crate) listen_admin: SocketAddr,
    /// What every series of the metrics carries.
    pub(crate) labels: Labels,
    /// The rule set.
    pub(crate) policies: Policies,
    /// Where buckets live.
    pub(crate) store: StoreConfig,
    /// How much is logged.
    pub(crate) log: LevelFilter,
}

/// Where buckets live.
#[derive(Debug)]
pub(crate) enum StoreConfig {
    /// In this process.
    Memory {
        /// The most keys.
        n_keys_max: usize,
    },
    /// In Redis, and in this process while that is out of reach.
    Redis(Box<RedisConfig>),
}

/// How Redis is used.
#[derive(Debug)]
pub(crate) struct RedisConfig {
    /// Which Redis.
    pub(crate) servers: Servers,
    /// How it is used.
    pub(crate) settings: RedisSettings,
    /// What happens without it.
    pub(crate) failover: FailoverSettings,
}

/// Something wrong in the file, and where.
#[derive(Debug)]
pub(crate) struct ConfigError {
    file: PathBuf,
    place: Option<Location>,
    problem: String,
}

/// Collects what is wrong in one file.
struct Reader<'a> {
    file: &'a Path,
    errors: Vec<ConfigError>,
}

const LISTEN_API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const LISTEN_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// About 50 MB when all are in use, and up to 350 MB more if their algorithm is the sliding window log.
const KEYS_MAX: usize = 1_000_000;

impl Config {
    /// The configuration of a file, or the defaults without one.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self, Vec<ConfigError>> {
        let Some(path) = file else { return Self::parse(Path::new("defaults"), "") };
        let text = std::fs::read_to_string(path).map_err(|error| {
            let problem = format!("cannot read the file: {error}");
            vec![ConfigError { file: path.to_owned(), place: None, problem }]
        })?;
        Self::parse(path, &text)
    }

    /// The configuration that a text describes.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, Vec<ConfigError>> {
        let file = file::parse(text).map_err(|error| {
            let problem = plain(&error.without_snippet().to_string());
            vec![ConfigError { file: path.to_owned(), place: error.location(), problem }]
        })?;
        let mut reader = Reader { file: path, errors: Vec::new() };
        let config = reader.config(file);
        reader.errors.sort_by_key(|error| error.place.map(|place| (place.line(), place.column())));
        if reader.errors.is_empty() { Ok(config) } else { Err(reader.errors) }
    }
}

/// The parser's word without the place, which stands before it already, and without advice to programmers.
fn plain(message: &str) -> String {
    let message = message.split_once(" at line ").map_or(message, |(before, _)| before);
    if message == "invalid i64" {
        return "not a whole number, or far too large; use 1 to 4294967295".to_owned();
    }
    message.split_once(", set DuplicateKeyPolicy").map_or(message, |(before, _)| before).to_owned()
}

impl Reader<'_> {
    fn config(&mut self, file: file::File) -> Config {
        let mode = if file.enabled.unwrap_or(true) { Mode::Enforce } else { Mode::Off };
        let on_failure = self.on_failure(file.store.on_failure);
        let policies = self.defaults(file.api.defaults).into_iter();
        let policies = policies.map(|policy| policy.in_mode(mode).failing(on_failure)).collect();
        Config {
            listen_api: self.address("api", file.listen.api).unwrap_or(LISTEN_API),
            listen_admin: self.address("admin", file.listen.admin).unwrap_or(LISTEN_ADMIN),
            labels: self.labels(file.metrics.labels),
            policies: Policies::new(policies).expect("five names, all different"),
            store: self.store(file.store),
            log: match file.log.level {
                Some(file::Level::Off) => LevelFilter::OFF,
                Some(file::Level::Error) => LevelFilter::ERROR,
                Some(file::Level::Warn) => LevelFilter::WARN,
                None | Some(file::Level::Info) => LevelFilter::INFO,
                Some(file::Level::Debug) => LevelFilter::DEBUG,
                Some(file::Level::Trace) => LevelFilter::TRACE,
            },
        }
    }

    fn address(&mut self, door: &str, text: Option<Spanned<String>>) -> Option<SocketAddr> {
        let text = text?;
        let address = text.value.parse().ok();
        if address.is_none() {
            let problem = format!(
                "listen.{door} is {:?}; use an address and a port, for example 127.0.0.1:8080",
                text.value
            );
            self.wrong(text.place(), problem);
        }
        address
    }

    fn labels(&mut self, written: Option<Spanned<BTreeMap<String, String>>>) -> Labels {
        let Some(written) = written else { return Labels::default() };
        let place = written.place();
        let labels = Labels::new(written.value);
        labels.map_err(|error| self.wrong(place, format!("metrics.labels: {error}"))).unwrap_or_default()
    }

    /// The policies behind ad hoc keys: one for each algorithm, under the algorithm's name.
    fn defaults(&mut self, defaults: file::Defaults) -> Vec<Policy> {
        let bucket = || file::Quota::of("10/s", Some(100));
        let window = || file::Quota::of("100/60s", None);
        let quotas = [
            ("token_bucket", defaults.token_bucket.unwrap_or_else(bucket)),
            ("leaky_bucket", defaults.leaky_bucket.unwrap_or_else(bucket)),
            ("sliding_window", defaults.sliding_window.unwrap_or_else(window)),
            ("sliding_window_counter", defaults.sliding_window_counter.unwrap_or_else(window)),
            ("fixed_window", defaults.fixed_window.unwrap_or_else(window)),
        ];
        quotas.into_iter().filter_map(|(name, quota)| self.default_policy(name, quota)).collect()
    }

    fn default_policy(&mut self, name: &str, written: file::Quota) -> Option<Policy> {
        let quota = self.quota(name, written)?;
        let policy = Policy::new(name, quota).expect("an algorithm's name is a policy's name");
        Some(policy.covering(Selector::Named).by(&[AttributeName::Key]))
    }

    fn quota(&mut self, name: &str, written: file::Quota) -> Option<Quota> {
        let path = format!("api.defaults.{name}");
        let rate = written.rate.value.parse::<Rate>();
        let rate =
            rate.map_err(|error| self.wrong(written.rate.place(), format!("{path}.rate: {error}"))).ok()?;
        let algorithm = match (Algorithm::named(name)?, written.refill) {
            (Algorithm::TokenBucket(_), Some(file::Refill::Stepped)) => {
                Algorithm::TokenBucket(Refill::Stepped)
            }
            (algorithm, None) => algorithm,
            (algorithm @ Algorithm::TokenBucket(_), Some(file::Refill::Smooth)) => algorithm,
            (_, Some(_)) => {
                self.wrong(
                    written.rate.place(),
                    format!("{path}.refill: only token_bucket refills; leave refill out"),
                );
                return None;
            }
        };
        let quota = Quota::new(algorithm, rate);
        let quota =
            quota.map_err(|error| self.wrong(written.rate.place(), format!("{path}: {error}"))).ok()?;
        let Some(burst) = written.burst else { return Some(quota) };
        let Some(units) = u32::try_from(burst.value).ok().and_then(NonZeroU32::new) else {
            let problem = match burst.value {
                0 => format!("{path}.burst is 0; a burst of 0 would deny everything. Use at least 1"),
                burst => format!("{path}.burst is {burst}; use a whole number from 1 to {}", u32::MAX),
            };
            self.wrong(burst.place(), problem);
            return None;
        };
        let quota = quota.with_burst(units);
        quota.map_err(|error| self.wrong(burst.place(), format!("{path}.burst: {error}"))).ok()
    }

    fn wrong(&mut self, place: Option<Location>, problem: String) {
        self.errors.push(ConfigError { file: self.file.to_owned(), place, problem });
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(place) = self.place {
            write!(f, "{}:{}:", place.line(), place.column())?;
        }
        write!(f, " {}", self.problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let shown = match Config::parse(Path::new("t.yaml"), text) {
            Ok(config) => {
                let quota = |name: &&str| {
                    let policy = config.policies.named(name).unwrap();
                    let quota = policy.limits()[0].quota();
                    format!("{name} {} of {}", quota.rate(), quota.capacity())
                };
                let quotas: Vec<_> = Algorithm::NAMES.iter().map(quota).collect();
                format!("{} {}\n{}", config.listen_api, config.listen_admin, quotas.join("\n"))
            }
            Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn an_empty_file_is_a_working_limiter() {
        for text in ["", "# nothing\n", "api: {}\nlisten: {}\n"] {
            check(
                text,
                expect![[r#"
                    127.0.0.1:8080 127.0.0.1:9090
                    token_bucket 10/s of 100
                    leaky_bucket 10/s of 100
                    sliding_window 100/min of 100
                    sliding_window_counter 100/min of 100
                    fixed_window 100/min of 100"#]],
            );
        }
    }

    #[test]
    fn what_is_written_counts() {
        check(
            "listen: {api: '[::1]:9000', admin: '[::1]:9001'}\napi:\n  defaults:\n    token_bucket: {rate: 1/6s, burst: 10, refill: stepped}\n    fixed_window: {rate: 5/h}\n",
            expect![[r#"
                [::1]:9000 [::1]:9001
                token_bucket 1/6s of 10
                leaky_bucket 10/s of 100
                sliding_window 100/min of 100
                sliding_window_counter 100/min of 100
                fixed_window 5/h of 5"#]],
        );
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_with_its_place() {
        check(
            "listen:\n  api: nowhere\napi:\n  defaults:\n    token_bucket: {rate: 10/s, burst: 0}\n    sliding_window: {rate: 20000/s}\n    fixed_window: {rate: often}\n    leaky_bucket: {rate: 1/year, burst: 200}\n    sliding_window_counter: {rate: 5/s, burst: 9}\n",
            expect![[r#"
                t.yaml:2:8: listen.api is "nowhere"; use an address and a port, for example 127.0.0.1:8080
                t.yaml:5:39: api.defaults.token_bucket.burst is 0; a burst of 0 would deny everything. Use at least 1
                t.yaml:6:28: api.defaults.sliding_window: sliding_window remembers every charge, so it takes at most 10000 units, not 20000; use sliding_window_counter for more
                t.yaml:7:26: api.defaults.fixed_window.rate: a rate is units/time, for example 10/s, 1/6s or 250/min
                t.yaml:8:41: api.defaults.leaky_bucket.burst: 200 units at 1/year take over 100 years to come back; raise the rate or lower the burst
                t.yaml:9:48: api.defaults.sliding_window_counter.burst: sliding_window_counter has no burst apart from its units; leave burst out, or use token_bucket"#]],
        );
    }

    #[test]
    fn a_redis_section_means_redis_also_if_nothing_stands_in_it() {
        let place = |text: &str| match Config::parse(Path::new("t.yaml"), text) {
            Ok(Config { store: StoreConfig::Redis(redis), .. }) => format!("{:?}", redis.servers),
            Ok(_) => "memory".to_owned(),
            Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        };
        assert_eq!(place("store:\n"), "memory");
        for text in
            ["store:\n  redis:\n", "store: {redis: {}}\n", "store: {redis: {url: 'redis://127.0.0.1'}}\n"]
        {
            assert_eq!(place(text), "Servers(127.0.0.1:6379)", "{text}");
        }
        assert_eq!(
            place("store: {redis: {url: ['redis://a', 'redis://b:7000']}}\n"),
            "Servers(a:6379, b:7000)"
        );
        assert_eq!(
            place("store: {redis: {sentinel: {master: m, nodes: ['redis://s:26379']}}}\n"),
            "Servers(m by sentinel s:26379)"
        );
        assert_eq!(
            place("store: {redis: {url: []}}\n"),
            "t.yaml:1:22: store.redis.url: there is no address; use for example redis://127.0.0.1:6379"
        );
        assert_eq!(
            place(
                "store: {redis: {url: 'redis://a', cluster: true, sentinel: {master: m, nodes: ['redis://s']}}}\n"
            ),
            "t.yaml:1:22: store.redis has a sentinel and a cluster; a Sentinel's master has one url, for its login"
        );
    }

    #[test]
    fn a_password_from_the_environment_may_have_any_character() {
        // The only variable that is always there and has a slash in it.
        let text = "store: {redis: {url: 'redis://user:${PATH}@127.0.0.1:6390'}}\n";
        let config = Config::parse(Path::new("t.yaml"), text).unwrap();
        assert!(
            matches!(config.store, StoreConfig::Redis(redis) if format!("{:?}", redis.servers) == "Servers(127.0.0.1:6390)")
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let refused = |text: &str, expected: &str| {
            let errors = Config::parse(Path::new("t.yaml"), text).unwrap_err();
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        };
        refused(
            "enable: true\n",
            "t.yaml:1:1: unknown field `enable`, expected one of enabled, listen, store, api, metrics, log",
        );
        refused(
            "metrics: {labels: {policy: x}}\n",
            "t.yaml:1:19: metrics.labels: the label \"policy\" is used by Tollgate itself; choose another name",
        );
        refused("api: {defaults: {token_bucket: {burst: 5}}}\n", "t.yaml:1:33: missing field `rate`");
        refused(
            "api: {defaults: {token_bucket: {rate: 5/s, burst: -1}}}\n",
            "t.yaml:1:51: api.defaults.token_bucket.burst is -1; use a whole number from 1 to 4294967295",
        );
        refused("enabled: [\n", "t.yaml:1:10: expected string scalar");
        refused("enabled: true\nenabled: false\n", "t.yaml:2:1: duplicate mapping key: enabled");
        refused(
            "api: {defaults: {fixed_window: {rate: 5/s, refill: smooth}}}\n",
            "t.yaml:1:39: api.defaults.fixed_window.refill: only token_bucket refills; leave refill out",
        );
    }
}
