//! Opens the doors, and waits for the word to stop.
//!
//! ```text
//!   Config ─► Running { limiter, settings, store, telemetry } ─► doors
//!                          ▲        ▲
//!                          └────────┴── reload: another rule set and other settings, while doors stay open
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

use crate::buckets::Buckets;
use crate::config::{Config, ListenConfig, ListenerConfig, LogDenials, Source, StopConfig};
use crate::envoy::RateLimits;
use crate::figures;
use crate::gateway::Passage;
use crate::reload::{Following, Reloads, Users, is_of_file, n_policies};
use crate::sockets::{NamedListener, Sockets};
use crate::systemd;
use crate::upgrade::{Control, TakeOver, Upgraded};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the doors share.
pub(crate) struct Running {
    pub(crate) limiter: Arc<Limiter<Arc<Buckets>, TelemetryObserver<WallClock>>>,
    pub(crate) settings: SharedSettings,
    pub(crate) store: Arc<Buckets>,
    pub(crate) reloads: Reloads,
    pub(crate) passage: Passage<TelemetryObserver<WallClock>>,
    pub(crate) rate_limits: RateLimits<TelemetryObserver<WallClock>>,
    telemetry: Arc<Telemetry<WallClock>>,
    /// Of listeners with the PROXY protocol, by name.
    proxy_protocols: Vec<(&'static str, ProxyProtocol)>,
    /// Of listeners with TLS, by name.
    certificates: Vec<(&'static str, Tls)>,
    started_at: Timestamp,
    is_stopping: AtomicBool,
    is_store_required: AtomicBool,
}

/// A door that is bound, with its routes to come.
struct Bound {
    name: &'static str,
    listener: TcpListener,
    address: SocketAddr,
    config: ListenerConfig,
}

/// All doors that are bound.
struct Doors {
    api: Bound,
    admin: Option<Bound>,
    gateway: Option<Bound>,
    grpc: Option<(Bound, ratewright_rls::Listening)>,
}

/// Doors that serve, each in a task of its own, and what stops them.
struct Serving {
    running: Arc<Running>,
    stop_config: StopConfig,
    doors: JoinSet<()>,
    switch: ShutdownTrigger,
    /// The admin door closes last, so that one can watch the others close.
    admin: JoinSet<()>,
    admin_switch: ShutdownTrigger,
    control: Option<Control>,
}

/// Why the program stops.
#[derive(Clone, Copy, PartialEq)]
enum Why {
    Terminated,
    Interrupted,
    Replaced,
}

/// Runs until SIGTERM or ctrl-c, or until another process takes over.
///
/// # Errors
/// If an address cannot be listened on, or the operating system refuses threads or signals.
pub(crate) fn run(
    config: Config,
    source: Source,
    sockets: Sockets,
    take_over: Option<TakeOver>,
) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(async {
        let stopped = stopped()?;
        tokio::spawn(systemd::reap_orphans());
        let mut stopped = Box::pin(stopped);
        let serving = tokio::select! {
            serving = Serving::start(config, source, sockets, take_over.as_ref()) => serving,
            _ = &mut stopped => match &take_over {
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
        serving.until_stopped(stopped).await
    })
}

impl Serving {
    /// Opens all doors. A process that takes over does not return before it is ready.
    async fn start(
        config: Config,
        source: Source,
        mut sockets: Sockets,
        take_over: Option<&TakeOver>,
    ) -> anyhow::Result<Self> {
        let doors = Doors::bind(&config, &mut sockets)?;
        sockets.check_all_taken()?;
        let (labels, stop_config) = (config.labels.clone(), config.stop);
        let control = config.listen.control.clone();
        let (running, follow) = Running::start(config)?;
        if doors.gateway.is_some() {
            running.passage.set_open();
        }
        drop(tokio::spawn(running.clone().follow(source, follow)?));
        let handed = doors.clones().context("cannot clone a socket")?;
        greet(&doors, &running);
        let (switch, stop) = ShutdownTrigger::new();
        let (admin_switch, admin_stop) = ShutdownTrigger::new();
        let (mut serving, mut admin) = (JoinSet::new(), JoinSet::new());
        let old_path = take_over.map(TakeOver::path);
        let control = control.map(|path| Control::bind(&path, handed, old_path)).transpose()?;
        if take_over.is_some() {
            // Until then the old process serves all clients.
            running.until_ready().await?;
        }
        doors.serve(&running, labels, stop_config, (&mut serving, stop), (&mut admin, admin_stop))?;
        Ok(Self { running, stop_config, doors: serving, switch, admin, admin_switch, control })
    }

    /// Lets `ratewright upgrade` find this process: from now on, and not that which it replaces.
    fn open_control(&mut self) -> anyhow::Result<()> {
        self.control.as_mut().map_or(Ok(()), Control::publish)
    }

    /// Serves until there is a reason to stop, and stops.
    async fn until_stopped(
        mut self,
        mut stopped: Pin<Box<impl Future<Output = Why> + Send + 'static>>,
    ) -> anyhow::Result<()> {
        let control = self.control.take();
        let replaced = async {
            match control {
                Some(control) => Arc::new(control).serve().await,
                None => std::future::pending().await,
            }
        };
        let why = tokio::select! {
            why = &mut stopped => why,
            Upgraded = replaced => Why::Replaced,
            // A listener that ends by itself ends the program: load balancers must not take it for one that serves.
            Some(served) = self.doors.join_next() => {
                served.context("a listener failed")?;
                bail!("a listener ended");
            }
        };
        // While another process takes over, requests that still come here must not make a load balancer take the address out.
        self.running.is_stopping.store(why != Why::Replaced, Ordering::Relaxed);
        let StopConfig { delay, drain_timeout } = self.stop_config;
        match why {
            Why::Terminated => {
                systemd::stopping();
                info!(
                    "stopping: /ready answers 503; connections are accepted for {delay:?} more (stop_delay)"
                );
                self.switch.advance_to(ShutdownPhase::NotReady);
                self.admin_switch.advance_to(ShutdownPhase::NotReady);
                tokio::time::sleep(delay).await;
            }
            Why::Interrupted => {
                info!(
                    "draining: requests in flight have {drain_timeout:?} to finish; press Ctrl-C again to force the end"
                )
            }
            Why::Replaced => {
                info!("replaced by a new process; draining");
                self.switch.advance_to(ShutdownPhase::HandedOver);
                self.admin_switch.advance_to(ShutdownPhase::HandedOver);
                // Nobody waits for this process to end, so idle connections are kept: their clients may use them again.
                tokio::select! {
                    served = self.all_served() => served?,
                    // From the first signal on, Ctrl-C ends the process at once.
                    () = tokio::time::sleep(drain_timeout) => drop(tokio::spawn(stopped)),
                    _ = &mut stopped => {}
                }
            }
        }
        self.switch.advance_to(ShutdownPhase::Draining);
        self.all_served().await?;
        self.admin_switch.advance_to(ShutdownPhase::Draining);
        while let Some(served) = self.admin.join_next().await {
            served.context("the admin listener failed")?;
        }
        Ok(())
    }
}

impl Serving {
    /// Waits until all doors but the admin's have closed.
    async fn all_served(&mut self) -> anyhow::Result<()> {
        while let Some(served) = self.doors.join_next().await {
            served.context("a listener failed")?;
        }
        Ok(())
    }
}

impl Doors {
    fn bind(config: &Config, sockets: &mut Sockets) -> anyhow::Result<Self> {
        let mut bind = |name, door: &ListenerConfig| Bound::bind(name, door.clone(), sockets);
        let ListenConfig { api, admin, gateway, grpc, .. } = &config.listen;
        let gateway = (!config.gateway.routes.is_empty()).then_some(gateway);
        let grpc = config.envoy.as_ref().map(|envoy| (grpc, envoy.listening));
        Ok(Self {
            api: bind("api", api)?,
            admin: admin.as_ref().map(|door| bind("admin", door)).transpose()?,
            gateway: gateway.map(|door| bind("gateway", door)).transpose()?,
            grpc: grpc
                .map(|(door, listening)| Ok::<_, anyhow::Error>((bind("grpc", door)?, listening)))
                .transpose()?,
        })
    }

    fn each(&self) -> impl Iterator<Item = &Bound> {
        let grpc = self.grpc.as_ref().map(|(bound, _)| bound);
        std::iter::once(&self.api).chain(&self.admin).chain(&self.gateway).chain(grpc)
    }

    /// Their sockets once more, to hand them over.
    fn clones(&self) -> std::io::Result<Vec<NamedListener>> {
        let clone = |bound: &Bound| {
            let listener = bound.listener.as_fd().try_clone_to_owned()?.into();
            Ok(NamedListener { name: bound.name.to_owned(), listener })
        };
        self.each().map(clone).collect()
    }

    /// Serves each in a task of its own.
    ///
    /// # Errors
    /// If the operating system refuses threads. Then nobody has been served yet.
    fn serve(
        self,
        running: &Arc<Running>,
        labels: Labels,
        StopConfig { drain_timeout, .. }: StopConfig,
        (doors, stop): (&mut JoinSet<()>, Shutdown),
        (admin, admin_stop): (&mut JoinSet<()>, Shutdown),
    ) -> anyhow::Result<()> {
        if let Some(Bound { listener, config, .. }) = self.gateway {
            let (limiter, setup) = (running.limiter.clone(), config.connection_setup());
            doors.spawn(running.passage.start(limiter, listener, setup, drain_timeout, stop.clone())?);
        }
        let places = places(1 + u64::from(self.grpc.is_some()));
        let listening =
            move |connections_max| Listening { connections_max, drain_timeout, ..Listening::default() };
        if let Some(bound) = self.admin {
            let routes = running.admin_routes(labels);
            let listening = Listening { drain_timeout: ADMIN_DRAIN_TIMEOUT, ..listening(ADMIN_PLACES) };
            admin.spawn(bound.serve(routes, listening, admin_stop));
        }
        if let Some((Bound { listener, config, .. }, listening)) = self.grpc {
            let (running, stop) = (running.clone(), stop.clone());
            let listening = ratewright_rls::Listening { connections_max: places, ..listening };
            doors.spawn(async move {
                running.rate_limits.serve(listener, listening, config.connection_setup(), stop).await;
            });
        }
        let routes = running.api_routes(self.api.config.is_exposed());
        doors.spawn(self.api.serve(routes, listening(places), stop));
        Ok(())
    }
}

/// Tells where the doors are. Nobody may be reading; that is no reason not to serve.
fn greet(doors: &Doors, running: &Running) {
    let Doors { api, admin, gateway, grpc } = doors;
    let grpc = grpc.as_ref().map(|(bound, _)| bound);
    let (url, place, options) = (api.url(), running.store.place(), api.curl_options());
    let admin = admin.as_ref().map_or(String::new(), |admin| format!(", admin on {}", admin.url()));
    let policies = running.limiter.policies();
    let is_rule = |policy: &Policy| policy.name().starts_with(ratewright_rls_rules::PREFIX);
    let n_rules = policies.iter().filter(|policy| is_rule(policy) && !is_override_policy(policy)).count();
    let n_policies = n_policies(&policies, &running.passage.permits());
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
    // Standard output is for the access log.
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
    /// Starts what the doors need.
    fn start(config: Config) -> anyhow::Result<(Arc<Self>, Following)> {
        let proxy_protocols = config
            .open_listeners()
            .filter_map(|(name, listener)| Some((name, listener.proxy_protocol.clone()?)));
        let proxy_protocols = proxy_protocols.collect();
        let (reloads, requests) = Reloads::new(&config, WallClock.now());
        let certificates =
            config.open_listeners().filter_map(|(name, listener)| Some((name, listener.tls.clone()?)));
        let certificates = certificates.collect();
        let store = Arc::new(Buckets::open(config.store));
        let warnings = match config.log.denials {
            LogDenials::All => Warnings::All,
            LogDenials::PerSecond(n) => Warnings::PerSecond(n),
        };
        let telemetry = Arc::new(Telemetry::new(warnings, WallClock, Arc::new(SystemClock::new())));
        let (settings, users) = Users::follow(config.clients, config.access, config.answers, None)?;
        let dialect = Arc::clone(&settings.dialect);
        let watcher = TelemetryObserver::Rates(telemetry.clone());
        let limiter = Arc::new(Limiter::observed(config.policies, store.clone(), watcher));
        let policies = limiter.policies();
        let in_flight = TelemetryObserver::InFlight(telemetry.clone());
        let passage = Passage::new(config.gateway, dialect, policies, config.permits, in_flight);
        passage.trust_for(&passage.settings())?;
        let running = Self {
            passage,
            rate_limits: RateLimits::new(limiter.clone(), config.envoy.as_ref()),
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
        Ok((Arc::new(running), Following { users, requests }))
    }

    fn api_routes(self: &Arc<Self>, is_exposed: bool) -> Router {
        let questions = self.rate_limits.routes();
        let what = "a question of Envoy's";
        let questions = authorized(
            questions,
            self.settings.clone(),
            what,
            "ask about yourself at /api/v1/rate-limit/check",
        );
        let routes = rest::router(self.rest()).merge(questions);
        let routes = if is_exposed { guard(routes, self.settings.clone()) } else { routes };
        // Where probes of the original ask, and get a yes or a no.
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

    /// The admin door's routes. Those that only say yes or no are open to all; the others are guarded on loopback too, since
    /// pages in a browser come from there.
    fn admin_routes(self: &Arc<Self>, labels: Labels) -> Router {
        let admin = Arc::new(self.admin(labels));
        let guarded = admin::guarded(admin.clone()).merge(rest::key_router(self.rest(), is_of_file));
        admin::open(admin).merge(guard(guarded, self.settings.clone()))
    }

    fn rest(self: &Arc<Self>) -> rest::Rest<Arc<Buckets>, TelemetryObserver<WallClock>, WallClock> {
        let (limiter, settings) = (self.limiter.clone(), self.settings.clone());
        let [routes, permits, in_flight] = std::array::from_fn(|_| self.clone());
        let gateway = rest::GatewayView {
            route: Box::new(move |host, path, method| {
                found_route(&routes.passage.settings().routes, host, path, method)
            }),
            permits: Box::new(move || permits.passage.permits()),
            in_flight: Box::new(move |key| in_flight.passage.n_in_flight(key)),
        };
        rest::Rest { limiter, settings, clock: WallClock, gateway }
    }

    /// What the admin door needs.
    fn admin(self: &Arc<Self>, labels: Labels) -> Admin<WallClock> {
        let [store, policies, reloads, gateway, envoy, listeners] = std::array::from_fn(|_| self.clone());
        let [certificates, names, info, readiness, reload] = std::array::from_fn(|_| self.clone());
        Admin {
            telemetry: self.telemetry.clone(),
            metrics: Metrics::new(labels, self.telemetry.clone())
                .with(move || figures::of_store(&store.store))
                .with(move || figures::of_policies(&policies.limiter.policies(), &policies.passage.permits()))
                .with(move || figures::of_reloads(&reloads.reloads))
                .with(move || figures::of_gateway(&gateway.passage))
                .with(move || figures::of_envoy(envoy.rate_limits.counts()))
                .with(move || figures::of_proxy_protocols(&listeners.proxy_protocols))
                .with(move || figures::of_certificates(&certificates.certificates)),
            is_policy: Box::new(move |name| {
                names.limiter.policies().named(name).is_some()
                    || names.passage.permits().named(name).is_some()
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

    /// Says whether everything is denied without the store.
    pub(crate) fn set_store_required(&self, is_required: bool) {
        self.is_store_required.store(is_required, Ordering::Relaxed);
    }

    /// Whether requests should come. Redis need not be there, unless everything is denied without it.
    fn readiness(&self) -> Readiness {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Readiness::NotReady { reason: "it is stopping" };
        }
        if self.is_store_required.load(Ordering::Relaxed) && !self.store.is_up() {
            return Readiness::NotReady { reason: "Redis is out of reach, and store.on_failure is closed" };
        }
        Readiness::Ready
    }

    /// Waits until requests should come.
    ///
    /// # Errors
    /// If they should not come for too long.
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

impl Bound {
    fn bind(name: &'static str, config: ListenerConfig, sockets: &mut Sockets) -> anyhow::Result<Self> {
        let listener = sockets.take(name, config.address).and_then(TcpListener::from_std);
        let listener = listener.with_context(|| {
            let address = config.address;
            match sockets.old_address_with_port(address.port()) {
                Some(old) => format!("cannot listen on {address} while the old process listens on {old}; restart it to change listen.{name}, or choose another port"),
                None => format!("cannot listen on {address}; is another program using it? Set listen.{name} to another address"),
            }
        })?;
        let address = listener.local_addr().context("cannot tell the address")?;
        Ok(Self { name, listener, address, config })
    }

    fn url(&self) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// What curl needs to be heard, apart from the address.
    fn curl_options(&self) -> &'static str {
        if self.config.proxy_protocol.is_some() { "--haproxy-clientip 192.0.2.1 " } else { "" }
    }

    async fn serve(self, routes: Router, listening: Listening, stop: Shutdown) {
        serve(self.listener, routes, listening, self.config.connection_setup(), stop).await;
    }
}

/// Time for a process that takes over to become ready. The old process waits a little longer.
const READY_TIMEOUT: Duration = Duration::from_secs(50);

/// Time for requests to the admin door to finish, after all others have.
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections to the admin door: those who run it, and their machines.
const ADMIN_PLACES: usize = 256;

/// How many connections each of so many doors takes: as many as there are file descriptors for, some left for everything else. The
/// limit is raised as far as the system allows without asking.
fn places(n_doors: u64) -> usize {
    const LEFT_FOR_OTHERS: u64 = 512;
    const PLACES_MAX: u64 = 20_000;
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limits.maximum,
        Err(_) => limits.current,
    };
    let places = limit.unwrap_or(PLACES_MAX).saturating_sub(LEFT_FOR_OTHERS) / 4 * 3 / n_doors;
    usize::try_from(places.clamp(LEFT_FOR_OTHERS, PLACES_MAX)).unwrap_or(1_024)
}

/// Ready when SIGTERM or ctrl-c comes. From this call on, not from the first wait.
fn stopped() -> anyhow::Result<impl Future<Output = Why>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for ctrl-c")?;
    Ok(async move {
        let why = tokio::select! {
            _ = terminate.recv() => Why::Terminated,
            _ = interrupt.recv() => Why::Interrupted,
        };
        // Who does not want to wait any longer says so again.
        tokio::spawn(async move {
            interrupt.recv().await;
            #[expect(clippy::exit, reason = "nothing is to be finished any more")]
            std::process::exit(CUT_OFF);
        });
        why
    })
}

/// How the program ends when it is told to stop at once: as any other does that ctrl-c ends.
const CUT_OFF: i32 = 130;
