//! Accepts gRPC connections until the program stops.
//!
//! Envoy keeps its few connections open for ever, so they have a maximum age: then the connection gets a GOAWAY, calls in flight
//! finish, and new calls use another connection, perhaps to another instance.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use ratewright_core::{Clock, Observe, Store};
use ratewright_listen::{Alpn, ConnectionSetup, ProxyProtocol, Shutdown, WriteTimeout, accept_queued};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::inline_executor::InlineExecutor;
use crate::preface_timeout::PrefaceTimeout;
use crate::refunds::{ClientCertificate, Refunds};
use crate::service::GrpcService;

/// Limits and timeouts of gRPC connections.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    /// The most connections; more wait in the operating system's queue.
    pub connections_max: usize,
    /// The most calls in flight on each connection.
    pub streams_max: u32,
    /// Time for the TLS handshake, and for the HTTP/2 preface.
    pub hands_within: Duration,
    /// Time in which a client must read some of what is written to it.
    pub read_within: Duration,
    /// Time in which the message of a call must arrive.
    pub message_within: Duration,
    /// How often an idle connection gets a PING. `None`: never.
    pub keep_alive_every: Option<Duration>,
    /// How long the response to a PING may take.
    pub keep_alive_within: Duration,
    /// The maximum age of a connection. `None`: unlimited.
    pub age_max: Option<Duration>,
    /// Time for calls in flight to finish, after a stop or at the maximum age.
    pub drain_timeout: Duration,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            streams_max: 256, // each may have a message of a megabyte in flight
            hands_within: Duration::from_secs(10),
            read_within: Duration::from_secs(10),
            message_within: Duration::from_secs(10),
            keep_alive_every: Some(Duration::from_secs(60)),
            keep_alive_within: Duration::from_secs(20),
            age_max: None,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Serves until `stop`. Then no more connections are accepted, and calls in flight finish.
pub async fn serve<S, O, C>(
    listener: TcpListener,
    service: GrpcService<S, O, C>,
    listening: Listening,
    setup: impl Into<ConnectionSetup>,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let setup = setup.into();
    let (alive, mut over) = mpsc::channel::<Infallible>(1);
    let service = service.serving(listening.message_within, alive);
    let places = Arc::new(Semaphore::new(listening.connections_max));
    let mut connections = JoinSet::new();
    let mut admit = |(stream, peer): (TcpStream, SocketAddr), place: Option<OwnedSemaphorePermit>| {
        let _ = stream.set_nodelay(true);
        let (service, setup, stop) = (service.clone(), setup.clone(), stop.clone());
        connections.spawn(async move {
            receive((stream, peer), service, listening, setup, stop).await;
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
        () = stop.accepting_ended() => {}
    }
    for accepted in accept_queued(listener) {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { break };
        admit(accepted, Some(place));
    }
    drop(service);
    let finish = async {
        while connections.join_next().await.is_some() {}
        let _all_finished = over.recv().await;
    };
    let _ = tokio::time::timeout(listening.drain_timeout, finish).await;
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
    service: GrpcService<S, O, C>,
    listening: Listening,
    setup: ConnectionSetup,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let is_announced = setup.proxy_protocol.is_some();
    let peer = match setup.proxy_protocol {
        None => peer.ip(),
        Some(proxy) => {
            // Boxed, so that connections without it stay small.
            let announced = Box::pin(announced(proxy, (&mut stream, peer), listening, &stop)).await;
            let Some(client) = announced else { return };
            client
        }
    };
    let stream = WriteTimeout::new(stream, listening.read_within);
    match setup.tls {
        None => {
            converse(stream, service.with_refunds(Refunds::of(peer, is_announced, None)), listening, stop)
                .await
        }
        Some(tls) => {
            let stream = tokio::select! {
                stream = tls.accept(stream, peer, Alpn::Http2, listening.hands_within) => stream,
                () = stop.first_request_timeout() => None,
            };
            if let Some(stream) = stream {
                // TLS asks for a certificate only if it can verify one.
                let certificate = stream.get_ref().1.peer_certificates().map(|_| ClientCertificate);
                let service = service.with_refunds(Refunds::of(peer, is_announced, certificate));
                converse(stream, service, listening, stop).await;
            }
        }
    }
}

/// The client that a load balancer announces, unless the listener stops before.
async fn announced(
    proxy: ProxyProtocol,
    (stream, peer): (&mut TcpStream, SocketAddr),
    listening: Listening,
    stop: &Shutdown,
) -> Option<IpAddr> {
    tokio::select! {
        client = proxy.client(stream, peer, listening.hands_within) => client.map(|client| client.ip()),
        () = stop.first_request_timeout() => None,
    }
}

/// Answers calls until the client closes the connection, the listener stops, or the connection reaches its maximum age.
async fn converse<S, O, C>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: GrpcService<S, O, C>,
    listening: Listening,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let mut inline_executor = InlineExecutor::default();
    let mut builder = http2::Builder::new(inline_executor.queue());
    builder.timer(TokioTimer::new()).max_concurrent_streams(listening.streams_max);
    builder.keep_alive_interval(listening.keep_alive_every).keep_alive_timeout(listening.keep_alive_within);
    let stream = PrefaceTimeout::new(stream);
    let silent = stream.until_silent(listening.hands_within);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let old = async {
        match listening.age_max {
            Some(age) => tokio::time::sleep(age).await,
            None => std::future::pending().await,
        }
    };
    // A broken connection needs no report: the client sees it.
    tokio::select! {
        _ = std::future::poll_fn(|cx| inline_executor.poll(connection.as_mut(), cx)) => return,
        () = silent => return,
        () = old => {}
        () = stop.accepting_ended() => {}
    }
    connection.as_mut().graceful_shutdown();
    let finished = std::future::poll_fn(|cx| inline_executor.poll(connection.as_mut(), cx));
    let _ = tokio::time::timeout(listening.drain_timeout, finished).await;
}
