//! TLS for a listener, with or without client certificates.
//!
//! A [`Tls`] is a handle: clones share the certificates, and [`Tls::replace`] changes them for every handshake from
//! then on. Open connections keep theirs.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoClientAuth, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::info;

use crate::certificate;
use crate::log_throttle::LogThrottle;

/// Failed handshakes are logged once in this time.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// The certificate that a listener presents, and the client certificates that it requires.
#[derive(Clone)]
pub struct Tls {
    configs: Arc<ArcSwap<ServerConfigs>>,
    failures: Arc<LogThrottle>,
}

/// The same certificates for each [`Alpn`].
struct ServerConfigs {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
    expires_at: Option<u64>,
}

/// Which protocols a listener offers in ALPN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alpn {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 and HTTP/1.1, in this order of preference.
    Http2,
}

/// One of the PEM inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPart {
    /// The certificate, followed by its intermediates.
    Cert,
    /// Its private key.
    Key,
    /// The authorities that sign client certificates.
    ClientCa,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The input has no such PEM block.
    #[error("{part} contains no PEM {}; expected a line -----BEGIN {}-----", part.label().to_lowercase(), part.label())]
    Missing {
        /// Which input.
        part: TlsPart,
    },
    /// The input is not PEM.
    #[error("{part} is not valid PEM")]
    InvalidPem {
        /// Which input.
        part: TlsPart,
        /// What is wrong, and where.
        source: pem::Error,
    },
    /// The input is PEM, but its content is not a valid certificate or key.
    #[error("{part} is invalid")]
    Invalid {
        /// Which input.
        part: TlsPart,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// The key is not the certificate's.
    #[error("key does not match cert; put the server's certificate first in cert, and use its private key")]
    Mismatched,
}

impl Tls {
    /// TLS with a certificate and its key. With `client_ca`, clients must present a certificate signed by one of its
    /// authorities. All inputs are PEM.
    ///
    /// # Errors
    /// If an input is missing or invalid, or the key does not match the certificate.
    pub fn new(cert: &[u8], key: &[u8], client_ca: Option<&[u8]>) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates(cert, TlsPart::Cert)?;
        let expires_at = certificate::expires_at(&chain);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| TlsError::pem(TlsPart::Key, source))?;
        let verifier = match client_ca {
            Some(client_ca) => verifier(client_ca, &provider)?,
            None => Arc::new(NoClientAuth),
        };
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|source| TlsError::Invalid { part: TlsPart::Cert, source })?;
        let config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key);
        let mut config = config.map_err(TlsError::pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols.insert(0, b"h2".to_vec());
        let configs = ServerConfigs { http1, http2: Arc::new(config), expires_at };
        let failures = Arc::new(LogThrottle::new(LOGGED_EVERY));
        Ok(Self { configs: Arc::new(ArcSwap::from_pointee(configs)), failures })
    }

    /// Replaces the certificates with those of `other`, in all clones.
    pub fn replace(&self, other: &Self) {
        self.configs.store(other.configs.load_full());
    }

    /// When the first certificate of the current chain expires, in Unix seconds. None: it cannot be parsed.
    pub fn expires_at(&self) -> Option<u64> {
        self.configs.load().expires_at
    }

    /// Performs the handshake with a client. None: it failed or took longer than `within`. Failures are logged,
    /// throttled, since a client with the wrong certificate may not report it.
    pub async fn accept<I>(
        &self,
        stream: I,
        peer: IpAddr,
        alpn: Alpn,
        within: Duration,
    ) -> Option<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let configs = self.configs.load();
        let config = Arc::clone(if alpn == Alpn::Http1 { &configs.http1 } else { &configs.http2 });
        drop(configs);
        let handshake = TlsAcceptor::from(config).accept(stream);
        let accepted = match tokio::time::timeout(within, handshake).await {
            Ok(accepted) => accepted.map_err(|error| error.to_string()),
            Err(_) => Err(format!("not completed within {within:?}")),
        };
        accepted.map_err(|cause| self.log_failure(peer, &cause)).ok()
    }

    #[cold]
    fn log_failure(&self, peer: IpAddr, cause: &str) {
        if let Some(suppressed) = self.failures.admit() {
            info!(%peer, cause, suppressed, "TLS handshake failed");
        }
    }
}

/// All certificates in a PEM input, at least one.
fn certificates(text: &[u8], part: TlsPart) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = certificates.map_err(|source| TlsError::pem(part, source))?;
    if certificates.is_empty() { Err(TlsError::Missing { part }) } else { Ok(certificates) }
}

/// Verifies client certificates against these authorities.
fn verifier(
    client_ca: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let part = TlsPart::ClientCa;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(client_ca, part)? {
        roots.add(certificate).map_err(|source| TlsError::Invalid { part, source })?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    builder.build().map_err(|_| TlsError::Missing { part }) // it fails only without authorities
}

impl TlsError {
    fn pem(part: TlsPart, source: pem::Error) -> Self {
        let missing = matches!(source, pem::Error::NoItemsFound);
        if missing { Self::Missing { part } } else { Self::InvalidPem { part, source } }
    }

    /// What is wrong with a certificate and its key.
    fn pair(source: rustls::Error) -> Self {
        if matches!(source, rustls::Error::InconsistentKeys(_)) {
            return Self::Mismatched;
        }
        let is_of_cert = matches!(source, rustls::Error::InvalidCertificate(_));
        Self::Invalid { part: if is_of_cert { TlsPart::Cert } else { TlsPart::Key }, source }
    }
}

impl TlsPart {
    /// The label of its PEM block.
    fn label(self) -> &'static str {
        match self {
            Self::Cert | Self::ClientCa => "CERTIFICATE",
            Self::Key => "PRIVATE KEY",
        }
    }
}

/// The name of the setting in the policy file.
impl fmt::Display for TlsPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cert => "cert",
            Self::Key => "key",
            Self::ClientCa => "client_ca",
        })
    }
}

/// Hides the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    fn pair() -> (String, String) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    }

    #[track_caller]
    fn check_error(cert: &str, key: &str, client_ca: Option<&str>, expected: &str) {
        let error = Tls::new(cert.as_bytes(), key.as_bytes(), client_ca.map(str::as_bytes)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn errors_name_the_input_and_what_is_wrong() {
        let ((cert, key), (other, _)) = (pair(), pair());
        Tls::new(cert.as_bytes(), key.as_bytes(), Some(other.as_bytes())).unwrap();
        check_error(
            "",
            &key,
            None,
            "cert contains no PEM certificate; expected a line -----BEGIN CERTIFICATE-----",
        );
        check_error(
            &key,
            &key,
            None,
            "cert contains no PEM certificate; expected a line -----BEGIN CERTIFICATE-----",
        );
        check_error(
            &cert,
            &cert,
            None,
            "key contains no PEM private key; expected a line -----BEGIN PRIVATE KEY-----",
        );
        check_error(
            &cert,
            &key,
            Some(""),
            "client_ca contains no PEM certificate; expected a line -----BEGIN CERTIFICATE-----",
        );
        check_error(&cert.replace("-----END", "-----"), &key, None, "cert is not valid PEM");
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        check_error(empty, &key, None, "cert is invalid");
        check_error(&cert, &key, Some(empty), "client_ca is invalid");
        let empty = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        check_error(&cert, empty, None, "key is invalid");
        let expected =
            "key does not match cert; put the server's certificate first in cert, and use its private key";
        check_error(&other, &key, None, expected);
    }

    #[test]
    fn debug_output_hides_the_key() {
        let (cert, key) = pair();
        assert_eq!(format!("{:?}", Tls::new(cert.as_bytes(), key.as_bytes(), None).unwrap()), "Tls { .. }");
    }
}
