//! Checks the framing of requests before hyper parses them.
//!
//! hyper cleans up what it reads: it merges equal `Content-Length` headers and drops the length beside a transfer
//! coding. After that, ambiguous framing is no longer visible. So the guard inspects every byte on its way to hyper.
//!
//! ```text
//!   socket ──► FramingGuard ─────────────────────────────► hyper ──► service
//!                │ follows heads, bodies, chunks                        ▲
//!                └── "the 3rd head has two lengths" ── GuardHandle ─────┘ "mine is the 3rd: 400"
//! ```
//!
//! Nothing is held back or copied: bytes are read into hyper's own buffer and inspected there. That is early enough: a
//! head ends with a line end, and each line is checked when its end arrives.
//!
//! hyper reads ahead, so earlier requests may still be unanswered when a head is checked. So the guard numbers heads
//! and the service numbers requests; both see all of them in the same order, and a rejection applies to the request
//! with the same number. Nothing follows a rejected head, so there is at most one rejection. The stream does not end
//! there but stalls: at an end, hyper would drop the request without a response.
//!
//! # Laws
//! - The output is a prefix of the input; if every message is valid, it is all of the input.
//! - Nothing follows the empty line of an invalid head.
//! - At most one line is kept, and none is longer than `header_max`.
//!
//! HTTP/2 framing is not ambiguous: a stream that starts with its preface passes unchanged, as does a tunnel.
//! `gateway/tests.rs` sends requests through hyper and all stages.

mod framing_headers;
pub(crate) mod messages;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::headers::FramingError;
use messages::{MessageScanner, ScanEnd};

/// A client's stream with checked framing.
#[derive(Debug)]
pub(crate) struct FramingGuard<I> {
    stream: I,
    messages: MessageScanner,
    guard: GuardHandle,
}

/// Shared by the stream and the service that responds to its requests. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuardHandle(Arc<GuardState>);

#[derive(Debug, Default)]
struct GuardState {
    /// The number of the rejected request, from 1, and the reason.
    rejected: OnceLock<(u64, FramingError)>,
    n_requests: AtomicU64,
    n_written: AtomicU64,
    is_tunnel: AtomicBool,
    /// True if the client speaks HTTP/2 or another protocol.
    is_other_protocol: AtomicBool,
}

impl GuardHandle {
    /// Why the next request must be rejected. Called once for each request, in order.
    pub(crate) fn next_verdict(&self) -> Option<FramingError> {
        let number = self.0.n_requests.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.rejected.get().filter(|(rejected, _)| *rejected <= number).map(|(_, framing)| *framing)
    }

    /// The number of requests so far.
    pub(crate) fn n_requests(&self) -> u64 {
        self.0.n_requests.load(Ordering::Relaxed)
    }

    /// The number of bytes written to the client so far.
    pub(crate) fn n_written(&self) -> u64 {
        self.0.n_written.load(Ordering::Relaxed)
    }

    pub(crate) fn wrote(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = written {
            self.0.n_written.fetch_add(u64::try_from(*n).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// True if the connection is a tunnel.
    fn is_tunnel(&self) -> bool {
        self.0.is_tunnel.load(Ordering::Relaxed)
    }

    /// True if the connection speaks HTTP/1.1 and is not a tunnel.
    pub(crate) fn is_http1(&self) -> bool {
        !self.is_tunnel() && !self.0.is_other_protocol.load(Ordering::Relaxed)
    }

    /// Stops checking: the connection becomes a tunnel. Called before the client gets the 101 response.
    pub(crate) fn pass_through(&self) {
        self.0.is_tunnel.store(true, Ordering::Relaxed);
    }
}

impl<I> FramingGuard<I> {
    /// Guards a stream with heads of at most `header_max` bytes.
    pub(crate) fn new(stream: I, header_max: usize) -> Self {
        Self { stream, messages: MessageScanner::new(header_max), guard: GuardHandle::default() }
    }

    /// Reports which request must be rejected.
    pub(crate) fn handle(&self) -> GuardHandle {
        self.guard.clone()
    }
}

/// The result of a read after the end of the scan.
fn ended(end: ScanEnd) -> Poll<io::Result<()>> {
    match end {
        ScanEnd::Rejected(_) | ScanEnd::TooLong => Poll::Pending,
        ScanEnd::InvalidBody => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for FramingGuard<I> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, messages, guard } = self.get_mut();
        if guard.is_tunnel() {
            messages.pass_through();
        }
        if let Some(end) = messages.end() {
            return ended(end);
        }
        let before = buf.filled().len();
        ready!(Pin::new(stream).poll_read(cx, buf))?;
        let received = &buf.filled()[before..];
        if received.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let n_passed = messages.follow(received);
        buf.set_filled(before + n_passed);
        if messages.is_passing_through() {
            guard.0.is_other_protocol.store(true, Ordering::Relaxed);
        }
        match messages.end() {
            Some(ScanEnd::Rejected(framing)) => drop(guard.0.rejected.set((messages.n_heads(), framing))),
            Some(end) if n_passed == 0 => return ended(end),
            _ => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for FramingGuard<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.guard.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.guard.wrote(&written);
        written
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
