//! One call: a message in, a message out.
//!
//! tonic can do this, with streams, compression and other codecs. That takes longer than a decision, so `ShouldRateLimit` is read and answered
//! here; rare calls (health, reflection) go through tonic.
//!
//! ```text
//!   ┌ compressed? ┬ length, big-endian ┬ message ┐
//!   │ 1 byte      │ 4 bytes            │ …       │
//! ```

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use prost::Message;
use tonic::Status;

use crate::invalid_utf8;
use crate::wire::RateLimitRequest;

/// The longest message, in bytes. Envoy lets a rejected request pass, so this is many times what long headers can make of a request.
pub(crate) const MESSAGE_MAX: usize = 1024 * 1024;

/// The length of the prefix before a message, in bytes.
const PREFIX: usize = 5;

/// The body of a response.
#[derive(Debug)]
pub enum ResponseBody {
    /// A message, then the trailers of a successful call.
    Message(Bytes),
    /// The trailers alone.
    Trailers,
    /// Nothing more.
    Done,
    /// A response of tonic.
    Other(tonic::body::Body),
}

/// Reads the message of a call.
///
/// # Errors
/// If it is too long, compressed, cut short, or not one message.
pub(crate) async fn read(
    mut body: impl Body<Data = Bytes, Error: ToString> + Unpin,
) -> Result<RateLimitRequest, Status> {
    // Nearly always the message arrives in one piece.
    let (mut read, mut more) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::cancelled(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.is_empty() && more.is_empty() {
            read = data;
        } else {
            more.extend_from_slice(&std::mem::take(&mut read));
            more.extend_from_slice(&data);
        }
        if read.len().max(more.len()) > MESSAGE_MAX + PREFIX {
            let why = format!("message exceeds {MESSAGE_MAX} bytes");
            return Err(Status::resource_exhausted(why));
        }
    }
    if read.is_empty() {
        read = more.freeze();
    }
    let Some((prefix, message)) = read.split_first_chunk::<PREFIX>() else {
        return Err(Status::internal("call ended before its message"));
    };
    let [is_compressed, length @ ..] = *prefix;
    if is_compressed != 0 {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err(Status::internal("length of the message differs from its prefix; send one message"));
    }
    RateLimitRequest::decode(message)
        .or_else(|error| invalid_utf8::decode(message).map_err(|_| error))
        .map_err(|error| Status::internal(format!("invalid message: {error}")))
}

/// The response to a successful call.
pub(crate) fn answer(message: &impl Message) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::of(message));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// The response to a failed call.
pub(crate) fn refuse(status: Status) -> Response<ResponseBody> {
    status.into_http().map(ResponseBody::Other)
}

impl ResponseBody {
    fn of(message: &impl Message) -> Self {
        let length = message.encoded_len();
        let Ok(prefixed) = u32::try_from(length) else { return Self::Trailers }; // not reached: that would be 4 GB
        let mut bytes = BytesMut::with_capacity(PREFIX + length);
        bytes.put_u8(0);
        bytes.put_u32(prefixed);
        message.encode_raw(&mut bytes);
        Self::Message(bytes.freeze())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Self::Other(body) = &mut *self {
            return Pin::new(body).poll_frame(cx);
        }
        Poll::Ready(match std::mem::replace(&mut *self, Self::Done) {
            Self::Message(bytes) => {
                *self = Self::Trailers;
                Some(Ok(Frame::data(bytes)))
            }
            Self::Trailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                Some(Ok(Frame::trailers(trailers)))
            }
            Self::Done | Self::Other(_) => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Message(_) | Self::Trailers => false,
            Self::Done => true,
            Self::Other(body) => body.is_end_stream(),
        }
    }
}
