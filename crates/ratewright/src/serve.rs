//! Opens the listeners, and serves until a signal or an upgrade stops the process.
//!
//! ```text
//!   Config ─► Running { limiter, settings, store, telemetry } ─► listeners
//!                          ▲        ▲
//!                          └────────┴── reload: a new rule set and new settings, while the listeners stay open
//! ```

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ratewright_core::{Clock, Limiter, Policy, Timestamp};
use ratewright_gateway::{RouteLookup, Routes};
use ratewright_listen::{ProxyProtocol, Shutdown, ShutdownPhase, ShutdownTrigger, Tls};
use ratewright_rls::is_override_policy;
use ratewright_server::admin::{self, Admin, Info, Labels, Metrics, Readiness};
use ratewright_server::telemetry::{Telemetry, TelemetryObserver, Warnings};
use ratewright_server::{Listening, SharedSettings, authorized, guard, rest, serve};
use ratewright_store::{SystemClock, WallClock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tracing::{error, info};

use crate::config::{Config, ListenConfig, ListenerConfig, LogDenials, Source, StopConfig};
use crate::envoy::RlsHandle;
use crate::gateway::GatewayHandle;
use crate::metrics;
use crate::reload::{JwksTask, ReloadInputs, Reloads, is_of_file, n_policies};
use crate::sockets::{NamedListener, Sockets};
use crate::store::ConfiguredStore;
use crate::systemd;
use crate::upgrade::{Control, TakeOver, Upgraded};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The state that all listeners share.
pub(crate) struct Running {
    pub(crate) limiter: Arc<Limiter<Arc<ConfiguredStore>, TelemetryObserver<WallClock>>>,
    pub(crate) settings: SharedSettings,
    pub(crate) store: Arc<ConfiguredStore>,
    pub(crate) reloads: Reloads,
    pub(crate) gateway: GatewayHandle<TelemetryObserver<WallClock>>,
    pub(crate) rls: RlsHandle<TelemetryObserver<WallClock>>,
    telemetry: Arc<Telemetry<WallClock>>,
    /// The listeners with the PROXY protocol, by name.
    proxy_protocols: Vec<(&'static str, ProxyProtocol)>,
    /// The listeners with TLS, by name.
    certificates: Vec<(&'static str, Tls)>,
    started_at: Timestamp,
    is_stopping: AtomicBool,
    is_store_required: AtomicBool,
}

/// A bound listener that does not serve yet.
struct BoundListener {
    name: &'static str,
    listener: TcpListener,
    address: SocketAddr,
    config: ListenerConfig,
}

/// All bound listeners.
struct BoundListeners {
    api: BoundListener,
    admin: Option<BoundListener>,
    gateway: Option<BoundListener>,
    grpc: Option<(BoundListener, ratewright_rls::Listening)>,
}

/// The listeners that serve, each in its own task, and the triggers that stop them.
struct Serving {
    running: Arc<Running>,
    stop_config: StopConfig,
    tasks: JoinSet<()>,
    shutdown_trigger: ShutdownTrigger,
    /// The admin listener closes last, so that operators can watch the others drain.
    admin: JoinSet<()>,
    admin_shutdown_trigger: ShutdownTrigger,
    control: Option<Control>,
}

/// Why the program stops.
#[derive(Clone, Copy, PartialEq)]
enum StopReason {
    Terminated,
    Interrupted,
    Replaced,
}

/// Runs until SIGTERM or Ctrl-C, or until another process takes over.
///
/// # Errors
/// If an address is in use, or the operating system refuses threads or signals.
pub(crate) fn run(
    config: Config,
    source: Source,
    sockets: Sockets,
    take_over: Option<TakeOver>,
) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start a thread")?;
    runtime.block_on(async {
        let stop_signal = stop_signal()?;
        tokio::spawn(systemd::reap_orphans());
        let mut stop_signal = Box::pin(stop_signal);
        let serving = tokio::select! {
            serving = Serving::start(config, source, sockets, take_over.as_ref()) => serving,
            _ = &mut stop_signal => match &take_over {
                Some(_) => Err(anyhow!("stopped before it was ready")),
                None => return Ok(()),
            },
        };
        let is_replacing = take_over.is_some();
        match (&serving, take_over) {
            (Ok(_), Some(take_over)) => take_over.ready(),
            (Err(error), Some(take_over)) => take_over.fail(&format!("{error:#}")),
            (_, None) => {}
        }
        let mut serving = serving?;
        match serving.open_control() {
            Err(error) if is_replacing => error!("{error:#}; this process cannot be upgraded"), // the old one is leaving already
            opened => opened?,
        }
        systemd::ready();
        serving.until_stopped(stop_signal).await
    })
}

impl Serving {
    /// Opens all listeners. In a process that takes over, it returns only when the process is ready.
    async fn start(
        config: Config,
        source: Source,
        mut sockets: Sockets,
        take_over: Option<&TakeOver>,
    ) -> anyhow::Result<Self> {
        let listeners = BoundListeners::bind(&config, &mut sockets)?;
        sockets.check_all_taken()?;
        let (labels, stop_config) = (config.labels.clone(), config.stop);
        let control = config.listen.control.clone();
        let (running, reload_inputs) = Running::start(config)?;
        if listeners.gateway.is_some() {
            running.gateway.set_open();
        }
        drop(tokio::spawn(running.clone().follow(source, reload_inputs)?));
        let handed = listeners.clones().context("cannot clone a socket")?;
        print_startup_line(&listeners, &running);
        let (shutdown_trigger, shutdown) = ShutdownTrigger::new();
        let (admin_shutdown_trigger, admin_shutdown) = ShutdownTrigger::new();
        let (mut tasks, mut admin) = (JoinSet::new(), JoinSet::new());
        let old_path = take_over.map(TakeOver::path);
        let control = control.map(|path| Control::bind(&path, handed, old_path)).transpose()?;
        if take_over.is_some() {
            // Until this process is ready, the old process serves all clients.
            running.until_ready().await?;
        }
        listeners.serve(
            &running,
            labels,
            stop_config,
            (&mut tasks, shutdown),
            (&mut admin, admin_shutdown),
        )?;
        Ok(Self { running, stop_config, tasks, shutdown_trigger, admin, admin_shutdown_trigger, control })
    }

    /// Publishes the control socket: from now on `ratewright upgrade` reaches this process, not the one that it replaced.
    fn open_control(&mut self) -> anyhow::Result<()> {
        self.control.as_mut().map_or(Ok(()), Control::publish)
    }

    /// Serves until a signal or an upgrade, then drains.
    async fn until_stopped(
        mut self,
        mut stop_signal: Pin<Box<impl Future<Output = StopReason> + Send + 'static>>,
    ) -> anyhow::Result<()> {
        let control = self.control.take();
        let replaced = async {
            match control {
                Some(control) => Arc::new(control).serve().await,
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            reason = &mut stop_signal => reason,
            Upgraded = replaced => StopReason::Replaced,
            // If a listener ends by itself, so does the program: load balancers must not send it requests.
            Some(served) = self.tasks.join_next() => {
                served.context("listener failed")?;
                bail!("listener ended unexpectedly");
            }
        };
        // After a hand-over this process stays ready: a probe that reaches it must not take the shared address out of a load balancer.
        self.running.is_stopping.store(reason != StopReason::Replaced, Ordering::Relaxed);
        let StopConfig { delay, drain_timeout } = self.stop_config;
        match reason {
            StopReason::Terminated => {
                systemd::stopping();
                info!("stopping: /ready returns 503; still accepting connections for {delay:?} (stop_delay)");
                self.shutdown_trigger.advance_to(ShutdownPhase::NotReady);
                self.admin_shutdown_trigger.advance_to(ShutdownPhase::NotReady);
                tokio::time::sleep(delay).await;
            }
            StopReason::Interrupted => {
                info!("draining; press Ctrl-C again to force (drain_timeout {drain_timeout:?})")
            }
            StopReason::Replaced => {
                info!("replaced by a new process; draining");
                self.shutdown_trigger.advance_to(ShutdownPhase::HandedOver);
                self.admin_shutdown_trigger.advance_to(ShutdownPhase::HandedOver);
                // Keep idle connections: clients may reuse them, and nothing waits for this process to end.
                tokio::select! {
                    served = self.all_served() => served?,
                    // After the first signal, Ctrl-C forces the process to end.
                    () = tokio::time::sleep(drain_timeout) => drop(tokio::spawn(stop_signal)),
                    _ = &mut stop_signal => {}
                }
            }
        }
        self.shutdown_trigger.advance_to(ShutdownPhase::Draining);
        self.all_served().await?;
        self.admin_shutdown_trigger.advance_to(ShutdownPhase::Draining);
        while let Some(served) = self.admin.join_next().await {
            served.context("admin listener failed")?;
        }
        Ok(())
    }
}

impl Serving {
    /// Waits until all listeners but the admin listener have closed.
    async fn all_served(&mut self) -> anyhow::Result<()> {
        while let Some(served) = self.tasks.join_next().await {
            served.context("listener failed")?;
        }
        Ok(())
    }
}

impl BoundListeners {
    fn bind(config: &Config, sockets: &mut Sockets) -> anyhow::Result<Self> {
        let mut bind = |name, listener: &ListenerConfig| BoundListener::bind(name, listener.clone(), sockets);
        let ListenConfig { api, admin, gateway, grpc, .. } = &config.listen;
        let gateway = (!config.gateway.routes.is_empty()).then_some(gateway);
        let grpc = config.envoy.as_ref().map(|envoy| (grpc, envoy.listening));
        Ok(Self {
            api: bind("api", api)?,
            admin: admin.as_ref().map(|listener| bind("admin", listener)).transpose()?,
            gateway: gateway.map(|listener| bind("gateway", listener)).transpose()?,
            grpc: grpc
                .map(|(listener, listening)| Ok::<_, anyhow::Error>((bind("grpc", listener)?, listening)))
                .transpose()?,
        })
    }

    fn each(&self) -> impl Iterator<Item = &BoundListener> {
        let grpc = self.grpc.as_ref().map(|(bound, _)| bound);
        std::iter::once(&self.api).chain(&self.admin).chain(&self.gateway).chain(grpc)
    }

    /// Clones of their sockets, for a hand-over.
    fn clones(&self) -> std::io::Result<Vec<NamedListener>> {
        let clone = |bound: &BoundListener| {
            let listener = bound.listener.as_fd().try_clone_to_owned()?.into();
            Ok(NamedListener { name: bound.name.to_owned(), listener })
        };
        self.each().map(clone).collect()
    }

    /// Serves each listener in its own task.
    ///
    /// # Errors
    /// If the operating system refuses a thread. No listener has accepted a connection then.
    fn serve(
        self,
        running: &Arc<Running>,
        labels: Labels,
        StopConfig { drain_timeout, .. }: StopConfig,
        (tasks, shutdown): (&mut JoinSet<()>, Shutdown),
        (admin, admin_shutdown): (&mut JoinSet<()>, Shutdown),
    ) -> anyhow::Result<()> {
        if let Some(BoundListener { listener, config, .. }) = self.gateway {
            let (limiter, setup) = (running.limiter.clone(), config.connection_setup());
            tasks.spawn(running.gateway.start(limiter, listener, setup, drain_timeout, shutdown.clone())?);
        }
        let connections_max = connections_max_per_listener(1 + u64::from(self.grpc.is_some()));
        let listening =
            move |connections_max| Listening { connections_max, drain_timeout, ..Listening::default() };
        if let Some(bound) = self.admin {
            let routes = running.admin_routes(labels);
            let listening =
                Listening { drain_timeout: ADMIN_DRAIN_TIMEOUT, ..listening(ADMIN_CONNECTIONS_MAX) };
            admin.spawn(bound.serve(routes, listening, admin_shutdown));
        }
        if let Some((BoundListener { listener, config, .. }, listening)) = self.grpc {
            let (running, shutdown) = (running.clone(), shutdown.clone());
            let listening = ratewright_rls::Listening { connections_max, ..listening };
            tasks.spawn(async move {
                running.rls.serve(listener, listening, config.connection_setup(), shutdown).await;
            });
        }
        let routes = running.api_routes(self.api.config.is_exposed());
        tasks.spawn(self.api.serve(routes, listening(connections_max), shutdown));
        Ok(())
    }
}

/// Prints the addresses of the listeners to standard error. Ignores write errors: serving does not depend on it.
fn print_startup_line(listeners: &BoundListeners, running: &Running) {
    let BoundListeners { api, admin, gateway, grpc } = listeners;
    let grpc = grpc.as_ref().map(|(bound, _)| bound);
    let (url, place, options) = (api.url(), running.store.place(), api.curl_options());
    let admin = admin.as_ref().map_or(String::new(), |admin| format!(", admin on {}", admin.url()));
    let policies = running.limiter.policies();
    let is_rule = |policy: &Policy| policy.name().starts_with(ratewright_rls_rules::PREFIX);
    let n_rules = policies.iter().filter(|policy| is_rule(policy) && !is_override_policy(policy)).count();
    let n_policies = n_policies(&policies, &running.gateway.permits());
    let policies = match n_policies {
        0 => String::new(),
        1 => ", 1 policy".to_owned(),
        n => format!(", {n} policies"),
    };
    let call = match gateway {
        Some(gateway) => format!("{}-i {}/", gateway.curl_options(), gateway.url()),
        None if n_policies == 0 && grpc.is_some() => {
            let question = r#"{"domain": "…", "descriptors": [{"entries": [{"key": "…", "value": "…"}]}]}"#;
            format!("{options}{url}/json -d '{question}'")
        }
        None if n_policies == 0 => format!("{options}'{url}/api/v1/rate-limit/check?key=user:123'"),
        None => {
            let attributes = r#"{"attributes": {"ip": "192.0.2.1", "method": "GET", "path": "/"}}"#;
            format!("{options}{url}/api/v1/decide -d '{attributes}'")
        }
    };
    let gateway = gateway.as_ref().map_or(String::new(), |gateway| format!("gateway on {}, ", gateway.url()));
    let rules = if n_rules == 1 { "1 limit".to_owned() } else { format!("{n_rules} limits") };
    let grpc =
        grpc.map_or(String::new(), |grpc| format!("rate limits for Envoy on {}, {rules}, ", grpc.url()));
    // Standard output is reserved for the access log.
    let _ = writeln!(
        std::io::stderr(),
        "ratewright {VERSION}: {gateway}{grpc}decisions on {url}{policies}, buckets in {place}{admin}; try: curl {call}",
    );
}

/// The route of a request, for explanations.
pub(crate) fn found_route(routes: &Routes, host: Option<&str>, path: &str, method: &str) -> rest::FoundRoute {
    if routes.is_empty() {
        return rest::FoundRoute::NoRoutes;
    }
    let Ok(method) = method.parse() else { return rest::FoundRoute::WrongMethod };
    match routes.find(host, path, &method) {
        RouteLookup::Route(route, _) => {
            rest::FoundRoute::Route { id: route.id.to_string(), policies: route.policies.to_vec() }
        }
        RouteLookup::MethodNotAllowed(_) => rest::FoundRoute::WrongMethod,
        RouteLookup::NoRoute => rest::FoundRoute::Nowhere,
    }
}

impl Running {
    /// Creates the state that the listeners share.
    fn start(config: Config) -> anyhow::Result<(Arc<Self>, ReloadInputs)> {
        let proxy_protocols = config
            .open_listeners()
            .filter_map(|(name, listener)| Some((name, listener.proxy_protocol.clone()?)));
        let proxy_protocols = proxy_protocols.collect();
        let (reloads, requests) = Reloads::new(&config, WallClock.now());
        let certificates =
            config.open_listeners().filter_map(|(name, listener)| Some((name, listener.tls.clone()?)));
        let certificates = certificates.collect();
        let store = Arc::new(ConfiguredStore::open(config.store));
        let warnings = match config.log.denials {
            LogDenials::All => Warnings::All,
            LogDenials::PerSecond(n) => Warnings::PerSecond(n),
        };
        let telemetry = Arc::new(Telemetry::new(warnings, WallClock, Arc::new(SystemClock::new())));
        let (settings, jwks_task) = JwksTask::start(config.clients, config.access, config.answers, None)?;
        let dialect = Arc::clone(&settings.dialect);
        let observer = TelemetryObserver::Rates(telemetry.clone());
        let limiter = Arc::new(Limiter::observed(config.policies, store.clone(), observer));
        let policies = limiter.policies();
        let in_flight = TelemetryObserver::InFlight(telemetry.clone());
        let gateway = GatewayHandle::new(config.gateway, dialect, policies, config.permits, in_flight);
        gateway.trust_for(&gateway.settings())?;
        let running = Self {
            gateway,
            rls: RlsHandle::new(limiter.clone(), config.envoy.as_ref()),
            limiter,
            settings: settings.shared(),
            store,
            reloads,
            telemetry,
            proxy_protocols,
            certificates,
            started_at: WallClock.now(),
            is_stopping: AtomicBool::new(false),
            is_store_required: AtomicBool::new(config.is_store_required),
        };
        Ok((Arc::new(running), ReloadInputs { jwks_task, requests }))
    }

    fn api_routes(self: &Arc<Self>, is_exposed: bool) -> Router {
        let questions = self.rls.routes();
        let what = "a rate limit request of Envoy";
        let questions = authorized(
            questions,
            self.settings.clone(),
            what,
            "ask about yourself at /api/v1/rate-limit/check",
        );
        let routes = rest::router(self.rest()).merge(questions);
        let routes = if is_exposed { guard(routes, self.settings.clone()) } else { routes };
        // envoyproxy/ratelimit has this path for probes.
        let ready = self.clone();
        let healthcheck = move || async move {
            match ready.readiness() {
                Readiness::Ready => (StatusCode::OK, "OK"),
                Readiness::NotReady { .. } => (StatusCode::INTERNAL_SERVER_ERROR, ""),
            }
        };
        let routes = routes.route("/healthcheck", get(healthcheck));
        #[cfg(feature = "otel")]
        let routes = routes.layer(axum::middleware::from_fn(crate::traces::trace));
        routes
    }

    /// The admin listener's routes. Health checks are open to all; the others are guarded on loopback too, since web pages in a
    /// browser can send requests from there.
    fn admin_routes(self: &Arc<Self>, labels: Labels) -> Router {
        let admin = Arc::new(self.admin(labels));
        let guarded = admin::guarded(admin.clone()).merge(rest::key_router(self.rest(), is_of_file));
        admin::open(admin).merge(guard(guarded, self.settings.clone()))
    }

    fn rest(self: &Arc<Self>) -> rest::Rest<Arc<ConfiguredStore>, TelemetryObserver<WallClock>, WallClock> {
        let (limiter, settings) = (self.limiter.clone(), self.settings.clone());
        let [routes, permits, in_flight] = std::array::from_fn(|_| self.clone());
        let gateway = rest::GatewayView {
            route: Box::new(move |host, path, method| {
                found_route(&routes.gateway.settings().routes, host, path, method)
            }),
            permits: Box::new(move || permits.gateway.permits()),
            in_flight: Box::new(move |key| in_flight.gateway.n_in_flight(key)),
        };
        rest::Rest { limiter, settings, clock: WallClock, gateway }
    }

    /// The dependencies of the admin listener.
    fn admin(self: &Arc<Self>, labels: Labels) -> Admin<WallClock> {
        let [store, policies, reloads, gateway, envoy, listeners] = std::array::from_fn(|_| self.clone());
        let [certificates, names, info, readiness, reload] = std::array::from_fn(|_| self.clone());
        Admin {
            telemetry: self.telemetry.clone(),
            metrics: Metrics::new(labels, self.telemetry.clone())
                .with(move || metrics::of_store(&store.store))
                .with(move || metrics::of_policies(&policies.limiter.policies(), &policies.gateway.permits()))
                .with(move || metrics::of_reloads(&reloads.reloads))
                .with(move || metrics::of_gateway(&gateway.gateway))
                .with(move || metrics::of_envoy(envoy.rls.counts()))
                .with(move || metrics::of_proxy_protocols(&listeners.proxy_protocols))
                .with(move || metrics::of_certificates(&certificates.certificates)),
            is_policy: Box::new(move |name| {
                names.limiter.policies().named(name).is_some()
                    || names.gateway.permits().named(name).is_some()
            }),
            info: Box::new(move || Info {
                version: VERSION,
                generation: info.limiter.policies().generation(),
                uptime: WallClock.now().since(info.started_at),
            }),
            readiness: Box::new(move || readiness.readiness()),
            reload: Box::new(move |is_forced| {
                let running = reload.clone();
                Box::pin(async move { running.reloads.ask(is_forced).await })
            }),
        }
    }

    /// Sets whether the instance needs the store to be ready (store.on_failure: closed).
    pub(crate) fn set_store_required(&self, is_required: bool) {
        self.is_store_required.store(is_required, Ordering::Relaxed);
    }

    /// Whether the instance is ready for requests. It is ready without Redis, unless store.on_failure is closed.
    fn readiness(&self) -> Readiness {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Readiness::NotReady { reason: "the instance is stopping" };
        }
        if self.is_store_required.load(Ordering::Relaxed) && !self.store.is_up() {
            return Readiness::NotReady { reason: "Redis is unreachable and store.on_failure is closed" };
        }
        Readiness::Ready
    }

    /// Waits until the instance is ready.
    ///
    /// # Errors
    /// If it is not ready after [`READY_TIMEOUT`].
    async fn until_ready(&self) -> anyhow::Result<()> {
        let began = tokio::time::Instant::now();
        while let Readiness::NotReady { reason } = self.readiness() {
            if began.elapsed() > READY_TIMEOUT {
                bail!("not ready after {READY_TIMEOUT:?}: {reason}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl BoundListener {
    fn bind(name: &'static str, config: ListenerConfig, sockets: &mut Sockets) -> anyhow::Result<Self> {
        let listener = sockets.take(name, config.address).and_then(TcpListener::from_std);
        let listener = listener.with_context(|| {
            let address = config.address;
            match sockets.old_address_with_port(address.port()) {
                Some(old) => format!("cannot listen on {address} while the old process listens on {old}; restart it to change listen.{name}, or choose another port"),
                None => format!("cannot listen on {address}; is another program using it? Set listen.{name} to another address"),
            }
        })?;
        let address = listener.local_addr().context("cannot read the address of the socket")?;
        Ok(Self { name, listener, address, config })
    }

    fn url(&self) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The options that curl needs for this listener.
    fn curl_options(&self) -> &'static str {
        if self.config.proxy_protocol.is_some() { "--haproxy-clientip 192.0.2.1 " } else { "" }
    }

    async fn serve(self, routes: Router, listening: Listening, shutdown: Shutdown) {
        serve(self.listener, routes, listening, self.config.connection_setup(), shutdown).await;
    }
}

/// How long a process that takes over may take to become ready. The old process waits longer.
const READY_TIMEOUT: Duration = Duration::from_secs(50);

/// The drain timeout of the admin listener, which starts when the others have drained.
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The most connections to the admin listener: operators, probes and metric scrapers.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// The most connections of each of `n_listeners` listeners: three quarters of the file descriptors, shared evenly. Raises the soft
/// limit of file descriptors to the hard limit first.
fn connections_max_per_listener(n_listeners: u64) -> usize {
    const FDS_RESERVED: u64 = 512;
    const CONNECTIONS_MAX: u64 = 20_000;
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limits.maximum,
        Err(_) => limits.current,
    };
    let connections_max = limit.unwrap_or(CONNECTIONS_MAX).saturating_sub(FDS_RESERVED) / 4 * 3 / n_listeners;
    usize::try_from(connections_max.clamp(FDS_RESERVED, CONNECTIONS_MAX)).unwrap_or(1_024)
}

/// Resolves on SIGTERM or Ctrl-C. Signals count from this call on, not from the first poll.
fn stop_signal() -> anyhow::Result<impl Future<Output = StopReason>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for Ctrl-C")?;
    Ok(async move {
        let reason = tokio::select! {
            _ = terminate.recv() => StopReason::Terminated,
            _ = interrupt.recv() => StopReason::Interrupted,
        };
        // A second Ctrl-C forces the process to end.
        tokio::spawn(async move {
            interrupt.recv().await;
            #[expect(clippy::exit, reason = "the user forces the process to end")]
            std::process::exit(EXIT_FORCED);
        });
        reason
    })
}

/// Exit status after a second Ctrl-C: 128 + SIGINT, as a shell reports it.
const EXIT_FORCED: i32 = 130;
