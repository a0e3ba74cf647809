//! Accepts connections for the gRPC door, and knows when to stop.
//!
//! Envoy keeps a few connections for as long as they live, so they have an age: after it a connection is told to go, calls under way
//! finish, and new ones come on another, perhaps to another instance.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use ratewright_core::{Clock, Observe, Store};
use ratewright_listen::{ConnectionSetup, Patient, ProxyProtocol, Speaks, Stop, accept_queued};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::calls::Calls;
use crate::heard::Heard;
use crate::refunds::{ClientCertificate, Refunds};
use crate::service::Door;

/// How the door listens.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    /// Connections at once; more wait in the operating system's queue.
    pub connections_max: usize,
    /// Calls at once on each.
    pub streams_max: u32,
    /// Time to shake hands, and to say what every client says first.
    pub hands_within: Duration,
    /// Time in which a client must take some of what is written to it.
    pub read_within: Duration,
    /// Time in which the message of a call must be there.
    pub message_within: Duration,
    /// How often a connection on which nothing happens is tried. None: never.
    pub keep_alive_every: Option<Duration>,
    /// How long the answer to that may take.
    pub keep_alive_within: Duration,
    /// How old a connection gets. None: as old as it likes.
    pub age_max: Option<Duration>,
    /// Time for calls under way to finish, after a stop or when a connection is old.
    pub finish_within: Duration,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            streams_max: 256, // each may have a message of a megabyte under way
            hands_within: Duration::from_secs(10),
            read_within: Duration::from_secs(10),
            message_within: Duration::from_secs(10),
            keep_alive_every: Some(Duration::from_secs(60)),
            keep_alive_within: Duration::from_secs(20),
            age_max: None,
            finish_within: Duration::from_secs(10),
        }
    }
}

/// Serves the door until it is told to stop. Then no connection is accepted any more, and calls in flight finish.
pub async fn serve<S, O, C>(
    listener: TcpListener,
    door: Door<S, O, C>,
    listening: Listening,
    setup: impl Into<ConnectionSetup>,
    stop: Stop,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let setup = setup.into();
    let (alive, mut over) = mpsc::channel::<Infallible>(1);
    let door = door.serving(listening.message_within, alive);
    let places = Arc::new(Semaphore::new(listening.connections_max));
    let mut connections = JoinSet::new();
    let mut admit = |(stream, peer): (TcpStream, SocketAddr), place: Option<OwnedSemaphorePermit>| {
        let _ = stream.set_nodelay(true);
        let (door, setup, stop) = (door.clone(), setup.clone(), stop.clone());
        connections.spawn(async move {
            receive((stream, peer), door, listening, setup, stop).await;
            drop(place);
        });
        while connections.try_join_next().is_some() {}
    };
    let accepting = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await.ok();
            admit(accept(&listener).await, place);
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop.ends_accepting() => {}
    }
    for accepted in accept_queued(listener) {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { break };
        admit(accepted, Some(place));
    }
    drop(door);
    let finish = async {
        while connections.join_next().await.is_some() {}
        let _all_finished = over.recv().await;
    };
    let _ = tokio::time::timeout(listening.finish_within, finish).await;
}

/// The next connection. Running out of file descriptors passes; trying without a pause would not help.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn receive<S, O, C>(
    (mut stream, peer): (TcpStream, SocketAddr),
    door: Door<S, O, C>,
    listening: Listening,
    setup: ConnectionSetup,
    stop: Stop,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let is_announced = setup.proxy_protocol.is_some();
    let peer = match setup.proxy_protocol {
        None => peer.ip(),
        Some(proxy) => {
            // Boxed, so that other connections need not have the room for it.
            let announced = Box::pin(announced(proxy, (&mut stream, peer), listening, &stop)).await;
            let Some(client) = announced else { return };
            client
        }
    };
    let stream = Patient::new(stream, listening.read_within);
    match setup.tls {
        None => {
            converse(stream, door.with_refunds(Refunds::of(peer, is_announced, None)), listening, stop).await
        }
        Some(tls) => {
            let stream = tokio::select! {
                stream = tls.accept(stream, peer, Speaks::Http2, listening.hands_within) => stream,
                () = stop.ends_unused() => None,
            };
            if let Some(stream) = stream {
                // One that was shown was checked: TLS asks for none unless it can.
                let certificate = stream.get_ref().1.peer_certificates().map(|_| ClientCertificate);
                let door = door.with_refunds(Refunds::of(peer, is_announced, certificate));
                converse(stream, door, listening, stop).await;
            }
        }
    }
}

/// The client that a load balancer announces, unless the door closes before.
async fn announced(
    proxy: ProxyProtocol,
    (stream, peer): (&mut TcpStream, SocketAddr),
    listening: Listening,
    stop: &Stop,
) -> Option<IpAddr> {
    tokio::select! {
        client = proxy.client(stream, peer, listening.hands_within) => client.map(|client| client.ip()),
        () = stop.ends_unused() => None,
    }
}

/// Answers calls until the client or the door has enough, or the connection is old.
async fn converse<S, O, C>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    door: Door<S, O, C>,
    listening: Listening,
    stop: Stop,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let mut calls = Calls::default();
    let mut builder = http2::Builder::new(calls.begun());
    builder.timer(TokioTimer::new()).max_concurrent_streams(listening.streams_max);
    builder.keep_alive_interval(listening.keep_alive_every).keep_alive_timeout(listening.keep_alive_within);
    let stream = Heard::new(stream);
    let silent = stream.until_silent(listening.hands_within);
    let connection = builder.serve_connection(TokioIo::new(stream), door);
    let mut connection = std::pin::pin!(connection);
    let old = async {
        match listening.age_max {
            Some(age) => tokio::time::sleep(age).await,
            None => std::future::pending().await,
        }
    };
    // A connection that breaks is its client's affair.
    tokio::select! {
        _ = std::future::poll_fn(|cx| calls.poll(connection.as_mut(), cx)) => return,
        () = silent => return,
        () = old => {}
        () = stop.ends_accepting() => {}
    }
    connection.as_mut().graceful_shutdown();
    let finished = std::future::poll_fn(|cx| calls.poll(connection.as_mut(), cx));
    let _ = tokio::time::timeout(listening.finish_within, finished).await;
}
