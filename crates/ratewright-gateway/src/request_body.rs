//! A request body as it arrives from the client.
//!
//! A short body of a denied request is still read to its end. Otherwise the connection would have to be closed, and a
//! client that is still sending would see an error instead of the response.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use ratewright_core::Micros;
use ratewright_core::decision::ExtraCharge;
use ratewright_http::request_context::BodyLength;
use ratewright_tower::{BodyMeter, TakeFuture};

use crate::unread_bodies::{Backlog, UnreadBody};

/// The most bytes of an unwanted body that are read, and the time for them.
const DRAINED_MAX: usize = 1024 * 1024;
const DRAINED_WITHIN: Duration = Duration::from_secs(5);

/// A request body. It is drained if dropped before its end.
pub(crate) struct RequestBody {
    incoming: Option<Incoming>,
    is_drained: bool,
    /// Unread bodies of the connection. None: HTTP/1.1, which has one body at a time.
    backlog: Option<Backlog>,
    waiting: Option<UnreadBody>,
    /// Charges each frame, if a policy counts bytes and the length is unknown.
    meter: Option<BodyMeter>,
    /// A frame that is not charged yet.
    unpaid: Option<(TakeFuture, Frame<Bytes>)>,
}

/// Why a request body ended early.
#[derive(Debug)]
pub(crate) enum RequestBodyError {
    /// The client aborted it, or it is invalid.
    Interrupted(hyper::Error),
    /// A policy that counts bytes denied the next frame.
    OverLimit {
        /// When it would be allowed. None: never.
        retry_after: Option<Micros>,
    },
}

impl RequestBody {
    /// The body of a request with this head. `backlog` belongs to its connection.
    pub(crate) fn new(incoming: Incoming, head: &Parts, backlog: &Backlog) -> Self {
        let incoming = (!incoming.is_end_stream()).then_some(incoming);
        // A client that waits for 100 Continue must not get it only to be drained.
        let is_drained = !head.headers.contains_key(EXPECT);
        let backlog = (head.version >= Version::HTTP_2).then(|| backlog.clone());
        let waiting = backlog.as_ref().filter(|_| incoming.is_some()).map(Backlog::wait);
        Self { incoming, is_drained, backlog, waiting, meter: None, unpaid: None }
    }

    /// The length, if known.
    pub(crate) fn length(&self) -> BodyLength {
        let length = self.incoming.as_ref().map_or(Some(0), |incoming| incoming.size_hint().exact());
        length.map_or(BodyLength::Unknown, BodyLength::Bytes)
    }

    /// Charges frames as they arrive.
    #[must_use]
    pub(crate) fn metered(mut self, meter: Option<BodyMeter>) -> Self {
        self.meter = meter;
        self
    }

    /// The body, if the request has one.
    pub(crate) fn incoming(&self) -> Option<&Incoming> {
        self.incoming.as_ref()
    }

    /// How long the connection has been held back by unread bodies.
    pub(crate) fn held_back(&self) -> Duration {
        self.backlog.as_ref().map_or(Duration::ZERO, Backlog::total)
    }

    /// The next frame, once it is charged. After that, the body counts as unread until the next call.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        if self.unpaid.is_none() {
            let frame = ready!(self.poll_incoming(context));
            let n_bytes = match &frame {
                Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) | None => 0,
            };
            match (&self.meter, frame) {
                (Some(meter), Some(Ok(frame))) if n_bytes > 0 => {
                    self.unpaid = Some((meter.take(n_bytes), frame));
                }
                (_, frame) => {
                    return Poll::Ready(frame.map(|frame| frame.map_err(RequestBodyError::Interrupted)));
                }
            }
        }
        let Some((taking, _)) = &mut self.unpaid else { return Poll::Ready(None) };
        let taken = ready!(taking.as_mut().poll(context));
        let frame = self.unpaid.take().map(|(_, frame)| frame);
        match taken {
            ExtraCharge::Charged => Poll::Ready(frame.map(Ok)),
            ExtraCharge::Denied { retry_after } => {
                Poll::Ready(Some(Err(RequestBodyError::OverLimit { retry_after })))
            }
        }
    }

    fn poll_incoming(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let frame = Pin::new(incoming).poll_frame(context);
        if matches!(frame, Poll::Ready(Some(Ok(_)))) {
            self.waiting = self.waiting.take().or_else(|| self.backlog.as_ref().map(Backlog::wait));
        } else {
            self.waiting = None;
        }
        frame
    }

    /// Drops the body without draining it, since its end is unknown.
    pub(crate) fn abandon(mut self) {
        self.is_drained = false;
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(incoming) =
            self.incoming.take().filter(|incoming| self.is_drained && !incoming.is_end_stream())
        {
            let is_held = self.backlog.is_some();
            tokio::spawn(tokio::time::timeout(DRAINED_WITHIN, drain(incoming, is_held)));
        }
    }
}

/// Reads an unwanted body to its end, if that is near. A longer HTTP/2 body is held, so that the client has time to
/// read the response: some clients discard the response of a stream that is reset.
async fn drain(mut incoming: Incoming, is_held: bool) {
    let mut n_bytes = 0;
    while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut incoming).poll_frame(context)).await {
        n_bytes += frame.data_ref().map_or(0, Bytes::len);
        if n_bytes > DRAINED_MAX {
            if is_held {
                std::future::pending::<()>().await;
            }
            return;
        }
    }
}
