//! Laws of our HTTP/1.1 parsers: functions that panic if an input breaks them.
//!
//! Each compares our parser with hyper on the same bytes. Ours may be stricter, never different: a message that both
//! accept must have the same boundaries. `fuzz/targets` calls these functions with random input, the unit tests with
//! the seeds. Compiled only for tests and with the feature `fuzzing`.

mod request_framing;
mod upstream_response;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub use request_framing::request_framing;
pub use upstream_response::upstream_response;

/// A fake peer: sends its bytes in pieces, then closes. It discards everything written to it.
struct FakePeer {
    bytes: Bytes,
    /// The length of each piece.
    piece: usize,
    /// True until something has been written to it.
    waits_for_write: bool,
    waker: Option<Waker>,
    /// True if it does not close after its bytes.
    stays_open: bool,
}

/// How a message ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MessageEnd {
    Complete,
    /// It is invalid.
    Rejected,
    /// The input ends before it does.
    Incomplete,
}

impl MessageEnd {
    /// Why hyper read no more.
    fn of(error: &hyper::Error) -> Self {
        let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
        let is_eof = source.is_some_and(|source| source.kind() == io::ErrorKind::UnexpectedEof);
        if is_eof || error.is_incomplete_message() { Self::Incomplete } else { Self::Rejected }
    }
}

impl FakePeer {
    fn new(bytes: &[u8], piece: usize) -> Self {
        Self {
            bytes: Bytes::copy_from_slice(bytes),
            piece,
            waits_for_write: false,
            waker: None,
            stays_open: false,
        }
    }

    /// The same, but sends nothing until it has received a request.
    fn after_request(self) -> Self {
        Self { waits_for_write: true, ..self }
    }

    /// The same, but keeps the connection open after its bytes.
    fn staying_open(self) -> Self {
        Self { stays_open: true, ..self }
    }
}

impl AsyncRead for FakePeer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.waits_for_write {
            self.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if self.bytes.is_empty() && self.stays_open {
            return Poll::Pending;
        }
        let n = self.piece.min(self.bytes.len()).min(buf.remaining());
        buf.put_slice(&self.bytes.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FakePeer {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.waits_for_write = false;
        self.waker.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Records that a task was woken.
#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a future until it is ready. None if it is pending and nothing can wake it: all its input is in memory.
fn run<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let woken = Arc::new(WakeFlag::default());
    let waker = Waker::from(Arc::clone(&woken));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        if !woken.0.swap(false, Ordering::Relaxed) {
            return None;
        }
    }
}

/// Splits an input into a choice (upper 3 bits of its first byte), a piece length (lower 5 bits, 0: one piece) and the
/// bytes.
fn split_input(input: &[u8]) -> Option<(u8, usize, &[u8])> {
    let (first, bytes) = input.split_first()?;
    let piece = usize::from(first & 0x1f);
    Some((first >> 5, if piece == 0 { usize::MAX } else { piece }, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratewright_lab::is_long_run;

    /// Checks every seed of a target, split in several ways.
    fn check_seeds(target: &str, law: fn(&[u8])) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
        let seeds = std::fs::read_dir(format!("{folder}/{target}")).unwrap();
        for seed in seeds.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()) {
            for first in 0..=u8::MAX {
                let rest = seed.get(1..).unwrap_or_default();
                law(&[&[first], rest].concat());
            }
        }
    }

    #[test]
    fn the_seeds_keep_the_laws() {
        check_seeds("request_framing", request_framing);
        check_seeds("upstream_response", upstream_response);
    }

    /// The start of a message, then random HTTP tokens: these reach more edge cases than random bytes.
    fn http_tokens() -> impl Strategy<Value = Vec<u8>> {
        let starts = prop::sample::select(vec![
            "",
            "GET / HTTP/1.1\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        ]);
        let tokens = prop::sample::select(vec![
            "GET / HTTP/1.1\r\n",
            "POST /a HTTP/1.0\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 100 \r\n",
            "HTTP/1.1 204\r\n",
            "Content-Length: 3\r\n",
            "content-length:0\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Connection: close\r\n",
            "Expect: 100-continue\r\n",
            "PRI * HTTP/2.0\r\n",
            "SM\r\n",
            "X: y\r\n",
            "\r\n",
            "\r\n",
            "\r\n",
            "\n",
            "\r",
            "\0",
            "\x0c",
            " ",
            "\t",
            ":",
            ";a=b",
            "0\r\n",
            "0\r\n\r\n",
            "3",
            "3\r\nabc\r\n",
            "a",
            "abc",
        ]);
        let tokens = prop::collection::vec(tokens, 0..8).prop_map(|tokens| tokens.concat());
        (starts, tokens).prop_map(|(start, tokens)| [start, &tokens].concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if is_long_run() { 20_000 } else { 4_000 }))]

        #[test]
        fn random_http_tokens_keep_the_laws(first: u8, text in http_tokens()) {
            let input = [&[first], &text[..]].concat();
            request_framing(&input);
            upstream_response(&input);
        }
    }
}
