//! A stream that tells how much has been heard of its client.
//!
//! HTTP/2 begins with 24 bytes, and the library waits for them as long as it takes. Whoever says nothing would keep a place for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What every client of HTTP/2 says first, in bytes.
const PREFACE: usize = 24;

/// A stream, and how many bytes have come.
#[derive(Debug)]
pub(crate) struct Heard<I> {
    stream: I,
    n_bytes: Arc<AtomicUsize>,
}

impl<I> Heard<I> {
    pub(crate) fn new(stream: I) -> Self {
        Self { stream, n_bytes: Arc::default() }
    }

    /// Ready if the client has not said what all say first within this time, and otherwise never.
    pub(crate) fn until_silent(&self, within: Duration) -> impl Future<Output = ()> + use<I> {
        let n_bytes = Arc::clone(&self.n_bytes);
        async move {
            tokio::time::sleep(within).await;
            if n_bytes.load(Ordering::Relaxed) >= PREFACE {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Heard<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let n = self.n_bytes.load(Ordering::Relaxed);
        if n < PREFACE {
            self.n_bytes.store(n + buf.filled().len() - before, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Heard<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
