//! Serves gRPC on the connections of a listener.
//!
//! Envoy keeps its few connections open for ever, so they have a maximum age: then the connection gets a GOAWAY, calls in flight
//! finish, and new calls use another connection, perhaps to another instance.

use std::convert::Infallible;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use ratewright_core::decision::Observe;
use ratewright_core::{Clock, Store};
use ratewright_listen::listener::{Accepted, FixedLimits, Listener, ListenerOptions, WhenFull};
use ratewright_listen::{Alpn, ConnectionSetup, Shutdown};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::inline_executor::InlineExecutor;
use crate::preface_timeout::PrefaceTimeout;
use crate::refund_access::{ClientCertificate, Refunds};
use crate::service::GrpcService;

/// Limits and timeouts of gRPC connections.
#[derive(Clone, Copy, Debug)]
pub struct GrpcListenerSettings {
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

impl Default for GrpcListenerSettings {
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
    socket: TcpListener,
    service: GrpcService<S, O, C>,
    listening: GrpcListenerSettings,
    setup: impl Into<ConnectionSetup>,
    stop: Shutdown,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let GrpcListenerSettings { connections_max, hands_within: handshake_timeout, drain_timeout, .. } =
        listening;
    let options = ListenerOptions {
        setup: setup.into(),
        alpn: Alpn::Http2,
        when_full: WhenFull::Wait,
        write_timeout: listening.read_within,
        drain_timeout,
    };
    let listener = Listener::new(options, FixedLimits { connections_max, handshake_timeout }, stop.clone());
    // A call may outlive its connection.
    let (alive, mut over) = mpsc::channel::<Infallible>(1);
    let service = service.serving(listening.message_within, alive);
    let finished = async {
        listener.serve(socket, move |accepted| serve_connection(accepted, service.clone(), listening)).await;
        let _all_finished = over.recv().await;
    };
    tokio::select! {
        () = finished => {}
        () = stop.drain_timeout(drain_timeout) => {}
    }
}

/// Answers calls until the client closes the connection, the listener stops, or the connection reaches its maximum age.
async fn serve_connection<S, O, C>(
    accepted: Accepted,
    service: GrpcService<S, O, C>,
    listening: GrpcListenerSettings,
) where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let Accepted { stream, client, is_announced, stop } = accepted;
    let certificate = stream.has_client_certificate().then_some(ClientCertificate);
    let service = service.with_refunds(Refunds::of(client.ip(), is_announced, certificate));
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
