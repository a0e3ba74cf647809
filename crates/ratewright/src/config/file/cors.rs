//! `cors` as written, in `gateway` and in routes.

use ratewright_core::Micros;
use ratewright_gateway::AllowedOrigin;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::raw_value::{RawList, RawValue};
use crate::config::values::{CorsHeader, CorsMethod, ExposedHeader};

/// A section, or `off`.
#[derive(Clone)]
pub(in crate::config) enum Cors {
    Text(String),
    Section(Box<CorsSection>),
}

/// Which other origins may read responses in a browser. The gateway answers preflights itself, and replaces the upstream's
/// `Access-Control-*` headers.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(in crate::config) struct CorsSection {
    /// Which origins may read responses: `https://app.example.com`, `https://*.example.com` with one label for the star, `https://**.example.com`
    /// with one or more, or `"*"` for every origin.
    pub(in crate::config) origins: Option<RawList<AllowedOrigin>>,
    /// Which methods a preflight may ask for. `GET` also allows `HEAD`. Default: `[GET, HEAD, POST]`.
    pub(in crate::config) methods: Option<RawList<CorsMethod>>,
    /// Which request headers a preflight may ask for, or `"*"` for all. Default: `[Content-Type]`.
    pub(in crate::config) headers: Option<RawList<CorsHeader>>,
    /// Response headers that scripts may read, besides the rate limit headers, `Retry-After` and `X-Correlation-Id`. Default: none.
    pub(in crate::config) expose: Option<RawList<ExposedHeader>>,
    /// Whether requests may carry cookies and other credentials. Not with `origins: "*"`. Default: `false`.
    pub(in crate::config) credentials: Option<RawValue<bool>>,
    /// How long a browser may rely on a preflight, `0s` to `1d`. Default: `10min`.
    pub(in crate::config) max_age: Option<RawValue<Micros>>,
}
