//! Opens connections to servers.
//!
//! In HTTP/1.1 whoever sends a request notices that nothing of it is taken. A connection of HTTP/2 is driven by the library, which
//! would wait for ever, so its writes have a limit of their own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ratewright_listen::WriteTimeout;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::client_tls::ClientTls;
use crate::h1::{Http1, Stream};
use crate::h2::Http2;
use crate::route::Timeouts;
use crate::server::Server;
use crate::upstream::Protocol;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// It took too long.
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    /// This machine has no room for one more.
    #[error("this machine can open no more connections")]
    Ours(#[source] io::Error),
    /// The operating system or TLS says no.
    #[error("no connection")]
    Refused(#[source] io::Error),
    /// It is a server that speaks something else.
    #[error("no HTTP")]
    Garbled(#[from] hyper::Error),
    /// Its name cannot be in a certificate.
    #[error("its name cannot be in a certificate")]
    Name,
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{AddrNotAvailable, OutOfMemory};
        // Too many open files, of the system or of this process: the kinds of errors have no name for them.
        let is_ours = matches!(error.raw_os_error(), Some(23 | 24))
            || matches!(error.kind(), AddrNotAvailable | OutOfMemory);
        if is_ours { Self::Ours(error) } else { Self::Refused(error) }
    }
}

/// Opens a connection for one request at a time.
pub(crate) async fn dial_http1(
    server: &Server,
    tls: &ClientTls,
    timeouts: &Timeouts,
) -> Result<Box<Http1>, DialError> {
    let dialling = async {
        let stream = connect(server, timeouts.idle).await?;
        let stream = match server.is_tls() {
            true => Stream::Tls(Box::new(shake_hands(server, tls.speaking(Protocol::Http1), stream).await?)),
            false => Stream::Plain(stream),
        };
        Ok(Box::new(Http1::new(stream)))
    };
    // Boxed: it is seldom needed, and requests on connections that are there need not have the room for it.
    Box::pin(limit(timeouts.connect, dialling)).await
}

/// Opens a connection for many.
pub(crate) async fn dial_http2(
    server: &Server,
    tls: &ClientTls,
    timeouts: &Timeouts,
) -> Result<Http2, DialError> {
    let dialling = async {
        let stream = WriteTimeout::new(connect(server, timeouts.idle).await?, timeouts.idle);
        Ok(match server.is_tls() {
            true => Http2::open(shake_hands(server, tls.speaking(Protocol::Http2), stream).await?).await?,
            false => Http2::open(stream).await?,
        })
    };
    limit(timeouts.connect, dialling).await
}

async fn limit<T>(
    within: Duration,
    dialling: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    tokio::time::timeout(within, dialling).await.map_err(|_| DialError::TimedOut(within))?
}

async fn connect(server: &Server, pause_max: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((server.host(), server.port())).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&probes(pause_max))?;
    Ok(stream)
}

/// How the operating system finds out whether a machine that says nothing is still there. Those who use the connection are not
/// asked, so it makes no difference to them how often: within half of the longest pause it is known, and within 30 s.
fn probes(pause_max: Duration) -> TcpKeepalive {
    let (time, interval) = (pause_max / 4, pause_max / 12);
    TcpKeepalive::new()
        .with_time(time.clamp(Duration::from_secs(1), Duration::from_secs(15)))
        .with_interval(interval.clamp(Duration::from_secs(1), Duration::from_secs(5)))
        .with_retries(3)
}

/// Speaks TLS with a server.
async fn shake_hands<I>(
    server: &Server,
    config: Arc<ClientConfig>,
    stream: I,
) -> Result<TlsStream<I>, DialError>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(server.host().to_owned()).map_err(|_| DialError::Name)?;
    Ok(TlsConnector::from(config).connect(name, stream).await?)
}
