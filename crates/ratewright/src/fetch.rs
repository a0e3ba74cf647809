//! One HTTP request, without redirects, and with limits on the time and the size of the response.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

/// Sends requests to one server.
pub(crate) struct Fetcher {
    client: Client<HttpsConnector<HttpConnector>, String>,
    limits: FetchLimits,
}

/// Limits of one response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchLimits {
    /// From the connection to the last byte.
    pub(crate) timeout: Duration,
    /// The largest body, in bytes.
    pub(crate) body_max: usize,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("cannot reach the server")]
    Unreachable { source: legacy::Error },

    #[error("no response within {timeout:?}")]
    TimedOut { timeout: Duration },

    #[error("response is longer than {body_max} bytes")]
    TooLong { body_max: usize },

    #[error("connection closed before the response was complete")]
    Interrupted { source: Box<dyn Error + Send + Sync> },
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// The CA file has no certificate.
    #[error("CA file contains no PEM certificate")]
    Ca,

    /// The client certificate is invalid.
    #[error("invalid client certificate or key: {reason}")]
    ClientCert {
        /// The cause.
        reason: String,
    },

    /// The machine has no root certificates.
    #[error("no root certificates found on this machine; set a CA file")]
    NoRoots {
        /// The error of the system.
        source: std::io::Error,
    },
}

/// A client certificate and its key, in PEM.
pub(crate) struct ClientCert {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Fetcher {
    /// A fetcher for the server of `url`. `ca` (PEM) verifies the server's certificate; without it, the machine's root certificates do.
    /// `client_cert` is used only together with `ca`.
    pub(crate) fn new(
        url: &Uri,
        ca: Option<&[u8]>,
        client_cert: Option<&ClientCert>,
        limits: FetchLimits,
    ) -> Result<Self, TrustError> {
        let connector = connector(url, ca, client_cert)?;
        // Fetches are rare: a pooled connection would be closed before it is reused.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { client, limits })
    }

    /// Sends a request, and reads the whole response.
    pub(crate) async fn fetch(&self, request: Request<String>) -> Result<Response<Bytes>, FetchError> {
        let timeout = self.limits.timeout;
        let answered = tokio::time::timeout(timeout, self.exchange(request)).await;
        answered.unwrap_or(Err(FetchError::TimedOut { timeout }))
    }

    async fn exchange(&self, request: Request<String>) -> Result<Response<Bytes>, FetchError> {
        let response =
            self.client.request(request).await.map_err(|source| FetchError::Unreachable { source })?;
        let (head, body) = response.into_parts();
        let body_max = self.limits.body_max;
        let body = Limited::new(body, body_max).collect().await;
        let body = body.map_err(|source| match source.is::<LengthLimitError>() {
            true => FetchError::TooLong { body_max },
            false => FetchError::Interrupted { source },
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// An error and all its causes, in one line.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let reasons = std::iter::successors(error.source(), |&error| error.source());
    reasons.fold(error.to_string(), |line, reason| format!("{line}: {reason}"))
}

/// Parses a URL: `http` or `https`, with a host and without a user.
pub(crate) fn parse(url: &str) -> Option<Uri> {
    let url: Uri = url.parse().ok()?;
    let host = url.authority().filter(|authority| !authority.as_str().contains('@'));
    (matches!(url.scheme_str(), Some("http" | "https")) && host.is_some()).then_some(url)
}

/// True if the host is loopback.
pub(crate) fn is_local(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn connector(
    url: &Uri,
    ca: Option<&[u8]>,
    client_cert: Option<&ClientCert>,
) -> Result<HttpsConnector<HttpConnector>, TrustError> {
    let encrypted = url.scheme_str() == Some("https");
    let builder = HttpsConnectorBuilder::new();
    let builder = match ca {
        None if encrypted => builder
            .with_provider_and_native_roots(aws_lc_rs::default_provider())
            .map_err(|source| TrustError::NoRoots { source })?,
        None => builder.with_tls_config(config(RootCertStore::empty(), None)?),
        Some(pem) => builder.with_tls_config(config(roots(pem)?, client_cert)?),
    };
    let builder = if encrypted { builder.https_only() } else { builder.https_or_http() };
    Ok(builder.enable_http1().build())
}

/// TLS to servers whose certificates are signed by those in `pem`.
pub(crate) fn trusting(pem: &[u8]) -> Result<ClientConfig, TrustError> {
    config(roots(pem)?, None)
}

/// The certificates in `pem` as the only root certificates.
fn roots(pem: &[u8]) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| TrustError::Ca)?;
        roots.add(certificate).map_err(|_| TrustError::Ca)?;
    }
    if roots.is_empty() { Err(TrustError::Ca) } else { Ok(roots) }
}

fn config(roots: RootCertStore, client_cert: Option<&ClientCert>) -> Result<ClientConfig, TrustError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_root_certificates(roots);
    let Some(ClientCert { cert, key }) = client_cert else { return Ok(builder.with_no_client_auth()) };
    let unusable = |error: &dyn Error| TrustError::ClientCert { reason: error_chain(error) };
    let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<_, _>>();
    let chain = chain.map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| unusable(&error))
}
