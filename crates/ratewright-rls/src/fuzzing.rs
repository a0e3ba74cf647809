//! Laws of our gRPC message parser: a function that panics if an input breaks them.
//!
//! It compares our parser with tonic on the same bytes. Ours accepts one uncompressed message; it may be stricter than
//! tonic, never different. `fuzz/targets` calls the function with random input, the unit tests with the seeds. Only
//! hyper parses HTTP/2. Compiled only for tests and with the feature `fuzzing`.

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

/// The body of a call, in pieces.
#[derive(Clone)]
struct SplitBody {
    bytes: Bytes,
    piece: usize,
}

impl Body for SplitBody {
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

/// The laws for the body of a gRPC call:
/// - Splitting it into other pieces does not change the result.
/// - A message that we accept, tonic reads the same, unless it has texts that are not UTF-8: tonic rejects those.
/// - A single complete message that tonic accepts, we accept. (tonic also ignores an unfinished second message.)
/// - A rejected body has a status code and a reason.
///
/// The first byte is the length of the pieces; 0 means one piece.
///
/// # Panics
/// If a law is broken.
pub fn grpc_message(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    let piece = if *first == 0 { usize::MAX } else { usize::from(*first) };
    let body = SplitBody { bytes: Bytes::copy_from_slice(bytes), piece };
    let ours = ready(read(body.clone()));
    let whole = ready(read(SplitBody { piece: usize::MAX, ..body.clone() }));
    assert_eq!(
        ours.as_ref().map_err(Status::code),
        whole.as_ref().map_err(Status::code),
        "split into other pieces"
    );
    let theirs = ready(read_by_tonic(body));
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
        (Ok(ours), Err(_)) if has_replacement(&ours) => {}
        (Ok(ours), Err(theirs)) => panic!("results differ: ours {ours:?}, tonic {theirs:?}"),
        (Err(ours), theirs) => {
            assert!(ours.code() != Code::Ok && !ours.message().is_empty());
            assert!(
                theirs.is_err() || !is_one_message(bytes),
                "results differ: ours {ours:?}, tonic {theirs:?}"
            );
        }
    }
}

/// True if a text has the character that stands for bytes that are not UTF-8.
fn has_replacement(request: &RateLimitRequest) -> bool {
    let entries = request.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    let mut texts = entries.flat_map(|entry| [&entry.key, &entry.value]);
    texts.any(|text| text.contains('\u{fffd}')) || request.domain.contains('\u{fffd}')
}

/// True if the bytes are exactly one message, of the length that its prefix says.
fn is_one_message(bytes: &[u8]) -> bool {
    let Some(([_, length @ ..], message)) = bytes.split_first_chunk::<5>() else { return false };
    usize::try_from(u32::from_be_bytes(*length)) == Ok(message.len())
}

/// The message, if tonic reads exactly one.
async fn read_by_tonic(body: SplitBody) -> Result<RateLimitRequest, Status> {
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
        Poll::Pending => panic!("pending although the whole body is in memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Entry, RateLimitDescriptor};
    use proptest::prelude::*;
    use prost::Message as _;

    #[test]
    fn the_seeds_keep_the_laws() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/grpc_message");
        for entry in std::fs::read_dir(folder).unwrap() {
            let seed = std::fs::read(entry.unwrap().path()).unwrap();
            for first in 0..=u8::MAX {
                grpc_message(&[&[first], &seed[1..]].concat());
            }
        }
    }

    /// Requests, encoded.
    fn messages() -> impl Strategy<Value = Vec<u8>> {
        ("[a-z]{0,9}", any::<u32>()).prop_map(|(domain, hits_addend)| {
            RateLimitRequest { domain, hits_addend, ..RateLimitRequest::default() }.encode_to_vec()
        })
    }

    /// Requests with one value of any bytes, encoded: it is what they end with.
    fn of_any_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 1..9).prop_map(|value| {
            let entry = Entry { key: "key".to_owned(), value: " ".repeat(value.len()) };
            let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
            let descriptors = vec![descriptor];
            let mut message = RateLimitRequest { descriptors, ..RateLimitRequest::default() }.encode_to_vec();
            message.truncate(message.len() - value.len());
            [message, value].concat()
        })
    }

    proptest! {
        /// Length prefixes that are off by at most two, and random messages.
        #[test]
        fn random_messages_keep_the_laws(
            first: u8,
            flag in 0..3_u8,
            off_by in -2..3_i64,
            message in prop_oneof![prop::collection::vec(any::<u8>(), 0..40), messages(), of_any_bytes()],
            rest in prop::collection::vec(any::<u8>(), 0..8),
        ) {
            let length = u32::try_from((message.len() as i64 + off_by).max(0)).unwrap_or(0);
            grpc_message(&[&[first, flag], &length.to_be_bytes()[..], &message, &rest].concat());
        }
    }
}
