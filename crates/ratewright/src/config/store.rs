//! The `store` section: where buckets live, and what happens when that place is out of reach.

use std::hash::Hash as _;

use ratewright_core::Micros;
use ratewright_store::redis::{Certificates, ServersError};
use ratewright_store::{FailoverSettings, LocalShare, RedisSettings, Servers};

use super::SectionReader;
use ratewright_config::program_api::file;
use ratewright_config::program_api::raw_value::{Position, RawList};
use ratewright_config::program_api::values::FallbackShare;

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

/// About 50 MB when all are in use, and up to 350 MB more if their algorithm is the sliding window log.
const KEYS_MAX: usize = 1_000_000;

/// The longest that a decision may be made to wait for Redis.
const DEADLINE_MAX: Micros = Micros::from_secs(10);

impl SectionReader<'_> {
    /// Where buckets live.
    pub(super) fn store(&mut self, raw: file::Store) -> StoreConfig {
        let failover = self.failover(&raw.local.unwrap_or_default());
        let Some(redis) = raw.redis else {
            return StoreConfig::Memory { n_keys_max: failover.n_keys_max };
        };
        let settings = self.settings(&redis, failover.share == LocalShare::Auto);
        match self.servers(redis) {
            Some(servers) => StoreConfig::Redis(Box::new(RedisConfig { servers, settings, failover })),
            None => StoreConfig::Memory { n_keys_max: failover.n_keys_max }, // what is wrong is noted
        }
    }

    fn failover(&mut self, raw: &file::Local) -> FailoverSettings {
        let default = FailoverSettings::default();
        let max_keys = self.read_if("store.local.max_keys", &raw.max_keys);
        let share = match self.read_if("store.local.share", &raw.share) {
            Some(FallbackShare::Fixed(share)) => LocalShare::Fixed(share),
            Some(FallbackShare::Auto) => LocalShare::Auto,
            None => default.share,
        };
        FailoverSettings::default()
            .share(share)
            .ttl(self.read_if("store.local.ttl", &raw.ttl).or(default.ttl))
            .n_keys_max(max_keys.and_then(|n| usize::try_from(n.get()).ok()).unwrap_or(KEYS_MAX))
    }

    fn settings(&mut self, redis: &file::Redis, announces: bool) -> RedisSettings {
        let default = RedisSettings::default();
        let deadline = self.read_if("store.redis.deadline", &redis.deadline);
        if deadline.is_some_and(|deadline| deadline.is_zero() || DEADLINE_MAX < deadline) {
            let position = redis.deadline.as_ref().and_then(|raw| raw.position);
            self.error(
                position,
                "store.redis.deadline must be more than 0s and at most 10s; use for example 5ms".to_owned(),
            );
        }
        let prefix = self.read_if("store.redis.prefix", &redis.prefix).filter(|prefix| {
            let visible = |b: u8| b.is_ascii_graphic() && !b"{}".contains(&b);
            let is_valid = (1..=64).contains(&prefix.len()) && prefix.bytes().all(visible);
            if let (false, Some(raw)) = (is_valid, &redis.prefix) {
                let problem = format!(
                    "store.redis.prefix is {:?}; use 1 to 64 visible characters without spaces and braces",
                    raw.text
                );
                self.error(raw.position, problem);
            }
            is_valid
        });
        RedisSettings::default()
            .prefix(prefix.unwrap_or(default.prefix))
            .deadline(deadline.map_or(default.deadline, Into::into))
            .min_ttl(self.read_if("store.redis.min_ttl", &redis.min_ttl).unwrap_or(default.min_ttl))
            .readable(self.read_if("store.redis.readable", &redis.readable).unwrap_or(default.readable))
            .announces(announces)
            .clock(None)
    }

    fn servers(&mut self, redis: file::Redis) -> Option<Servers> {
        let position = redis.url.as_ref().and_then(|urls| urls.position);
        let is_cluster = self.read_if("store.redis.cluster", &redis.cluster).unwrap_or(false);
        let urls = match &redis.url {
            None => Vec::new(),
            Some(urls) => self.urls("store.redis.url", urls)?,
        };
        let servers = match redis.sentinel {
            Some(_) if is_cluster || urls.len() > 1 => {
                let problem = "store.redis.sentinel cannot be combined with cluster: true or several urls; remove sentinel, or keep at most one url, with the master's login";
                self.error(position, problem.to_owned());
                return None;
            }
            Some(sentinel) => self.sentinel(&sentinel, urls.first().map(String::as_str))?,
            None if is_cluster || urls.len() > 1 || redis.url.is_some() && urls.is_empty() => {
                self.checked_servers("store.redis.url", position, Servers::cluster(&urls))?
            }
            None => {
                let first = urls.first().map_or("redis://127.0.0.1:6379", String::as_str);
                self.checked_servers("store.redis.url", position, Servers::single(first))?
            }
        };
        match redis.tls {
            None => Some(servers),
            Some(tls) => match self.certificates(&tls) {
                None if self.referenced.unavailable().is_some() => Some(servers),
                certificates => Some(servers.with_certificates(certificates?)),
            },
        }
    }

    fn sentinel(&mut self, raw: &file::Sentinel, login: Option<&str>) -> Option<Servers> {
        let (Some(master), Some(nodes)) = (&raw.master, &raw.nodes) else {
            let position = raw.master.as_ref().and_then(|master| master.position);
            let position = position.or_else(|| raw.nodes.as_ref()?.position);
            self.error(
                position,
                "store.redis.sentinel needs both: master: NAME, and nodes: [redis://…]".to_owned(),
            );
            return None;
        };
        let name = self.read("store.redis.sentinel.master", master)?;
        let urls = self.urls("store.redis.sentinel.nodes", nodes)?;
        self.checked_servers("store.redis.sentinel", nodes.position, Servers::sentinel(&name, &urls, login))
    }

    fn urls<T>(&mut self, path: &str, raw: &RawList<T>) -> Option<Vec<String>> {
        let urls: Option<Vec<_>> = raw.items.iter().map(|url| self.url(path, url)).collect();
        urls.hash(&mut self.hidden_settings);
        urls
    }

    fn checked_servers(
        &mut self,
        path: &str,
        position: Option<Position>,
        servers: Result<Servers, ServersError>,
    ) -> Option<Servers> {
        servers.map_err(|error| self.error(position, format!("{path}: {error}"))).ok()
    }

    fn certificates(&mut self, tls: &file::RedisTls) -> Option<Certificates> {
        if tls.cert.is_some() != tls.key.is_some() {
            let position = tls.cert.as_ref().or(tls.key.as_ref()).and_then(|name| name.position);
            self.error(position, "store.redis.tls has one of cert and key; set both, or none".to_owned());
            return None;
        }
        let mut content = |name, raw: &Option<_>| match raw {
            None => Some(None),
            Some(raw) => self.content(&format!("store.redis.tls.{name}"), raw).map(Some),
        };
        let (ca, cert, key) = (content("ca", &tls.ca), content("cert", &tls.cert), content("key", &tls.key));
        (&ca, &cert, &key).hash(&mut self.hidden_settings);
        Some(Certificates { ca: ca?, client: cert?.zip(key?) })
    }
}
