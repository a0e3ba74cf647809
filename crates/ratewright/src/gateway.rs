//! The program's handle on the gateway: starts it, and gives it new settings after a reload.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use hyper_rustls::ConfigBuilderExt;
use ratewright_core::decision::Observe;
use ratewright_core::store::Key;
use ratewright_core::{Limiter, Policies, Store};
use ratewright_gateway::metrics::RequestMetrics;
use ratewright_gateway::upstream::{ClientTls, UpstreamServer};
use ratewright_gateway::{Gateway, GatewayOptions, GatewaySettings, SharedSnapshot, Snapshot};
use ratewright_http::HttpSettings;
use ratewright_listen::{ConnectionSetup, Shutdown};
use ratewright_store::{SystemClock, WallClock};
use ratewright_tower::PermitLimiter;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::net::TcpListener;

use crate::access_log::AccessLogBuffer;

/// How long a stop waits for the access log to be written.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The state that the gateway and the rest of the program share.
pub(crate) struct GatewayHandle<O> {
    snapshot: SharedSnapshot,
    permits: PermitLimiter<O>,
    counts: Arc<RequestMetrics>,
    access_log: Arc<AccessLogBuffer>,
    client_tls: ClientTls,
    /// Whether `client_tls` has the machine's root certificates.
    is_trusting: AtomicBool,
    /// Whether the gateway has a listener.
    is_open: AtomicBool,
}

impl<O: Observe + 'static> GatewayHandle<O> {
    pub(crate) fn new(
        settings: GatewaySettings,
        http_settings: Arc<HttpSettings>,
        policies: Arc<Policies>,
        permits: Policies,
        observer: O,
    ) -> Self {
        let permits = PermitLimiter::observed(permits, observer);
        let settings = Arc::new(settings);
        Self {
            snapshot: Snapshot { settings, policies, permits: permits.policies(), http_settings }.shared(),
            permits,
            counts: Arc::default(),
            access_log: Arc::default(),
            client_tls: trusting_nobody(),
            is_trusting: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
        }
    }

    /// Records that the gateway has a listener.
    pub(crate) fn set_open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// The number of requests of a key in flight; `None` if the gateway has no listener.
    pub(crate) fn n_in_flight(&self, key: &Key<'_>) -> Option<u32> {
        self.is_open.load(Ordering::Relaxed).then(|| self.permits.permits().n_in_flight(key))
    }

    /// Loads the machine's root certificates, if these routes need them and they are not loaded yet.
    ///
    /// # Errors
    /// If there are none. The routes must not be put in force then.
    pub(crate) fn trust_for(&self, settings: &GatewaySettings) -> anyhow::Result<()> {
        if self.is_trusting.load(Ordering::Relaxed) || !needs_trust(settings) {
            return Ok(());
        }
        let trusting = tls().with_native_roots().context(
            "no root certificates found on this machine, and a route has an https upstream; install ca-certificates, or set upstream.tls.ca",
        )?;
        self.client_tls.replace(&ClientTls::new(trusting.with_no_client_auth()));
        self.is_trusting.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Puts new routes in force, together with the policies that they name.
    pub(crate) fn replace(
        &self,
        settings: GatewaySettings,
        http_settings: Arc<HttpSettings>,
        policies: Arc<Policies>,
        permits: Policies,
    ) {
        self.permits.swap(permits);
        let routes = settings.routes.inheriting(&self.settings().routes);
        let settings = Arc::new(GatewaySettings { routes, ..settings });
        let snapshot = Snapshot { settings, policies, permits: self.permits.policies(), http_settings };
        self.snapshot.store(Arc::new(snapshot));
    }

    /// The policies on requests in flight.
    pub(crate) fn permits(&self) -> Arc<Policies> {
        self.permits.policies()
    }

    pub(crate) fn settings(&self) -> Arc<GatewaySettings> {
        Arc::clone(&self.snapshot.load().settings)
    }

    pub(crate) fn counts(&self) -> &RequestMetrics {
        &self.counts
    }

    pub(crate) fn access_log(&self) -> &AccessLogBuffer {
        &self.access_log
    }

    /// Starts the gateway's threads. The returned future serves until `stop`.
    ///
    /// # Errors
    /// If the operating system refuses a thread.
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
        let writing = self.access_log.write_to(std::io::stdout()).context("cannot start a thread")?;
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
        let started = Arc::new(gateway).start(listening, stop).context("cannot start a thread")?;
        Ok(async move {
            started.serve(listener).await;
            writing.finish(FINISH_TIMEOUT).await;
        })
    }
}

/// TLS to upstreams, without root certificates yet.
fn trusting_nobody() -> ClientTls {
    ClientTls::new(tls().with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn tls() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
}

/// True if an upstream's certificate must be verified with the machine's root certificates.
fn needs_trust(settings: &GatewaySettings) -> bool {
    let upstreams = settings.routes.iter().map(|(_, route)| &route.upstream);
    upstreams
        .filter(|upstream| upstream.tls().is_none())
        .any(|upstream| upstream.servers().any(UpstreamServer::is_tls))
}
