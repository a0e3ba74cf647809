//! One request as a client: no redirects, at most so many bytes in at most so much time.

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

/// Asks one server.
pub(crate) struct Fetcher {
    client: Client<HttpsConnector<HttpConnector>, String>,
    bounds: Bounds,
}

/// How much an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// From the first packet to the last.
    pub(crate) timeout: Duration,
    /// Of the body, in bytes.
    pub(crate) body_max: usize,
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("cannot reach the server")]
    Unreachable { source: legacy::Error },

    #[error("no answer within {timeout:?}")]
    TimedOut { timeout: Duration },

    #[error("the answer is longer than {body_max} bytes")]
    TooLong { body_max: usize },

    #[error("the answer broke off")]
    BrokenOff { source: Box<dyn Error + Send + Sync> },
}

/// Why nobody can be trusted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// No certificates.
    #[error("the CA file holds no certificates that can be read")]
    Ca,

    /// What is to be shown cannot be.
    #[error("the certificate to show and its key cannot be used: {reason}")]
    Shown {
        /// Why.
        reason: String,
    },

    /// The machine trusts nobody.
    #[error("no trusted certificates found on this machine; set a CA file")]
    NoRoots {
        /// What the system says.
        source: std::io::Error,
    },
}

/// A certificate to show to the server, and its key, in PEM.
pub(crate) struct Shown {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Fetcher {
    /// Asks the server of `url`. Over TLS it must be one that `ca` has signed, in PEM; without it, one that the machine
    /// trusts. Only who names a CA can show a certificate.
    pub(crate) fn new(
        url: &Uri,
        ca: Option<&[u8]>,
        shown: Option<&Shown>,
        bounds: Bounds,
    ) -> Result<Self, TrustError> {
        let connector = connector(url, ca, shown)?;
        // One fetch in a while: a connection in a pool would only grow stale.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { client, bounds })
    }

    /// Sends a request, and reads the answer to its end.
    pub(crate) async fn fetch(&self, request: Request<String>) -> Result<Response<Bytes>, FetchError> {
        let timeout = self.bounds.timeout;
        let answered = tokio::time::timeout(timeout, self.exchange(request)).await;
        answered.unwrap_or(Err(FetchError::TimedOut { timeout }))
    }

    async fn exchange(&self, request: Request<String>) -> Result<Response<Bytes>, FetchError> {
        let answer =
            self.client.request(request).await.map_err(|source| FetchError::Unreachable { source })?;
        let (head, body) = answer.into_parts();
        let body_max = self.bounds.body_max;
        let body = Limited::new(body, body_max).collect().await;
        let body = body.map_err(|source| match source.is::<LengthLimitError>() {
            true => FetchError::TooLong { body_max },
            false => FetchError::BrokenOff { source },
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// An error with all its reasons, in one line.
pub(crate) fn cause(error: &dyn Error) -> String {
    let reasons = std::iter::successors(error.source(), |&error| error.source());
    reasons.fold(error.to_string(), |line, reason| format!("{line}: {reason}"))
}

/// A URL of a server, if it is one: `http` or `https`, with a host and without a user.
pub(crate) fn parse(url: &str) -> Option<Uri> {
    let url: Uri = url.parse().ok()?;
    let host = url.authority().filter(|authority| !authority.as_str().contains('@'));
    (matches!(url.scheme_str(), Some("http" | "https")) && host.is_some()).then_some(url)
}

/// True if nobody but this machine sees what goes there.
pub(crate) fn is_local(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn connector(
    url: &Uri,
    ca: Option<&[u8]>,
    shown: Option<&Shown>,
) -> Result<HttpsConnector<HttpConnector>, TrustError> {
    let encrypted = url.scheme_str() == Some("https");
    let builder = HttpsConnectorBuilder::new();
    let builder = match ca {
        None if encrypted => builder
            .with_provider_and_native_roots(aws_lc_rs::default_provider())
            .map_err(|source| TrustError::NoRoots { source })?,
        None => builder.with_tls_config(config(RootCertStore::empty(), None)?),
        Some(pem) => builder.with_tls_config(config(roots(pem)?, shown)?),
    };
    let builder = if encrypted { builder.https_only() } else { builder.https_or_http() };
    Ok(builder.enable_http1().build())
}

/// TLS with servers whose certificates those in `pem` have signed, and nobody else.
pub(crate) fn trusting(pem: &[u8]) -> Result<ClientConfig, TrustError> {
    config(roots(pem)?, None)
}

/// Whom `pem` says to trust, and nobody else.
fn roots(pem: &[u8]) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| TrustError::Ca)?;
        roots.add(certificate).map_err(|_| TrustError::Ca)?;
    }
    if roots.is_empty() { Err(TrustError::Ca) } else { Ok(roots) }
}

fn config(roots: RootCertStore, shown: Option<&Shown>) -> Result<ClientConfig, TrustError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .with_root_certificates(roots);
    let Some(Shown { cert, key }) = shown else { return Ok(builder.with_no_client_auth()) };
    let unusable = |error: &dyn Error| TrustError::Shown { reason: cause(error) };
    let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<_, _>>();
    let chain = chain.map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| unusable(&error))
}
