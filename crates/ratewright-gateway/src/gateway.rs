//! The gateway: accepts connections and gives each to a worker.
//!
//! ```text
//!   accept ─► slot free? total, per address ─► least loaded worker ─► [PROXY protocol] ─► [TLS] ─► HTTP/1.1, HTTP/2
//! ```
//!
//! With the PROXY protocol, the client's address is known only after the header, so the limit per address is checked
//! then.
//!
//! Each core has one runtime, because moving work between threads costs more than it helps: one thread reads, limits
//! and forwards a request and sends its response.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use http::{Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use ratewright_core::{Clock, Limiter, Observe, Store};
use ratewright_http::address::network;
use ratewright_listen::{
    Alpn, LazyTimer, ParseErrors, ProxyProtocol, Shutdown, ShutdownPhase, Tls, WriteTimeout, accept_queued,
};
use ratewright_tower::PermitLimiter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::access_log::AccessLog;
use crate::backlog::Backlog;
use crate::client_tls::ClientTls;
use crate::framing_guard::{FramingGuard, GuardHandle};
use crate::headers::Peer;
use crate::idle::{TrackedBody, until_idle};
use crate::metrics::RequestMetrics;
use crate::parse_errors::ParseErrorResponder;
use crate::scheme::Scheme;
use crate::snapshot::SharedSnapshot;
use crate::stages::ConnectionContext;
use crate::stalled_stream::StreamExecutor;
use crate::tunnel::TunnelSlot;
use crate::worker::Worker;

/// How often idle upstream connections are checked per idle timeout.
const N_SWEEPS: u32 = 6;

/// The most concurrent streams of an HTTP/2 client.
const STREAMS_MAX: u32 = 250;

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

/// An accepted connection and its slot.
struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    slot: ConnectionSlot,
}

/// The number of connections, in total and per address. An IPv6 client is a network.
#[derive(Debug, Default)]
struct ConnectionSlots {
    by_address: Mutex<HashMap<IpAddr, u32>>,
    n: AtomicUsize,
}

/// A slot that is released when dropped.
struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    /// None: not known yet.
    address: Option<IpAddr>,
    n_worker_connections: Arc<AtomicUsize>,
}

/// A gateway with running workers, ready to accept connections. Dropping it stops the workers.
pub struct StartedGateway<S, O> {
    gateway: Arc<Gateway<S, O>>,
    options: GatewayOptions,
    stop: Shutdown,
    workers: Vec<WorkerHandle>,
    /// Ready when the worker has ended.
    finished: Vec<oneshot::Receiver<()>>,
}

/// Sends connections to a worker.
struct WorkerHandle {
    sender: mpsc::UnboundedSender<Accepted>,
    n_connections: Arc<AtomicUsize>,
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
    ) -> std::io::Result<StartedGateway<S, O>> {
        let (mut workers, mut finished) = (Vec::new(), Vec::new());
        for n in 0..options.n_workers.get() {
            let (sender, receiver) = mpsc::unbounded_channel();
            let n_connections = Arc::default();
            workers.push(WorkerHandle { sender, n_connections });
            let (gateway, options, stop) = (Arc::clone(&self), options.clone(), stop.clone());
            let (begun, has_begun) = std::sync::mpsc::channel();
            let (done, is_done) = oneshot::channel();
            // The thread creates its runtime: a runtime that is dropped here, in an async context, would panic.
            let work = move || {
                let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(begun.send(Err(error))),
                };
                drop(begun.send(Ok(())));
                runtime.block_on(work(gateway, receiver, options, stop));
                runtime.shutdown_background(); // drop unfinished tasks before reporting the end
                let _ = done.send(());
            };
            std::thread::Builder::new().name(format!("gateway-{n}")).spawn(work)?;
            has_begun
                .recv()
                .unwrap_or_else(|_| Err(std::io::Error::other("worker thread ended at start")))?;
            finished.push(is_done);
        }
        Ok(StartedGateway { gateway: self, options, stop, workers, finished })
    }
}

impl<S, O> StartedGateway<S, O>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// Serves until a stop. Then it accepts no more connections, and requests in flight finish.
    pub async fn serve(self, listener: TcpListener) {
        let Self { gateway, options, stop, workers, finished } = self;
        let slots = Arc::new(ConnectionSlots::default());
        let proxy = options.proxy_protocol.as_ref();
        let accepting = async {
            loop {
                match listener.accept().await {
                    Ok(accepted) => gateway.admit(accepted, &slots, &workers, proxy),
                    // Out of file descriptors, for example. This passes, but not at once.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop.accepting_ended() => {}
        }
        for accepted in accept_queued(listener) {
            gateway.admit(accepted, &slots, &workers, proxy);
        }
        drop(workers);
        for is_done in finished {
            let _ = is_done.await;
        }
    }
}

impl<S, O> Gateway<S, O> {
    /// Gives a connection to a worker, or closes it if no slot is free. With the PROXY protocol, the slot of its
    /// address is taken later.
    fn admit(
        &self,
        (stream, peer): (TcpStream, SocketAddr),
        slots: &Arc<ConnectionSlots>,
        workers: &[WorkerHandle],
        proxy: Option<&ProxyProtocol>,
    ) {
        let fewest = workers.iter().min_by_key(|worker| worker.n_connections.load(Ordering::Relaxed));
        let Some(worker) = fewest else { return };
        let snapshot = self.snapshot.load();
        let settings = &snapshot.settings;
        let per_address_max = settings.connections_per_address.map_or(u32::MAX, u32::from);
        let total_max = usize::try_from(settings.connections_max.get()).unwrap_or(usize::MAX);
        let client = proxy.is_none().then(|| network(peer.ip(), snapshot.dialect.rules.ipv6_prefix));
        let Some(slot) = slots.take(client, per_address_max, total_max, &worker.n_connections) else {
            return;
        };
        let _ = stream.set_nodelay(true);
        if let Ok(stream) = stream.into_std() {
            let _ = worker.sender.send(Accepted { stream, peer, slot });
        }
    }
}

impl ConnectionSlots {
    fn take(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        per_address_max: u32,
        total_max: usize,
        n_worker_connections: &Arc<AtomicUsize>,
    ) -> Option<ConnectionSlot> {
        if self.n.load(Ordering::Relaxed) >= total_max {
            return None;
        }
        self.n.fetch_add(1, Ordering::Relaxed);
        n_worker_connections.fetch_add(1, Ordering::Relaxed);
        let mut slot = ConnectionSlot {
            slots: Arc::clone(self),
            address: None,
            n_worker_connections: Arc::clone(n_worker_connections),
        };
        let is_taken = address.is_none_or(|address| slot.take_for(address, per_address_max));
        is_taken.then_some(slot)
    }
}

impl ConnectionSlot {
    /// Takes a slot of the client's address. False: none is free.
    fn take_for(&mut self, address: IpAddr, per_address_max: u32) -> bool {
        let mut by_address = self.slots.by_address.lock();
        let n = by_address.entry(address).or_insert(0);
        if *n >= per_address_max {
            return false;
        }
        *n += 1;
        self.address = Some(address);
        true
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.n_worker_connections.fetch_sub(1, Ordering::Relaxed);
        self.slots.n.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.address else { return };
        let mut by_address = self.slots.by_address.lock();
        if let Some(n) = by_address.get_mut(&address) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                by_address.remove(&address);
            }
        }
    }
}

/// Runs one worker.
async fn work<S, O>(
    gateway: Arc<Gateway<S, O>>,
    mut receiver: mpsc::UnboundedReceiver<Accepted>,
    options: GatewayOptions,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let worker = Arc::new(Worker::new(gateway, options.pool_idle_timeout));
    let mut connections = JoinSet::new();
    let mut sweep = tokio::time::interval(options.pool_idle_timeout / N_SWEEPS);
    loop {
        tokio::select! {
            accepted = receiver.recv() => {
                let Some(accepted) = accepted else { break };
                let (worker, options, stop) = (Arc::clone(&worker), options.clone(), stop.clone());
                connections.spawn(async move {
                    serve_accepted(&worker, accepted, options, stop).await;
                });
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
            _ = sweep.tick() => {
                worker.shared.pool.sweep();
                worker.live(); // drops an old snapshot, even without requests
            }
        }
    }
    let finish = async { while connections.join_next().await.is_some() {} };
    let timeout = async {
        stop.reached(ShutdownPhase::Draining).await;
        tokio::time::sleep(options.drain_timeout).await;
    };
    tokio::select! {
        () = finish => {}
        () = timeout => {}
    }
}

/// Serves one connection.
async fn serve_accepted<S, O>(
    worker: &Arc<Worker<S, O>>,
    accepted: Accepted,
    options: GatewayOptions,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let Accepted { stream, peer, mut slot } = accepted;
    let Ok(mut stream) = TcpStream::from_std(stream) else { return };
    let peer = match &options.proxy_protocol {
        None => peer.ip(),
        Some(proxy) => {
            // Boxed to keep the future of other connections small.
            let announcement = Box::pin(announced_client(worker, proxy, (&mut stream, peer), &mut slot));
            let client = tokio::select! {
                client = announcement => client,
                () = stop.first_request_timeout() => None,
            };
            let Some(client) = client else { return };
            client
        }
    };
    let stream = WriteTimeout::new(stream, options.write_timeout);
    match options.tls {
        None => serve_connection(worker, (peer, Scheme::Http), stream, stop).await,
        Some(tls) => {
            let within = worker.gateway.snapshot.load().settings.request_header;
            let stream = tokio::select! {
                stream = tls.accept(stream, peer, Alpn::Http2, within) => stream,
                () = stop.first_request_timeout() => None,
            };
            if let Some(stream) = stream {
                serve_connection(worker, (peer, Scheme::Https), stream, stop).await;
            }
        }
    }
    drop(slot);
}

/// The client that a load balancer announces. None: there is no valid header, or its address has no free slot.
async fn announced_client<S, O>(
    worker: &Worker<S, O>,
    proxy: &ProxyProtocol,
    (stream, peer): (&mut TcpStream, SocketAddr),
    slot: &mut ConnectionSlot,
) -> Option<IpAddr>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let within = worker.gateway.snapshot.load().settings.request_header;
    let client = proxy.client(stream, peer, within).await?.ip();
    let snapshot = worker.gateway.snapshot.load();
    let per_address_max = snapshot.settings.connections_per_address.map_or(u32::MAX, u32::from);
    let address = network(client, snapshot.dialect.rules.ipv6_prefix);
    slot.take_for(address, per_address_max).then_some(client)
}

/// Serves HTTP on a connection until either side ends it.
async fn serve_connection<S, O>(
    worker: &Arc<Worker<S, O>>,
    (peer, scheme): (IpAddr, Scheme),
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let settings = Arc::clone(&worker.gateway.snapshot.load().settings);
    let header_max = usize::try_from(settings.header_max).unwrap_or(usize::MAX);
    let stream = FramingGuard::new(stream, header_max);
    let tunnel = TunnelSlot::default();
    let (guard, backlog) = (stream.handle(), Backlog::default());
    let stream_guard = stream.handle();
    let client = ConnectionContext {
        peer: Peer::new(peer),
        scheme,
        guard,
        tunnel: tunnel.clone(),
        backlog,
        stop: stop.clone(),
    };
    let context = Arc::new((Arc::clone(worker), client));
    let idle = until_idle(Arc::downgrade(&context), stream.handle(), settings.request_header);
    let idle_timeout = settings.timeouts.idle;
    let stalled = until_idle(Arc::downgrade(&context), stream.handle(), idle_timeout);
    let parse_errors = ParseErrorResponder {
        shared: Arc::downgrade(&context),
        guard: stream.handle(),
        peer,
        n_responded: 0,
    };
    let stream = ParseErrors::new(stream, parse_errors);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let context = Arc::clone(&context);
        async move {
            let is_stream = request.version() == Version::HTTP_2;
            let mut response = context.0.respond(&context.1, request).await;
            if context.1.stop.has_begun()
                && !is_stream
                && response.status() != StatusCode::SWITCHING_PROTOCOLS
            {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            let response = response.map(|body| TrackedBody::new(body, context));
            Ok::<_, Infallible>(if is_stream {
                response.map(|body| body.of_stream(idle_timeout))
            } else {
                response
            })
        }
    });
    let mut builder = auto::Builder::new(StreamExecutor);
    builder
        .http1()
        .timer(LazyTimer::default())
        .header_read_timeout(settings.request_header)
        .max_buf_size(header_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(settings.header_max)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    drop(settings);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // Connection errors are not reported.
    let stops = until_stop(&stop, &stream_guard);
    let ends = async {
        tokio::select! {
            () = stops => {}
            () = idle => {}
        }
    };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ends => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection => served,
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

impl<S, O> std::fmt::Debug for StartedGateway<S, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartedGateway").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

impl<S, O> std::fmt::Debug for Gateway<S, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}
