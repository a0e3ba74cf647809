//! A client's body as it comes.
//!
//! The body of a denied request is still read to its end if it is short. Otherwise the connection would have to be closed, and a client
//! that is still sending would see it break instead of getting the response.

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
use ratewright_core::{Micros, Taken};
use ratewright_http::BodyLength;
use ratewright_tower::{BodyMeter, TakeFuture};

use crate::backlog::{Backlog, Waiting};

/// The most that is read of a body which nobody wants, in bytes, and the time that is given to it.
const DRAINED_MAX: usize = 1024 * 1024;
const DRAINED_WITHIN: Duration = Duration::from_secs(5);

/// A client's body. Dropped before its end, it is drained.
pub(crate) struct Inbound {
    incoming: Option<Incoming>,
    is_drained: bool,
    /// Of its connection. None: HTTP/1.1, which has one body at a time.
    backlog: Option<Backlog>,
    waiting: Option<Waiting>,
    /// Charges each piece, if a policy counts bytes and the length is unknown.
    meter: Option<BodyMeter>,
    /// A piece that came, until it is paid.
    unpaid: Option<(TakeFuture, Frame<Bytes>)>,
}

/// Why a client's body ends before its time.
#[derive(Debug)]
pub(crate) enum InboundError {
    /// The client broke off, or what it sent is not valid.
    Broken(hyper::Error),
    /// A policy that counts bytes has no room for the next piece.
    OverLimit {
        /// When it would have; nothing if never.
        retry_after: Option<Micros>,
    },
}

impl Inbound {
    /// The body of a request with this head. `backlog` is its connection's.
    pub(crate) fn new(incoming: Incoming, head: &Parts, backlog: &Backlog) -> Self {
        let incoming = (!incoming.is_end_stream()).then_some(incoming);
        // Who waits for our word to send is not given it only to be drained.
        let is_drained = !head.headers.contains_key(EXPECT);
        let backlog = (head.version >= Version::HTTP_2).then(|| backlog.clone());
        let waiting = backlog.as_ref().filter(|_| incoming.is_some()).map(Backlog::wait);
        Self { incoming, is_drained, backlog, waiting, meter: None, unpaid: None }
    }

    /// How long it is, as far as that is known.
    pub(crate) fn length(&self) -> BodyLength {
        let length = self.incoming.as_ref().map_or(Some(0), |incoming| incoming.size_hint().exact());
        length.map_or(BodyLength::Unknown, BodyLength::Bytes)
    }

    /// Charges its pieces as they come.
    #[must_use]
    pub(crate) fn metered(mut self, meter: Option<BodyMeter>) -> Self {
        self.meter = meter;
        self
    }

    /// The body, if the request has one.
    pub(crate) fn incoming(&self) -> Option<&Incoming> {
        self.incoming.as_ref()
    }

    /// For how long the connection has been held back, because another body of it is not read.
    pub(crate) fn held(&self) -> Duration {
        self.backlog.as_ref().map_or(Duration::ZERO, Backlog::total)
    }

    /// The next piece, once it is paid. The body waits from then on, until the one after it is asked for.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, InboundError>>> {
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
                (_, frame) => return Poll::Ready(frame.map(|frame| frame.map_err(InboundError::Broken))),
            }
        }
        let Some((taking, _)) = &mut self.unpaid else { return Poll::Ready(None) };
        let taken = ready!(taking.as_mut().poll(context));
        let frame = self.unpaid.take().map(|(_, frame)| frame);
        match taken {
            Taken::Paid => Poll::Ready(frame.map(Ok)),
            Taken::Denied { retry_after } => Poll::Ready(Some(Err(InboundError::OverLimit { retry_after }))),
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

    /// Lets go of it without draining it: nobody knows where it ends.
    pub(crate) fn abandon(mut self) {
        self.is_drained = false;
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        if let Some(incoming) =
            self.incoming.take().filter(|incoming| self.is_drained && !incoming.is_end_stream())
        {
            let is_held = self.backlog.is_some();
            tokio::spawn(tokio::time::timeout(DRAINED_WITHIN, drain(incoming, is_held)));
        }
    }
}

/// Reads a body that nobody wants to its end, if that is near. A stream of HTTP/2 whose body goes on is held, so that its client
/// has time to read the answer: some take a stream that is reset for one without an answer.
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
