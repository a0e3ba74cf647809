//! Accepts connections for a door, and knows when to stop.
//!
//! Everything is bounded: connections at once, the time to send a request's head, the time to finish after a
//! stop.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt};

/// How a door listens.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    /// Connections at once; more wait in the operating system's queue.
    pub connections_max: usize,
    /// Time to send a request's head.
    pub head_within: Duration,
    /// Time for requests in hand to finish after a stop.
    pub finish_within: Duration,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            head_within: Duration::from_secs(10),
            finish_within: Duration::from_secs(10),
        }
    }
}

/// Serves a door until `stop` is ready. Then no connection is accepted any more, and those in hand finish
/// what they are doing.
pub async fn serve(
    listener: TcpListener,
    door: Router,
    listening: Listening,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(listening.connections_max));
    let graceful = GracefulShutdown::new();
    let accepting = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (stream, peer) = accept(&listener).await;
            let connection = connection(stream, peer, door.clone(), listening);
            let watched = graceful.watch(connection);
            tokio::spawn(async move {
                // A connection that breaks is its client's affair.
                let _ = watched.await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop => {}
    }
    drop(listener);
    let _ = tokio::time::timeout(listening.finish_within, graceful.shutdown()).await;
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

/// Serves one connection.
fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    door: Router,
    listening: Listening,
) -> http1::Connection<
    TokioIo<TcpStream>,
    impl hyper::service::Service<
        http::Request<Incoming>,
        Response = http::Response<axum::body::Body>,
        Error = Infallible,
        Future = impl Future + Send,
    >,
> {
    // Answers are small; waiting to fill a packet only adds to the latency. Failing to say so is no harm.
    let _ = stream.set_nodelay(true);
    let door = door.into_service::<Incoming>();
    let service = hyper::service::service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let mut door = door.clone();
        async move { door.ready().await?.call(request).await }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(listening.head_within)
        .serve_connection(TokioIo::new(stream), service)
}
