//! A client's stream, read along: what its heads say of where requests end is judged before the server sees it.
//!
//! hyper tidies up what it reads. Of two lengths that are equal it shows one, and beside a transfer coding it shows no length at
//! all; whoever looks at the request afterwards finds nothing to refuse. So every byte is looked at on its way to hyper.
//!
//! ```text
//!   socket ──► Strict ─────────────────────────────► hyper ──► service
//!                │ follows heads, bodies, chunks                  ▲
//!                └── "the 3rd head has two lengths" ── Flag ──────┘ "mine is the 3rd: 400"
//! ```
//!
//! Nothing is held back and nothing is copied: bytes are read into hyper's own buffer, and are hyper's as soon as they have been
//! looked at. That is early enough, because no head ends without a line's end, and a line is judged when its end comes.
//!
//! hyper reads ahead, so when a head is judged, earlier requests may not have been answered yet, or not even seen. Therefore
//! heads are counted here and requests are counted where they are answered: both see all of them, in the same order, and
//! the verdict is for the one with the same number. After a head that is refused comes nothing, so there is at most one verdict.
//! The stream does not end there, it only falls silent: at an end, hyper would drop the request without an answer.
//!
//! # Laws
//! - What comes out is a beginning of what came in; if every message keeps the rules, it is all of it.
//! - After the empty line of a head that breaks a rule, nothing comes out.
//! - At most one line is kept, and none is longer than a head may be.
//!
//! HTTP/2 has no such doubts. A stream that begins in its way is passed on as it is, and so is one that has become a tunnel.
//! `gateway/tests.rs` plays requests through hyper and all stages.

mod fields;
pub(crate) mod messages;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::headers::Framing;
use messages::{End, Messages};

/// A client's stream.
#[derive(Debug)]
pub(crate) struct Strict<I> {
    stream: I,
    messages: Messages,
    flag: Flag,
}

/// What the stream and those who answer its requests tell each other. Clones are the same flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flag(Arc<Raised>);

#[derive(Debug, Default)]
struct Raised {
    /// Which request is refused, and why. The first one is 1.
    refused: OnceLock<(u64, Framing)>,
    n_taken: AtomicU64,
    is_tunnel: AtomicBool,
    /// True if the client speaks HTTP/2, or something else than HTTP.
    is_http1_over: AtomicBool,
}

impl Flag {
    /// Why the next request must be refused. To be called once for each request, in their order.
    pub(crate) fn take(&self) -> Option<Framing> {
        let number = self.0.n_taken.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.refused.get().filter(|(refused, _)| *refused <= number).map(|(_, framing)| *framing)
    }

    /// How many requests there have been.
    pub(crate) fn n_taken(&self) -> u64 {
        self.0.n_taken.load(Ordering::Relaxed)
    }

    /// True if the client speaks something else than HTTP.
    fn is_tunnel(&self) -> bool {
        self.0.is_tunnel.load(Ordering::Relaxed)
    }

    /// True if the connection speaks HTTP/1.1, and has not become a tunnel.
    pub(crate) fn is_http1(&self) -> bool {
        !self.is_tunnel() && !self.0.is_http1_over.load(Ordering::Relaxed)
    }

    /// From here on the client speaks something else than HTTP. To be called before it is told that it may.
    pub(crate) fn let_through(&self) {
        self.0.is_tunnel.store(true, Ordering::Relaxed);
    }
}

impl<I> Strict<I> {
    /// Reads along a stream whose heads have at most `header_max` bytes.
    pub(crate) fn new(stream: I, header_max: usize) -> Self {
        Self { stream, messages: Messages::new(header_max), flag: Flag::default() }
    }

    /// Where it is told which request must be refused.
    pub(crate) fn flag(&self) -> Flag {
        self.flag.clone()
    }
}

/// What a reader gets when there is nothing more for it.
fn ended(end: End) -> Poll<io::Result<()>> {
    match end {
        End::Refused(_) | End::TooLong => Poll::Pending,
        End::Broken => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Strict<I> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, messages, flag } = self.get_mut();
        if flag.is_tunnel() {
            messages.let_through();
        }
        if let Some(end) = messages.end() {
            return ended(end);
        }
        let before = buf.filled().len();
        ready!(Pin::new(stream).poll_read(cx, buf))?;
        let came = &buf.filled()[before..];
        if came.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let n_passed = messages.follow(came);
        buf.set_filled(before + n_passed);
        if messages.is_let_through() {
            flag.0.is_http1_over.store(true, Ordering::Relaxed);
        }
        match messages.end() {
            Some(End::Refused(framing)) => drop(flag.0.refused.set((messages.n_heads(), framing))),
            Some(end) if n_passed == 0 => return ended(end),
            _ => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Strict<I> {
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
