//! One fetch of a key set: one GET, no redirects, at most so many bytes in at most so much time.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use tollgate_http::jwt::{KeyError, KeySet};

use super::{JwksSource, SourceError};

/// Fetches the key set of one place.
pub(super) struct Fetcher {
    client: Client<HttpsConnector<HttpConnector>, String>,
    url: Uri,
    timeout: Duration,
    body_max: usize,
}

/// Why no keys came.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("cannot reach the server")]
    Unreachable { source: legacy::Error },

    #[error("no answer within {timeout:?}")]
    TimedOut { timeout: Duration },

    #[error("the answer is {status}, where 200 was due")]
    Status { status: StatusCode },

    #[error("the answer is longer than {body_max} bytes")]
    TooLong { body_max: usize },

    #[error("the answer broke off")]
    BrokenOff { source: Box<dyn Error + Send + Sync> },

    #[error(transparent)]
    Keys(#[from] KeyError),
}

impl Fetcher {
    pub(super) fn new(source: &JwksSource) -> Result<Self, SourceError> {
        // One fetch in minutes: a connection in a pool would only grow stale.
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector(source)?);
        Ok(Self { client, url: source.url.clone(), timeout: source.timeout, body_max: source.body_max })
    }

    pub(super) async fn fetch(&self) -> Result<KeySet, FetchError> {
        let answered = tokio::time::timeout(self.timeout, self.exchange());
        answered.await.unwrap_or(Err(FetchError::TimedOut { timeout: self.timeout }))
    }

    async fn exchange(&self) -> Result<KeySet, FetchError> {
        let mut request = Request::new(String::new());
        *request.uri_mut() = self.url.clone();
        request.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
        let answer =
            self.client.request(request).await.map_err(|source| FetchError::Unreachable { source })?;
        if answer.status() != StatusCode::OK {
            return Err(FetchError::Status { status: answer.status() });
        }
        let body = Limited::new(answer.into_body(), self.body_max).collect().await;
        let body = body.map_err(|source| match source.is::<LengthLimitError>() {
            true => FetchError::TooLong { body_max: self.body_max },
            false => FetchError::BrokenOff { source },
        })?;
        Ok(KeySet::jwks(&body.to_bytes())?)
    }
}

impl FetchError {
    /// The error with all its reasons, in one line.
    pub(super) fn cause(&self) -> String {
        let reasons = std::iter::successors(self.source(), |&error| error.source());
        reasons.fold(self.to_string(), |line, reason| format!("{line}: {reason}"))
    }
}

/// True if nobody but this machine sees what goes there.
pub(super) fn is_local(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn connector(source: &JwksSource) -> Result<HttpsConnector<HttpConnector>, SourceError> {
    let encrypted = source.url.scheme_str() == Some("https");
    let builder = HttpsConnectorBuilder::new();
    let builder = match &source.ca {
        None if encrypted => builder
            .with_provider_and_native_roots(aws_lc_rs::default_provider())
            .map_err(|source| SourceError::NoRoots { source })?,
        None => builder.with_tls_config(config(RootCertStore::empty())),
        Some(pem) => builder.with_tls_config(config(roots(pem)?)),
    };
    let builder = if encrypted { builder.https_only() } else { builder.https_or_http() };
    Ok(builder.enable_http1().build())
}

/// Whom `pem` says to trust, and nobody else.
fn roots(pem: &[u8]) -> Result<RootCertStore, SourceError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| SourceError::Ca)?;
        roots.add(certificate).map_err(|_| SourceError::Ca)?;
    }
    if roots.is_empty() { Err(SourceError::Ca) } else { Ok(roots) }
}

fn config(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
