//! The section `envoy` as written. The files that it names are in another language: see `envoy_rules/yaml.rs`.

use serde::Deserialize;

use ratewright_core::Micros;

use crate::raw_value::{RawList, RawValue};
use crate::values::{EnvoyCompat, EnvoyHeaders, FileName, TotalTime};

/// Rules in the files of envoyproxy/ratelimit, for Envoy's rate limit service.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Envoy {
    /// Rule files of envoyproxy/ratelimit (a `domain` and its `descriptors`), or folders. All files of a folder are read, except
    /// files whose names begin with a dot. Ratewright watches them like the policy file.
    pub files: Option<RawList<FileName>>,
    /// `all_or_nothing`: a request that is denied by one of its descriptors costs nothing. `strict`: every descriptor is charged, whatever the
    /// others say, as by envoyproxy/ratelimit. Default: `all_or_nothing`.
    pub compat: Option<RawValue<EnvoyCompat>>,
    /// Which headers Envoy adds to responses: `x-ratelimit` for `X-RateLimit-Limit`, `-Remaining` and `-Reset` (the time of day), `ratelimit` for
    /// `RateLimit-Limit`, `-Remaining` and `-Reset` (seconds) as with `LIMIT_RESPONSE_HEADERS_ENABLED`, `retry-after` on denials. Default: none; Envoy can add
    /// its own.
    pub headers: Option<RawList<EnvoyHeaders>>,
    /// Whether files of the same domain are one, as with `MERGE_DOMAIN_CONFIG`. Otherwise a second file of a domain is an error. Default: `false`.
    pub merge_domains: Option<RawValue<bool>>,
    /// Whether no request is denied, as with `SHADOW_MODE`: the overall code is OK; the statuses show what it would have been.
    /// Default: `false`.
    pub shadow_mode: Option<RawValue<bool>>,
    /// Whether a request is denied only if all of its limits are used up, as with `QUOTA_MODE`. Default: `false`.
    pub quota_mode: Option<RawValue<bool>>,
    /// How often an idle connection is pinged, or `none` for never. Default: `60s`.
    pub keep_alive: Option<RawValue<TotalTime>>,
    /// How long Ratewright waits for the reply to a ping before it closes the connection. Default: `20s`.
    pub keep_alive_timeout: Option<RawValue<Micros>>,
    /// The age at which a connection is closed with GOAWAY, so that its client opens another, perhaps to another instance; or `none`. Default: `none`.
    pub connection_age: Option<RawValue<TotalTime>>,
    /// How long calls in flight may take to finish, once their connection is too old or Ratewright stops. Default: `10s`.
    pub connection_grace: Option<RawValue<Micros>>,
}
