//! The gateway: a listener whose connections are served by workers.
//!
//! ```text
//!   listener ─► worker with the fewest connections ─► [PROXY protocol] ─► [TLS] ─► HTTP/1.1, HTTP/2
//! ```
//!
//! Each core has one runtime, because moving work between threads costs more than it helps: one thread reads, limits
//! and forwards a request and sends its response.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use ratewright_core::decision::Observe;
use ratewright_core::{Clock, Limiter, Store};
use ratewright_http::address::network;
use ratewright_listen::client_slots::{ClientLimit, ClientSlots};
use ratewright_listen::listener::{
    Accepted, ConnectionLimits, ConnectionQueue, Listener, ListenerOptions, WhenFull,
};
use ratewright_listen::{
    Alpn, ConnectionSetup, HyperTimer, ParseErrors, ProxyProtocol, Shutdown, ShutdownPhase, Tls,
};
use ratewright_tower::PermitLimiter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::abort::{AbortedRequests, KeptExchanges};
use crate::access_log::AccessLog;
use crate::framing_guard::{FramingGuard, GuardHandle};
use crate::headers::ConnectionPeer;
use crate::idle_connections::{TrackedBody, until_idle, until_still};
use crate::metrics::RequestMetrics;
use crate::parse_errors::ParseErrorResponder;
use crate::scheme::Scheme;
use crate::settings::GatewaySettings;
use crate::snapshot::SharedSnapshot;
use crate::stages::ConnectionContext;
use crate::stalled_stream::StreamExecutor;
use crate::tunnel::TunnelSlot;
use crate::unread_bodies::Backlog;
use crate::upstream_tls::ClientTls;
use crate::worker::Worker;

/// How often idle upstream connections are checked per idle timeout.
const N_SWEEPS: u32 = 6;

/// The most concurrent streams of an HTTP/2 client.
const STREAMS_MAX: u32 = 100;

/// So many requests in flight of a connection are not counted for its client: connections have a limit of their own.
const UNCOUNTED_STREAMS: usize = 8;

/// The gateway's parts.
pub struct Gateway<S, O> {
    /// Decides by the snapshot's policies on rates.
    pub limiter: Arc<Limiter<S, O>>,
    /// Decides by the snapshot's policies on concurrency.
    pub permits: PermitLimiter<O>,
    /// Settings, routes and policies.
    pub snapshot: SharedSnapshot,
    /// A monotonic clock, for durations.
    pub clock: Arc<dyn Clock>,
    /// The wall clock.
    pub wall: Arc<dyn Clock>,
    /// TLS for upstreams without their own settings.
    pub client_tls: ClientTls,
    /// Request metrics.
    pub metrics: Arc<RequestMetrics>,
    /// Gets every request if `has_access_log` is set.
    pub access_log: Arc<dyn AccessLog>,
}

/// How the gateway listens.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Worker threads, each with its own runtime.
    pub n_workers: NonZeroUsize,
    /// None: plain text.
    pub tls: Option<Tls>,
    /// None: clients connect directly.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How long a client may take no byte of a response.
    pub write_timeout: Duration,
    /// How long requests in flight may take after a stop.
    pub drain_timeout: Duration,
    /// How long an idle upstream connection is kept.
    pub pool_idle_timeout: Duration,
}

impl GatewayOptions {
    /// The default of `write_timeout`.
    pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

    /// The default of `pool_idle_timeout`.
    pub const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
}

/// The limits of the current snapshot.
struct SnapshotLimits(SharedSnapshot);

/// A gateway with running workers, ready to accept connections. Dropping it stops the workers.
#[derive(Debug)]
pub struct StartedGateway {
    listener: Listener,
    /// Ready when the worker has ended.
    finished: Vec<oneshot::Receiver<()>>,
}

impl<S, O> Gateway<S, O>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// Starts the workers. The program reports readiness only after this.
    ///
    /// # Errors
    /// If the operating system cannot create a thread or its runtime.
    pub fn start(
        self: Arc<Self>,
        options: GatewayOptions,
        stop: Shutdown,
    ) -> std::io::Result<StartedGateway> {
        let GatewayOptions { n_workers, pool_idle_timeout, .. } = options;
        let limits = SnapshotLimits(Arc::clone(&self.snapshot));
        let mut listener = Listener::new(options.into(), limits, stop);
        let mut finished = Vec::new();
        let (streams, kept) = (ClientSlots::default(), KeptExchanges::default());
        for n in 0..n_workers.get() {
            let (gateway, queue) = (Arc::clone(&self), listener.queue());
            let shared = (streams.clone(), kept.clone());
            let (begun, has_begun) = std::sync::mpsc::channel();
            let (done, is_done) = oneshot::channel();
            // The thread creates its runtime: a runtime that is dropped here, in an async context, would panic.
            let work = move || {
                let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(begun.send(Err(error))),
                };
                drop(begun.send(Ok(())));
                runtime.block_on(work(Worker::new(gateway, pool_idle_timeout, shared), queue));
                runtime.shutdown_background(); // drop unfinished tasks before reporting the end
                let _ = done.send(());
            };
            std::thread::Builder::new().name(format!("gateway-{n}")).spawn(work)?;
            has_begun
                .recv()
                .unwrap_or_else(|_| Err(std::io::Error::other("worker thread ended at start")))?;
            finished.push(is_done);
        }
        Ok(StartedGateway { listener, finished })
    }
}

impl StartedGateway {
    /// Serves until a stop. Then it accepts no more connections, and requests in flight finish.
    pub async fn serve(self, socket: TcpListener) {
        self.listener.accept(socket).await;
        for is_done in self.finished {
            let _ = is_done.await;
        }
    }
}

impl From<GatewayOptions> for ListenerOptions {
    fn from(options: GatewayOptions) -> Self {
        let GatewayOptions { tls, proxy_protocol, write_timeout, drain_timeout, .. } = options;
        let setup = ConnectionSetup { proxy_protocol, tls };
        Self { setup, alpn: Alpn::Http2, when_full: WhenFull::Close, write_timeout, drain_timeout }
    }
}

impl ConnectionLimits for SnapshotLimits {
    fn connections_max(&self) -> usize {
        usize::try_from(self.0.load().settings.connections_max.get()).unwrap_or(usize::MAX)
    }

    fn handshake_timeout(&self) -> Duration {
        self.0.load().settings.request_header
    }

    /// An IPv6 client is a network.
    fn client(&self, address: IpAddr) -> Option<ClientLimit> {
        let snapshot = self.0.load();
        let client = network(address, snapshot.http_settings.rules.ipv6_prefix);
        // Counted even without a limit: a reload may set one.
        let max = snapshot.settings.connections_per_address.map_or(u32::MAX, u32::from);
        Some(ClientLimit { client, max })
    }
}

/// Runs one worker.
async fn work<S, O>(worker: Worker<S, O>, queue: ConnectionQueue)
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let worker = Arc::new(worker);
    let sweeps = async {
        let mut sweep = tokio::time::interval(worker.shared.pool.idle_timeout() / N_SWEEPS);
        loop {
            sweep.tick().await;
            worker.shared.pool.sweep();
            worker.live(); // drops an old snapshot, even without requests
        }
    };
    let of_connection = Arc::clone(&worker);
    let serving = queue.serve(move |accepted: Accepted| {
        let Accepted { stream, client, stop, .. } = accepted;
        let scheme = if stream.is_tls() { Scheme::Https } else { Scheme::Http };
        serve_connection(Arc::clone(&of_connection), (client.ip(), scheme), stream, stop)
    });
    tokio::select! {
        () = serving => {}
        () = sweeps => {}
    }
}

/// Serves HTTP on a connection until either side ends it.
async fn serve_connection<S, O>(
    worker: Arc<Worker<S, O>>,
    (peer, scheme): (IpAddr, Scheme),
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let snapshot = worker.gateway.snapshot.load_full();
    let streams = worker.stream_slots(peer);
    let aborted = AbortedRequests::new(snapshot.http_settings.rules.proxies.trust(peer), worker.kept.clone());
    let settings = Arc::clone(&snapshot.settings);
    drop(snapshot);
    let header_max = usize::try_from(settings.header_max).unwrap_or(usize::MAX);
    let stream = FramingGuard::new(stream, header_max);
    let tunnel = TunnelSlot::default();
    let (guard, backlog) = (stream.handle(), Backlog::default());
    let stream_guard = stream.handle();
    let client = ConnectionContext {
        peer: ConnectionPeer::new(peer),
        scheme,
        guard,
        tunnel: tunnel.clone(),
        backlog,
        aborted: aborted.clone(),
        stop: stop.clone(),
    };
    let context = Arc::new((Arc::clone(&worker), client));
    let idle = until_idle(Arc::downgrade(&context), stream.handle(), settings.request_header);
    let idle_timeout = settings.timeouts.idle;
    let stalled = until_idle(Arc::downgrade(&context), stream.handle(), idle_timeout);
    let still_idle = until_still(Arc::downgrade(&context), stream.handle(), settings.request_header / 2);
    let parse_errors = ParseErrorResponder {
        shared: Arc::downgrade(&context),
        guard: stream.handle(),
        peer,
        n_responded: 0,
    };
    let stream = ParseErrors::new(stream, parse_errors);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let context = Arc::clone(&context);
        let is_stream = request.version() == Version::HTTP_2;
        let is_counted = is_stream && Arc::strong_count(&context) > 1 + UNCOUNTED_STREAMS;
        let slot = is_counted.then(|| streams.take().ok_or(Reason::REFUSED_STREAM)).transpose();
        async move {
            let slot = slot?;
            let mut response = context.0.respond(&context.1, request).await;
            if context.1.stop.has_begun()
                && !is_stream
                && response.status() != StatusCode::SWITCHING_PROTOCOLS
            {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            let response = response.map(|body| TrackedBody::new(body, context, slot));
            Ok::<_, h2::Error>(if is_stream {
                response.map(|body| body.of_stream(idle_timeout))
            } else {
                response
            })
        }
    });
    let builder = protocols(&settings, header_max);
    drop(settings);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // Connection errors are not reported.
    let stops = until_stop(&stop, &stream_guard);
    let is_idle = async {
        tokio::select! {
            () = stops => false,
            () = idle => true,
            () = aborted.exceeded() => false,
        }
    };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        is_idle = is_idle => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection => served,
                // There is no request that crossed the GOAWAY, nothing left to write, and no acknowledgement.
                () = still_idle, if is_idle => Ok(()),
                // All responses have ended, but the client does not read the rest.
                () = stalled => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        worker.count_parse_error(&*error);
    }
    tunnel.run().await;
}

/// HTTP/1.1 and HTTP/2, with their limits.
fn protocols(settings: &GatewaySettings, header_max: usize) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor);
    builder
        .http1()
        .timer(HyperTimer::default())
        .header_read_timeout(settings.request_header)
        .max_buf_size(header_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(settings.header_max)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Ready when a stop ends a connection. HTTP/2 announces at once which streams it still serves. HTTP/1.1 connections
/// close with their next response, or when draining starts; a connection without a request gets a grace period.
async fn until_stop(stop: &Shutdown, guard: &GuardHandle) {
    stop.accepting_ended().await;
    while guard.is_http1() {
        // A connection without a byte so far may still become HTTP/2.
        let again = tokio::time::sleep(Duration::from_millis(100));
        tokio::select! {
            () = stop.reached(ShutdownPhase::Draining) => {
                if guard.n_requests() == 0 {
                    stop.first_request_timeout().await;
                }
                return;
            }
            () = again => {}
        }
    }
}

impl<S, O> std::fmt::Debug for Gateway<S, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}
