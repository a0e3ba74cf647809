//! The REST door, served on a port of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ratewright_core::{
    Algorithm, AttributeName, Limiter, ManualClock, Policies, Policy, Quota, Refill, Selector,
};
use ratewright_listen::Shutdown;
use ratewright_server::{ConnectionSetup, Listening, Settings, guard, rest, serve};
use ratewright_store::MemoryStore;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A check, after which the connection stays.
pub(crate) const CHECK: &str = "GET /api/v1/rate-limit/check?key=k HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A check, after which the connection ends.
pub(crate) const LAST_CHECK: &str =
    "GET /api/v1/rate-limit/check?key=k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// A door that is open.
pub(crate) struct House {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl House {
    pub(crate) async fn open(listening: Listening, setup: impl Into<ConnectionSetup>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = Shutdown::when(async { drop(stopped.await) });
        let (door, setup) = (door(), setup.into());
        // As on a listener that other machines can reach.
        let door =
            if setup.proxy_protocol.is_some() { guard(door, Settings::default().shared()) } else { door };
        let served = tokio::spawn(serve(listener, door, listening, setup, stopped));
        Self { address, stop, served }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        within(TcpStream::connect(self.address)).await.unwrap()
    }

    /// Asks once, on a connection of its own.
    pub(crate) async fn ask(&self) -> String {
        let mut stream = self.connect().await;
        within(say(&mut stream, LAST_CHECK.as_bytes())).await.unwrap()
    }

    /// Closes the door, and waits until all is quiet.
    pub(crate) async fn close(self) {
        let _ = self.stop.send(());
        within(self.served).await.unwrap();
    }
}

/// A REST door with room for a million, and a clock that stands still.
fn door() -> axum::Router {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1000000/h".parse().unwrap()).unwrap();
    let policy = Policy::new("token_bucket", quota).unwrap();
    let policy = policy.covering(Selector::Named).by(&[AttributeName::Key]);
    let clock = ManualClock::default();
    let store = MemoryStore::new(clock.clone(), 1_000);
    let limiter = Arc::new(Limiter::new(Policies::new(vec![policy]).unwrap(), store));
    let settings = Settings::default().shared();
    rest::router(rest::Rest { limiter, settings, clock, gateway: rest::Gateway::default() })
}

/// Says something and hears all that is answered, until the other side ends the connection.
pub(crate) async fn say(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    words: &[u8],
) -> io::Result<String> {
    stream.write_all(words).await?;
    hear(stream).await
}

/// Hears all until the other side ends the connection.
pub(crate) async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Waits for something that will come, however busy the machine is.
pub(crate) async fn within<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it comes")
}

/// True if a request was answered as it should be.
pub(crate) fn is_served(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200 OK") && answer.contains(r#""allowed":true"#)
}
