//! TLS for a door, with or without certificates that clients must show.
//!
//! A [`Tls`] is a handle: clones share what it holds, and [`Tls::replace`] puts other certificates in place for
//! every handshake from then on. Connections that stand keep theirs.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
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

/// Failures are told once in this time.
const FAILURES_EVERY: Duration = Duration::from_secs(10);

/// What a door shows to its clients, and asks of them.
#[derive(Clone)]
pub struct Tls {
    configs: Arc<ArcSwap<Configs>>,
    failures: Arc<LogThrottle>,
    began_at: Instant,
}

/// The same certificates, for doors that speak this and that.
struct Configs {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
    expires_at: Option<u64>,
}

/// What a door speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2, if the client does too, otherwise HTTP/1.1.
    Http2,
}

/// One of the texts that TLS is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsPart {
    /// The certificate, with those between it and its authority.
    Cert,
    /// Its private key.
    Key,
    /// The authorities of clients' certificates.
    ClientCa,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// What it should hold is not in it.
    #[error("{part} has none in it; use PEM, with a line -----BEGIN {}-----", part.label())]
    Missing {
        /// Which text.
        part: TlsPart,
    },
    /// It is no PEM.
    #[error("{part} is no PEM")]
    Garbled {
        /// Which text.
        part: TlsPart,
        /// Where it goes wrong.
        source: pem::Error,
    },
    /// It is PEM, but not of what it says.
    #[error("{part} cannot be used")]
    Unusable {
        /// Which text.
        part: TlsPart,
        /// What is wrong with it.
        source: rustls::Error,
    },
    /// Key and certificate do not belong together.
    #[error(
        "key does not belong to cert; use the key with which cert was asked for, and put that certificate first"
    )]
    Mismatched,
}

impl Tls {
    /// TLS with a certificate and its key. With `client_ca`, only clients with a certificate of one of its
    /// authorities get in. All are PEM.
    ///
    /// # Errors
    /// If a text has not what it should hold, or key and certificate do not belong together.
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
        let builder = builder.map_err(|source| TlsError::Unusable { part: TlsPart::Cert, source })?;
        let config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key);
        let mut config = config.map_err(TlsError::pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols.insert(0, b"h2".to_vec());
        let configs = Configs { http1, http2: Arc::new(config), expires_at };
        let failures = Arc::new(LogThrottle::new(FAILURES_EVERY));
        Ok(Self { configs: Arc::new(ArcSwap::from_pointee(configs)), failures, began_at: Instant::now() })
    }

    /// Puts another's certificates in place of these, in all clones.
    pub fn replace(&self, other: &Self) {
        self.configs.store(other.configs.load_full());
    }

    /// When the first certificate of the chain that is now in place expires, in Unix seconds. None: it cannot be read.
    pub fn expires_at(&self) -> Option<u64> {
        self.configs.load().expires_at
    }

    /// Shakes hands with a client; nothing if that fails or takes too long, which is the client's affair. The log is told now and then, since
    /// a client that cannot show the right certificate may not tell anybody either.
    pub async fn accept<I>(
        &self,
        stream: I,
        peer: IpAddr,
        speaks: Speaks,
        within: Duration,
    ) -> Option<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let configs = self.configs.load();
        let config = Arc::clone(if speaks == Speaks::Http1 { &configs.http1 } else { &configs.http2 });
        drop(configs);
        let shaking = TlsAcceptor::from(config).accept(stream);
        let shaken = match tokio::time::timeout(within, shaking).await {
            Ok(shaken) => shaken.map_err(|error| error.to_string()),
            Err(_) => Err(format!("the handshake took longer than {within:?}")),
        };
        shaken.map_err(|cause| self.failed(peer, &cause)).ok()
    }

    #[cold]
    fn failed(&self, peer: IpAddr, cause: &str) {
        let now = u64::try_from(self.began_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(suppressed) = self.failures.admit(now) {
            info!(%peer, cause, suppressed, "a client did not get through TLS");
        }
    }
}

/// All certificates in a PEM text; there is at least one.
fn certificates(text: &[u8], part: TlsPart) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = certificates.map_err(|source| TlsError::pem(part, source))?;
    if certificates.is_empty() { Err(TlsError::Missing { part }) } else { Ok(certificates) }
}

/// Checks clients' certificates against these authorities.
fn verifier(
    client_ca: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let part = TlsPart::ClientCa;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(client_ca, part)? {
        roots.add(certificate).map_err(|source| TlsError::Unusable { part, source })?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    builder.build().map_err(|_| TlsError::Missing { part }) // it fails only without authorities
}

impl TlsError {
    fn pem(part: TlsPart, source: pem::Error) -> Self {
        let missing = matches!(source, pem::Error::NoItemsFound);
        if missing { Self::Missing { part } } else { Self::Garbled { part, source } }
    }

    /// What is wrong with a certificate and its key.
    fn pair(source: rustls::Error) -> Self {
        if matches!(source, rustls::Error::InconsistentKeys(_)) {
            return Self::Mismatched;
        }
        let of_cert = matches!(source, rustls::Error::InvalidCertificate(_));
        Self::Unusable { part: if of_cert { TlsPart::Cert } else { TlsPart::Key }, source }
    }
}

impl TlsPart {
    /// What its PEM begins with.
    fn label(self) -> &'static str {
        match self {
            Self::Cert | Self::ClientCa => "CERTIFICATE",
            Self::Key => "PRIVATE KEY",
        }
    }
}

/// The name, as the policy file has it.
impl fmt::Display for TlsPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cert => "cert",
            Self::Key => "key",
            Self::ClientCa => "client_ca",
        })
    }
}

/// Shows no key.
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
    fn refused(cert: &str, key: &str, client_ca: Option<&str>, expected: &str) {
        let error = Tls::new(cert.as_bytes(), key.as_bytes(), client_ca.map(str::as_bytes)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn what_is_wrong_with_certificates_is_said() {
        let ((cert, key), (other, _)) = (pair(), pair());
        Tls::new(cert.as_bytes(), key.as_bytes(), Some(other.as_bytes())).unwrap();
        refused("", &key, None, "cert has none in it; use PEM, with a line -----BEGIN CERTIFICATE-----");
        refused(&key, &key, None, "cert has none in it; use PEM, with a line -----BEGIN CERTIFICATE-----");
        refused(&cert, &cert, None, "key has none in it; use PEM, with a line -----BEGIN PRIVATE KEY-----");
        refused(
            &cert,
            &key,
            Some(""),
            "client_ca has none in it; use PEM, with a line -----BEGIN CERTIFICATE-----",
        );
        refused(&cert.replace("-----END", "-----"), &key, None, "cert is no PEM");
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        refused(empty, &key, None, "cert cannot be used");
        refused(&cert, &key, Some(empty), "client_ca cannot be used");
        let empty = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        refused(&cert, empty, None, "key cannot be used");
        let expected = "key does not belong to cert; use the key with which cert was asked for, and put that certificate first";
        refused(&other, &key, None, expected);
    }

    #[test]
    fn a_key_is_not_shown() {
        let (cert, key) = pair();
        assert_eq!(format!("{:?}", Tls::new(cert.as_bytes(), key.as_bytes(), None).unwrap()), "Tls { .. }");
    }
}
