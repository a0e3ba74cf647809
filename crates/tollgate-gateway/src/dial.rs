//! Opens connections to servers.
//!
//! In HTTP/1.1 whoever sends a request notices that nothing of it is taken. A connection of HTTP/2 is driven by the library, which
//! would wait for ever, so its writes have a limit of their own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tollgate_listen::Patient;

use crate::body::Upload;
use crate::client_tls::ClientTls;
use crate::h1::{Http1, Stream};
use crate::pool::Connection;
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

/// Opens a connection.
pub(crate) async fn dial(
    server: &Server,
    protocol: Protocol,
    tls: &ClientTls,
    timeouts: &Timeouts,
) -> Result<Connection, DialError> {
    let within = timeouts.connect;
    let dialling = async {
        let stream = TcpStream::connect((server.host(), server.port())).await?;
        stream.set_nodelay(true)?;
        match protocol {
            Protocol::Http1 => {
                let stream = match server.is_tls() {
                    true => Stream::Tls(Box::new(shake_hands(server, tls.speaking(protocol), stream).await?)),
                    false => Stream::Plain(stream),
                };
                Ok(Connection::Http1(Box::new(Http1::new(stream))))
            }
            Protocol::Http2 => {
                let stream = Patient::new(stream, timeouts.idle);
                let sender = match server.is_tls() {
                    true => share(shake_hands(server, tls.speaking(protocol), stream).await?).await?,
                    false => share(stream).await?,
                };
                Ok(Connection::Http2(sender))
            }
        }
    };
    // Boxed: it is seldom needed, and requests on connections that are there need not have the room for it.
    Box::pin(tokio::time::timeout(within, dialling)).await.map_err(|_| DialError::TimedOut(within))?
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

/// Speaks HTTP/2 on a stream.
async fn share<I>(stream: I) -> Result<http2::SendRequest<Upload>, DialError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // How it ends is told to whoever has a request on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
