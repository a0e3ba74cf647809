//! One fetch of a key set.

use http::{HeaderValue, Request, StatusCode, Uri, header};
use ratewright_http::jwt::{KeyError, KeySet};

use super::JwksSource;
use crate::fetch::{self, FetchLimits, Fetcher, TrustError};

/// Fetches the key set of one URL.
pub(super) struct KeyFetcher {
    fetcher: Fetcher,
    url: Uri,
}

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum JwksError {
    #[error(transparent)]
    Fetch(#[from] fetch::FetchError),

    #[error("unexpected status {status}, expected 200")]
    Status { status: StatusCode },

    #[error(transparent)]
    Keys(#[from] KeyError),
}

impl KeyFetcher {
    pub(super) fn new(source: &JwksSource) -> Result<Self, TrustError> {
        let limits = FetchLimits { timeout: source.timeout, body_max: source.body_max };
        Ok(Self {
            fetcher: Fetcher::new(&source.url, source.ca.as_deref(), None, limits)?,
            url: source.url.clone(),
        })
    }

    pub(super) async fn fetch(&self) -> Result<KeySet, JwksError> {
        let mut request = Request::new(String::new());
        *request.uri_mut() = self.url.clone();
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let response = self.fetcher.fetch(request).await?;
        if response.status() != StatusCode::OK {
            return Err(JwksError::Status { status: response.status() });
        }
        Ok(KeySet::jwks(response.body())?)
    }
}
