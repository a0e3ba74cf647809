//! The policy file as written. Nothing here is understood yet, except that there are no other names.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) enabled: Option<bool>,
    pub(super) listen: Listen,
    pub(super) store: Store,
    pub(super) api: Api,
    pub(super) metrics: Metrics,
    pub(super) log: Log,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Metrics {
    pub(super) labels: Option<Spanned<BTreeMap<String, String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Log {
    pub(super) level: Option<Level>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Store {
    #[serde(deserialize_with = "written")]
    pub(super) redis: Option<Redis>,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) local: Local,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Redis {
    pub(super) url: Option<Spanned<Urls>>,
    pub(super) cluster: bool,
    pub(super) sentinel: Option<Sentinel>,
    pub(super) tls: Option<Tls>,
    pub(super) prefix: Option<Spanned<String>>,
    pub(super) deadline: Option<Spanned<String>>,
    pub(super) min_ttl: Option<Spanned<String>>,
    pub(super) readable: Option<bool>,
}

/// A section that is there, also if nothing stands under it: who writes `redis:` means Redis.
fn written<'d, D: serde::Deserializer<'d>>(section: D) -> Result<Option<Redis>, D::Error> {
    Option::<Redis>::deserialize(section).map(|redis| Some(redis.unwrap_or_default()))
}

/// One address, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Urls {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sentinel {
    pub(super) master: Spanned<String>,
    pub(super) nodes: Vec<Spanned<String>>,
}

/// Paths of files in PEM.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tls {
    pub(super) ca: Option<Spanned<String>>,
    pub(super) cert: Option<Spanned<String>>,
    pub(super) key: Option<Spanned<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnFailure {
    Local,
    Open,
    Closed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Local {
    pub(super) share: Option<Spanned<String>>,
    pub(super) ttl: Option<Spanned<String>>,
    pub(super) max_keys: Option<Spanned<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Listen {
    pub(super) api: Option<Spanned<String>>,
    pub(super) admin: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Api {
    pub(super) defaults: Defaults,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Defaults {
    pub(super) token_bucket: Option<Quota>,
    pub(super) leaky_bucket: Option<Quota>,
    pub(super) sliding_window: Option<Quota>,
    pub(super) sliding_window_counter: Option<Quota>,
    pub(super) fixed_window: Option<Quota>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quota {
    pub(super) rate: Spanned<String>,
    pub(super) burst: Option<Spanned<i64>>,
    pub(super) refill: Option<Refill>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Refill {
    Smooth,
    Stepped,
}

/// Where a value stands in the file, if it does.
pub(super) trait Place {
    fn place(&self) -> Option<Location>;
}

impl<T> Place for Spanned<T> {
    fn place(&self) -> Option<Location> {
        (self.referenced != Location::UNKNOWN).then_some(self.referenced)
    }
}

impl Quota {
    /// A quota that nobody wrote.
    pub(super) fn of(rate: &str, burst: Option<i64>) -> Self {
        let unwritten = Location::UNKNOWN;
        Self {
            rate: Spanned::new(rate.to_owned(), unwritten, unwritten),
            burst: burst.map(|burst| Spanned::new(burst, unwritten, unwritten)),
            refill: None,
        }
    }
}

/// Reads a file's text. The only place that knows which YAML crate does it.
pub(super) fn parse(text: &str) -> Result<File, serde_saphyr::Error> {
    serde_saphyr::from_str::<Option<File>>(text).map(Option::unwrap_or_default)
}
