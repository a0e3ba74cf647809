//! A gateway with a clock that stands still, servers that do what they are told, and clients that speak bytes.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratewright_core::{Limiter, ManualClock, Policies, Policy, Timestamp, Unobserved};
use ratewright_gateway::{
    AccessLog, Balance, ClientTls, Counted, Counts, Gateway, Health, HostPolicy, Listening, Match,
    PathPattern, Protocol, Route, Routes, Server, Settings, SharedSnapshot, Snapshot, Timeouts, Unlogged,
    Upstream,
};
use ratewright_http::Dialect;
use ratewright_http::path::Case;
use ratewright_listen::{ConnectionSetup, ShutdownPhase, ShutdownTrigger};
use ratewright_store::{MemoryStore, SystemClock};
use ratewright_tower::Permits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Nothing here takes longer.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);

/// A running gateway. It stops when it is told, or with the test.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    pub(crate) snapshot: SharedSnapshot,
    pub(crate) limiter: Arc<Limiter<MemoryStore<ManualClock>>>,
    pub(crate) permits: Arc<Permits>,
    counts: Arc<Counts>,
    switch: ShutdownTrigger,
    served: JoinHandle<()>,
}

/// What a test chooses.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) policies: Vec<Policy>,
    pub(crate) permits: Vec<Policy>,
    pub(crate) settings: Settings,
    pub(crate) dialect: Dialect,
    /// Whose certificates of servers are good.
    pub(crate) roots: Option<RootCertStore>,
    /// Time in which a client must take some of an answer.
    pub(crate) read_within: Option<Duration>,
    /// How long an idle connection to a server is kept.
    pub(crate) kept_for: Option<Duration>,
    pub(crate) access_log: Option<Arc<dyn AccessLog>>,
    /// What happens on clients' connections before HTTP.
    pub(crate) connections: ConnectionSetup,
}

/// A route for everything.
pub(crate) fn route(servers: &[SocketAddr]) -> Route {
    let urls: Vec<_> = servers.iter().map(|server| format!("http://{server}")).collect();
    route_to(&urls, Protocol::Http1)
}

/// A route for everything, to servers that are spoken to in this way.
pub(crate) fn route_to(urls: &[String], protocol: Protocol) -> Route {
    let servers = urls.iter().map(|url| Server::parse(url).unwrap()).collect();
    Route {
        id: "all".into(),
        label: "/".into(),
        policies: Vec::new(),
        upstream: Arc::new(Upstream::new(servers, Balance::RoundRobin, protocol, Health::default())),
        timeouts: Timeouts::default(),
        body_max: 10_000_000_000,
        body_rate_min: Settings::default().body_rate_min,
        host: HostPolicy::Keep,
        retries_max: 1,
        cors: None,
    }
}

/// Settings with this route alone.
pub(crate) fn settings(route: Route) -> Settings {
    let everything = PathPattern::new("/**", Case::Sensitive).unwrap();
    let matched = Match { paths: vec![everything], ..Match::default() };
    Settings { routes: Routes::new(vec![(matched, route)]).unwrap(), ..Settings::default() }
}

impl World {
    /// A gateway that passes everything on.
    pub(crate) async fn before(servers: &[SocketAddr]) -> Self {
        Self::of(route(servers)).await
    }

    /// A gateway with this route.
    pub(crate) async fn of(route: Route) -> Self {
        Self::start(Setup { settings: settings(route), ..Setup::default() }).await
    }

    pub(crate) async fn start(setup: Setup) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let store = MemoryStore::new(clock.clone(), 10_000);
        let permits = Arc::<Permits>::default();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let tls =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls
            .with_root_certificates(setup.roots.unwrap_or_else(RootCertStore::empty))
            .with_no_client_auth();
        let counts = Arc::<Counts>::default();
        let limiter = Arc::new(Limiter::new(Policies::new(setup.policies).unwrap(), store));
        let permitting = Policies::new(setup.permits).unwrap();
        let permitting = Arc::new(Limiter::<_, Unobserved>::new(permitting, Arc::clone(&permits)));
        let snapshot = Snapshot {
            settings: Arc::new(setup.settings),
            policies: limiter.policies(),
            permits: permitting.policies(),
            dialect: Arc::new(setup.dialect),
        };
        let snapshot = snapshot.shared();
        let gateway = Gateway {
            limiter: Arc::clone(&limiter),
            permits: permitting,
            snapshot: Arc::clone(&snapshot),
            clock: Arc::new(SystemClock::new()),
            wall: Arc::new(clock.clone()),
            client_tls: ClientTls::new(tls),
            counts: Arc::clone(&counts),
            access_log: setup.access_log.unwrap_or_else(|| Arc::new(Unlogged)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listening = Listening {
            n_workers: NonZeroUsize::new(2).unwrap(),
            tls: setup.connections.tls,
            proxy_protocol: setup.connections.proxy_protocol,
            read_within: setup.read_within.unwrap_or(Listening::READ_WITHIN),
            drain_timeout: WITHIN,
            kept_for: setup.kept_for.unwrap_or(Listening::KEPT_FOR),
        };
        let (switch, stop) = ShutdownTrigger::new();
        let served = tokio::spawn(async move {
            Arc::new(gateway).start(listening, stop).unwrap().serve(listener).await;
        });
        Self { address, clock, snapshot, limiter, permits, counts, switch, served }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.unwrap(), rest: Vec::new() }
    }

    /// Asks for a path on a connection of its own.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.connect().await.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await
    }

    /// What was counted: `/: 2 of 200; none: 1 of 404`.
    pub(crate) fn counted(&self) -> String {
        let label = |counted: Counted| {
            let each: Vec<_> =
                counted.by_status.iter().map(|(status, n)| format!("{n} of {status}")).collect();
            format!("{}: {}", counted.label, each.join(", "))
        };
        self.counts.read().into_iter().map(label).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.snapshot.load().settings)
    }

    /// Puts other settings in force, with the same policies.
    pub(crate) fn reload(&self, settings: Settings) {
        let snapshot = Snapshot { settings: Arc::new(settings), ..Snapshot::clone(&self.snapshot.load()) };
        self.snapshot.store(Arc::new(snapshot));
    }

    /// Says that it is time to stop.
    pub(crate) fn stop(&mut self) {
        self.advance_to(ShutdownPhase::Draining);
    }

    /// Goes to a phase of a stop.
    pub(crate) fn advance_to(&self, phase: ShutdownPhase) {
        self.switch.advance_to(phase);
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(self) {
        within(self.served).await.unwrap();
    }
}

/// A client's connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    rest: Vec<u8>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within(self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends, and reads the answer.
    pub(crate) async fn ask(&mut self, request: &str) -> Answer {
        self.send(request).await;
        self.answer().await.expect("an answer")
    }

    /// Reads the next answer whole. Nothing, if the connection ends before.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let head = self.until(b"\r\n\r\n").await?;
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let field = |line: &str| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned()));
        let headers: HashMap<_, _> = lines.filter_map(field).collect();
        let body = if status < 200 || status == 204 || status == 304 {
            Vec::new()
        } else if let Some(length) = headers.get("content-length") {
            self.exactly(length.parse().unwrap()).await?
        } else if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            self.chunks().await?
        } else {
            self.all_that_comes().await
        };
        Some(Answer { status, headers, body })
    }

    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = self.until(b"\r\n").await?;
            let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
            let chunk = self.exactly(size).await?;
            body.extend_from_slice(&chunk);
            self.exactly(2).await?;
            if size == 0 {
                return Some(body);
            }
        }
    }

    /// Bytes up to and with this end.
    pub(crate) async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.rest.windows(end.len()).position(|window| window == end) {
                let rest = self.rest.split_off(at + end.len());
                return Some(std::mem::replace(&mut self.rest, rest));
            }
            self.read().await?;
        }
    }

    pub(crate) async fn exactly(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.rest.len() < n {
            self.read().await?;
        }
        let rest = self.rest.split_off(n);
        Some(std::mem::replace(&mut self.rest, rest))
    }

    /// All that comes until the connection ends.
    pub(crate) async fn all_that_comes(&mut self) -> Vec<u8> {
        while self.read().await.is_some() {}
        std::mem::take(&mut self.rest)
    }

    async fn read(&mut self) -> Option<()> {
        let read = within(self.stream.read_buf(&mut self.rest)).await;
        matches!(read, Ok(1..)).then_some(())
    }
}

/// A server that does with each connection what it is told.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    /// Connections so far.
    pub(crate) n_connections: Arc<AtomicUsize>,
}

impl Scripted {
    pub(crate) async fn start<F>(script: impl Fn(Client, usize) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let n_connections = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&n_connections);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let n = counting.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(script(Client { stream, rest: Vec::new() }, n));
            }
        });
        Self { address, n_connections }
    }

    /// A server that answers every request with its own first line.
    pub(crate) async fn echo() -> Self {
        Self::start(|mut client, _| async move {
            while let Some(head) = client.until(b"\r\n\r\n").await {
                let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
                client.send(text(&line)).await;
            }
        })
        .await
    }
}

/// An answer with this text.
pub(crate) fn text(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// What comes of it, within the time that anything takes here.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(WITHIN, future).await.expect("it does not take that long")
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = tokio::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WITHIN, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
