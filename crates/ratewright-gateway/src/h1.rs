//! HTTP/1.1 to a server, on one connection, driven by whoever waits for the answer.
//!
//! ```text
//!   send:    head ─► out ─────────► stream        the body's pieces go out while the answer is awaited and read
//!            Upload pieces ─┘
//!   answer:  stream ─► seen ─ head ─► Response
//!   body:              seen ─ decode ─► frames ─► end: can it be used again?
//! ```
//!
//! There is no task behind a connection and no channel to it: a request that passes through a gateway has a task already, the
//! client's. So an exchange costs what it reads and writes, and the request's head stays with whoever sends it, to be
//! sent again if need be.
//!
//! # Laws
//! - A connection is used again only if both sides have said all they had to say, and nothing more has come.
//! - Whatever could be read in two ways (two lengths, a length and a coding) is no answer.

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
use crate::headers::{Told, clean_response_trailers};
use crate::quiet::Quiet;
use decode::{Decoded, Decoder};
use head::Answered;
pub(crate) use stream::Stream;

/// How much is read at once, at least and at most.
const READ_MIN: usize = 8 * 1024;
const READ_MAX: usize = 64 * 1024;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Http1 {
    stream: Stream,
    /// What has come and was not looked at yet.
    seen: BytesMut,
    out: Out,
    decoder: Decoder,
    quiet: Quiet,
    /// Interim responses (1xx) to the present request.
    n_interim: u32,
    is_kept_alive: bool,
    /// Whether the answer says that the request was not wanted.
    is_refused: bool,
    /// Whether anything of the present request went out.
    has_sent: bool,
    /// Why nothing can be sent any more. An answer may have come all the same.
    broken: Option<SendError>,
}

/// The head of a request as it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) head: &'a Parts,
    /// What the server is told besides.
    pub(crate) told: Option<&'a Told>,
}

/// What is still to be sent.
#[derive(Debug, Default)]
struct Out {
    /// The head, or the head of a chunk.
    head: Vec<u8>,
    n_written: usize,
    piece: Bytes,
    tail: &'static [u8],
    upload: Option<Upload>,
    framing: OutFraming,
}

/// How the server is told where the body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum OutFraming {
    #[default]
    Length,
    Chunked,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The connection ended before anything of an answer came.
    #[error("the connection was closed")]
    Closed(#[source] io::Error),
    /// The connection broke, or ended too early.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    /// What came is no answer.
    #[error("{0}")]
    Garbled(&'static str),
    /// Nothing came in time.
    #[error("nothing came for {0:?}")]
    Quiet(Duration),
    /// The client's body stopped.
    #[error("the client's body stopped")]
    Upload(#[source] BodyError),
}

impl Http1 {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            seen: BytesMut::new(),
            out: Out::default(),
            decoder: Decoder::Done,
            quiet: Quiet::default(),
            n_interim: 0,
            is_kept_alive: true,
            is_refused: false,
            has_sent: false,
            broken: None,
        }
    }

    /// True if the server has closed it, or said something that nobody asked for, as far as is known.
    pub(crate) fn is_over(&mut self) -> bool {
        !self.is_kept_alive || !self.seen.is_empty() || self.stream.has_something()
    }

    /// Sends a request, and waits for the head of its answer for at most so long after the last of it was taken.
    pub(crate) async fn exchange(
        &mut self,
        request: Sent<'_>,
        upload: Upload,
        within: Duration,
    ) -> Result<Response<()>, SendError> {
        self.begin(request, upload);
        let answered = std::future::poll_fn(|context| self.poll_answer(context, within)).await?;
        let Answered { response, is_kept_alive, decoder } = answered;
        self.is_kept_alive = is_kept_alive;
        self.is_refused = response.status().is_client_error() || response.status().is_server_error();
        self.decoder = decoder;
        self.out.upload.iter_mut().for_each(Upload::answered);
        Ok(response)
    }

    /// True if the answer is there, and the server goes on reading the request.
    pub(crate) fn is_still_read(&self) -> bool {
        let goes_on = self.is_kept_alive && !self.is_refused && self.broken.is_none();
        goes_on && self.decoder.is_done() && !self.out.is_done()
    }

    /// Sends the rest of a request that was answered before all of it had come. Who takes nothing of it for too long gets no
    /// more.
    pub(crate) async fn finish(&mut self, pause_max: Duration) {
        let finished = std::future::poll_fn(|context| match self.poll_out(context) {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending if self.out.awaits_client() => Poll::Pending, // it has a time limit of its own
            Poll::Pending => {
                ready!(self.quiet.poll_too_long(context, pause_max));
                Poll::Ready(Err(SendError::Quiet(pause_max)))
            }
        });
        self.broken = finished.await.err();
    }

    /// What is left of a request of which nothing was sent.
    pub(crate) fn unsent(&mut self) -> Option<Upload> {
        if self.has_sent { None } else { self.out.upload.take().or_else(|| Some(Upload::nothing())) }
    }

    /// The connection itself, with what has come on it already, for another protocol.
    pub(crate) fn switch(self) -> (Stream, Bytes) {
        (self.stream, self.seen.freeze())
    }

    /// True if the next request may be sent on it.
    pub(crate) fn is_reusable(&self) -> bool {
        self.is_kept_alive
            && self.decoder.is_done()
            && self.out.is_done()
            && self.broken.is_none()
            && self.seen.is_empty()
    }

    /// True if the body of the answer has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// How long the rest of the body is, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.decoder.left()
    }

    fn begin(&mut self, request: Sent<'_>, upload: Upload) {
        let length = upload.size_hint().exact();
        self.out.head.clear();
        self.out.n_written = 0;
        self.out.framing = encode::head(request, length, upload.is_nothing(), &mut self.out.head);
        self.out.upload = (!upload.is_nothing()).then_some(upload);
        self.decoder = Decoder::of_request(&request.head.method);
        self.has_sent = false;
        self.n_interim = 0;
        self.quiet.broke();
    }

    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
        within: Duration,
    ) -> Poll<Result<Answered, SendError>> {
        loop {
            if self.broken.is_none()
                && let Poll::Ready(Err(error)) = self.poll_out(context)
            {
                // The server may have answered before it closed.
                self.broken = Some(error);
            }
            match self.poll_seen(context, READ_MIN) {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Err(self.lost(io::ErrorKind::UnexpectedEof.into())));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.lost(error))),
                Poll::Pending if matches!(self.broken, Some(SendError::Upload(_))) => {
                    return Poll::Ready(Err(self.broken.take().unwrap_or(SendError::Garbled("no answer"))));
                }
                // The client still sends, and has a time limit of its own.
                Poll::Pending if self.out.awaits_client() && self.broken.is_none() => {
                    self.quiet.broke();
                    return Poll::Pending;
                }
                Poll::Pending => {
                    ready!(self.quiet.poll_too_long(context, within));
                    return Poll::Ready(Err(SendError::Quiet(within)));
                }
            }
            match head::parse(&mut self.seen, self.decoder, &mut self.n_interim) {
                Ok(Some(answered)) => {
                    self.quiet.broke();
                    return Poll::Ready(Ok(answered));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(SendError::Garbled(error))),
            }
        }
    }

    /// Why there will be no answer. What was known before comes first.
    fn lost(&mut self, error: io::Error) -> SendError {
        match self.broken.take().unwrap_or(SendError::Broken(error)) {
            SendError::Broken(error) if self.seen.is_empty() => SendError::Closed(error),
            other @ (SendError::Broken(_)
            | SendError::Closed(_)
            | SendError::Garbled(_)
            | SendError::Quiet(_)
            | SendError::Upload(_)) => other,
        }
    }

    /// The next piece of the answer's body.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
        pause_max: Duration,
    ) -> Poll<Option<Result<Frame<Bytes>, SendError>>> {
        if !self.out.is_done() && self.broken.is_none() {
            // What the client still sends goes on, but the answer no longer depends on it.
            if let Poll::Ready(Err(error)) = self.poll_out(context) {
                self.broken = Some(error);
            }
        }
        loop {
            match self.decoder.decode(&mut self.seen) {
                Ok(Decoded::Data(data)) => {
                    self.quiet.broke();
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(Decoded::Trailers(mut trailers)) => {
                    clean_response_trailers(&mut trailers);
                    return Poll::Ready((!trailers.is_empty()).then(|| Ok(Frame::trailers(trailers))));
                }
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::More) => {}
                Err(error) => return Poll::Ready(Some(Err(self.fail(SendError::Garbled(error))))),
            }
            let n_wanted =
                self.decoder.left().and_then(|left| usize::try_from(left).ok()).unwrap_or(READ_MAX);
            match self.poll_seen(context, n_wanted.clamp(READ_MIN, READ_MAX)) {
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
                    ready!(self.quiet.poll_too_long(context, pause_max));
                    return Poll::Ready(Some(Err(self.fail(SendError::Quiet(pause_max)))));
                }
            }
        }
    }

    /// Nothing more comes after an error.
    fn fail(&mut self, error: SendError) -> SendError {
        self.is_kept_alive = false;
        self.decoder = Decoder::Done;
        error
    }

    /// Reads more.
    fn poll_seen(&mut self, context: &mut Context<'_>, n_wanted: usize) -> Poll<io::Result<usize>> {
        self.seen.reserve(n_wanted);
        pin!(self.stream.read_buf(&mut self.seen)).poll(context)
    }

    /// Sends what is to be sent.
    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        loop {
            while !self.out.is_written() {
                let written = self.out.poll_write(&mut self.stream, context);
                let n = ready!(written).map_err(SendError::Broken)?;
                if n == 0 {
                    return Poll::Ready(Err(SendError::Broken(io::ErrorKind::WriteZero.into())));
                }
                self.has_sent = true;
                self.quiet.broke();
                self.out.advance(n);
            }
            if self.out.upload.is_none() {
                return Pin::new(&mut self.stream).poll_flush(context).map_err(SendError::Broken);
            }
            ready!(self.out.poll_piece(context)).map_err(SendError::Upload)?;
        }
    }
}

impl Out {
    /// True if there is nothing more to be sent.
    fn is_done(&self) -> bool {
        self.upload.is_none() && self.is_written()
    }

    /// True if all that has come of the body is written, and more is to come.
    fn awaits_client(&self) -> bool {
        self.upload.is_some() && self.is_written()
    }

    fn is_written(&self) -> bool {
        self.n_written == self.head.len() && self.piece.is_empty() && self.tail.is_empty()
    }

    fn poll_write(&self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let head = &self.head[self.n_written..];
        if self.piece.is_empty() && self.tail.is_empty() {
            return Pin::new(stream).poll_write(context, head);
        }
        let slices = [head, &self.piece, self.tail].map(io::IoSlice::new);
        Pin::new(stream).poll_write_vectored(context, &slices)
    }

    /// Takes note of bytes that were written.
    fn advance(&mut self, n: usize) {
        let of_head = n.min(self.head.len() - self.n_written);
        self.n_written += of_head;
        let of_piece = (n - of_head).min(self.piece.len());
        let _ = self.piece.split_to(of_piece);
        self.tail = &self.tail[n - of_head - of_piece..];
    }

    /// Gets the next piece of the body ready to be written.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
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
                    self.piece = data;
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
