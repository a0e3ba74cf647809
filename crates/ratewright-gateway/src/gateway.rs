//! The gateway as a whole: takes connections, and gives each to a worker.
//!
//! ```text
//!   accept ── place? place for this address? ──► the worker with the fewest ── thread: [PROXY protocol] ─► [TLS] ─► HTTP/1.1 or HTTP/2
//! ```
//!
//! With the PROXY protocol the client's address is known after the header only, and so is whether there is a place for it.
//!
//! There is one runtime for each core, because work that moves between threads costs more than it helps: a request is
//! read, limited, sent on and answered by one thread.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::access_log::AccessLog;
use crate::backlog::Backlog;
use crate::client_tls::ClientTls;
use crate::counts::Counts;
use crate::headers::Peer;
use crate::idle::{Passing, until_idle};
use crate::scheme::Scheme;
use crate::snapshot::SharedSnapshot;
use crate::stages::Client;
use crate::strict::{Flag, Strict};
use crate::tunnel::Opening;
use crate::unparsed::Unparsed;
use crate::window::Streams;
use crate::worker::{PermitLimiter, Worker};

/// How often idle connections to servers are looked through while they are kept.
const N_SWEEPS: u32 = 6;

/// Streams that an HTTP/2 client may have open at once.
const STREAMS_MAX: u32 = 250;

/// What the gateway needs.
pub struct Gateway<S, O> {
    /// Who decides, by the snapshot's policies.
    pub limiter: Arc<Limiter<S, O>>,
    /// Who gives permits to be under way.
    pub permits: Arc<PermitLimiter<O>>,
    /// Routes and bounds, and the policies that go with them.
    pub snapshot: SharedSnapshot,
    /// Tells how long things take.
    pub clock: Arc<dyn Clock>,
    /// Tells the time of day.
    pub wall: Arc<dyn Clock>,
    /// Whose certificates of servers are good, where an upstream says nothing else.
    pub client_tls: ClientTls,
    /// What is counted.
    pub counts: Arc<Counts>,
    /// Who is told of every request, if the settings say so.
    pub access_log: Arc<dyn AccessLog>,
}

/// How the gateway listens.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Threads, each with a runtime of its own.
    pub n_workers: NonZeroUsize,
    /// With or without TLS.
    pub tls: Option<Tls>,
    /// Load balancers announce the client, or nobody does.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Time in which a client must take some of an answer.
    pub read_within: Duration,
    /// Time for requests in hand to finish after a stop.
    pub drain_timeout: Duration,
    /// How long an idle connection to a server is kept.
    pub kept_for: Duration,
}

impl Listening {
    /// What clients are usually given to take some of an answer.
    pub const READ_WITHIN: Duration = Duration::from_secs(60);

    /// How long idle connections to servers are usually kept.
    pub const KEPT_FOR: Duration = Duration::from_secs(60);
}

/// A connection of a client, and its place.
struct Guest {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    place: Place,
}

/// How many connections there are, in all and from each address; of IPv6 from each network that makes one client.
#[derive(Debug, Default)]
struct Places {
    by_address: Mutex<HashMap<IpAddr, u32>>,
    n: AtomicUsize,
}

/// A place that is free again when this is dropped.
struct Place {
    places: Arc<Places>,
    /// None: the client's address is not known yet.
    address: Option<IpAddr>,
    n_of_worker: Arc<AtomicUsize>,
}

/// A gateway whose workers run: it only has to accept connections. Dropped, it ends them.
pub struct Started<S, O> {
    gateway: Arc<Gateway<S, O>>,
    listening: Listening,
    stop: Shutdown,
    desks: Vec<Desk>,
    /// Ready when a worker has ended.
    finished: Vec<oneshot::Receiver<()>>,
}

/// Where a worker takes its connections from.
struct Desk {
    guests: mpsc::UnboundedSender<Guest>,
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
    /// If the operating system refuses threads, or what their runtimes need.
    pub fn start(self: Arc<Self>, listening: Listening, stop: Shutdown) -> std::io::Result<Started<S, O>> {
        let (mut desks, mut finished) = (Vec::new(), Vec::new());
        for n in 0..listening.n_workers.get() {
            let (guests, waiting) = mpsc::unbounded_channel();
            let n_connections = Arc::default();
            desks.push(Desk { guests, n_connections });
            let (gateway, listening, stop) = (Arc::clone(&self), listening.clone(), stop.clone());
            let (begun, has_begun) = std::sync::mpsc::channel();
            let (done, is_done) = oneshot::channel();
            // The thread makes its runtime itself: one that is dropped here, for want of a thread, would panic.
            let work = move || {
                let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(begun.send(Err(error))),
                };
                drop(begun.send(Ok(())));
                runtime.block_on(work(gateway, waiting, listening, stop));
                runtime.shutdown_background(); // what was not done in time ends before we say so
                let _ = done.send(());
            };
            std::thread::Builder::new().name(format!("gateway-{n}")).spawn(work)?;
            has_begun.recv().unwrap_or_else(|_| Err(std::io::Error::other("a worker ended at once")))?;
            finished.push(is_done);
        }
        Ok(Started { gateway: self, listening, stop, desks, finished })
    }
}

impl<S, O> Started<S, O>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// Serves until it is told to stop. Then no connection is accepted any more, and requests in flight finish.
    pub async fn serve(self, listener: TcpListener) {
        let Self { gateway, listening, stop, desks, finished } = self;
        let places = Arc::new(Places::default());
        let proxy = listening.proxy_protocol.as_ref();
        let accepting = async {
            loop {
                match listener.accept().await {
                    Ok(accepted) => gateway.admit(accepted, &places, &desks, proxy),
                    // Running out of file descriptors passes; trying without a pause would not help.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop.accepting_ended() => {}
        }
        for accepted in accept_queued(listener) {
            gateway.admit(accepted, &places, &desks, proxy);
        }
        drop(desks);
        for is_done in finished {
            let _ = is_done.await;
        }
    }
}

impl<S, O> Gateway<S, O> {
    /// Gives a new connection to a worker, or closes it if there is no place for it. Of a client whose address a load balancer
    /// announces, the place among those of its address is taken later.
    fn admit(
        &self,
        (stream, peer): (TcpStream, SocketAddr),
        places: &Arc<Places>,
        desks: &[Desk],
        proxy: Option<&ProxyProtocol>,
    ) {
        let fewest = desks.iter().min_by_key(|desk| desk.n_connections.load(Ordering::Relaxed));
        let Some(desk) = fewest else { return };
        let snapshot = self.snapshot.load();
        let settings = &snapshot.settings;
        let per_address = settings.connections_per_address.map_or(u32::MAX, u32::from);
        let all = usize::try_from(settings.connections_max.get()).unwrap_or(usize::MAX);
        let client = proxy.is_none().then(|| network(peer.ip(), snapshot.dialect.rules.ipv6_prefix));
        let Some(place) = places.take(client, per_address, all, &desk.n_connections) else { return };
        let _ = stream.set_nodelay(true);
        if let Ok(stream) = stream.into_std() {
            let _ = desk.guests.send(Guest { stream, peer, place });
        }
    }
}

impl Places {
    fn take(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        per_address: u32,
        all: usize,
        n_of_worker: &Arc<AtomicUsize>,
    ) -> Option<Place> {
        if self.n.load(Ordering::Relaxed) >= all {
            return None;
        }
        self.n.fetch_add(1, Ordering::Relaxed);
        n_of_worker.fetch_add(1, Ordering::Relaxed);
        let mut place =
            Place { places: Arc::clone(self), address: None, n_of_worker: Arc::clone(n_of_worker) };
        let is_taken = address.is_none_or(|address| place.take_of(address, per_address));
        is_taken.then_some(place)
    }
}

impl Place {
    /// Takes one of the places of the client's address. False: all of them are taken.
    fn take_of(&mut self, address: IpAddr, per_address: u32) -> bool {
        let mut by_address = self.places.by_address.lock();
        let n = by_address.entry(address).or_insert(0);
        if *n >= per_address {
            return false;
        }
        *n += 1;
        self.address = Some(address);
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.n_of_worker.fetch_sub(1, Ordering::Relaxed);
        self.places.n.fetch_sub(1, Ordering::Relaxed);
        let Some(address) = self.address else { return };
        let mut by_address = self.places.by_address.lock();
        if let Some(n) = by_address.get_mut(&address) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                by_address.remove(&address);
            }
        }
    }
}

/// One worker's life.
async fn work<S, O>(
    gateway: Arc<Gateway<S, O>>,
    mut guests: mpsc::UnboundedReceiver<Guest>,
    listening: Listening,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let worker = Arc::new(Worker::new(gateway, listening.kept_for));
    let mut connections = JoinSet::new();
    let mut sweep = tokio::time::interval(listening.kept_for / N_SWEEPS);
    loop {
        tokio::select! {
            guest = guests.recv() => {
                let Some(guest) = guest else { break };
                let (worker, listening, stop) = (Arc::clone(&worker), listening.clone(), stop.clone());
                connections.spawn(async move {
                    receive(&worker, guest, listening, stop).await;
                });
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
            _ = sweep.tick() => {
                worker.shared.pool.sweep();
                worker.live(); // lets go of an old snapshot, also if no request comes
            }
        }
    }
    let finish = async { while connections.join_next().await.is_some() {} };
    let timeout = async {
        stop.reached(ShutdownPhase::Draining).await;
        tokio::time::sleep(listening.drain_timeout).await;
    };
    tokio::select! {
        () = finish => {}
        () = timeout => {}
    }
}

/// Receives one connection.
async fn receive<S, O>(worker: &Arc<Worker<S, O>>, guest: Guest, listening: Listening, stop: Shutdown)
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let Guest { stream, peer, mut place } = guest;
    let Ok(mut stream) = TcpStream::from_std(stream) else { return };
    let peer = match &listening.proxy_protocol {
        None => peer.ip(),
        Some(proxy) => {
            // Boxed, so that other connections need not have the room for it.
            let announced = Box::pin(announced(worker, proxy, (&mut stream, peer), &mut place));
            let client = tokio::select! {
                client = announced => client,
                () = stop.first_request_timeout() => None,
            };
            let Some(client) = client else { return };
            client
        }
    };
    let stream = WriteTimeout::new(stream, listening.read_within);
    match listening.tls {
        None => converse(worker, (peer, Scheme::Http), stream, stop).await,
        Some(tls) => {
            let within = worker.gateway.snapshot.load().settings.request_header;
            let stream = tokio::select! {
                stream = tls.accept(stream, peer, Alpn::Http2, within) => stream,
                () = stop.first_request_timeout() => None,
            };
            if let Some(stream) = stream {
                converse(worker, (peer, Scheme::Https), stream, stop).await;
            }
        }
    }
    drop(place);
}

/// The client that a load balancer announces, if it does and the client's address has a place left.
async fn announced<S, O>(
    worker: &Worker<S, O>,
    proxy: &ProxyProtocol,
    (stream, peer): (&mut TcpStream, SocketAddr),
    place: &mut Place,
) -> Option<IpAddr>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    let within = worker.gateway.snapshot.load().settings.request_header;
    let client = proxy.client(stream, peer, within).await?.ip();
    let snapshot = worker.gateway.snapshot.load();
    let per_address = snapshot.settings.connections_per_address.map_or(u32::MAX, u32::from);
    let address = network(client, snapshot.dialect.rules.ipv6_prefix);
    place.take_of(address, per_address).then_some(client)
}

/// Answers requests until the client or the gateway has enough.
async fn converse<S, O>(
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
    let stream = Strict::new(stream, header_max);
    let tunnel = Opening::default();
    let (flag, backlog) = (stream.flag(), Backlog::default());
    let flag_of_stream = stream.flag();
    let client =
        Client { peer: Peer::new(peer), scheme, flag, tunnel: tunnel.clone(), backlog, stop: stop.clone() };
    let here = Arc::new((Arc::clone(worker), client));
    let idle = until_idle(Arc::downgrade(&here), stream.flag(), settings.request_header);
    let pause_max = settings.timeouts.idle;
    let untaken = until_idle(Arc::downgrade(&here), stream.flag(), pause_max);
    let unparsed = Unparsed { shared: Arc::downgrade(&here), flag: stream.flag(), peer, n_answered: 0 };
    let stream = ParseErrors::new(stream, unparsed);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let here = Arc::clone(&here);
        async move {
            let is_stream = request.version() == Version::HTTP_2;
            let mut answer = here.0.answer(&here.1, request).await;
            if here.1.stop.has_begun() && !is_stream && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            let answer = answer.map(|body| Passing::new(body, here));
            Ok::<_, Infallible>(if is_stream { answer.map(|body| body.of_stream(pause_max)) } else { answer })
        }
    });
    let mut builder = auto::Builder::new(Streams);
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
    // A connection that breaks is its client's affair.
    let stops = until_stop(&stop, &flag_of_stream);
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
                // All answers are over, and hyper has some of them still: the client makes no room.
                () = untaken => Ok(()),
            }
        }
    };
    if let Err(error) = served {
        worker.count_unread(&*error);
    }
    tunnel.pass().await;
}

/// Ready when a stop ends a connection. HTTP/2 can tell its client at once which requests it still answers; HTTP/1.1 has told
/// those clients that sent requests by now, and closes the others. Who has connected but not sent anything yet gets a moment
/// more.
async fn until_stop(stop: &Shutdown, flag: &Flag) {
    stop.accepting_ended().await;
    while flag.is_http1() {
        // A connection on which nothing was sent yet may turn out to speak HTTP/2.
        let again = tokio::time::sleep(Duration::from_millis(100));
        tokio::select! {
            () = stop.reached(ShutdownPhase::Draining) => {
                if flag.n_taken() == 0 {
                    stop.first_request_timeout().await;
                }
                return;
            }
            () = again => {}
        }
    }
}

impl<S, O> std::fmt::Debug for Started<S, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Started").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

impl<S, O> std::fmt::Debug for Gateway<S, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}
