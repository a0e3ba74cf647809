//! Responses to requests that hyper cannot parse.
//!
//! hyper responds to them itself, before any service sees them: 400, 414 or 431 with an empty body. [`ParseErrors`]
//! replaces that response with one that says what is wrong, and carries the correlation id of the log line.
//!
//! ```text
//!   hyper ── HTTP/1.1 400 Bad Request, content-length: 0 ──► ParseErrors ── the entrypoint's problem ──► client
//!         ── anything else ──────────────────────────────────────────────── as it is ─────────────────►
//! ```
//!
//! It replaces a response only if one write consists of exactly that head. If an entrypoint can send the same bytes itself,
//! it needs [`RenderParseError::flushed`] to know when only hyper writes: after a flush, with no request in flight.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::info;

use crate::log_throttle::LogThrottle;

/// Parse errors are logged once in this time.
const LOGGED_EVERY: Duration = Duration::from_secs(1);

/// Renders the responses to requests that cannot be parsed.
pub trait RenderParseError {
    /// The replacement, head and body, or `None` if the response is not hyper's. The connection closes after it.
    fn render(&mut self, status: u16) -> Option<Vec<u8>>;

    /// Everything written so far has been flushed.
    fn flushed(&mut self) {}
}

/// A stream on which hyper's responses to parse errors are replaced.
#[derive(Debug)]
pub struct ParseErrors<I, R> {
    stream: I,
    render: R,
    /// The part of a replacement that is not yet written.
    pending: Vec<u8>,
}

impl<I, R> ParseErrors<I, R> {
    /// Replaces the responses that hyper writes to `stream` when it cannot parse a request.
    pub fn new(stream: I, render: R) -> Self {
        Self { stream, render, pending: Vec::new() }
    }
}

/// Logs parse errors, at most one a second.
#[derive(Debug)]
pub struct ParseErrorLog;

/// Shared by all listeners of the process, so that the limit holds for all together.
static THROTTLE: LazyLock<LogThrottle> = LazyLock::new(|| LogThrottle::new(LOGGED_EVERY));

impl ParseErrorLog {
    /// Logs that a request of `peer` could not be parsed, with the correlation id of its response.
    pub fn report(peer: IpAddr, status: u16, id: &str) {
        if let Some(suppressed) = THROTTLE.admit() {
            let reason = match status {
                431 => "head too large",
                414 => "request target too long",
                _ => "not valid HTTP/1.1",
            };
            info!(%peer, status, correlation_id = id, suppressed, "request rejected: {reason}");
        }
    }
}

/// The status, if `written` is a response that hyper made itself.
fn hyper_status(written: &[u8]) -> Option<u16> {
    let head = written.strip_prefix(b"HTTP/1.1 4")?.strip_suffix(b"\r\n\r\n")?;
    let head = str::from_utf8(head).ok()?;
    let (line, headers) = head.split_once("\r\n")?;
    let status = match line {
        "00 Bad Request" => 400,
        "14 URI Too Long" => 414,
        "31 Request Header Fields Too Large" => 431,
        _ => return None,
    };
    let is_of_hyper =
        |header: &str| matches!(header, "content-length: 0" | "connection: close") || is_date(header);
    headers.split("\r\n").all(is_of_hyper).then_some(status)
}

/// `date: Tue, 17 Nov 2026 07:52:02 GMT`.
fn is_date(header: &str) -> bool {
    header.strip_prefix("date: ").is_some_and(|date| date.len() == 29 && date.ends_with(" GMT"))
}

impl<I: AsyncWrite + Unpin, R: RenderParseError> ParseErrors<I, R> {
    /// Writes the rest of a replacement.
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

    /// True if `written` is replaced and must not be written itself.
    fn replaces(&mut self, written: &[u8]) -> bool {
        let Some(response) = hyper_status(written).and_then(|status| self.render.render(status)) else {
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

    /// Replaces every parse error, and records the statuses.
    struct ReplaceAll(Vec<u16>);

    impl RenderParseError for ReplaceAll {
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
        let mut stream = ParseErrors::new(server, ReplaceAll(Vec::new()));
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        stream.shutdown().await.unwrap();
        drop(stream);
        read.await.unwrap()
    }

    #[tokio::test]
    async fn responses_of_hyper_to_parse_errors_are_replaced() {
        for status in ["400 Bad Request", "414 URI Too Long", "431 Request Header Fields Too Large"] {
            let response = format!(
                "HTTP/1.1 {status}\r\ncontent-length: 0\r\ndate: Tue, 17 Nov 2026 07:52:02 GMT\r\n\r\n"
            );
            assert_eq!(
                written(response.as_bytes()).await,
                "replaced, and longer than what the stream takes at once"
            );
        }
    }

    #[tokio::test]
    async fn other_responses_are_unchanged() {
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
