//! TLS and mutual TLS, with generated certificates.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratewright_lab::within;
use ratewright_server::{HttpListenerSettings, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::test_server::{CHECK, LAST_CHECK, TestServer, is_served, read_to_end, send};

/// A certificate authority.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    fn identity(&self) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    /// The TLS settings of a server; with `clients`, it requires certificates of that authority.
    fn tls(&self, clients: Option<&Self>) -> Tls {
        let Identity { certificate, key } = self.identity();
        let client_ca = clients.map(|clients| clients.certificate.as_bytes());
        Tls::new(certificate.as_bytes(), key.as_bytes(), client_ca).unwrap()
    }
}

/// Connects as a client that trusts `authority` and presents `identity`.
async fn connect(
    server: &TestServer,
    authority: &Authority,
    identity: Option<&Identity>,
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = server.connect().await;
    within("a handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

/// Sends one request. A rejected client may see that only when it reads.
async fn request_once(
    server: &TestServer,
    authority: &Authority,
    identity: Option<&Identity>,
) -> io::Result<String> {
    let mut stream = connect(server, authority, identity).await?;
    send(&mut stream, LAST_CHECK.as_bytes()).await
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served() {
    let authority = Authority::new();
    let server = TestServer::start(HttpListenerSettings::default(), Some(authority.tls(None))).await;
    let mut stream = connect(&server, &authority, None).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let response = send(&mut stream, LAST_CHECK.as_bytes()).await.unwrap();
    assert!(is_served(&response), "{response}");
    assert!(
        request_once(&server, &Authority::new(), None).await.is_err(),
        "a client that trusts another authority does not connect"
    );
    server.stop().await;
}

#[tokio::test]
async fn mutual_tls_accepts_only_clients_of_the_authority() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server =
        TestServer::start(HttpListenerSettings::default(), Some(authority.tls(Some(&clients)))).await;
    let known = clients.identity();
    assert!(is_served(&request_once(&server, &authority, Some(&known)).await.unwrap()));
    assert!(request_once(&server, &authority, None).await.is_err(), "no certificate");
    let strange = Authority::new().identity();
    assert!(
        request_once(&server, &authority, Some(&strange)).await.is_err(),
        "another authority's certificate"
    );
    assert!(is_served(&request_once(&server, &authority, Some(&known)).await.unwrap()));
    server.stop().await;
}

#[tokio::test]
async fn plain_http_is_rejected() {
    let authority = Authority::new();
    let server = TestServer::start(HttpListenerSettings::default(), Some(authority.tls(None))).await;
    let mut plain = server.connect().await;
    let response = send(&mut plain, CHECK.as_bytes()).await.unwrap_or_default();
    assert!(!response.contains("HTTP/1.1 200"), "{response}");
    assert!(is_served(&request_once(&server, &authority, None).await.unwrap()));
    server.stop().await;
}

#[tokio::test]
async fn a_silent_client_times_out() {
    let authority = Authority::new();
    let head_within = Duration::from_secs(1);
    let listening =
        HttpListenerSettings { connections_max: 1, head_within, ..HttpListenerSettings::default() };
    let server = TestServer::start(listening, Some(authority.tls(None))).await;
    let mut silent = server.connect().await;
    let mut hanging = connect(&server, &authority, None).await.expect("the silent client's slot is free");
    assert_eq!(read_to_end(&mut silent).await.unwrap(), "");
    let _ = read_to_end(&mut hanging).await; // silent after its handshake
    assert!(is_served(&request_once(&server, &authority, None).await.unwrap()));
    server.stop().await;
}

#[tokio::test]
async fn slow_handshakes_delay_no_other_client() {
    let authority = Authority::new();
    let hour = Duration::from_secs(3_600);
    let listening =
        HttpListenerSettings { head_within: hour, drain_timeout: hour, ..HttpListenerSettings::default() };
    let server = TestServer::start(listening, Some(authority.tls(None))).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(server.connect().await);
    }
    assert!(is_served(&request_once(&server, &authority, None).await.unwrap()));
    server.stop().await; // nor do they delay the stop
    for mut stream in silent {
        assert_eq!(read_to_end(&mut stream).await.unwrap_or_default(), "");
    }
}

#[tokio::test]
async fn replaced_certificates_are_used_from_the_next_handshake_on() {
    let (old, new) = (Authority::new(), Authority::new());
    let tls = old.tls(None);
    let server = TestServer::start(HttpListenerSettings::default(), Some(tls.clone())).await;
    let mut before = connect(&server, &old, None).await.unwrap();
    tls.replace(&new.tls(None));
    assert!(request_once(&server, &old, None).await.is_err());
    assert!(is_served(&request_once(&server, &new, None).await.unwrap()));
    let response = send(&mut before, LAST_CHECK.as_bytes()).await.unwrap();
    assert!(is_served(&response), "an open connection keeps its own");
    server.stop().await;
}
