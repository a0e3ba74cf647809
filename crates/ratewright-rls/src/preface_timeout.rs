//! A timeout for the HTTP/2 preface.
//!
//! HTTP/2 begins with 24 bytes, and hyper waits for them without a timeout. A silent client would keep its connection slot for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The length of the preface, in bytes.
const PREFACE: usize = 24;

/// A stream that counts the bytes it has read.
#[derive(Debug)]
pub(crate) struct PrefaceTimeout<I> {
    stream: I,
    n_bytes: Arc<AtomicUsize>,
}

impl<I> PrefaceTimeout<I> {
    pub(crate) fn new(stream: I) -> Self {
        Self { stream, n_bytes: Arc::default() }
    }

    /// Ready if the preface has not arrived within this time; otherwise it stays pending.
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

impl<I: AsyncRead + Unpin> AsyncRead for PrefaceTimeout<I> {
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

impl<I: AsyncWrite + Unpin> AsyncWrite for PrefaceTimeout<I> {
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
