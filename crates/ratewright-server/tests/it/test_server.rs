//! A REST server on its own port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ratewright_core::policy::Selector;
use ratewright_core::query::AttributeName;
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Limiter, ManualClock, Policies, Policy, Quota};
use ratewright_lab::within;
use ratewright_listen::Shutdown;
use ratewright_server::{ConnectionSetup, HttpListenerSettings, ServerSettings, guard, rest, serve};
use ratewright_store::MemoryStore;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A check, after which the connection stays open.
pub(crate) const CHECK: &str = "GET /api/v1/rate-limit/check?key=k HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A check, after which the connection ends.
pub(crate) const LAST_CHECK: &str =
    "GET /api/v1/rate-limit/check?key=k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// A running REST server.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn start(listening: HttpListenerSettings, setup: impl Into<ConnectionSetup>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = Shutdown::when(async { drop(stopped.await) });
        let (router, setup) = (router(), setup.into());
        // As on a listener that other machines can reach.
        let router = if setup.proxy_protocol.is_some() {
            guard(router, ServerSettings::default().shared())
        } else {
            router
        };
        let served = tokio::spawn(serve(listener, router, listening, setup, stopped));
        Self { address, stop, served }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        within("a connection", TcpStream::connect(self.address)).await.unwrap()
    }

    /// Sends one request on its own connection.
    pub(crate) async fn request_once(&self) -> String {
        let mut stream = self.connect().await;
        send(&mut stream, LAST_CHECK.as_bytes()).await.unwrap()
    }

    /// Stops the server, and waits until it has drained.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        within("it stops", self.served).await.unwrap();
    }
}

/// A REST router with a limit of a million, and a stopped clock.
fn router() -> axum::Router {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1000000/h".parse().unwrap()).unwrap();
    let policy = Policy::new("token_bucket", quota).unwrap();
    let policy = policy.with_selector(Selector::Named).by(&[AttributeName::Key]);
    let clock = ManualClock::default();
    let store = MemoryStore::new(clock.clone(), 1_000);
    let limiter = Arc::new(Limiter::new(Policies::new(vec![policy]).unwrap(), store));
    let settings = ServerSettings::default().shared();
    rest::router(rest::Rest { limiter, settings, clock, gateway: rest::GatewayView::default() })
}

/// Sends bytes, and reads until the server closes the connection.
pub(crate) async fn send(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    bytes: &[u8],
) -> io::Result<String> {
    within("it can be sent", stream.write_all(bytes)).await?;
    read_to_end(stream).await
}

/// Reads until the server closes the connection.
pub(crate) async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut response = Vec::new();
    within("the connection is closed", stream.read_to_end(&mut response)).await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// True if a check was allowed.
pub(crate) fn is_served(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200 OK") && response.contains(r#""allowed":true"#)
}
