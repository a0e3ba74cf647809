//! A gateway with a manual clock, scripted upstreams, and raw clients.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratewright_core::{Limiter, ManualClock, Policies, Policy, Timestamp};
use ratewright_gateway::access_log::{AccessLog, NoAccessLog};
use ratewright_gateway::metrics::{RequestMetrics, RouteMetrics};
use ratewright_gateway::route::{HostPolicy, Match, PathPattern, Timeouts};
use ratewright_gateway::upstream::{Balance, ClientTls, Health, Protocol, UpstreamServer};
use ratewright_gateway::{
    Gateway, GatewayOptions, GatewaySettings, Route, RouteTable, SharedSnapshot, Snapshot, Upstream,
};
use ratewright_http::HttpSettings;
use ratewright_http::path::Case;
use ratewright_lab::{PATIENCE, free_port, within};
use ratewright_listen::{ConnectionSetup, ShutdownPhase, ShutdownTrigger};
use ratewright_store::{MemoryStore, SystemClock};
use ratewright_tower::{PermitLimiter, Permits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A running gateway. It stops with `stop`, or with the test.
pub(crate) struct TestGateway {
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    pub(crate) snapshot: SharedSnapshot,
    pub(crate) limiter: Arc<Limiter<MemoryStore<ManualClock>>>,
    pub(crate) permits: Arc<Permits>,
    metrics: Arc<RequestMetrics>,
    switch: ShutdownTrigger,
    served: JoinHandle<()>,
}

/// The options of a test.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) policies: Vec<Policy>,
    pub(crate) permits: Vec<Policy>,
    pub(crate) settings: GatewaySettings,
    pub(crate) http_settings: HttpSettings,
    /// The trusted upstream certificates.
    pub(crate) roots: Option<RootCertStore>,
    /// How long a client may take no byte of a response.
    pub(crate) write_timeout: Option<Duration>,
    /// How long an idle upstream connection is kept.
    pub(crate) pool_idle_timeout: Option<Duration>,
    pub(crate) access_log: Option<Arc<dyn AccessLog>>,
    /// TLS and PROXY protocol of client connections.
    pub(crate) connections: ConnectionSetup,
}

/// A route that matches everything.
pub(crate) fn route(servers: &[SocketAddr]) -> Route {
    let urls: Vec<_> = servers.iter().map(|server| format!("http://{server}")).collect();
    route_to(&urls, Protocol::Http1)
}

/// A route that matches everything, to servers with this protocol.
pub(crate) fn route_to(urls: &[String], protocol: Protocol) -> Route {
    let servers = urls.iter().map(|url| UpstreamServer::parse(url).unwrap()).collect();
    Route {
        id: "all".into(),
        label: "/".into(),
        policies: Vec::new(),
        upstream: Arc::new(Upstream::new(servers, Balance::RoundRobin, protocol, Health::default())),
        timeouts: Timeouts::default(),
        body_max: 10_000_000_000,
        body_rate_min: GatewaySettings::default().body_rate_min,
        host: HostPolicy::Keep,
        retries_max: 1,
        cors: None,
    }
}

/// Settings with only this route.
pub(crate) fn settings(route: Route) -> GatewaySettings {
    let everything = PathPattern::new("/**", Case::Sensitive).unwrap();
    let matched = Match { paths: vec![everything], ..Match::default() };
    GatewaySettings { routes: RouteTable::new(vec![(matched, route)]).unwrap(), ..GatewaySettings::default() }
}

impl TestGateway {
    /// A gateway without policies.
    pub(crate) async fn in_front_of(servers: &[SocketAddr]) -> Self {
        Self::with_route(route(servers)).await
    }

    /// A gateway with this route.
    pub(crate) async fn with_route(route: Route) -> Self {
        Self::start(Setup { settings: settings(route), ..Setup::default() }).await
    }

    pub(crate) async fn start(setup: Setup) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let store = MemoryStore::new(clock.clone(), 10_000);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let tls =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls
            .with_root_certificates(setup.roots.unwrap_or_else(RootCertStore::empty))
            .with_no_client_auth();
        let metrics = Arc::<RequestMetrics>::default();
        let limiter = Arc::new(Limiter::new(Policies::new(setup.policies).unwrap(), store));
        let permitting = PermitLimiter::new(Policies::new(setup.permits).unwrap());
        let permits = Arc::clone(permitting.permits());
        let snapshot = Snapshot {
            settings: Arc::new(setup.settings),
            policies: limiter.policies(),
            permits: permitting.policies(),
            http_settings: Arc::new(setup.http_settings),
        };
        let snapshot = snapshot.shared();
        let gateway = Gateway {
            limiter: Arc::clone(&limiter),
            permits: permitting,
            snapshot: Arc::clone(&snapshot),
            clock: Arc::new(SystemClock::new()),
            wall: Arc::new(clock.clone()),
            client_tls: ClientTls::new(tls),
            metrics: Arc::clone(&metrics),
            access_log: setup.access_log.unwrap_or_else(|| Arc::new(NoAccessLog)),
        };
        // Not an ephemeral port: after a stop, another test's `bind` could take that.
        let listener = TcpListener::bind(("127.0.0.1", free_port())).await.unwrap();
        let address = listener.local_addr().unwrap();
        let options = GatewayOptions {
            n_workers: NonZeroUsize::new(2).unwrap(),
            tls: setup.connections.tls,
            proxy_protocol: setup.connections.proxy_protocol,
            write_timeout: setup.write_timeout.unwrap_or(GatewayOptions::WRITE_TIMEOUT),
            drain_timeout: PATIENCE,
            pool_idle_timeout: setup.pool_idle_timeout.unwrap_or(GatewayOptions::POOL_IDLE_TIMEOUT),
        };
        let (switch, stop) = ShutdownTrigger::new();
        let served = tokio::spawn(async move {
            Arc::new(gateway).start(options, stop).unwrap().serve(listener).await;
        });
        Self { address, clock, snapshot, limiter, permits, metrics, switch, served }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).await.unwrap())
    }

    /// Requests a path on a new connection.
    pub(crate) async fn get(&self, path: &str) -> RawResponse {
        self.connect().await.exchange(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await
    }

    /// The metrics as text: `/: 2 of 200; none: 1 of 404`.
    pub(crate) fn metrics_text(&self) -> String {
        let label = |counted: RouteMetrics| {
            let each: Vec<_> =
                counted.by_status.iter().map(|(status, n)| format!("{n} of {status}")).collect();
            format!("{}: {}", counted.label, each.join(", "))
        };
        self.metrics.read().into_iter().map(label).collect::<Vec<_>>().join("; ")
    }

    pub(crate) fn settings(&self) -> Arc<GatewaySettings> {
        Arc::clone(&self.snapshot.load().settings)
    }

    /// Replaces the settings, with the same policies.
    pub(crate) fn reload(&self, settings: GatewaySettings) {
        let snapshot = Snapshot { settings: Arc::new(settings), ..Snapshot::clone(&self.snapshot.load()) };
        self.snapshot.store(Arc::new(snapshot));
    }

    /// Starts draining.
    pub(crate) fn stop(&mut self) {
        self.advance_to(ShutdownPhase::Draining);
    }

    /// Starts a phase of the stop.
    pub(crate) fn advance_to(&self, phase: ShutdownPhase) {
        self.switch.advance_to(phase);
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(self) {
        within("it stops", self.served).await.unwrap();
    }
}

/// A raw connection, with one deadline for all that is read from it and sent over it.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    rest: Vec<u8>,
    deadline: Instant,
}

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl RawResponse {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        Self { stream, rest: Vec::new(), deadline: Instant::now() + PATIENCE }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = timeout_at(self.deadline, self.stream.write_all(bytes.as_ref())).await;
        sent.expect("it can be sent in time").unwrap();
    }

    /// Sends a request, and reads the response.
    pub(crate) async fn exchange(&mut self, request: &str) -> RawResponse {
        self.send(request).await;
        self.response().await.expect("a response")
    }

    /// Reads the next response. None: the connection ended.
    pub(crate) async fn response(&mut self) -> Option<RawResponse> {
        let head = self.read_until(b"\r\n\r\n").await?;
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let field = |line: &str| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned()));
        let headers: HashMap<_, _> = lines.filter_map(field).collect();
        let body = if status < 200 || status == 204 || status == 304 {
            Vec::new()
        } else if let Some(length) = headers.get("content-length") {
            self.read_exact(length.parse().unwrap()).await?
        } else if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            self.chunks().await?
        } else {
            self.read_to_end().await
        };
        Some(RawResponse { status, headers, body })
    }

    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = self.read_until(b"\r\n").await?;
            let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
            let chunk = self.read_exact(size).await?;
            body.extend_from_slice(&chunk);
            self.read_exact(2).await?;
            if size == 0 {
                return Some(body);
            }
        }
    }

    /// Reads up to and including these bytes.
    pub(crate) async fn read_until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.rest.windows(end.len()).position(|window| window == end) {
                let rest = self.rest.split_off(at + end.len());
                return Some(std::mem::replace(&mut self.rest, rest));
            }
            self.read().await?;
        }
    }

    pub(crate) async fn read_exact(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.rest.len() < n {
            self.read().await?;
        }
        let rest = self.rest.split_off(n);
        Some(std::mem::replace(&mut self.rest, rest))
    }

    /// Reads until the connection ends.
    pub(crate) async fn read_to_end(&mut self) -> Vec<u8> {
        while self.read().await.is_some() {}
        std::mem::take(&mut self.rest)
    }

    async fn read(&mut self) -> Option<()> {
        match timeout_at(self.deadline, self.stream.read_buf(&mut self.rest)).await {
            Ok(read) => matches!(read, Ok(1..)).then_some(()),
            Err(_) => {
                panic!("timed out after {PATIENCE:?}; read so far: {:?}", String::from_utf8_lossy(&self.rest))
            }
        }
    }
}

/// What an upstream does with a connection, and its number.
type Script = Box<dyn Fn(Client, usize) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// An upstream that runs a script for each connection.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    /// Connections so far.
    pub(crate) n_connections: Arc<AtomicUsize>,
}

impl ScriptedServer {
    pub(crate) async fn start<F>(script: impl Fn(Client, usize) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_boxed(Box::new(move |client, n| Box::pin(script(client, n)))).await
    }

    /// Boxed, so that what runs a script is compiled once and not for each of them.
    async fn start_boxed(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let n_connections = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&n_connections);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let n = counting.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(script(Client::new(stream), n));
            }
        });
        Self { address, n_connections }
    }

    /// An upstream that responds with the request line.
    pub(crate) async fn echo() -> Self {
        Self::start(|mut client, _| async move {
            while let Some(head) = client.read_until(b"\r\n\r\n").await {
                let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
                client.send(text(&line)).await;
            }
        })
        .await
    }
}

/// A response with this text.
pub(crate) fn text(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    within(what, async move {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}
