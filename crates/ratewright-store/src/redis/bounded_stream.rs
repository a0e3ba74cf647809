//! A connection to Redis on which no reply is longer than a bound.
//!
//! The redis crate keeps the beginning of a reply until its end has arrived. A server that is not what it seems could
//! send gigabytes before a call times out. Our longest replies have a few kilobytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::SockRef;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

/// The most bytes between two of our writes, which follow each other within a second.
const UNANSWERED_MAX: usize = 4 * 1024 * 1024;

/// Connects within this time. Replies over TLS have no bound, because the redis crate opens those connections itself; with TLS,
/// the server has a certificate to prove who it is.
pub(super) async fn connect(
    client: &Client,
    config: AsyncConnectionConfig,
    within: Duration,
) -> RedisResult<MultiplexedConnection> {
    let info = client.get_connection_info();
    let opening = async {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let addresses = lookup_host((host.as_str(), *port)).await?;
                let connecting: Vec<_> =
                    addresses.map(|address| Box::pin(TcpStream::connect(address))).collect();
                if connecting.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
                }
                // All at once: one that does not respond must not use up the time of the others.
                let (stream, _) = select_ok(connecting).await?;
                let settings = info.tcp_settings();
                stream.set_nodelay(settings.nodelay())?;
                SockRef::from(&stream).set_tcp_user_timeout(settings.user_timeout())?;
                log_in(client, stream, config).await
            }
            ConnectionAddr::Unix(path) => log_in(client, UnixStream::connect(path).await?, config).await,
            ConnectionAddr::TcpTls { .. } | _ => {
                client.get_multiplexed_async_connection_with_config(&config).await
            }
        }
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {within:?}"));
    timeout(within, opening).await.map_err(late)?
}

async fn log_in(
    client: &Client,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let settings = client.get_connection_info().redis_settings();
    let stream = BoundedStream { stream, n_unanswered: 0 };
    let (connection, driver) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// A stream that fails when more arrives without a write of ours than the bound.
struct BoundedStream<I> {
    stream: I,
    n_unanswered: usize,
}

impl<I: AsyncRead + Unpin> AsyncRead for BoundedStream<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.n_unanswered += buffer.filled().len() - before;
        if this.n_unanswered > UNANSWERED_MAX {
            let problem = format!("reply of more than {UNANSWERED_MAX} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, problem)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for BoundedStream<I> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let n = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.n_unanswered = 0;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
