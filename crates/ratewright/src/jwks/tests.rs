//! Keys from a real server that rotates them, misbehaves, stops and restarts. No test sleeps: each waits for its event, with a
//! deadline.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, encode};
use ratewright_core::Timestamp;
use ratewright_http::jwt::{KeySet, TokenError, TokenRules};
use ratewright_lab::within;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::subscriber::DefaultGuard;

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000 * 1_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_millis(5);

/// Waits until the condition holds.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within(what, wait).await;
}

/// An issuer, which signs tokens.
struct Signer {
    id: &'static str,
    pair: rcgen::KeyPair,
}

impl Signer {
    fn new(id: &'static str) -> Self {
        Self { id, pair: rcgen::KeyPair::generate().unwrap() }
    }

    fn published(&self) -> Answer {
        let key = DecodingKey::from_ec_pem(self.pair.public_key_pem().as_bytes()).unwrap();
        let mut jwk = Jwk::from_decoding_key(&key, Some(Algorithm::ES256)).unwrap();
        jwk.common.key_id = Some(self.id.to_owned());
        Answer::Body(json!({ "keys": [jwk] }).to_string())
    }

    /// Verifies a token of this issuer.
    fn try_at(&self, verifier: &Verifier) -> Result<(), TokenError> {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        let key = EncodingKey::from_ec_pem(self.pair.serialize_pem().as_bytes()).unwrap();
        let token = encode(&header, &json!({ "exp": 1_700_000_060 }), &key).unwrap();
        verifier.verify(&token, NOW).map(drop)
    }

    fn counts(&self, verifier: &Verifier) -> bool {
        self.try_at(verifier).is_ok()
    }
}

/// How the server responds to a request.
#[derive(Clone)]
enum Answer {
    Body(String),
    Raw(&'static str),
    HundredMegabytes,
    Stall,
    HangUp,
}

/// A server that publishes keys.
struct Server {
    url: String,
    state: Arc<State>,
}

struct State {
    answer: Mutex<Answer>,
    n_requests: AtomicUsize,
    n_now: AtomicUsize,
    n_at_once_max: AtomicUsize,
    n_bytes: AtomicUsize,
}

impl Server {
    async fn start(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}/keys?token=s3cret", listener.local_addr().unwrap());
        let counter = AtomicUsize::default;
        let state = Arc::new(State {
            answer: Mutex::new(answer),
            n_requests: counter(),
            n_now: counter(),
            n_at_once_max: counter(),
            n_bytes: counter(),
        });
        tokio::spawn(accept(listener, tls, Arc::clone(&state)));
        Self { url, state }
    }

    fn answers(&self, answer: Answer) {
        *self.state.answer.lock().unwrap() = answer;
    }

    fn n_requests(&self) -> usize {
        self.state.n_requests.load(SeqCst)
    }

    /// Waits for two more requests: the first of them may have got the previous response.
    async fn is_asked_twice(&self) {
        let before = self.n_requests();
        until("asked twice", || self.n_requests() >= before + 2).await;
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, state: Arc<State>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, state) = (tls.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            // A client that disconnects, or rejects the certificate, ends its connection only.
            let _ = match tls {
                None => state.serve(stream).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => state.serve(stream).await,
                    Err(error) => Err(error),
                },
            };
        });
    }
}

impl State {
    async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let now = self.n_now.fetch_add(1, SeqCst) + 1;
        self.n_at_once_max.fetch_max(now, SeqCst);
        self.n_requests.fetch_add(1, SeqCst);
        let answer = self.answer.lock().unwrap().clone();
        let done = self.answer(answer, &mut stream).await;
        self.n_now.fetch_sub(1, SeqCst);
        done?;
        stream.shutdown().await
    }

    async fn answer(&self, answer: Answer, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        match answer {
            Answer::HangUp => {}
            Answer::Raw(text) => stream.write_all(text.as_bytes()).await?,
            Answer::Stall => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{").await?;
                std::future::pending::<()>().await;
            }
            Answer::Body(body) => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).await?;
            }
            Answer::HundredMegabytes => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n").await?;
                for _ in 0..1000 {
                    stream.write_all(&[b' '; 100_000]).await?;
                    self.n_bytes.fetch_add(100_000, SeqCst);
                }
            }
        }
        Ok(())
    }
}

/// Captures the log of this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn begin() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (lines, tracing::subscriber::set_default(log))
    }

    /// The lines of a level.
    fn at(&self, level: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("s3cret"), "{text}");
        text.lines().filter(|line| line.contains(level)).map(str::to_owned).collect()
    }
}

/// A source that fetches continuously.
fn eager(server: &Server) -> JwksSource {
    let source = JwksSource::new(&server.url).unwrap();
    JwksSource { refresh: MOMENT, retry: MOMENT, asked_pause: MOMENT, ..source }
}

/// A source that fetches on request.
fn lazy(server: &Server) -> JwksSource {
    JwksSource {
        refresh: HOUR,
        retry: HOUR,
        asked_pause: Duration::ZERO,
        ..JwksSource::new(&server.url).unwrap()
    }
}

/// Starts fetching for a verifier that has no keys yet.
fn follow(source: JwksSource) -> (Arc<Verifier>, Refresh) {
    let verifier = Arc::new(Verifier::new(KeySet::default(), TokenRules::default()));
    let (refresh, task) = source.follow(Arc::clone(&verifier)).unwrap();
    tokio::spawn(task);
    (verifier, refresh)
}

#[tokio::test]
async fn no_token_is_valid_before_the_first_fetch() {
    let signer = Signer::new("a");
    let server = Server::start(Answer::HangUp, None).await;
    let (verifier, _refresh) = follow(eager(&server));
    server.is_asked_twice().await;
    assert_eq!(signer.try_at(&verifier), Err(TokenError::UnknownKey));
    server.answers(signer.published());
    until("verified", || signer.counts(&verifier)).await;
}

#[tokio::test]
async fn rotated_keys_are_fetched() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let server = Server::start(old.published(), None).await;
    let (verifier, _refresh) = follow(eager(&server));
    until("the old key counts", || old.counts(&verifier)).await;
    server.answers(new.published());
    until("the new key counts", || new.counts(&verifier)).await;
    assert_eq!(old.try_at(&verifier), Err(TokenError::UnknownKey));
}

#[tokio::test]
async fn an_unknown_key_requests_a_fetch() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let server = Server::start(old.published(), None).await;
    let (verifier, refresh) = follow(lazy(&server));
    until("the old key counts", || old.counts(&verifier)).await;
    server.answers(new.published());
    assert_eq!(new.try_at(&verifier), Err(TokenError::UnknownKey));
    refresh.ask();
    until("the new key counts", || new.counts(&verifier)).await;
}

#[tokio::test]
async fn many_requests_cause_one_fetch_at_a_time() {
    let server = Server::start(Signer::new("a").published(), None).await;
    let (_verifier, refresh) = follow(lazy(&server));
    until("fetched often", || {
        (0..100).for_each(|_| refresh.ask());
        server.n_requests() >= 20
    })
    .await;
    assert_eq!(server.state.n_at_once_max.load(SeqCst), 1);
}

/// The pause after `n_failures`, if a fetch is requested after a while. Time is simulated.
async fn pause(source: &JwksSource, n_failures: u32, asked_after: Option<Duration>) -> Duration {
    let asked = Notify::new();
    let start = Instant::now();
    let ask = async {
        if let Some(wait) = asked_after {
            tokio::time::sleep(wait).await;
            (0..1000).for_each(|_| asked.notify_one());
        }
    };
    tokio::join!(source.pause(n_failures, &asked), ask);
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_request_shortens_a_pause_to_half_a_minute_at_least() {
    let source = JwksSource::new("https://issuer.example/keys").unwrap();
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(seconds(pause(&source, 0, None).await.as_secs()), seconds(300));
    assert_eq!(seconds(pause(&source, 0, seconds(0)).await.as_secs()), seconds(30));
    assert_eq!(seconds(pause(&source, 0, seconds(29)).await.as_secs()), seconds(30));
    assert_eq!(seconds(pause(&source, 0, seconds(100)).await.as_secs()), seconds(100));
    assert_eq!(seconds(pause(&source, 1, seconds(0)).await.as_secs()), seconds(1));
    assert_eq!(seconds(pause(&source, 7, seconds(0)).await.as_secs()), seconds(30));
}

#[test]
fn pauses_double_with_each_failure_up_to_the_refresh() {
    let source = JwksSource::new("https://issuer.example/keys").unwrap();
    let seconds = |n_failures| source.pause_after(n_failures).as_secs();
    assert_eq!([1, 2, 3, 8, 9, 10, 33, u32::MAX].map(seconds), [1, 2, 4, 128, 256, 300, 300, 300]);
    assert_eq!(seconds(0), 300);
}

/// An outage of this kind begins and ends: the old keys stay valid, and the log reports the begin and the end once.
async fn survives(failure: Answer, cause: &str) {
    let (log, _guard) = Lines::begin();
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let server = Server::start(old.published(), None).await;
    let stalls = matches!(failure, Answer::Stall);
    let timeout = Duration::from_secs(if stalls { 1 } else { 30 });
    let (verifier, _refresh) = follow(JwksSource { timeout, ..eager(&server) });
    until("the old key counts", || old.counts(&verifier)).await;

    server.answers(failure);
    server.is_asked_twice().await;
    server.is_asked_twice().await;
    assert!(old.counts(&verifier), "old keys are better than none");
    server.answers(new.published());
    until("the new key counts", || new.counts(&verifier)).await;

    until("it said so", || log.at("INFO").len() == 1).await;
    let warnings = log.at("WARN");
    assert!(warnings.len() == 1 && warnings[0].contains(cause), "{cause}: {warnings:?}");
    assert!(server.state.n_bytes.load(SeqCst) < 50_000_000, "nobody reads all that");
}

#[tokio::test]
async fn keys_survive_a_closed_connection() {
    survives(Answer::HangUp, "cannot reach the server").await;
}

#[tokio::test]
async fn keys_survive_a_stalled_response() {
    survives(Answer::Stall, "no response within 1s").await;
}

#[tokio::test]
async fn keys_survive_a_response_that_is_too_long() {
    survives(Answer::HundredMegabytes, "response is longer than 1048576 bytes").await;
}

#[tokio::test]
async fn keys_survive_a_response_that_is_not_json() {
    survives(Answer::Body("<html>".to_owned()), "this is not a JSON Web Key Set").await;
}

#[tokio::test]
async fn keys_survive_a_response_without_keys() {
    survives(
        Answer::Body(r#"{"keys":[]}"#.to_owned()),
        "the set has no key for RS256, ES256 or EdDSA among its 0 keys",
    )
    .await;
}

#[tokio::test]
async fn keys_survive_a_status_500() {
    survives(Answer::Raw("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"), "unexpected status 500").await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n";
    survives(Answer::Raw(elsewhere), "unexpected status 302").await;
}

#[tokio::test]
async fn keys_survive_a_truncated_response() {
    survives(
        Answer::Raw("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"keys\""),
        "connection closed before the response was complete",
    )
    .await;
}

#[tokio::test]
async fn keys_survive_a_response_that_is_not_http() {
    survives(Answer::Raw("SSH-2.0-OpenSSH\r\n"), "cannot reach the server").await;
}

/// A certificate, and the TLS acceptor of the test server that uses it.
fn certificate() -> (String, TlsAcceptor) {
    let names = vec!["127.0.0.1".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key);
    (cert.pem(), TlsAcceptor::from(Arc::new(config.unwrap())))
}

#[tokio::test]
async fn the_configured_ca_verifies_the_server() {
    let (log, _guard) = Lines::begin();
    let signer = Signer::new("a");
    let (ca, tls) = certificate();
    let server = Server::start(signer.published(), Some(tls)).await;
    let (_, other_tls) = certificate();
    let stranger = Server::start(signer.published(), Some(other_tls)).await;

    let (strange, _refresh) = follow(JwksSource { ca: Some(ca.clone().into_bytes()), ..eager(&stranger) });
    until("the stranger was refused", || !log.at("WARN").is_empty()).await;
    let (trusted, _refresh) = follow(JwksSource { ca: Some(ca.into_bytes()), ..eager(&server) });
    until("verified", || signer.counts(&trusted)).await;
    assert!(!signer.counts(&strange));
    assert!(log.at("WARN")[0].contains("certificate"), "{:?}", log.at("WARN"));
    assert_eq!(stranger.n_requests(), 0);
}

#[test]
fn invalid_urls_are_rejected() {
    for odd in [
        "",
        "/keys",
        "issuer.example",
        "ftp://issuer.example/",
        "file:///keys",
        "https://u:p@issuer.example/",
    ] {
        assert!(matches!(JwksSource::new(odd), Err(SourceError::Url)), "{odd}");
    }
    let verifier = || Arc::new(Verifier::new(KeySet::default(), TokenRules::default()));
    for odd in ["", "secret", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let source =
            JwksSource { ca: Some(odd.into()), ..JwksSource::new("https://issuer.example").unwrap() };
        assert!(matches!(source.follow(verifier()), Err(SourceError::Trust(TrustError::Ca))), "{odd}");
    }
}

#[test]
fn plain_http_to_another_machine_logs_a_warning() {
    let (log, _guard) = Lines::begin();
    for (url, n_warnings) in [
        ("http://127.0.0.1/keys", 0),
        ("http://[::1]:80/keys", 0),
        ("http://localhost/keys", 0),
        ("http://issuer.example/keys?s3cret", 1),
    ] {
        let verifier = Arc::new(Verifier::new(KeySet::default(), TokenRules::default()));
        drop(JwksSource::new(url).unwrap().follow(verifier).unwrap());
        assert_eq!(log.at("WARN").len(), n_warnings, "{url}");
    }
}
