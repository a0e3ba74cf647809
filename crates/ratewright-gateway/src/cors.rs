//! Cross-origin resource sharing (CORS): which other origins may read responses, and the headers that tell browsers so.
//!
//! ```text
//!   preflight   OPTIONS with Origin and Access-Control-Request-Method   handled here: 204 or 403       preflight.rs
//!   response    of the upstream, or our own 429, 404, 502 …             upstream's Access-Control-* replaced by ours
//! ```
//!
//! All values but the origin are rendered when the policy file is read. The origin of a request is echoed, never
//! completed or corrected; `*` is sent only where every origin is allowed, and never with credentials.
//!
//! # Laws
//! - A response names an origin only if `origins` allows it, and only the request's own.
//! - A response that depends on the origin says so in `Vary`, also if the request has no `Origin`.
//! - Rate limit headers, `Retry-After` and `X-Correlation-Id` are always exposed, each once.

mod origin;
mod preflight;

use std::collections::HashSet;
use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use ratewright_http::RateLimitHeaders;
use smallvec::SmallVec;

use crate::headers::elements;

pub use origin::{AllowedOrigin, Depth, OriginError};
pub(crate) use preflight::{PREFLIGHT_VARY, PreflightError, is_preflight, requested_method};

/// The `cors` section of the policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CorsRules {
    /// Which origins may read responses.
    pub origins: Vec<AllowedOrigin>,
    /// Which methods a preflight may ask for. `GET` also means `HEAD`.
    pub methods: Vec<Method>,
    /// Which request headers a preflight may ask for.
    pub headers: AllowedHeaders,
    /// Response headers that scripts may read, besides those that they always may.
    pub expose: Vec<HeaderName>,
    /// Whether requests may carry cookies and other credentials.
    pub credentials: bool,
    /// How long a browser may rely on a preflight. Rounded down to whole seconds.
    pub max_age: Duration,
}

/// Which request headers a preflight may ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AllowedHeaders {
    /// All: `*`.
    Any,
    /// These.
    Listed(Vec<HeaderName>),
}

/// The CORS rules of a route, with prepared header values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cors {
    rules: CorsRules,
    /// The exact origins, so that many of them cost as much as one.
    exact: HashSet<Box<[u8]>>,
    /// The other origins.
    patterns: Vec<AllowedOrigin>,
    allow_methods: HeaderValue,
    /// None: no header is allowed, or all are.
    allow_headers: Option<HeaderValue>,
    expose: HeaderValue,
    max_age: HeaderValue,
}

/// Why rules cannot be applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CorsError {
    /// Nobody is allowed.
    #[error("no origin is allowed; name at least one, for example https://app.example.com")]
    NoOrigin,
    /// Every origin would see what a user's cookies open.
    #[error(
        "origins is *, which cannot be combined with credentials: any site could read responses made with its visitors' cookies, and browsers reject it; list the origins, or leave credentials out"
    )]
    CredentialsForAny,
    /// `*` stands beside others.
    #[error("* allows every origin, so the others have no effect; leave out either * or the others")]
    AnyAmongOthers,
}

/// The CORS headers of one response.
#[derive(Debug)]
pub(crate) struct CorsHeaders<'a> {
    cors: &'a Cors,
    /// None: this origin is not allowed, or the request has no origin.
    allow_origin: Option<HeaderValue>,
}

impl Cors {
    /// Renders what responses will carry.
    ///
    /// # Errors
    /// If there is no origin, or `*` beside other origins or with credentials.
    pub fn new(mut rules: CorsRules) -> Result<Self, CorsError> {
        match rules.origins.as_slice() {
            [] => return Err(CorsError::NoOrigin),
            [AllowedOrigin::Any] if rules.credentials => return Err(CorsError::CredentialsForAny),
            [_] => {}
            all if all.contains(&AllowedOrigin::Any) => return Err(CorsError::AnyAmongOthers),
            _ => {}
        }
        if rules.methods.contains(&Method::GET) && !rules.methods.contains(&Method::HEAD) {
            rules.methods.push(Method::HEAD);
        }
        let (mut exact, mut patterns) = (HashSet::new(), Vec::new());
        for origin in &rules.origins {
            match origin {
                AllowedOrigin::Exact(origin) => drop(exact.insert(origin.as_bytes().into())),
                AllowedOrigin::Any | AllowedOrigin::Subdomains { .. } => patterns.push(origin.clone()),
            }
        }
        let allow_headers = match &rules.headers {
            AllowedHeaders::Listed(names) if !names.is_empty() => {
                Some(list(names.iter().map(HeaderName::as_str)))
            }
            AllowedHeaders::Listed(_) | AllowedHeaders::Any => None,
        };
        Ok(Self {
            exact,
            patterns,
            allow_methods: list(rules.methods.iter().map(Method::as_str)),
            allow_headers,
            expose: exposed(&rules.expose),
            max_age: rules.max_age.as_secs().into(),
            rules,
        })
    }

    /// The rules.
    pub fn rules(&self) -> &CorsRules {
        &self.rules
    }

    /// The headers of a response to a request with these.
    pub(crate) fn headers_for(&self, request: &HeaderMap) -> CorsHeaders<'_> {
        CorsHeaders { cors: self, allow_origin: self.allow_origin(request) }
    }

    /// True if every origin is allowed, so that responses do not depend on it.
    fn allows_any(&self) -> bool {
        matches!(self.rules.origins.as_slice(), [AllowedOrigin::Any])
    }

    /// The value of `Access-Control-Allow-Origin`. Two `Origin` headers are ambiguous, so neither is allowed.
    fn allow_origin(&self, request: &HeaderMap) -> Option<HeaderValue> {
        if self.allows_any() {
            return Some(HeaderValue::from_static("*"));
        }
        let mut origins = request.get_all(ORIGIN).iter();
        let (origin, None) = (origins.next()?, origins.next()) else { return None };
        let is_allowed = self.exact.contains(origin.as_bytes())
            || self.patterns.iter().any(|pattern| pattern.matches(origin.as_bytes()));
        is_allowed.then(|| origin.clone())
    }

    /// Allows an origin, and its credentials if the rules do.
    fn allow(&self, origin: HeaderValue, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.rules.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

impl CorsHeaders<'_> {
    /// Replaces the CORS headers of a response.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let is_cors = |name: &&HeaderName| name.as_str().starts_with("access-control-");
        let others: SmallVec<[HeaderName; 4]> = headers.keys().filter(is_cors).cloned().collect();
        others.iter().for_each(|name| drop(headers.remove(name)));
        if !self.cors.allows_any() {
            vary_on_origin(headers);
        }
        if let Some(origin) = self.allow_origin {
            self.cors.allow(origin, headers);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.cors.expose.clone());
        }
    }
}

/// Adds `Origin` to `Vary`, unless it is there already.
fn vary_on_origin(headers: &mut HeaderMap) {
    if !headers.contains_key(VARY) {
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        return;
    }
    let is_said = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"origin");
    if headers.get_all(VARY).iter().flat_map(elements).any(is_said) {
        return;
    }
    let lines = headers.get_all(VARY).iter().map(HeaderValue::as_bytes);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).chain([&b"Origin"[..]]).collect();
    let merged = HeaderValue::from_bytes(&lines.join(&b", "[..]));
    headers.insert(VARY, merged.unwrap_or(HeaderValue::from_static("*"))); // a join of valid lines is one
}

/// Names in one line.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> HeaderValue {
    let names: Vec<_> = names.collect();
    HeaderValue::from_str(&names.join(", ")).expect("names of headers and methods are visible ASCII")
}

/// All response headers that scripts may read, each once.
fn exposed(more: &[HeaderName]) -> HeaderValue {
    let mut names: Vec<&str> = RateLimitHeaders::exposed_names().collect();
    for name in more {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(name.as_str())) {
            names.push(name.as_str());
        }
    }
    list(names.into_iter())
}

#[cfg(test)]
mod tests;
