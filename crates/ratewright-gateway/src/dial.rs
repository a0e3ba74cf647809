//! Opens connections to upstreams.
//!
//! In HTTP/1.1 the task that sends a request notices a blocked write. hyper drives HTTP/2 connections and would wait
//! for ever, so their writes have a timeout.

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

use crate::h1::{Http1, Stream};
use crate::h2::Http2;
use crate::route::Timeouts;
use crate::upstream::Protocol;
use crate::upstream::UpstreamServer;
use crate::upstream_tls::ClientTls;

/// Why no connection was opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// `timeouts.connect` elapsed.
    #[error("connect timed out after {0:?}")]
    TimedOut(Duration),
    /// This host is out of file descriptors, ports or memory.
    #[error("connection not opened: this host is out of resources")]
    LocalResources(#[source] io::Error),
    /// Rejected by the operating system or by TLS.
    #[error("connection failed")]
    Connect(#[source] io::Error),
    /// The HTTP/2 handshake failed.
    #[error("HTTP/2 handshake failed")]
    Handshake(#[from] hyper::Error),
    /// The host name cannot appear in a certificate.
    #[error("host name not valid for TLS")]
    InvalidName,
}

impl DialError {
    /// True if nothing listens at the address, or the network does not lead there.
    pub(crate) fn is_refusal(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, NotFound};
        let Self::Connect(error) = self else { return false };
        matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | NotFound)
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{AddrNotAvailable, OutOfMemory};
        // ENFILE and EMFILE: `ErrorKind` has no names for them.
        let is_local_failure = matches!(error.raw_os_error(), Some(23 | 24))
            || matches!(error.kind(), AddrNotAvailable | OutOfMemory);
        if is_local_failure { Self::LocalResources(error) } else { Self::Connect(error) }
    }
}

/// Opens an HTTP/1.1 connection.
pub(crate) async fn dial_http1(
    server: &UpstreamServer,
    tls: &ClientTls,
    timeouts: &Timeouts,
) -> Result<Box<Http1>, DialError> {
    let dialing = async {
        let stream = connect(server, timeouts.idle).await?;
        let stream = match server.is_tls() {
            true => {
                Stream::Tls(Box::new(tls_handshake(server, tls.config_for(Protocol::Http1), stream).await?))
            }
            false => Stream::Plain(stream),
        };
        Ok(Box::new(Http1::new(stream)))
    };
    // Boxed to keep the future of pooled requests small.
    Box::pin(with_timeout(timeouts.connect, dialing)).await
}

/// Opens an HTTP/2 connection.
pub(crate) async fn dial_http2(
    server: &UpstreamServer,
    tls: &ClientTls,
    timeouts: &Timeouts,
) -> Result<Http2, DialError> {
    let dialing = async {
        let stream = WriteTimeout::new(connect(server, timeouts.idle).await?, timeouts.idle);
        Ok(match server.is_tls() {
            true => {
                Http2::open(tls_handshake(server, tls.config_for(Protocol::Http2), stream).await?).await?
            }
            false => Http2::open(stream).await?,
        })
    };
    with_timeout(timeouts.connect, dialing).await
}

async fn with_timeout<T>(
    within: Duration,
    dialing: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    tokio::time::timeout(within, dialing).await.map_err(|_| DialError::TimedOut(within))?
}

async fn connect(server: &UpstreamServer, idle_timeout: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((server.host(), server.port())).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&keepalive(idle_timeout))?;
    Ok(stream)
}

/// TCP keep-alive probes, so that a dead peer is found within half the idle timeout and within 30 s. The operating
/// system answers probes, so the upstream application does not notice them.
fn keepalive(idle_timeout: Duration) -> TcpKeepalive {
    let (time, interval) = (idle_timeout / 4, idle_timeout / 12);
    TcpKeepalive::new()
        .with_time(time.clamp(Duration::from_secs(1), Duration::from_secs(15)))
        .with_interval(interval.clamp(Duration::from_secs(1), Duration::from_secs(5)))
        .with_retries(3)
}

/// Runs the TLS handshake.
async fn tls_handshake<I>(
    server: &UpstreamServer,
    config: Arc<ClientConfig>,
    stream: I,
) -> Result<TlsStream<I>, DialError>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(server.host().to_owned()).map_err(|_| DialError::InvalidName)?;
    Ok(TlsConnector::from(config).connect(name, stream).await?)
}
