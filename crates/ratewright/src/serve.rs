//! Opens the doors, and waits for the word to stop.
//!
//! ```text
//!   Config ─► Running { limiter, settings, store, watch } ─► doors
//!                          ▲        ▲
//!                          └────────┴── reload: another rule set and other settings, while doors stay open
//! ```

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ratewright_core::{Clock, Limiter, Policy, Timestamp};
use ratewright_gateway::{Found, Routes};
use ratewright_rls::is_brought;
use ratewright_server::admin::{self, Admin, Info, Labels, Metrics, Readiness};
use ratewright_server::watch::{Warnings, Watch};
use ratewright_server::{Listening, SharedSettings, entrusted, exposed, guard, rest, serve};
use ratewright_store::WallClock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};

use tracing::info;

use crate::buckets::Buckets;
use crate::config::{Config, DoorConfig, LogDenials, Source};
use crate::envoy::RateLimits;
use crate::figures;
use crate::gateway::Passage;
use crate::reload::{Fixed, Reloads, Users, is_of_file, n_policies};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the doors share.
pub(crate) struct Running {
    pub(crate) limiter: Arc<Limiter<Arc<Buckets>, Arc<Watch<WallClock>>>>,
    pub(crate) settings: SharedSettings,
    pub(crate) store: Arc<Buckets>,
    pub(crate) reloads: Reloads,
    pub(crate) passage: Passage<Arc<Watch<WallClock>>>,
    pub(crate) rate_limits: RateLimits<Arc<Watch<WallClock>>>,
    watch: Arc<Watch<WallClock>>,
    started_at: Timestamp,
    is_stopping: AtomicBool,
    is_store_required: AtomicBool,
}

/// A door that is bound, with its routes to come.
struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    config: DoorConfig,
}

/// Runs until SIGTERM or ctrl-c.
///
/// # Errors
/// If an address cannot be listened on, or the operating system refuses threads or signals.
pub(crate) fn run(config: Config, source: Source) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(async {
        let stop = stopped()?;
        let api = Bound::bind("api", config.listen.api.clone())?;
        let admin = match config.listen.admin.clone() {
            None => None,
            Some(door) => Some(Bound::bind("admin", door)?),
        };
        let gateway = match config.gateway.routes.is_empty() {
            true => None,
            false => Some(Bound::bind("gateway", config.listen.gateway.clone())?),
        };
        let grpc = match &config.envoy {
            Some(envoy) => Some((Bound::bind("grpc", config.listen.grpc.clone())?, envoy.listening)),
            None => None,
        };
        let n_doors = 1 + u64::from(grpc.is_some());
        let labels = config.labels.clone();
        let (running, follow) = Running::start(config)?;
        if gateway.is_some() {
            running.passage.set_open();
        }
        let _reloading = tokio::spawn(running.clone().follow(source, follow)?);
        greet(&api, [admin.as_ref(), gateway.as_ref(), grpc.as_ref().map(|(bound, _)| bound)], &running);

        // The admin door closes last, so that one can watch the others close.
        let (closed, closing) = tokio::sync::oneshot::channel::<()>();
        let closing = async { closing.await.unwrap_or_default() };
        let admin = admin.map(|bound| {
            let routes = running.admin_routes(labels);
            tokio::spawn(bound.serve(routes, ADMIN_PLACES, closing))
        });
        let routes = running.api_routes(exposed(api.config.address));
        let (stopping, stopped) = tokio::sync::watch::channel(());
        let stop = async {
            stop.await;
            running.is_stopping.store(true, Ordering::Relaxed);
            info!("stopping: what is in hand is finished first; ctrl-c cuts it off");
            drop(stopping);
        };
        let mut is_over = stopped.clone();
        let limiting = async {
            let stop = async { while is_over.changed().await.is_ok() {} };
            if let Some((Bound { listener, config, .. }, listening)) = grpc {
                let listening = ratewright_rls::Listening { connections_max: places(n_doors), ..listening };
                running.rate_limits.serve(listener, listening, config.tls, stop).await;
            }
            anyhow::Ok(())
        };
        let passing = async {
            match gateway {
                None => Ok(()),
                Some(bound) => running.pass(bound, stopped).await,
            }
        };
        let deciding = async {
            api.serve(routes, places(n_doors), stop).await;
            anyhow::Ok(())
        };
        // A gateway that cannot open ends the program: whoever started it must not take it for one that is there.
        let served = tokio::try_join!(passing, limiting, deciding);
        drop(closed);
        if let Some(admin) = admin {
            admin.await.context("the admin door failed")?;
        }
        served.map(|((), (), ())| ())
    })
}

/// Tells where the doors are. Nobody may be reading; that is no reason not to serve.
fn greet(api: &Bound, [admin, gateway, grpc]: [Option<&Bound>; 3], running: &Running) {
    let (url, place) = (api.url(), running.store.place());
    let admin = admin.map_or(String::new(), |admin| format!(", admin on {}", admin.url()));
    let policies = running.limiter.policies();
    let is_rule = |policy: &Policy| policy.name().starts_with(ratewright_rls_rules::PREFIX);
    let n_rules = policies.iter().filter(|policy| is_rule(policy) && !is_brought(policy)).count();
    let n_policies = n_policies(&policies, &running.passage.permits());
    let policies = match n_policies {
        0 => String::new(),
        1 => ", 1 policy".to_owned(),
        n => format!(", {n} policies"),
    };
    let call = match gateway {
        Some(gateway) => format!("-i {}/", gateway.url()),
        None if n_policies == 0 && grpc.is_some() => {
            let question = r#"{"domain": "…", "descriptors": [{"entries": [{"key": "…", "value": "…"}]}]}"#;
            format!("{url}/json -d '{question}'")
        }
        None if n_policies == 0 => format!("'{url}/api/v1/rate-limit/check?key=user:123'"),
        None => {
            let attributes = r#"{"attributes": {"ip": "192.0.2.1", "method": "GET", "path": "/"}}"#;
            format!("{url}/api/v1/decide -d '{attributes}'")
        }
    };
    let gateway = gateway.map_or(String::new(), |gateway| format!("gateway on {}, ", gateway.url()));
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
        Found::Route(route, _) => {
            rest::FoundRoute::Route { id: route.id.to_string(), policies: route.policies.to_vec() }
        }
        Found::WrongMethod(_) => rest::FoundRoute::WrongMethod,
        Found::Nowhere => rest::FoundRoute::Nowhere,
    }
}

impl Running {
    /// Starts what the doors need.
    fn start(config: Config) -> anyhow::Result<(Arc<Self>, Users)> {
        let reloads = Reloads::new(Fixed::of(&config), config.fingerprint, WallClock.now());
        let store = Arc::new(Buckets::open(config.store));
        let warnings = match config.log.denials {
            LogDenials::All => Warnings::All,
            LogDenials::PerSecond(n) => Warnings::PerSecond(n),
        };
        let watch = Arc::new(Watch::new(warnings, WallClock));
        let (settings, users) = Users::follow(config.clients, config.access, config.answers, None)?;
        let dialect = Arc::clone(&settings.dialect);
        let limiter = Arc::new(Limiter::observed(config.policies, store.clone(), watch.clone()));
        let policies = limiter.policies();
        let passage = Passage::new(config.gateway, dialect, policies, config.permits, watch.clone());
        passage.trust_for(&passage.settings())?;
        let running = Self {
            passage,
            rate_limits: RateLimits::new(limiter.clone(), config.envoy.as_ref()),
            limiter,
            settings: settings.shared(),
            store,
            reloads,
            watch,
            started_at: WallClock.now(),
            is_stopping: AtomicBool::new(false),
            is_store_required: AtomicBool::new(config.is_store_required),
        };
        Ok((Arc::new(running), users))
    }

    fn api_routes(self: &Arc<Self>, is_exposed: bool) -> Router {
        let questions = self.rate_limits.routes();
        let what = "a question of Envoy's";
        let questions = entrusted(
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

    /// Passes requests on until the program stops.
    async fn pass(&self, bound: Bound, mut stopped: tokio::sync::watch::Receiver<()>) -> anyhow::Result<()> {
        let Bound { listener, config, .. } = bound;
        let stop = async { while stopped.changed().await.is_ok() {} };
        self.passage.serve(self.limiter.clone(), listener, config.tls, stop).await
    }

    /// The admin door's routes. Those that only say yes or no are open to all; the others are guarded on loopback too, since
    /// pages in a browser come from there.
    fn admin_routes(self: &Arc<Self>, labels: Labels) -> Router {
        let admin = Arc::new(self.admin(labels));
        let guarded = admin::guarded(admin.clone()).merge(rest::key_router(self.rest(), is_of_file));
        admin::open(admin).merge(guard(guarded, self.settings.clone()))
    }

    fn rest(self: &Arc<Self>) -> rest::Rest<Arc<Buckets>, Arc<Watch<WallClock>>, WallClock> {
        let (limiter, settings) = (self.limiter.clone(), self.settings.clone());
        let [routes, permits, in_flight] = std::array::from_fn(|_| self.clone());
        let gateway = rest::Gateway {
            route: Box::new(move |host, path, method| {
                found_route(&routes.passage.settings().routes, host, path, method)
            }),
            permits: Box::new(move || permits.passage.permits()),
            in_flight: Box::new(move |key| in_flight.passage.n_in_flight(key)),
        };
        rest::Rest { limiter, settings, clock: WallClock, checks: self.watch.checks().clone(), gateway }
    }

    /// What the admin door needs.
    fn admin(self: &Arc<Self>, labels: Labels) -> Admin<WallClock> {
        let [store, policies, reloads, gateway, envoy, names, info, readiness] =
            std::array::from_fn(|_| self.clone());
        Admin {
            watch: self.watch.clone(),
            metrics: Metrics::new(labels, self.watch.clone())
                .with(move || figures::of_store(&store.store))
                .with(move || figures::of_policies(&policies.limiter.policies(), &policies.passage.permits()))
                .with(move || figures::of_reloads(&reloads.reloads))
                .with(move || figures::of_gateway(&gateway.passage))
                .with(move || figures::of_envoy(envoy.rate_limits.counts())),
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
}

impl Bound {
    fn bind(name: &str, config: DoorConfig) -> anyhow::Result<Self> {
        let listener = listen(config.address).with_context(|| {
            let address = config.address;
            format!("cannot listen on {address}; is another program using it? Set listen.{name} to another address")
        })?;
        let address = listener.local_addr().context("cannot tell the address")?;
        Ok(Self { listener, address, config })
    }

    fn url(&self) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    async fn serve(self, routes: Router, connections_max: usize, stop: impl Future<Output = ()>) {
        let listening = Listening { connections_max, ..Listening::default() };
        serve(self.listener, routes, listening, self.config.tls, stop).await;
    }
}

/// Listens, with a long queue: who comes while many come must not have to try again a second later.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    const QUEUE: u32 = 4_096;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

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
fn stopped() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for ctrl-c")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // Who does not want to wait any longer says so again.
        tokio::spawn(async move {
            interrupt.recv().await;
            #[expect(clippy::exit, reason = "nothing is to be finished any more")]
            std::process::exit(CUT_OFF);
        });
    })
}

/// How the program ends when it is told to stop at once: as any other does that ctrl-c ends.
const CUT_OFF: i32 = 130;
