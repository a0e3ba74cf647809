//! A listener: accepts connections, prepares them for HTTP, and drains them when it stops.
//!
//! ```text
//!   accept ─► slot free? total, per client ─► [shortest queue] ─► task: [PROXY protocol] ─► [TLS] ─► the entrypoint's
//!      │                                                                └ handshake_timeout ┘           handler
//!      └─ stop: the kernel's queue is emptied, the listener closes, connections end within `drain_timeout`
//! ```
//!
//! The entrypoint passes a handler, which serves one connection. Each connection has its own task, so that a slow
//! handshake delays no other client. If other runtimes serve the connections, as in the gateway, each has a queue.
//!
//! With the PROXY protocol, the client's address is known only after the header, so the limit per client is checked
//! then.
//!
//! # Laws
//! - A slot is released when its connection has ended, however it ends.
//! - Connections that the kernel has accepted when the listener stops are served: closing the socket first would reset
//!   them.

mod queue;
mod slots;
mod stream;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tracing::warn;

use crate::client_slots::ClientLimit;
use crate::connection_setup::ConnectionSetup;
use crate::log_throttle::LogThrottle;
use crate::shutdown::Shutdown;
use crate::tls::Alpn;
use queue::Connections;
pub use queue::{Accepted, ConnectionQueue};
use slots::{ConnectionSlot, ConnectionSlots};
pub use stream::ClientStream;

/// The pause after a failed accept. Running out of file descriptors passes, but not at once.
const RETRY_ACCEPT_AFTER: Duration = Duration::from_millis(50);

/// Failed accepts are logged once in this time.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// How a listener treats its connections.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// The PROXY protocol and TLS.
    pub setup: ConnectionSetup,
    /// The protocols that TLS offers.
    pub alpn: Alpn,
    /// What happens to new connections while all slots are taken.
    pub when_full: WhenFull,
    /// How long a write to a client may make no progress.
    pub write_timeout: Duration,
    /// How long requests in flight may take after draining begins.
    pub drain_timeout: Duration,
}

/// What happens to new connections while all slots are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// They wait in the kernel's queue.
    Wait,
    /// They are closed at once.
    Close,
}

/// The limits of a listener. They are read for each connection, so that a reload applies to the next one.
pub trait ConnectionLimits: Send + Sync {
    /// The most connections.
    fn connections_max(&self) -> usize;

    /// Time for the PROXY protocol header, and for the TLS handshake.
    fn handshake_timeout(&self) -> Duration;

    /// The client that an address belongs to. None: connections are not counted by client.
    fn client(&self, _address: IpAddr) -> Option<ClientLimit> {
        None
    }
}

/// Limits that do not change.
#[derive(Clone, Copy, Debug)]
pub struct FixedLimits {
    /// The most connections.
    pub connections_max: usize,
    /// Time for the PROXY protocol header, and for the TLS handshake.
    pub handshake_timeout: Duration,
}

/// Accepts connections, and serves them or gives each to a queue.
///
/// ```
/// # use std::time::Duration;
/// # use ratewright_listen::Shutdown;
/// # use ratewright_listen::listener::{Accepted, FixedLimits, Listener, ListenerOptions};
/// # async fn example(options: ListenerOptions, stop: Shutdown) -> std::io::Result<()> {
/// let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let limits = FixedLimits { connections_max: 1_000, handshake_timeout: Duration::from_secs(10) };
/// let serve = |accepted: Accepted| async move { println!("connection from {}", accepted.client) };
/// Listener::new(options, limits, stop).serve(socket, serve).await;
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    shared: Arc<ListenerInner>,
    slots: Arc<ConnectionSlots>,
    queues: Vec<QueueHandle>,
    /// Limits the log of failed accepts.
    failures: LogThrottle,
}

/// What a listener and its queues share.
struct ListenerInner {
    options: ListenerOptions,
    limits: Box<dyn ConnectionLimits>,
    stop: Shutdown,
}

/// Gives connections to a queue.
struct QueueHandle {
    sender: mpsc::UnboundedSender<Incoming>,
    n_connections: Arc<AtomicUsize>,
}

/// A connection with a slot, before its set-up.
struct Incoming {
    socket: Socket,
    peer: SocketAddr,
    slot: ConnectionSlot,
}

/// The socket of a connection.
enum Socket {
    /// Registered with the runtime that serves it.
    Registered(TcpStream),
    /// Not registered with a runtime.
    Unregistered(std::net::TcpStream),
}

impl Listener {
    /// A listener without queues.
    pub fn new(options: ListenerOptions, limits: impl ConnectionLimits + 'static, stop: Shutdown) -> Self {
        let shared = Arc::new(ListenerInner { options, limits: Box::new(limits), stop });
        let failures = LogThrottle::new(LOGGED_EVERY);
        Self { shared, slots: Arc::default(), queues: Vec::new(), failures }
    }

    /// A queue of connections, to be served by the runtime that takes it.
    pub fn queue(&mut self) -> ConnectionQueue {
        // Slots bound its length.
        let (sender, receiver) = mpsc::unbounded_channel();
        self.queues.push(QueueHandle { sender, n_connections: Arc::default() });
        ConnectionQueue { shared: Arc::clone(&self.shared), receiver }
    }

    /// Serves connections on the current runtime until a stop has drained them. No queue is needed.
    pub async fn serve<F>(self, socket: TcpListener, handler: impl Fn(Accepted) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut connections = Connections::new(Arc::clone(&self.shared), handler);
        let serve = |socket, peer| {
            if let Some(incoming) = self.admit(socket, peer, None) {
                connections.spawn(incoming);
            }
        };
        self.accept_each(socket, serve).await;
        connections.drain().await;
    }

    /// Accepts connections until a stop, and gives each to the queue with the fewest. Then the queues end.
    pub async fn accept(self, socket: TcpListener) {
        let enqueue = |socket, peer| {
            let fewest = self.queues.iter().min_by_key(|queue| queue.n_connections.load(Ordering::Relaxed));
            let Some(queue) = fewest else { return };
            let incoming = self.admit(socket, peer, Some(&queue.n_connections));
            if let Some(Ok(incoming)) = incoming.map(Incoming::detached) {
                let _ = queue.sender.send(incoming);
            }
        };
        self.accept_each(socket, enqueue).await;
    }

    /// Accepts connections until a stop. Then it empties the kernel's queue, and closes the socket.
    async fn accept_each(&self, socket: TcpListener, mut give: impl FnMut(Socket, SocketAddr)) {
        let ListenerInner { options, limits, stop } = &*self.shared;
        let accepting = async {
            loop {
                if options.when_full == WhenFull::Wait {
                    self.slots.any_free(|| limits.connections_max()).await;
                }
                match socket.accept().await {
                    Ok((stream, peer)) => give(Socket::Registered(stream), peer),
                    Err(error) => {
                        self.report(&socket, &error);
                        tokio::time::sleep(RETRY_ACCEPT_AFTER).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop.accepting_ended() => {}
        }
        for (stream, peer) in accept_queued(socket) {
            give(Socket::Unregistered(stream), peer);
        }
    }

    /// Takes a slot for a connection. None: no slot is free; the connection is closed.
    fn admit(
        &self,
        socket: Socket,
        peer: SocketAddr,
        n_queue_connections: Option<&Arc<AtomicUsize>>,
    ) -> Option<Incoming> {
        let ListenerInner { options, limits, .. } = &*self.shared;
        let mut slot = self.slots.take(limits.connections_max(), n_queue_connections)?;
        let is_client_known = options.setup.proxy_protocol.is_none();
        if is_client_known && !slot.take_for(limits.client(peer.ip())) {
            return None;
        }
        socket.set_nodelay();
        Some(Incoming { socket, peer, slot })
    }

    #[cold]
    fn report(&self, socket: &TcpListener, error: &io::Error) {
        if let Some(suppressed) = self.failures.admit() {
            let listener = socket.local_addr().map_or_else(|_| String::new(), |address| address.to_string());
            warn!(listener, %error, suppressed, "cannot accept connections");
        }
    }
}

impl Incoming {
    /// Deregisters the socket, so that another runtime can serve it.
    fn detached(self) -> io::Result<Self> {
        let Self { socket, peer, slot } = self;
        let socket = match socket {
            Socket::Registered(stream) => Socket::Unregistered(stream.into_std()?),
            detached @ Socket::Unregistered(_) => detached,
        };
        Ok(Self { socket, peer, slot })
    }
}

impl Socket {
    /// Waiting to fill a packet only adds latency. An error here does no harm.
    fn set_nodelay(&self) {
        let _ = match self {
            Self::Registered(stream) => stream.set_nodelay(true),
            Self::Unregistered(stream) => stream.set_nodelay(true),
        };
    }
}

/// Accepts the connections in the kernel's queue, then closes the socket. The kernel has completed their handshakes,
/// and closing the socket first would reset them. Calls `accept` directly: the runtime may not know of them yet.
fn accept_queued(socket: TcpListener) -> impl Iterator<Item = (std::net::TcpStream, SocketAddr)> {
    let socket = socket.into_std();
    std::iter::from_fn(move || {
        let socket = socket.as_ref().ok()?;
        loop {
            match socket.accept() {
                Ok((stream, peer)) if stream.set_nonblocking(true).is_ok() => return Some((stream, peer)),
                Ok(_) => {}
                // The client closed this one; others may be queued behind it.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => return None,
            }
        }
    })
}

impl ConnectionLimits for FixedLimits {
    fn connections_max(&self) -> usize {
        self.connections_max
    }

    fn handshake_timeout(&self) -> Duration {
        self.handshake_timeout
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("options", &self.shared.options).finish_non_exhaustive()
    }
}
