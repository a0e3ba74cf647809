//! The `store` section: where buckets live, and what happens when that place is out of reach.

use std::hash::Hash as _;

use ratewright_core::Micros;
use ratewright_store::redis::{Certificates, ServersError};
use ratewright_store::{FailoverSettings, LocalShare, RedisSettings, Servers};

use super::file;
use super::reader::Reader;
use super::written::{Place, Several};

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

impl Reader<'_> {
    /// Where buckets live.
    pub(super) fn store(&mut self, written: file::Store) -> StoreConfig {
        let failover = self.failover(&written.local.unwrap_or_default());
        let Some(redis) = written.redis else {
            return StoreConfig::Memory { n_keys_max: failover.n_keys_max };
        };
        let settings = self.settings(&redis, failover.share == LocalShare::Auto);
        match self.servers(redis) {
            Some(servers) => StoreConfig::Redis(Box::new(RedisConfig { servers, settings, failover })),
            None => StoreConfig::Memory { n_keys_max: failover.n_keys_max }, // what is wrong is noted
        }
    }

    fn failover(&mut self, written: &file::Local) -> FailoverSettings {
        let default = FailoverSettings::default();
        let max_keys = self.read_if("store.local.max_keys", &written.max_keys);
        FailoverSettings::default()
            .share(self.read_if("store.local.share", &written.share).unwrap_or(default.share))
            .ttl(self.read_if("store.local.ttl", &written.ttl).or(default.ttl))
            .n_keys_max(max_keys.and_then(|n| usize::try_from(n.get()).ok()).unwrap_or(KEYS_MAX))
    }

    fn settings(&mut self, redis: &file::Redis, announces: bool) -> RedisSettings {
        let default = RedisSettings::default();
        let deadline = self.read_if("store.redis.deadline", &redis.deadline);
        if deadline.is_some_and(|deadline| deadline.is_zero() || DEADLINE_MAX < deadline) {
            let place = redis.deadline.as_ref().and_then(|written| written.place);
            self.wrong(
                place,
                "store.redis.deadline must be more than 0s and at most 10s; use for example 5ms".to_owned(),
            );
        }
        let prefix = self.read_if("store.redis.prefix", &redis.prefix).filter(|prefix| {
            let visible = |b: u8| b.is_ascii_graphic() && !b"{}".contains(&b);
            let is_sound = (1..=64).contains(&prefix.len()) && prefix.bytes().all(visible);
            if !is_sound {
                let problem =
                    format!("store.redis.prefix is {prefix:?}; use 1 to 64 visible characters without blanks and braces");
                self.wrong(redis.prefix.as_ref().and_then(|written| written.place), problem);
            }
            is_sound
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
        let place = redis.url.as_ref().and_then(|urls| urls.place);
        let is_cluster = self.read_if("store.redis.cluster", &redis.cluster).unwrap_or(false);
        let urls = match &redis.url {
            None => Vec::new(),
            Some(urls) => self.urls("store.redis.url", urls)?,
        };
        let servers = match redis.sentinel {
            Some(_) if is_cluster || urls.len() > 1 => {
                let problem = "store.redis has a sentinel and a cluster; a Sentinel's master has one url, for its login";
                self.wrong(place, problem.to_owned());
                return None;
            }
            Some(sentinel) => self.sentinel(&sentinel, urls.first().map(String::as_str))?,
            None if is_cluster || urls.len() > 1 || redis.url.is_some() && urls.is_empty() => {
                self.understood("store.redis.url", place, Servers::cluster(&urls))?
            }
            None => {
                let first = urls.first().map_or("redis://127.0.0.1:6379", String::as_str);
                self.understood("store.redis.url", place, Servers::single(first))?
            }
        };
        match redis.tls {
            None => Some(servers),
            Some(tls) => match self.certificates(&tls) {
                None if self.named.are_elsewhere() => Some(servers),
                certificates => Some(servers.with_certificates(certificates?)),
            },
        }
    }

    fn sentinel(&mut self, written: &file::Sentinel, login: Option<&str>) -> Option<Servers> {
        let (Some(master), Some(nodes)) = (&written.master, &written.nodes) else {
            let place = written.master.as_ref().and_then(|master| master.place);
            let place = place.or_else(|| written.nodes.as_ref()?.place);
            self.wrong(
                place,
                "store.redis.sentinel needs both: master: NAME, and nodes: [redis://…]".to_owned(),
            );
            return None;
        };
        let name = self.read("store.redis.sentinel.master", master)?;
        let urls = self.urls("store.redis.sentinel.nodes", nodes)?;
        self.understood("store.redis.sentinel", nodes.place, Servers::sentinel(&name, &urls, login))
    }

    fn urls<T>(&mut self, path: &str, written: &Several<T>) -> Option<Vec<String>> {
        let urls: Option<Vec<_>> = written.items.iter().map(|url| self.url(path, url)).collect();
        urls.hash(&mut self.unshown);
        urls
    }

    fn understood(
        &mut self,
        path: &str,
        place: Option<Place>,
        servers: Result<Servers, ServersError>,
    ) -> Option<Servers> {
        servers.map_err(|error| self.wrong(place, format!("{path}: {error}"))).ok()
    }

    fn certificates(&mut self, tls: &file::RedisTls) -> Option<Certificates> {
        if tls.cert.is_some() != tls.key.is_some() {
            let place = tls.cert.as_ref().or(tls.key.as_ref()).and_then(|name| name.place);
            self.wrong(place, "store.redis.tls has one of cert and key; give both, or none".to_owned());
            return None;
        }
        let mut content = |name, written: &Option<_>| match written {
            None => Some(None),
            Some(written) => self.content(&format!("store.redis.tls.{name}"), written).map(Some),
        };
        let (ca, cert, key) = (content("ca", &tls.ca), content("cert", &tls.cert), content("key", &tls.key));
        (&ca, &cert, &key).hash(&mut self.unshown);
        Some(Certificates { ca: ca?, client: cert?.zip(key?) })
    }
}
