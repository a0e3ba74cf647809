//! Connections that speak something else than HTTP from here on: WebSockets, mostly.
//!
//! They were limited at the handshake. Now bytes go both ways until one side closes, or until nothing has gone through for too
//! long: a side that is gone without a word says nothing ever again. It is the client's connection still: it keeps its place and
//! its permit, and a stop waits for it as it waits for requests.

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
use crate::quiet::Quiet;
use crate::upstream::Lease;

/// What joins both ends when the client has switched too. The server counts as busy until it is over.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) client: OnUpgrade,
    pub(crate) server: Stream,
    /// What the server has said already.
    pub(crate) said: Bytes,
    pub(crate) lease: Lease,
    /// How long nothing may go through.
    pub(crate) pause_max: Duration,
}

/// Where a tunnel is left for the connection that it will go through. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening(Arc<Mutex<Option<(Tunnel, Body)>>>);

impl Opening {
    pub(crate) fn of(tunnel: Tunnel) -> Self {
        Self(Arc::new(Mutex::new(Some((tunnel, Body::empty())))))
    }

    /// Takes over what is left in another place. What the answer's body holds, a permit perhaps, is held until the tunnel is over.
    pub(crate) fn take_over(&self, other: &Self, holding: Body) {
        let tunnel = other.0.lock().take();
        *self.0.lock() = tunnel.map(|(tunnel, _)| (tunnel, holding));
    }

    /// Passes bytes on until one side closes, if there is a tunnel.
    pub(crate) async fn pass(&self) {
        let opened = self.0.lock().take();
        let Some((Tunnel { client, server, said, lease, pause_max }, holding)) = opened else { return };
        let Ok(client) = client.await else { return };
        let mut client = TokioIo::new(client);
        if client.write_all(&said).await.is_ok() {
            join(client, server, pause_max).await;
        }
        drop((lease, holding));
    }
}

/// Passes bytes on, both ways, until both have closed or nothing moves. How it ends is the affair of those who speak.
async fn join<C, S>(mut client: C, server: S, pause_max: Duration)
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let n_moves = AtomicU64::new(0);
    let mut server = Moving { stream: server, n_moves: &n_moves };
    let mut passing = pin!(copy_bidirectional(&mut client, &mut server));
    let (mut quiet, mut n_seen) = (Quiet::default(), 0);
    poll_fn(|context| {
        if passing.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let n = n_moves.load(Ordering::Relaxed);
        if n != n_seen {
            n_seen = n;
            quiet.broke();
        }
        quiet.poll_too_long(context, pause_max)
    })
    .await;
}

/// The server's end, through which all goes, either way: it counts.
struct Moving<'a, S> {
    stream: S,
    n_moves: &'a AtomicU64,
}

impl<S: AsyncRead + Unpin> AsyncRead for Moving<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        self.n_moves.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Moving<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, buffer));
        self.n_moves.fetch_add(1, Ordering::Relaxed);
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

    /// Whatever goes through, in either direction, begins the time anew.
    #[tokio::test(start_paused = true)]
    async fn a_tunnel_lasts_as_long_as_something_goes_through() {
        let (mut client, ours) = duplex(10);
        let (theirs, mut server) = duplex(10);
        let begin = Instant::now();
        let tunnel = tokio::spawn(join(ours, theirs, Duration::from_secs(10)));
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
