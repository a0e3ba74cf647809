//! The state that all listeners share, and the routes that answer from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::bail;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ratewright_core::{Clock, Limiter, Timestamp};
use ratewright_gateway::RouteTable;
use ratewright_gateway::route::RouteLookup;
use ratewright_listen::{ProxyProtocol, Tls};
use ratewright_server::admin::{self, Admin, Labels, Metrics, PolicyFileText, Readiness};
use ratewright_server::telemetry::{Telemetry, TelemetryObserver, Warnings};
use ratewright_server::{SharedServerSettings, authorized, guard, rest};
use ratewright_store::{SystemClock, WallClock};

use super::instance::CallReadings;
use crate::config::{Config, LogDenials};
use crate::envoy::RlsHandle;
use crate::gateway::GatewayHandle;
use crate::metrics;
use crate::reload::{JwksTask, ReloadInputs, Reloads, is_of_file};
use crate::store::ConfiguredStore;

/// How long a process that takes over may take to become ready. The old process waits longer.
const READY_TIMEOUT: Duration = Duration::from_secs(50);

/// The state that all listeners share.
pub(crate) struct Running {
    pub(crate) limiter: Arc<Limiter<Arc<ConfiguredStore>, TelemetryObserver<WallClock>>>,
    pub(crate) settings: SharedServerSettings,
    pub(crate) store: Arc<ConfiguredStore>,
    pub(crate) reloads: Reloads,
    pub(crate) gateway: GatewayHandle<TelemetryObserver<WallClock>>,
    pub(crate) rls: RlsHandle<TelemetryObserver<WallClock>>,
    pub(super) telemetry: Arc<Telemetry<WallClock>>,
    /// The duration of calls to Redis, for the live page.
    pub(super) redis_calls: CallReadings,
    /// The policies as they are written, of the file that was loaded then.
    pub(super) policy_file_text: tokio::sync::Mutex<Option<(Timestamp, PolicyFileText)>>,
    /// The listeners with the PROXY protocol, by name.
    proxy_protocols: Vec<(&'static str, ProxyProtocol)>,
    /// The listeners with TLS, by name.
    certificates: Vec<(&'static str, Tls)>,
    pub(super) started_at: Timestamp,
    pub(super) is_stopping: AtomicBool,
    is_store_required: AtomicBool,
}

impl Running {
    /// Creates the state that the listeners share.
    pub(super) fn start(config: Config) -> anyhow::Result<(Arc<Self>, ReloadInputs)> {
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
        let access = (config.access, config.authorize);
        let (settings, jwks_task) = JwksTask::start(config.clients, access, config.answers, None)?;
        let http_settings = Arc::clone(&settings.http_settings);
        let observer = TelemetryObserver::Rates(telemetry.clone());
        let limiter = Arc::new(Limiter::observed(config.policies, store.clone(), observer));
        let policies = limiter.policies();
        let in_flight = TelemetryObserver::InFlight(telemetry.clone());
        let gateway = GatewayHandle::new(config.gateway, http_settings, policies, config.permits, in_flight);
        gateway.trust_for(&gateway.settings())?;
        let running = Self {
            gateway,
            rls: RlsHandle::new(limiter.clone(), config.envoy.as_ref()),
            limiter,
            settings: settings.shared(),
            store,
            reloads,
            telemetry,
            redis_calls: CallReadings::default(),
            policy_file_text: tokio::sync::Mutex::default(),
            proxy_protocols,
            certificates,
            started_at: WallClock.now(),
            is_stopping: AtomicBool::new(false),
            is_store_required: AtomicBool::new(config.is_store_required),
        };
        Ok((Arc::new(running), ReloadInputs { jwks_task, requests }))
    }

    pub(super) fn api_routes(self: &Arc<Self>, is_exposed: bool) -> Router {
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
        let routes = routes.merge(rest::authorize_router(self.rest()));
        // envoyproxy/ratelimit has this path for probes.
        let ready = self.clone();
        let healthcheck = move || async move {
            match ready.current_readiness() {
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
    pub(super) fn admin_routes(self: &Arc<Self>, labels: Labels) -> Router {
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
        let [store, policies, reloads, gateway, envoy, listeners, certificates] =
            std::array::from_fn(|_| self.clone());
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
            settings: self.settings.clone(),
            instance: self.clone(),
        }
    }

    /// Fills the history that the live page shows. Never returns.
    pub(super) async fn sample_history(self: Arc<Self>) {
        admin::sample_every_second(self.telemetry.clone()).await;
    }

    /// Sets whether the instance needs the store to be ready (store.on_failure: closed).
    pub(crate) fn set_store_required(&self, is_required: bool) {
        self.is_store_required.store(is_required, Ordering::Relaxed);
    }

    /// Whether the instance is ready for requests. It is ready without Redis, unless store.on_failure is closed.
    pub(super) fn current_readiness(&self) -> Readiness {
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
    pub(super) async fn until_ready(&self) -> anyhow::Result<()> {
        let began = tokio::time::Instant::now();
        while let Readiness::NotReady { reason } = self.current_readiness() {
            if began.elapsed() > READY_TIMEOUT {
                bail!("not ready after {READY_TIMEOUT:?}: {reason}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// The route of a request, for explanations.
pub(crate) fn found_route(
    routes: &RouteTable,
    host: Option<&str>,
    path: &str,
    method: &str,
) -> rest::FoundRoute {
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
