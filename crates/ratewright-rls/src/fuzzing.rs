//! The law of our own parser of calls, as a function that panics if some bytes break it.
//!
//! tonic reads the same bytes. Our parser takes one message that is not compressed; it may be stricter than tonic, never
//! different. `fuzz/targets` calls the function with made-up bytes, and the unit tests here with its seeds. HTTP/2
//! itself is read by hyper alone. Built for tests, and with the feature `fuzzing`.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use tonic::codec::Streaming;
use tonic::{Code, Status};
use tonic_prost::ProstDecoder;

use crate::unary::{MESSAGE_MAX, read};
use crate::wire::RateLimitRequest;

/// A call's body, in pieces.
#[derive(Clone)]
struct Pieces {
    bytes: Bytes,
    piece: usize,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let n = self.piece.min(self.bytes.len());
        Poll::Ready((n > 0).then(|| Ok(Frame::data(self.bytes.split_to(n)))))
    }
}

/// Bytes of a call keep these laws:
/// - However they are cut, they are the same message, or none.
/// - A message for us is the same message for tonic.
/// - One whole message for tonic is a message for us. tonic also takes one after which another begins and never comes.
/// - What is rejected has a code and a reason.
///
/// The first byte says how the rest is cut; 0 is for not at all.
///
/// # Panics
/// If they do not.
pub fn call_message(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    let piece = if *first == 0 { usize::MAX } else { usize::from(*first) };
    let body = Pieces { bytes: Bytes::copy_from_slice(bytes), piece };
    let ours = ready(read::<RateLimitRequest>(body.clone()));
    let whole = ready(read::<RateLimitRequest>(Pieces { piece: usize::MAX, ..body.clone() }));
    assert_eq!(
        ours.as_ref().map_err(Status::code),
        whole.as_ref().map_err(Status::code),
        "however it is cut"
    );
    let theirs = ready(read_by_tonic(body));
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
        (Ok(ours), Err(theirs)) => panic!("we read {ours:?}, tonic {theirs:?}"),
        (Err(ours), theirs) => {
            assert!(ours.code() != Code::Ok && !ours.message().is_empty());
            assert!(theirs.is_err() || !is_one(bytes), "we read {ours:?}, tonic {theirs:?}");
        }
    }
}

/// True if there is one message, as long as it says.
fn is_one(bytes: &[u8]) -> bool {
    let Some(([_, length @ ..], message)) = bytes.split_first_chunk::<5>() else { return false };
    usize::try_from(u32::from_be_bytes(*length)) == Ok(message.len())
}

/// The message, if tonic finds one and then the end.
async fn read_by_tonic(body: Pieces) -> Result<RateLimitRequest, Status> {
    let mut messages = Streaming::new_request(ProstDecoder::default(), body, None, Some(MESSAGE_MAX));
    let message = messages.message().await?.ok_or_else(|| Status::internal("no message"))?;
    match messages.message().await? {
        None => Ok(message),
        Some(_) => Err(Status::internal("two messages")),
    }
}

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("all of it is there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_seeds_keep_the_laws() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/call_message");
        for entry in std::fs::read_dir(folder).unwrap() {
            let seed = std::fs::read(entry.unwrap().path()).unwrap();
            for first in 0..=u8::MAX {
                call_message(&[&[first], &seed[1..]].concat());
            }
        }
    }

    proptest! {
        /// Prefixes that are nearly right, and messages after them.
        #[test]
        fn calls_keep_the_laws(
            first: u8,
            flag in 0..3_u8,
            off_by in -2..3_i64,
            message in prop::collection::vec(any::<u8>(), 0..40),
            rest in prop::collection::vec(any::<u8>(), 0..8),
        ) {
            let length = u32::try_from((message.len() as i64 + off_by).max(0)).unwrap_or(0);
            call_message(&[&[first, flag], &length.to_be_bytes()[..], &message, &rest].concat());
        }
    }
}
