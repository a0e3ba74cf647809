//! Opens connections to servers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::h1::{Http1, Stream};
use crate::pool::Connection;
use crate::server::Server;
use crate::upstream::Protocol;

/// How servers are spoken to over TLS: whose certificates are good.
#[derive(Clone, Debug)]
pub struct ClientTls {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// It took too long.
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
    /// The operating system or TLS says no.
    #[error("no connection")]
    Refused(#[from] io::Error),
    /// It is a server that speaks something else.
    #[error("no HTTP")]
    Garbled(#[from] hyper::Error),
    /// Its name cannot be in a certificate.
    #[error("its name cannot be in a certificate")]
    Name,
}

impl ClientTls {
    /// Speaks to servers over TLS as `config` says.
    pub fn new(config: ClientConfig) -> Self {
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Self { http1: speaking(b"http/1.1"), http2: speaking(b"h2") }
    }
}

/// Opens a connection.
pub(crate) async fn dial(
    server: &Server,
    protocol: Protocol,
    tls: &ClientTls,
    within: Duration,
) -> Result<Connection, DialError> {
    let dialling = async {
        let stream = TcpStream::connect((server.host(), server.port())).await?;
        stream.set_nodelay(true)?;
        let stream = if server.is_tls() {
            let config = if protocol == Protocol::Http1 { &tls.http1 } else { &tls.http2 };
            let name = ServerName::try_from(server.host().to_owned()).map_err(|_| DialError::Name)?;
            Stream::Tls(Box::new(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?))
        } else {
            Stream::Plain(stream)
        };
        match protocol {
            Protocol::Http1 => Ok(Connection::Http1(Box::new(Http1::new(stream)))),
            Protocol::Http2 => {
                let (sender, connection) =
                    http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                // How it ends is told to whoever has a request on it.
                tokio::spawn(async move { drop(connection.await) });
                Ok(Connection::Http2(sender))
            }
        }
    };
    // Boxed: it is seldom needed, and requests on connections that are there need not have the room for it.
    Box::pin(tokio::time::timeout(within, dialling)).await.map_err(|_| DialError::TimedOut(within))?
}
