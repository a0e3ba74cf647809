//! Connections that have switched from HTTP to another protocol, mostly WebSockets.
//!
//! They were limited at the handshake. Bytes flow both ways until one side closes or the tunnel is idle for too long,
//! since a dead peer never closes. The tunnel keeps the client's connection slot and permit, and a stop waits for it as
//! for requests.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};

use crate::body::Body;
use crate::h1::Stream;
use crate::idle_timer::IdleTimer;
use crate::upstream::Lease;

/// Both ends of a tunnel. The server counts as busy until it ends.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) client: OnUpgrade,
    pub(crate) server: Stream,
    /// Bytes that the upstream sent after the 101 response.
    pub(crate) early_data: Bytes,
    pub(crate) lease: Lease,
    /// The longest time without a byte.
    pub(crate) idle_timeout: Duration,
}

/// Passes a tunnel from the response to its connection. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TunnelSlot(Arc<Mutex<Option<(Tunnel, Body)>>>);

impl TunnelSlot {
    pub(crate) fn of(tunnel: Tunnel) -> Self {
        Self(Arc::new(Mutex::new(Some((tunnel, Body::empty())))))
    }

    /// Takes the tunnel from another slot. `held_body` may hold a permit, and is dropped with the tunnel.
    pub(crate) fn transfer_from(&self, other: &Self, held_body: Body) {
        let tunnel = other.0.lock().take();
        *self.0.lock() = tunnel.map(|(tunnel, _)| (tunnel, held_body));
    }

    /// Runs the tunnel, if there is one, until it ends.
    pub(crate) async fn run(&self) {
        let opened = self.0.lock().take();
        let Some((Tunnel { client, server, early_data, lease, idle_timeout }, held_body)) = opened else {
            return;
        };
        let Ok(client) = client.await else { return };
        let mut client = TokioIo::new(client);
        if client.write_all(&early_data).await.is_ok() {
            copy_until_idle(client, server, idle_timeout).await;
        }
        drop((lease, held_body));
    }
}

/// Copies bytes both ways until both sides close or the tunnel is idle. Errors are not reported.
async fn copy_until_idle<C, S>(mut client: C, server: S, idle_timeout: Duration)
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let n_transfers = AtomicU64::new(0);
    let mut server = ActivityStream { stream: server, n_transfers: &n_transfers };
    let mut passing = pin!(copy_bidirectional(&mut client, &mut server));
    let (mut idle_timer, mut n_seen) = (IdleTimer::default(), 0);
    poll_fn(|context| {
        if passing.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let n = n_transfers.load(Ordering::Relaxed);
        if n != n_seen {
            n_seen = n;
            idle_timer.reset();
        }
        idle_timer.poll_elapsed(context, idle_timeout)
    })
    .await;
}

/// Counts reads and writes at the upstream's end, which all bytes pass.
struct ActivityStream<'a, S> {
    stream: S,
    n_transfers: &'a AtomicU64,
}

impl<S: AsyncRead + Unpin> AsyncRead for ActivityStream<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.n_transfers.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActivityStream<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, buffer));
        self.n_transfers.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, duplex};
    use tokio::time::{Instant, sleep};

    /// A byte in either direction restarts the timeout.
    #[tokio::test(start_paused = true)]
    async fn a_tunnel_lasts_while_bytes_flow() {
        let (mut client, ours) = duplex(10);
        let (theirs, mut server) = duplex(10);
        let begin = Instant::now();
        let tunnel = tokio::spawn(copy_until_idle(ours, theirs, Duration::from_secs(10)));
        for _ in 0..5 {
            sleep(Duration::from_secs(9)).await;
            client.write_all(b"there").await.unwrap();
            server.read_exact(&mut [0; 5]).await.unwrap();
            sleep(Duration::from_secs(9)).await;
            server.write_all(b"back").await.unwrap();
            client.read_exact(&mut [0; 4]).await.unwrap();
        }
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "closed");
        assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0, "both");
        tunnel.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), 5 * 18 + 10);
    }
}
