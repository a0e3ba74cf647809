//! The laws of our own HTTP/1.1 parsers, each a function that panics if some bytes break it.
//!
//! hyper reads the same bytes. Our parsers may be stricter than hyper, never different: what both accept, both must cut
//! into the same messages. `fuzz/targets` calls these functions with made-up bytes, and the unit tests here with its seeds.
//! Built for tests, and with the feature `fuzzing`.

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

/// A peer that says some bytes, in pieces, and hangs up; it takes whatever is written to it.
struct Script {
    bytes: Bytes,
    /// The length of each piece.
    piece: usize,
    /// Whether it waits until something has been written to it.
    waits: bool,
    waiting: Option<Waker>,
}

impl Script {
    fn new(bytes: &[u8], piece: usize) -> Self {
        Self { bytes: Bytes::copy_from_slice(bytes), piece, waits: false, waiting: None }
    }

    /// The same, from a peer that answers: it says nothing before it is asked.
    fn answering(self) -> Self {
        Self { waits: true, ..self }
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.waits {
            self.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = self.piece.min(self.bytes.len()).min(buf.remaining());
        buf.put_slice(&self.bytes.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.waits = false;
        self.waiting.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Notices that a task wants to be polled again.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls a future until it is ready, or nobody will ever wake it: all that it reads is there.
fn run<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let woken = Arc::new(Woken::default());
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

/// The first byte of an input says how the rest is cut; 0 is for not at all.
fn cut(input: &[u8]) -> Option<(u8, usize, &[u8])> {
    let (first, bytes) = input.split_first()?;
    let piece = usize::from(first & 0x1f);
    Some((first >> 5, if piece == 0 { usize::MAX } else { piece }, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Plays every seed of a target, cut in several ways.
    fn play(target: &str, law: fn(&[u8])) {
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
        play("request_framing", request_framing);
        play("upstream_response", upstream_response);
    }

    /// The beginning of a message, and then words of HTTP in any order: nearer to trouble than bytes in any order.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let begins = prop::sample::select(vec![
            "",
            "GET / HTTP/1.1\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        ]);
        let words = prop::sample::select(vec![
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
        let words = prop::collection::vec(words, 0..8).prop_map(|words| words.concat());
        (begins, words).prop_map(|(begin, words)| [begin, &words].concat().into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        #[test]
        fn words_of_http_keep_the_laws(first: u8, text in texts()) {
            let input = [&[first], &text[..]].concat();
            request_framing(&input);
            upstream_response(&input);
        }
    }
}
