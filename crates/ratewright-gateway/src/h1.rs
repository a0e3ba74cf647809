//! An HTTP/1.1 connection to an upstream, driven by the task that waits for the response.
//!
//! ```text
//!   request:   head ─► out ────────► stream        the body is sent while the response is awaited and read
//!              Upload frames ─┘
//!   response:  stream ─► buffer ─ head ─► Response
//!   body:                buffer ─ decode ─► frames ─► end: reusable?
//! ```
//!
//! A connection has no task and no channel of its own: a forwarded request already has the client's task. So an
//! exchange costs only its reads and writes, and the caller keeps the request head for a retry.
//!
//! # Laws
//! - A connection is reused only if request and response are complete and no further byte arrived.
//! - A response with ambiguous framing (two lengths, or a length and a coding) is rejected.

pub(crate) mod decode;
mod encode;
pub(crate) mod head;
mod stream;

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::request::Parts;
use http_body::{Body as _, Frame};
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::body::{BodyError, Upload};
use crate::headers::{ForwardingHeaders, clean_response_trailers};
use crate::idle_timer::IdleTimer;
use decode::{Decoded, Decoder};
use head::ParsedHead;
pub(crate) use stream::Stream;

/// The smallest and the largest read, in bytes.
const READ_MIN: usize = 8 * 1024;
const READ_MAX: usize = 64 * 1024;

/// A connection to an upstream.
#[derive(Debug)]
pub(crate) struct Http1 {
    stream: Stream,
    /// Received bytes that are not parsed yet.
    buffer: BytesMut,
    out: OutboundBuffer,
    decoder: Decoder,
    idle_timer: IdleTimer,
    /// Interim responses (1xx) to the current request.
    n_interim: u32,
    is_kept_alive: bool,
    /// True if the response is an error, so that the upstream may ignore the rest of the request.
    is_error_status: bool,
    /// True if any byte of the current request was sent.
    has_sent: bool,
    /// Why sending failed. A response may still arrive.
    send_error: Option<SendError>,
}

/// A request head to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutboundHead<'a> {
    pub(crate) head: &'a Parts,
    /// Headers that the gateway adds.
    pub(crate) forwarding: Option<&'a ForwardingHeaders>,
}

/// Bytes to send.
#[derive(Debug, Default)]
struct OutboundBuffer {
    /// The request head, or a chunk size.
    head: Vec<u8>,
    n_written: usize,
    data: Bytes,
    tail: &'static [u8],
    upload: Option<Upload>,
    framing: OutFraming,
}

/// How the request body is framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum OutFraming {
    #[default]
    Length,
    Chunked,
}

/// Why there is no complete response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The connection was closed before any byte of the response.
    #[error("connection closed before the response")]
    Closed(#[source] io::Error),
    /// The connection was lost, or closed too early.
    #[error("connection lost")]
    Broken(#[source] io::Error),
    /// The response is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// No data within the timeout.
    #[error("no data for {0:?}")]
    TimedOut(Duration),
    /// The request body failed.
    #[error("request body failed")]
    Upload(#[source] BodyError),
}

impl Http1 {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            out: OutboundBuffer::default(),
            decoder: Decoder::Done,
            idle_timer: IdleTimer::default(),
            n_interim: 0,
            is_kept_alive: true,
            is_error_status: false,
            has_sent: false,
            send_error: None,
        }
    }

    /// True if the upstream closed the connection or sent unexpected bytes.
    pub(crate) fn is_unusable(&mut self) -> bool {
        !self.is_kept_alive || !self.buffer.is_empty() || self.stream.has_pending_data()
    }

    /// Sends a request, and waits for the response head for at most `within` after the last write.
    pub(crate) async fn exchange(
        &mut self,
        request: OutboundHead<'_>,
        upload: Upload,
        within: Duration,
    ) -> Result<Response<()>, SendError> {
        self.begin(request, upload);
        let responded = std::future::poll_fn(|context| self.poll_response(context, within)).await?;
        let ParsedHead { response, is_kept_alive, decoder } = responded;
        self.is_kept_alive = is_kept_alive;
        self.is_error_status = response.status().is_client_error() || response.status().is_server_error();
        self.decoder = decoder;
        self.out.upload.iter_mut().for_each(Upload::responded);
        Ok(response)
    }

    /// True if the response is complete and the upstream still reads the request.
    pub(crate) fn is_still_read(&self) -> bool {
        let goes_on = self.is_kept_alive && !self.is_error_status && self.send_error.is_none();
        goes_on && self.decoder.is_done() && !self.out.is_done()
    }

    /// Sends the rest of a request whose response is complete, until no byte is taken for the idle timeout.
    pub(crate) async fn finish(&mut self, idle_timeout: Duration) {
        let finished = std::future::poll_fn(|context| match self.poll_out(context) {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending if self.out.awaits_client() => Poll::Pending, // the client has its own timeout
            Poll::Pending => {
                ready!(self.idle_timer.poll_elapsed(context, idle_timeout));
                Poll::Ready(Err(SendError::TimedOut(idle_timeout)))
            }
        });
        self.send_error = finished.await.err();
    }

    /// The body of a request of which no byte was sent.
    pub(crate) fn take_unsent(&mut self) -> Option<Upload> {
        if self.has_sent { None } else { self.out.upload.take().or_else(|| Some(Upload::empty())) }
    }

    /// The raw connection with its unread bytes, for another protocol.
    pub(crate) fn switch(self) -> (Stream, Bytes) {
        (self.stream, self.buffer.freeze())
    }

    /// True if the next request may use the connection.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_kept_alive
            && self.decoder.is_done()
            && self.out.is_done()
            && self.send_error.is_none()
            && self.buffer.is_empty()
    }

    /// True if the response body has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// The remaining length of the response body, if known.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.decoder.remaining()
    }

    fn begin(&mut self, request: OutboundHead<'_>, upload: Upload) {
        let length = upload.size_hint().exact();
        self.out.head.clear();
        self.out.n_written = 0;
        self.out.framing = encode::head(request, length, upload.is_empty(), &mut self.out.head);
        self.out.upload = (!upload.is_empty()).then_some(upload);
        self.decoder = Decoder::of_request(&request.head.method);
        self.has_sent = false;
        self.n_interim = 0;
        self.idle_timer.reset();
    }

    fn poll_response(
        &mut self,
        context: &mut Context<'_>,
        within: Duration,
    ) -> Poll<Result<ParsedHead, SendError>> {
        loop {
            if self.send_error.is_none()
                && let Poll::Ready(Err(error)) = self.poll_out(context)
            {
                // The upstream may have responded before it closed.
                self.send_error = Some(error);
            }
            match self.poll_read(context, READ_MIN) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(self.connection_error(io::ErrorKind::UnexpectedEof.into())));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.connection_error(error))),
                Poll::Pending if matches!(self.send_error, Some(SendError::Upload(_))) => {
                    return Poll::Ready(Err(self
                        .send_error
                        .take()
                        .unwrap_or(SendError::Invalid("no response"))));
                }
                // The client is still sending, and has its own timeout.
                Poll::Pending if self.out.awaits_client() && self.send_error.is_none() => {
                    self.idle_timer.reset();
                    return Poll::Pending;
                }
                Poll::Pending => {
                    ready!(self.idle_timer.poll_elapsed(context, within));
                    return Poll::Ready(Err(SendError::TimedOut(within)));
                }
            }
            match head::parse(&mut self.buffer, self.decoder, &mut self.n_interim) {
                Ok(Some(responded)) => {
                    self.idle_timer.reset();
                    return Poll::Ready(Ok(responded));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(SendError::Invalid(error))),
            }
        }
    }

    /// Why there is no response. An earlier send error comes first.
    fn connection_error(&mut self, error: io::Error) -> SendError {
        match self.send_error.take().unwrap_or(SendError::Broken(error)) {
            SendError::Broken(error) if self.buffer.is_empty() => SendError::Closed(error),
            other @ (SendError::Broken(_)
            | SendError::Closed(_)
            | SendError::Invalid(_)
            | SendError::TimedOut(_)
            | SendError::Upload(_)) => other,
        }
    }

    /// The next frame of the response body.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
        idle_timeout: Duration,
    ) -> Poll<Option<Result<Frame<Bytes>, SendError>>> {
        if !self.out.is_done() && self.send_error.is_none() {
            // The rest of the request is sent, but the response no longer depends on it.
            if let Poll::Ready(Err(error)) = self.poll_out(context) {
                self.send_error = Some(error);
            }
        }
        loop {
            match self.decoder.decode(&mut self.buffer) {
                Ok(Decoded::Data(data)) => {
                    self.idle_timer.reset();
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(Decoded::Trailers(mut trailers)) => {
                    clean_response_trailers(&mut trailers);
                    return Poll::Ready((!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers))));
                }
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(error) => return Poll::Ready(Some(Err(self.fail(SendError::Invalid(error))))),
            }
            let n_wanted = self
                .decoder
                .remaining()
                .and_then(|remaining| usize::try_from(remaining).ok())
                .unwrap_or(READ_MAX);
            match self.poll_read(context, n_wanted.clamp(READ_MIN, READ_MAX)) {
                Poll::Ready(Ok(0)) if self.decoder.ends_with_connection() => {
                    self.decoder = Decoder::Done;
                    self.is_kept_alive = false;
                }
                Poll::Ready(Ok(0)) => {
                    let error = SendError::Broken(io::ErrorKind::UnexpectedEof.into());
                    return Poll::Ready(Some(Err(self.fail(error))));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Some(Err(self.fail(SendError::Broken(error)))));
                }
                Poll::Pending => {
                    ready!(self.idle_timer.poll_elapsed(context, idle_timeout));
                    return Poll::Ready(Some(Err(self.fail(SendError::TimedOut(idle_timeout)))));
                }
            }
        }
    }

    /// Ends the connection after an error.
    fn fail(&mut self, error: SendError) -> SendError {
        self.is_kept_alive = false;
        self.decoder = Decoder::Done;
        error
    }

    /// Reads into the buffer.
    fn poll_read(&mut self, context: &mut Context<'_>, n_wanted: usize) -> Poll<io::Result<usize>> {
        self.buffer.reserve(n_wanted);
        pin!(self.stream.read_buf(&mut self.buffer)).poll(context)
    }

    /// Sends everything that is available.
    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        loop {
            while !self.out.is_written() {
                let written = self.out.poll_write(&mut self.stream, context);
                let n = ready!(written).map_err(SendError::Broken)?;
                if n == 0 {
                    return Poll::Ready(Err(SendError::Broken(io::ErrorKind::WriteZero.into())));
                }
                self.has_sent = true;
                self.idle_timer.reset();
                self.out.advance(n);
            }
            if self.out.upload.is_none() {
                return Pin::new(&mut self.stream).poll_flush(context).map_err(SendError::Broken);
            }
            ready!(self.out.poll_data(context)).map_err(SendError::Upload)?;
        }
    }
}

impl OutboundBuffer {
    /// True if the whole request was sent.
    fn is_done(&self) -> bool {
        self.upload.is_none() && self.is_written()
    }

    /// True if all received parts of the body were sent and more will come.
    fn awaits_client(&self) -> bool {
        self.upload.is_some() && self.is_written()
    }

    fn is_written(&self) -> bool {
        self.n_written == self.head.len() && self.data.is_empty() && self.tail.is_empty()
    }

    fn poll_write(&self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let head = &self.head[self.n_written..];
        if self.data.is_empty() && self.tail.is_empty() {
            return Pin::new(stream).poll_write(context, head);
        }
        let slices = [head, &self.data, self.tail].map(io::IoSlice::new);
        Pin::new(stream).poll_write_vectored(context, &slices)
    }

    /// Skips sent bytes.
    fn advance(&mut self, n: usize) {
        let of_head = n.min(self.head.len() - self.n_written);
        self.n_written += of_head;
        let of_piece = (n - of_head).min(self.data.len());
        let _ = self.data.split_to(of_piece);
        self.tail = &self.tail[n - of_head - of_piece..];
    }

    /// Prepares the next frame of the body.
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let Some(upload) = &mut self.upload else { return Poll::Ready(Ok(())) };
        let frame = ready!(Pin::new(upload).poll_frame(context)).transpose()?;
        self.head.clear();
        self.n_written = 0;
        match (frame, self.framing) {
            (None, OutFraming::Length) => self.upload = None,
            (None, OutFraming::Chunked) => {
                self.upload = None;
                self.tail = b"0\r\n\r\n";
            }
            (Some(frame), framing) => match frame.into_data() {
                Ok(data) if !data.is_empty() => {
                    if framing == OutFraming::Chunked {
                        encode::chunk_size(data.len(), &mut self.head);
                        self.tail = b"\r\n";
                    }
                    self.data = data;
                }
                Ok(_) => {}
                Err(frame) => {
                    // Trailers end a body.
                    self.upload = None;
                    if framing == OutFraming::Chunked {
                        encode::trailers(&frame.into_trailers().unwrap_or_default(), &mut self.head);
                    }
                }
            },
        }
        Poll::Ready(Ok(()))
    }
}
