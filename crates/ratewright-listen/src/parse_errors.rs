//! The responses to requests that hyper cannot parse.
//!
//! hyper answers them by itself, before any service sees them: 400, 414 or 431 with an empty body. Here such a response is replaced on its
//! way to the client by one that says what is wrong, and under which id the log has it.
//!
//! ```text
//!   hyper ── HTTP/1.1 400 Bad Request, content-length: 0 ──► ParseErrors ── the entrypoint's problem ──► client
//!         ── anything else ──────────────────────────────────────────────── as it is ─────────────────►
//! ```
//!
//! A response is replaced only if it begins a write and is nothing but such a head. An entrypoint whose own responses may look the same
//! tells them apart by [`RenderParseError::flushed`]: after a flush, with no request in progress, only hyper has anything to say.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tracing::info;

use crate::log_throttle::LogThrottle;

/// Parse errors are logged once in this time.
const LOGGED_EVERY: Duration = Duration::from_secs(1);

/// Makes the responses to requests that cannot be parsed.
pub trait RenderParseError {
    /// The whole response in place of hyper's, head and body, or `None` if the response is not hyper's. The connection ends after it.
    fn render(&mut self, status: u16) -> Option<Vec<u8>>;

    /// Everything that was written so far is on its way.
    fn flushed(&mut self) {}
}

/// A stream on which hyper's responses to parse errors are replaced.
#[derive(Debug)]
pub struct ParseErrors<I, R> {
    stream: I,
    render: R,
    /// A replacement, of which the client has not got all.
    pending: Vec<u8>,
}

impl<I, R> ParseErrors<I, R> {
    /// Replaces what hyper writes to `stream` when it cannot parse a request.
    pub fn new(stream: I, render: R) -> Self {
        Self { stream, render, pending: Vec::new() }
    }
}

/// Logs parse errors, one a second at most.
#[derive(Debug)]
pub struct ParseErrorLog {
    throttle: LogThrottle,
    began_at: Instant,
}

/// One for all listeners of the program, so that there is one line a second in all.
static LOG: LazyLock<ParseErrorLog> = LazyLock::new(|| {
    // Tokio's clock, which this crate measures all times by.
    ParseErrorLog { throttle: LogThrottle::new(LOGGED_EVERY), began_at: Instant::now() }
});

impl ParseErrorLog {
    /// Logs that a request of `peer` could not be parsed, and the id that its response names.
    pub fn report(peer: IpAddr, status: u16, id: &str) {
        let since = u64::try_from(LOG.began_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        if let Some(suppressed) = LOG.throttle.admit(since.saturating_add(1)) {
            let reason = match status {
                431 => "head too large",
                414 => "request target too long",
                _ => "not valid HTTP/1.1",
            };
            info!(%peer, status, correlation_id = id, suppressed, "request rejected: {reason}");
        }
    }
}

/// The status of a response that hyper made itself, if `written` is one.
fn own_status(written: &[u8]) -> Option<u16> {
    let head = written.strip_prefix(b"HTTP/1.1 4")?.strip_suffix(b"\r\n\r\n")?;
    let head = str::from_utf8(head).ok()?;
    let (line, fields) = head.split_once("\r\n")?;
    let status = match line {
        "00 Bad Request" => 400,
        "14 URI Too Long" => 414,
        "31 Request Header Fields Too Large" => 431,
        _ => return None,
    };
    let is_own = |field: &str| matches!(field, "content-length: 0" | "connection: close") || is_date(field);
    fields.split("\r\n").all(is_own).then_some(status)
}

/// `date: Tue, 17 Nov 2026 07:52:02 GMT`.
fn is_date(field: &str) -> bool {
    field.strip_prefix("date: ").is_some_and(|date| date.len() == 29 && date.ends_with(" GMT"))
}

impl<I: AsyncWrite + Unpin, R: RenderParseError> ParseErrors<I, R> {
    /// Writes what is left of a replacement.
    fn write_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let n = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.pending))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.drain(..n);
        }
        Poll::Ready(Ok(()))
    }

    /// True if `written` is replaced, and so need not be written.
    fn replaces(&mut self, written: &[u8]) -> bool {
        let Some(response) = own_status(written).and_then(|status| self.render.render(status)) else {
            return false;
        };
        self.pending = response;
        true
    }
}

impl<I: AsyncRead + Unpin, R: Unpin> AsyncRead for ParseErrors<I, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin, R: RenderParseError + Unpin> AsyncWrite for ParseErrors<I, R> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.write_pending(cx))?;
        if self.replaces(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.write_pending(cx))?;
        if let [only] = bufs
            && self.replaces(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_pending(cx))?;
        self.render.flushed();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_pending(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// Replaces every one, and remembers the statuses.
    struct Replaces(Vec<u16>);

    impl RenderParseError for Replaces {
        fn render(&mut self, status: u16) -> Option<Vec<u8>> {
            self.0.push(status);
            Some(b"replaced, and longer than what the stream takes at once".to_vec())
        }
    }

    async fn written(bytes: &[u8]) -> String {
        let (client, server) = duplex(16);
        let read = tokio::spawn(async move {
            let (mut client, mut text) = (client, String::new());
            client.read_to_string(&mut text).await.unwrap();
            text
        });
        let mut stream = ParseErrors::new(server, Replaces(Vec::new()));
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        stream.shutdown().await.unwrap();
        drop(stream);
        read.await.unwrap()
    }

    #[tokio::test]
    async fn the_responses_of_hyper_to_parse_errors_are_replaced() {
        for status in ["400 Bad Request", "414 URI Too Long", "431 Request Header Fields Too Large"] {
            let own = format!(
                "HTTP/1.1 {status}\r\ncontent-length: 0\r\ndate: Tue, 17 Nov 2026 07:52:02 GMT\r\n\r\n"
            );
            assert_eq!(
                written(own.as_bytes()).await,
                "replaced, and longer than what the stream takes at once"
            );
        }
    }

    #[tokio::test]
    async fn other_responses_stay_as_they_are() {
        for other in [
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nserver: x\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "",
        ] {
            assert_eq!(written(other.as_bytes()).await, other);
        }
    }
}
