//! `cors` as written, in `gateway` and in routes.

use ratewright_core::Micros;
use serde::Deserialize;

use crate::raw_value::{RawList, RawValue};
use crate::values::{CorsHeader, CorsMethod, ExposedHeader, OriginText};

/// A section, or `off`.
#[derive(Clone)]
pub enum Cors {
    Text(String),
    Section(Box<CorsSection>),
}

/// Which other origins may read responses in a browser. The gateway answers preflights itself, and replaces the upstream's
/// `Access-Control-*` headers.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CorsSection {
    /// Which origins may read responses, such as `https://app.example.com`. In `https://*.example.com` the star stands for one
    /// label; `**` stands for one or more. `"*"` means every origin.
    pub origins: Option<RawList<OriginText>>,
    /// Which methods a preflight may ask for. `GET` also allows `HEAD`. Default: `[GET, HEAD, POST]`.
    pub methods: Option<RawList<CorsMethod>>,
    /// Which request headers a preflight may ask for, or `"*"` for all. Default: `[Content-Type]`.
    pub headers: Option<RawList<CorsHeader>>,
    /// Response headers that scripts may read, besides the rate limit headers, `Retry-After` and `X-Correlation-Id`. Default: none.
    pub expose: Option<RawList<ExposedHeader>>,
    /// Whether requests may carry cookies and other credentials. Not with `origins: "*"`. Default: `false`.
    pub credentials: Option<RawValue<bool>>,
    /// How long a browser may rely on a preflight, `0s` to `1d`. Default: `10min`.
    pub max_age: Option<RawValue<Micros>>,
}
