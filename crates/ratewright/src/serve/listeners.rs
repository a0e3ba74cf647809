//! The sockets of all listeners: binds them, clones them for a hand-over, and serves each in its own task.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use ratewright_core::Policy;
use ratewright_listen::Shutdown;
use ratewright_rls::is_override_policy;
use ratewright_server::admin::Labels;
use ratewright_server::{HttpListenerSettings, RejectRequest, rest, serve, serve_checked};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::VERSION;
use super::shared_state::Running;
use crate::config::{Config, ListenConfig, ListenerConfig, StopConfig};
use crate::reload::n_policies;
use crate::sockets::{NamedListener, Sockets};

/// The drain timeout of the admin listener, which starts when the others have drained.
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The most bytes of a head at the API listener. Proxies relay the headers of their clients: nginx accepts 32 KiB, and adds some.
const API_HEAD_BYTES_MAX: usize = 40 * 1024;

/// The most connections to the admin listener: operators, probes and metric scrapers.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// A bound listener that does not serve yet.
pub(super) struct BoundListener {
    name: &'static str,
    listener: TcpListener,
    address: SocketAddr,
    config: ListenerConfig,
}

/// All bound listeners.
pub(super) struct BoundListeners {
    api: BoundListener,
    admin: Option<BoundListener>,
    pub(super) gateway: Option<BoundListener>,
    grpc: Option<(BoundListener, ratewright_rls::GrpcListenerSettings)>,
}

impl BoundListeners {
    pub(super) fn bind(config: &Config, sockets: &mut Sockets) -> anyhow::Result<Self> {
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
    pub(super) fn clones(&self) -> std::io::Result<Vec<NamedListener>> {
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
    pub(super) fn serve(
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
        let listening = move |connections_max| HttpListenerSettings {
            connections_max,
            drain_timeout,
            ..HttpListenerSettings::default()
        };
        if let Some(bound) = self.admin {
            let routes = running.admin_routes(labels);
            tokio::spawn(running.clone().sample_history());
            let listening = HttpListenerSettings {
                drain_timeout: ADMIN_DRAIN_TIMEOUT,
                ..listening(ADMIN_CONNECTIONS_MAX)
            };
            admin.spawn(bound.serve(routes, listening, admin_shutdown));
        }
        if let Some((BoundListener { listener, config, .. }, listening)) = self.grpc {
            let (running, shutdown) = (running.clone(), shutdown.clone());
            let listening = ratewright_rls::GrpcListenerSettings { connections_max, ..listening };
            tasks.spawn(async move {
                running.rls.serve(listener, listening, config.connection_setup(), shutdown).await;
            });
        }
        let routes = running.api_routes(self.api.config.is_exposed());
        let settings = running.settings.clone();
        let reject: RejectRequest =
            Arc::new(move |path, headers| rest::misdirected(&settings.load(), path, headers));
        let BoundListener { listener, config, .. } = self.api;
        let listening =
            HttpListenerSettings { head_bytes_max: API_HEAD_BYTES_MAX, ..listening(connections_max) };
        let setup = config.connection_setup();
        tasks.spawn(serve_checked(listener, routes, listening, setup, (shutdown, reject)));
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

    async fn serve(self, routes: Router, listening: HttpListenerSettings, shutdown: Shutdown) {
        serve(self.listener, routes, listening, self.config.connection_setup(), shutdown).await;
    }
}

/// Prints the addresses of the listeners to standard error. Ignores write errors: serving does not depend on it.
pub(super) fn print_startup_line(listeners: &BoundListeners, running: &Running) {
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
