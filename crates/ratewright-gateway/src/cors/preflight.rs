//! Preflights: a browser asks whether a page may send a request, before it sends it.
//!
//! ```text
//!   OPTIONS /orders                                  204 No Content
//!   Origin: https://app.example.com                  Access-Control-Allow-Origin: https://app.example.com
//!   Access-Control-Request-Method: PUT               Access-Control-Allow-Methods: GET, PUT, HEAD
//!   Access-Control-Request-Headers: content-type     Access-Control-Allow-Headers: content-type
//!                                                    Access-Control-Max-Age: 600
//! ```
//!
//! Where all request headers are allowed, those that were asked for are echoed: browsers take a `*` for a name if there
//! are credentials, and never for `Authorization`.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{AllowedHeaders, Cors, list};
use crate::headers::elements;

/// The request headers that responses to preflights depend on.
pub(crate) const PREFLIGHT_VARY: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Method, Access-Control-Request-Headers");

/// Why a preflight is rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PreflightError {
    #[error("preflight rejected: this origin is not in cors.origins")]
    Origin,
    #[error("preflight rejected: this method is not in cors.methods")]
    Method,
    #[error("preflight rejected: a header that it asks for is not in cors.headers")]
    Header,
}

/// True if a request only asks whether another may be sent.
pub(crate) fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(ORIGIN)
        && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The method that a preflight asks for, if it names exactly one.
pub(crate) fn requested_method(request: &HeaderMap) -> Option<Method> {
    let mut methods = request.get_all(ACCESS_CONTROL_REQUEST_METHOD).iter();
    let (method, None) = (methods.next()?, methods.next()) else { return None };
    Method::from_bytes(method.as_bytes()).ok()
}

impl Cors {
    /// The headers of the response to a preflight with these.
    ///
    /// # Errors
    /// If the origin, the method or one of the headers is not allowed.
    pub(crate) fn preflight(&self, request: &HeaderMap) -> Result<HeaderMap, PreflightError> {
        let origin = self.allow_origin(request).ok_or(PreflightError::Origin)?;
        let method = requested_method(request);
        method.filter(|method| self.rules.methods.contains(method)).ok_or(PreflightError::Method)?;
        let allow_headers = self.allow_requested_headers(request)?;
        let mut headers = HeaderMap::with_capacity(8);
        self.allow(origin, &mut headers);
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, self.allow_methods.clone());
        headers.extend(allow_headers.map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names)));
        headers.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        headers.insert(VARY, PREFLIGHT_VARY);
        Ok(headers)
    }

    /// The value of `Access-Control-Allow-Headers`, if all requested headers are allowed.
    fn allow_requested_headers(&self, request: &HeaderMap) -> Result<Option<HeaderValue>, PreflightError> {
        let names = request.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().flat_map(elements);
        let names = names.filter(|name| !name.is_empty()).map(HeaderName::from_bytes);
        let names = names.collect::<Result<Vec<_>, _>>().map_err(|_| PreflightError::Header)?;
        match &self.rules.headers {
            AllowedHeaders::Any if names.is_empty() => Ok(None),
            AllowedHeaders::Any => Ok(Some(list(names.iter().map(HeaderName::as_str)))),
            AllowedHeaders::Listed(allowed) if names.iter().all(|name| allowed.contains(name)) => {
                Ok(self.allow_headers.clone())
            }
            AllowedHeaders::Listed(_) => Err(PreflightError::Header),
        }
    }
}
