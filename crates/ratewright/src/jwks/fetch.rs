//! One fetch of a key set.

use http::{HeaderValue, Request, StatusCode, Uri, header};
use ratewright_http::jwt::{KeyError, KeySet};

use super::JwksSource;
use crate::fetch::{self, Bounds, Fetcher, TrustError};

/// Fetches the key set of one place.
pub(super) struct KeyFetcher {
    fetcher: Fetcher,
    url: Uri,
}

/// Why no keys came.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    Answer(#[from] fetch::FetchError),

    #[error("the answer is {status}, where 200 was due")]
    Status { status: StatusCode },

    #[error(transparent)]
    Keys(#[from] KeyError),
}

impl KeyFetcher {
    pub(super) fn new(source: &JwksSource) -> Result<Self, TrustError> {
        let bounds = Bounds { timeout: source.timeout, body_max: source.body_max };
        Ok(Self {
            fetcher: Fetcher::new(&source.url, source.ca.as_deref(), None, bounds)?,
            url: source.url.clone(),
        })
    }

    pub(super) async fn fetch(&self) -> Result<KeySet, FetchError> {
        let mut request = Request::new(String::new());
        *request.uri_mut() = self.url.clone();
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let answer = self.fetcher.fetch(request).await?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status { status: answer.status() });
        }
        Ok(KeySet::jwks(answer.body())?)
    }
}
