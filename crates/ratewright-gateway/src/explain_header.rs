//! `X-Ratewright-Explain`: why a real request was limited or not, in a header of its response.
//!
//! The request header is an admin token. It is removed from every request, whatever it holds, so no upstream and no log
//! ever sees it. Only with a valid token is the decision explained; otherwise the response does not show that the
//! gateway knows the header.

use std::fmt;
use std::sync::Arc;

use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response};
use ratewright_http::request_context::DecisionReport;

/// The header, in requests and in responses.
pub(crate) const EXPLAIN: HeaderName = HeaderName::from_static("x-ratewright-explain");

/// The longest explanation, in bytes.
const EXPLANATION_MAX: usize = 2_048;

/// Which tokens may ask for explanations.
#[derive(Clone)]
pub struct ExplainTokens(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl ExplainTokens {
    /// Those for which `is_valid` holds. It should take the same time for all.
    pub fn new(is_valid: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_valid))
    }
}

impl fmt::Debug for ExplainTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExplainTokens(..)")
    }
}

/// Removes the header from a request. True if it asks for an explanation with a valid token.
pub(crate) fn take(head: &mut Parts, tokens: Option<&ExplainTokens>) -> bool {
    if !head.headers.contains_key(EXPLAIN) {
        return false; // as most
    }
    let is_single = head.headers.get_all(EXPLAIN).iter().nth(1).is_none();
    let token = head.headers.remove(EXPLAIN).filter(|_| is_single);
    let token = token.as_ref().and_then(|token| token.to_str().ok());
    token.zip(tokens).is_some_and(|(token, ExplainTokens(is_valid))| is_valid(token))
}

/// Adds the explanation to the response. Caches must not keep it.
pub(crate) fn add<B>(response: &mut Response<B>, report: &DecisionReport) {
    let mut explanation = report.explanation().unwrap_or_else(|| {
        format!(
            "verdict=none; the gateway answered {} before any policy was evaluated",
            response.status().as_u16()
        )
    });
    explanation.truncate(EXPLANATION_MAX); // it is ASCII
    if let Ok(explanation) = HeaderValue::try_from(explanation) {
        response.headers_mut().insert(EXPLAIN, explanation);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
