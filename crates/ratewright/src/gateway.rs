//! The gateway's door: what it needs of the program, and how a reload reaches it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use hyper_rustls::ConfigBuilderExt;
use ratewright_core::{Key, Limiter, Observe, Policies, Store};
use ratewright_gateway::{
    ClientTls, Gateway, GatewayOptions, RequestMetrics, Server, Settings, SharedSnapshot, Snapshot,
};
use ratewright_http::Dialect;
use ratewright_listen::{ConnectionSetup, Shutdown};
use ratewright_store::{SystemClock, WallClock};
use ratewright_tower::PermitLimiter;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::net::TcpListener;

use crate::access_log::Lines;

/// Time for whoever reads the access log to take what is left of it after a stop.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// What the gateway goes by while it is open.
pub(crate) struct Passage<O> {
    snapshot: SharedSnapshot,
    permits: PermitLimiter<O>,
    counts: Arc<RequestMetrics>,
    access_log: Arc<Lines>,
    client_tls: ClientTls,
    /// Whether `client_tls` knows whom the machine trusts.
    is_trusting: AtomicBool,
    /// Whether the gateway has a listener.
    is_open: AtomicBool,
}

impl<O: Observe + 'static> Passage<O> {
    pub(crate) fn new(
        settings: Settings,
        dialect: Arc<Dialect>,
        policies: Arc<Policies>,
        permits: Policies,
        observer: O,
    ) -> Self {
        let permits = PermitLimiter::observed(permits, observer);
        let settings = Arc::new(settings);
        Self {
            snapshot: Snapshot { settings, policies, permits: permits.policies(), dialect }.shared(),
            permits,
            counts: Arc::default(),
            access_log: Arc::default(),
            client_tls: trusting_nobody(),
            is_trusting: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
        }
    }

    /// Notes that the gateway has a listener.
    pub(crate) fn set_open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// How much of a key is in flight. None: the gateway is not open.
    pub(crate) fn n_in_flight(&self, key: &Key<'_>) -> Option<u32> {
        self.is_open.load(Ordering::Relaxed).then(|| self.permits.permits().n_in_flight(key))
    }

    /// Finds out whom the machine trusts, if these routes need it and nobody has asked before. They must not be put in force
    /// otherwise.
    pub(crate) fn trust_for(&self, settings: &Settings) -> anyhow::Result<()> {
        if self.is_trusting.load(Ordering::Relaxed) || !needs_trust(settings) {
            return Ok(());
        }
        let trusting = tls().with_native_roots().context(
            "no trusted certificates found on this machine, and a route has an https server; install ca-certificates, or name who signs under upstream.tls.ca",
        )?;
        self.client_tls.replace(&ClientTls::new(trusting.with_no_client_auth()));
        self.is_trusting.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Puts other routes in force, and the policies that they name, at once.
    pub(crate) fn replace(
        &self,
        settings: Settings,
        dialect: Arc<Dialect>,
        policies: Arc<Policies>,
        permits: Policies,
    ) {
        self.permits.swap(permits);
        let routes = settings.routes.inheriting(&self.settings().routes);
        let settings = Arc::new(Settings { routes, ..settings });
        let snapshot = Snapshot { settings, policies, permits: self.permits.policies(), dialect };
        self.snapshot.store(Arc::new(snapshot));
    }

    /// The policies on what is under way.
    pub(crate) fn permits(&self) -> Arc<Policies> {
        self.permits.policies()
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.snapshot.load().settings)
    }

    pub(crate) fn counts(&self) -> &RequestMetrics {
        &self.counts
    }

    pub(crate) fn access_log(&self) -> &Lines {
        &self.access_log
    }

    /// Starts its threads. The future that it returns serves until it is told to stop.
    ///
    /// # Errors
    /// If the operating system refuses threads.
    pub(crate) fn start<S: Store<Error = std::convert::Infallible> + 'static>(
        &self,
        limiter: Arc<Limiter<S, O>>,
        listener: TcpListener,
        setup: ConnectionSetup,
        drain_timeout: Duration,
        stop: Shutdown,
    ) -> anyhow::Result<impl Future<Output = ()> + Send + use<S, O>> {
        let gateway = Gateway {
            limiter,
            permits: self.permits.clone(),
            snapshot: Arc::clone(&self.snapshot),
            clock: Arc::new(SystemClock::new()),
            wall: Arc::new(WallClock),
            client_tls: self.client_tls.clone(),
            metrics: Arc::clone(&self.counts),
            access_log: self.access_log.clone(),
        };
        let writing = self.access_log.write_to(std::io::stdout()).context("cannot start threads")?;
        let n_workers = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let (write_timeout, pool_idle_timeout) =
            (GatewayOptions::WRITE_TIMEOUT, GatewayOptions::POOL_IDLE_TIMEOUT);
        let ConnectionSetup { proxy_protocol, tls } = setup;
        let listening = GatewayOptions {
            n_workers,
            tls,
            proxy_protocol,
            write_timeout,
            drain_timeout,
            pool_idle_timeout,
        };
        let started = Arc::new(gateway).start(listening, stop).context("cannot start threads")?;
        Ok(async move {
            started.serve(listener).await;
            writing.finish(TAKEN_WITHIN).await;
        })
    }
}

/// TLS with servers of whom nobody is trusted yet.
fn trusting_nobody() -> ClientTls {
    ClientTls::new(tls().with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn tls() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
}

/// True if a server must be of somebody whom the machine trusts.
fn needs_trust(settings: &Settings) -> bool {
    let upstreams = settings.routes.iter().map(|(_, route)| &route.upstream);
    upstreams
        .filter(|upstream| upstream.tls().is_none())
        .any(|upstream| upstream.servers().any(Server::is_tls))
}
