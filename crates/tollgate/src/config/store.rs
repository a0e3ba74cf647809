//! The `store` section: where buckets live, and what happens when that place is out of reach.

use std::num::NonZeroU32;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_saphyr::{Location, Spanned};
use tollgate_core::{Micros, OnFailure, Share};
use tollgate_store::{Certificates, FailoverSettings, LocalShare, RedisSettings, Servers, ServersError};

use super::file::{self, Place};
use super::{KEYS_MAX, Reader, RedisConfig, StoreConfig};

/// The longest that a decision may be made to wait for Redis.
const DEADLINE_MAX: Micros = Micros::from_secs(10);

impl Reader<'_> {
    /// Where buckets live.
    pub(super) fn store(&mut self, written: file::Store) -> StoreConfig {
        let failover = self.failover(written.local);
        let Some(redis) = written.redis else {
            return StoreConfig::Memory { n_keys_max: failover.n_keys_max };
        };
        let announces = failover.share == LocalShare::Auto;
        let settings = self.settings(&redis, announces);
        match self.servers(redis) {
            Some(servers) => StoreConfig::Redis(Box::new(RedisConfig { servers, settings, failover })),
            None => StoreConfig::Memory { n_keys_max: failover.n_keys_max }, // what is wrong is noted
        }
    }

    /// What stands in for the store, unless a policy says otherwise.
    pub(super) fn on_failure(&self, written: Option<file::OnFailure>) -> OnFailure {
        match written {
            None | Some(file::OnFailure::Local) => OnFailure::Local,
            Some(file::OnFailure::Open) => OnFailure::Open,
            Some(file::OnFailure::Closed) => OnFailure::Closed,
        }
    }

    fn failover(&mut self, written: file::Local) -> FailoverSettings {
        let default = FailoverSettings::default();
        let share = written.share.and_then(|share| self.share(&share)).unwrap_or(default.share);
        let ttl = written.ttl.and_then(|ttl| self.duration("store.local.ttl", &ttl)).unwrap_or(default.ttl);
        let n_keys_max = written.max_keys.and_then(|n| {
            let keys = usize::try_from(n.value).ok().filter(|n| (1..=1_000_000_000).contains(n));
            if keys.is_none() {
                let problem = format!("store.local.max_keys is {}; use 1 to 1000000000", n.value);
                self.wrong(n.place(), problem);
            }
            keys
        });
        FailoverSettings { share, ttl, n_keys_max: n_keys_max.unwrap_or(KEYS_MAX) }
    }

    /// `auto`, or a decimal above 0 and up to 1.
    fn share(&mut self, written: &Spanned<String>) -> Option<LocalShare> {
        let text = written.value.trim();
        if text == "auto" {
            return Some(LocalShare::Auto);
        }
        let share = decimal(text).filter(|share| (1..=share.of.get()).contains(&share.part));
        if share.is_none() {
            let problem = format!(
                "store.local.share is {text:?}; use a decimal above 0 and up to 1 such as 0.5, or auto for one part for each instance"
            );
            self.wrong(written.place(), problem);
        }
        share.map(LocalShare::Fixed)
    }

    fn settings(&mut self, redis: &file::Redis, announces: bool) -> RedisSettings {
        let default = RedisSettings::default();
        let deadline = redis.deadline.as_ref().and_then(|written| {
            let deadline = self.duration("store.redis.deadline", written)?;
            if deadline.is_zero() || DEADLINE_MAX < deadline {
                let problem = format!("store.redis.deadline is {:?}; use 1ms to 10s", written.value);
                self.wrong(written.place(), problem);
            }
            Some(deadline.into())
        });
        let min_ttl =
            redis.min_ttl.as_ref().and_then(|written| self.duration("store.redis.min_ttl", written));
        let prefix = redis.prefix.as_ref().and_then(|written| {
            let prefix = &written.value;
            let sound = !prefix.is_empty() && prefix.len() <= 64 && prefix.bytes().all(|b| b.is_ascii_graphic() && !b"{}".contains(&b));
            if !sound {
                let problem = format!(
                    "store.redis.prefix is {prefix:?}; use 1 to 64 visible characters without blanks and braces"
                );
                self.wrong(written.place(), problem);
            }
            sound.then(|| prefix.clone())
        });
        RedisSettings {
            prefix: prefix.unwrap_or(default.prefix),
            deadline: deadline.unwrap_or(default.deadline),
            min_ttl: min_ttl.unwrap_or(default.min_ttl),
            readable: redis.readable.unwrap_or(default.readable),
            announces,
            clock: None,
        }
    }

    fn servers(&mut self, redis: file::Redis) -> Option<Servers> {
        let place = redis.url.as_ref().and_then(Place::place);
        let urls = match redis.url.map(|url| url.value) {
            None => Vec::new(),
            Some(file::Urls::One(url)) => vec![url],
            Some(file::Urls::Several(urls)) => urls,
        };
        let texts = urls.iter().map(|url| self.expand(url, place)).collect::<Option<Vec<_>>>()?;
        let n_urls = texts.len();
        if redis.sentinel.is_some() && (redis.cluster || n_urls > 1) {
            let problem =
                "store.redis has a sentinel and a cluster; a Sentinel's master has one url, for its login";
            self.wrong(place, problem.to_owned());
            return None;
        }
        let servers = if let Some(sentinel) = redis.sentinel {
            let nodes = sentinel
                .nodes
                .iter()
                .map(|url| self.expand(&url.value, url.place()))
                .collect::<Option<Vec<_>>>()?;
            let login = texts.first().map(String::as_str);
            let servers = Servers::sentinel(&sentinel.master.value, &nodes, login);
            self.understood("store.redis.sentinel", sentinel.nodes.first().and_then(Place::place), servers)?
        } else if redis.cluster || n_urls > 1 || place.is_some() && n_urls == 0 {
            self.understood("store.redis.url", place, Servers::cluster(&texts))?
        } else {
            let first = texts.first().map_or("redis://127.0.0.1:6379", String::as_str);
            self.understood("store.redis.url", place, Servers::single(first))?
        };
        match redis.tls {
            None => Some(servers),
            Some(tls) => Some(servers.with_certificates(self.certificates(tls)?)),
        }
    }

    fn understood(
        &mut self,
        path: &str,
        place: Option<Location>,
        servers: Result<Servers, ServersError>,
    ) -> Option<Servers> {
        servers.map_err(|error| self.wrong(place, format!("{path}: {error}"))).ok()
    }

    fn certificates(&mut self, tls: file::Tls) -> Option<Certificates> {
        let ca = tls.ca.map(|path| self.pem("store.redis.tls.ca", &path));
        let client = match (tls.cert, tls.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                Some((self.pem("store.redis.tls.cert", &cert), self.pem("store.redis.tls.key", &key)))
            }
            (cert, key) => {
                let place = cert.or(key).and_then(|path| path.place());
                self.wrong(place, "store.redis.tls has one of cert and key; give both".to_owned());
                return None;
            }
        };
        let client = match client {
            None => None,
            Some((cert, key)) => Some((cert?, key?)),
        };
        let ca = match ca {
            None => None,
            Some(ca) => Some(ca?),
        };
        Some(Certificates { ca, client })
    }

    fn pem(&mut self, path: &str, file: &Spanned<String>) -> Option<Vec<u8>> {
        let name = self.expand(&file.value, file.place())?;
        let read = std::fs::read(&name);
        read.map_err(|error| self.wrong(file.place(), format!("{path}: cannot read {name}: {error}"))).ok()
    }

    /// A text with `${NAME}` replaced by that variable of the environment.
    fn expand(&mut self, written: &str, place: Option<Location>) -> Option<String> {
        let mut text = String::new();
        let mut rest = written;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else {
                self.wrong(place, "a ${ is not closed; write ${NAME}".to_owned());
                return None;
            };
            #[expect(clippy::disallowed_methods, reason = "this is the place that reads the environment")]
            let Ok(value) = std::env::var(name) else {
                let problem =
                    format!("the environment has no variable {name}; set it, or write its value here");
                self.wrong(place, problem);
                return None;
            };
            text.push_str(before);
            // Within an address a password may have any character; an address as a whole stays as it is.
            if written.contains("://") {
                text.extend(utf8_percent_encode(&value, NON_ALPHANUMERIC));
            } else {
                text.push_str(&value);
            }
            rest = after;
        }
        text.push_str(rest);
        Some(text)
    }

    /// A duration as people write it: `5ms`, `60s`, `0s`.
    pub(super) fn duration(&mut self, path: &str, written: &Spanned<String>) -> Option<Micros> {
        let duration = Micros::parse(&written.value);
        if duration.is_none() {
            let problem = format!(
                "{path} is {:?}; use a whole number and us, ms, s, min, h or d: 5ms, 60s",
                written.value
            );
            self.wrong(written.place(), problem);
        }
        duration
    }
}

/// A decimal such as `0.5`, exactly.
fn decimal(text: &str) -> Option<Share> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    if digits.len() > 9 || fraction.len() > 6 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let of = 10_u32.pow(u32::try_from(fraction.len()).ok()?);
    Some(Share { part: digits.parse().ok()?, of: NonZeroU32::new(of)? })
}
