//! TLS and mutual TLS, with certificates made on the spot.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratewright_server::{Listening, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::house::{CHECK, House, LAST_CHECK, hear, is_served, say, within};

/// Who signs certificates.
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

    /// A door's TLS, that lets in clients of `clients` only if there is such an authority.
    fn tls(&self, clients: Option<&Self>) -> Tls {
        let Identity { certificate, key } = self.identity();
        let client_ca = clients.map(|clients| clients.certificate.as_bytes());
        Tls::new(certificate.as_bytes(), key.as_bytes(), client_ca).unwrap()
    }
}

/// Connects as a client that trusts `authority` and shows `identity`.
async fn connect(
    house: &House,
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
    let stream = house.connect().await;
    within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

/// Asks once. Who is refused may learn so only when it reads.
async fn ask(house: &House, authority: &Authority, identity: Option<&Identity>) -> io::Result<String> {
    let mut stream = connect(house, authority, identity).await?;
    within(say(&mut stream, LAST_CHECK.as_bytes())).await
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served() {
    let authority = Authority::new();
    let house = House::open(Listening::default(), Some(authority.tls(None))).await;
    let mut stream = connect(&house, &authority, None).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = within(say(&mut stream, LAST_CHECK.as_bytes())).await.unwrap();
    assert!(is_served(&answer), "{answer}");
    assert!(ask(&house, &Authority::new(), None).await.is_err(), "who trusts another does not ask");
    house.close().await;
}

#[tokio::test]
async fn under_mutual_tls_only_clients_of_the_authority_get_in() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let house = House::open(Listening::default(), Some(authority.tls(Some(&clients)))).await;
    let known = clients.identity();
    assert!(is_served(&ask(&house, &authority, Some(&known)).await.unwrap()));
    assert!(ask(&house, &authority, None).await.is_err(), "no certificate");
    let strange = Authority::new().identity();
    assert!(ask(&house, &authority, Some(&strange)).await.is_err(), "another authority's certificate");
    assert!(is_served(&ask(&house, &authority, Some(&known)).await.unwrap()));
    house.close().await;
}

#[tokio::test]
async fn plain_http_is_refused_without_harm() {
    let authority = Authority::new();
    let house = House::open(Listening::default(), Some(authority.tls(None))).await;
    let mut plain = house.connect().await;
    let answer = within(say(&mut plain, CHECK.as_bytes())).await.unwrap_or_default();
    assert!(!answer.contains("HTTP/1.1 200"), "{answer}");
    assert!(is_served(&ask(&house, &authority, None).await.unwrap()));
    house.close().await;
}

#[tokio::test]
async fn a_client_that_connects_and_says_nothing_loses_its_place() {
    let authority = Authority::new();
    let head_within = Duration::from_secs(2);
    let listening = Listening { connections_max: 1, head_within, ..Listening::default() };
    let house = House::open(listening, Some(authority.tls(None))).await;
    let mut silent = house.connect().await;
    let mut hanging = connect(&house, &authority, None).await.expect("the silent one's place is free");
    assert_eq!(within(hear(&mut silent)).await.unwrap(), "");
    let _ = within(hear(&mut hanging)).await; // it shook hands, and then said nothing
    assert!(is_served(&ask(&house, &authority, None).await.unwrap()));
    house.close().await;
}

#[tokio::test]
async fn handshakes_that_take_their_time_keep_nobody_waiting() {
    let authority = Authority::new();
    let hour = Duration::from_secs(3_600);
    let listening = Listening { head_within: hour, drain_timeout: hour, ..Listening::default() };
    let house = House::open(listening, Some(authority.tls(None))).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(house.connect().await);
    }
    assert!(is_served(&ask(&house, &authority, None).await.unwrap()));
    house.close().await; // nor do they keep the door from closing
    for mut stream in silent {
        assert_eq!(within(hear(&mut stream)).await.unwrap_or_default(), "");
    }
}

#[tokio::test]
async fn replaced_certificates_are_shown_from_the_next_handshake_on() {
    let (old, new) = (Authority::new(), Authority::new());
    let tls = old.tls(None);
    let house = House::open(Listening::default(), Some(tls.clone())).await;
    let mut before = connect(&house, &old, None).await.unwrap();
    tls.replace(&new.tls(None));
    assert!(ask(&house, &old, None).await.is_err());
    assert!(is_served(&ask(&house, &new, None).await.unwrap()));
    let answer = within(say(&mut before, LAST_CHECK.as_bytes())).await.unwrap();
    assert!(is_served(&answer), "a connection that stands keeps its own");
    house.close().await;
}
