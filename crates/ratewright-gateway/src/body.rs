//! Request and response bodies, frame by frame.
//!
//! ```text
//!   client ── RequestBody ──► Upload ──► upstream           body_max, idle timeout and minimum rate apply
//!   client ◄── Body ◄── Download ◄── Incoming ── upstream   holds the lease, releases the connection at its end
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use ratewright_core::Micros;
use ratewright_tower::PermitBody;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::abort::Presence;
use crate::body_rate::{BodyRate, BodyRateMonitor};
use crate::h1::SendError;
use crate::h2::StreamSlot;
use crate::headers::{HeaderRules, clean_trailers};
use crate::idle_timer::IdleTimer;
use crate::pool::PooledConnection;
use crate::request_body::{RequestBody, RequestBodyError};
use crate::route::Route;
use crate::upload_progress::UploadProgress;
use crate::upstream::Lease;

/// A response body.
#[derive(Debug)]
pub(crate) enum Body {
    /// Made by the gateway, for example a problem.
    Text(Option<Bytes>),
    /// From an upstream.
    Download(Download),
    /// Holds a permit.
    WithPermit(Box<PermitBody<Body>>),
}

/// An upstream's response body.
#[derive(Debug)]
pub(crate) struct Download {
    source: DownloadSource,
    idle_timeout: Duration,
    /// Counts the request against the server until the body ends.
    lease: Option<Lease>,
    /// When `timeouts.total` ends, and its length.
    deadline: Option<(Pin<Box<Sleep>>, Duration)>,
    /// An error that is returned after the frames before it were written.
    pending_error: Option<BodyError>,
}

/// Where a response body comes from.
#[derive(Debug)]
pub(crate) enum DownloadSource {
    /// A connection of its own, until the body ends.
    Http1(Option<PooledConnection>),
    /// A stream of a shared connection, and its slot there.
    Http2(Incoming, IdleTimer, Option<StreamSlot>),
}

/// A client's request body.
#[derive(Debug)]
pub(crate) struct Upload {
    request_body: Option<RequestBody>,
    /// Which trailers are removed.
    rules: Option<Arc<HeaderRules>>,
    idle_timer: IdleTimer,
    idle_timeout: Duration,
    /// None: no minimum rate.
    rate_monitor: Option<BodyRateMonitor>,
    remaining: u64,
    /// Shared with the task that waits for the response.
    progress: Option<UploadProgress>,
    /// The slot of the HTTP/2 stream that sends it.
    slot: Option<StreamSlot>,
    /// Learns that the client has sent all. None: an empty body.
    presence: Option<Presence>,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The request body exceeds `body_max`.
    #[error("request body too large for the route")]
    TooLarge,
    /// A policy that counts bytes denied the next frame.
    #[error("request body exceeds a limit on bytes")]
    OverLimit {
        /// When it would be allowed. None: never.
        retry_after: Option<Micros>,
    },
    /// No data within the idle timeout.
    #[error("no data for {0:?}")]
    Idle(Duration),
    /// The client sends more slowly than `body_rate_min`.
    #[error("request body too slow: less than {0}")]
    BelowMinRate(BodyRate),
    /// The request exceeded `timeouts.total`.
    #[error("request not finished within {0:?}")]
    TotalTimeout(Duration),
    /// The client, or an HTTP/2 upstream, aborted the body.
    #[error("body aborted")]
    Interrupted(#[source] hyper::Error),
    /// An HTTP/1.1 upstream aborted the response.
    #[error("response aborted by the upstream")]
    ResponseIncomplete(#[source] Box<SendError>),
    /// The reason is in [`UploadProgress`].
    #[error("request body failed")]
    Stopped,
}

impl From<RequestBodyError> for BodyError {
    fn from(error: RequestBodyError) -> Self {
        match error {
            RequestBodyError::Interrupted(error) => Self::Interrupted(error),
            RequestBodyError::OverLimit { retry_after } => Self::OverLimit { retry_after },
        }
    }
}

impl Body {
    /// Aborts an upstream's response at `by`.
    pub(crate) fn with_deadline(self, by: Instant, total: Duration) -> Self {
        match self {
            Self::Download(download) => Self::Download(download.with_deadline(by, total)),
            other @ (Self::Text(_) | Self::WithPermit(_)) => other,
        }
    }

    pub(crate) fn empty() -> Self {
        Self::Text(None)
    }

    /// The idle timeout. None: the gateway made the body.
    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        match self {
            Self::Text(_) => None,
            Self::Download(download) => Some(download.idle_timeout),
            Self::WithPermit(held_back) => held_back.get_ref().idle_timeout(),
        }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Text((!text.is_empty()).then(|| text.into()))
    }
}

impl Download {
    /// A response body that releases the lease and the connection at its end.
    pub(crate) fn new(source: DownloadSource, idle_timeout: Duration, lease: Lease) -> Self {
        let mut download =
            Self { source, idle_timeout, lease: Some(lease), deadline: None, pending_error: None };
        download.release_if_done();
        download
    }

    /// Aborts the body at `by`; `total` is the configured timeout.
    pub(crate) fn with_deadline(mut self, by: Instant, total: Duration) -> Self {
        if !self.is_end() {
            self.deadline = Some((Box::pin(sleep_until(by)), total));
        }
        self
    }

    /// Releases lease and connection after the last frame.
    fn release_if_done(&mut self) {
        let idle_timeout = self.idle_timeout;
        let is_over = match &mut self.source {
            DownloadSource::Http1(pooled) => {
                let over = pooled.take_if(|pooled| pooled.connection.is_done());
                over.map(|pooled| pooled.release(idle_timeout)).is_some()
            }
            DownloadSource::Http2(incoming, _, slot) => {
                slot.take_if(|_| incoming.is_end_stream());
                slot.is_none()
            }
        };
        if is_over {
            self.lease = None;
        }
    }

    fn is_end(&self) -> bool {
        match &self.source {
            DownloadSource::Http1(pooled) => pooled.is_none() && self.pending_error.is_none(),
            DownloadSource::Http2(incoming, ..) => incoming.is_end_stream() && self.pending_error.is_none(),
        }
    }

    fn size(&self) -> SizeHint {
        match &self.source {
            DownloadSource::Http1(None) => SizeHint::with_exact(0),
            DownloadSource::Http1(Some(pooled)) => {
                pooled.connection.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            DownloadSource::Http2(incoming, ..) => incoming.size_hint(),
        }
    }

    /// Returns the error with the next poll, since hyper drops unwritten frames on an error.
    fn fail_after_flush<T>(&mut self, context: &Context<'_>, error: BodyError) -> Poll<T> {
        self.pending_error = Some(error);
        self.deadline = None;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(error) = self.pending_error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let idle_timeout = self.idle_timeout;
        if let Some((deadline, total)) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            let total = *total;
            return self.fail_after_flush(context, BodyError::TotalTimeout(total));
        }
        let frame = match &mut self.source {
            DownloadSource::Http1(None) => return Poll::Ready(None),
            DownloadSource::Http1(Some(pooled)) => {
                let frame = ready!(pooled.connection.poll_frame(context, idle_timeout));
                frame.map(|frame| frame.map_err(|error| BodyError::ResponseIncomplete(Box::new(error))))
            }
            DownloadSource::Http2(incoming, idle_timer, _) => match Pin::new(incoming).poll_frame(context) {
                Poll::Ready(frame) => {
                    idle_timer.reset();
                    frame.map(|frame| frame.map_err(BodyError::Interrupted))
                }
                Poll::Pending => {
                    ready!(idle_timer.poll_elapsed(context, idle_timeout));
                    Some(Err(BodyError::Idle(idle_timeout)))
                }
            },
        };
        if let Some(Err(error)) = frame {
            return self.fail_after_flush(context, error);
        }
        // The connection is released before the last frame is written.
        self.release_if_done();
        Poll::Ready(frame)
    }
}

impl Upload {
    /// A client's body on this route.
    pub(crate) fn new(request_body: RequestBody, rules: &Arc<HeaderRules>, route: &Route) -> Self {
        let request_body = request_body.incoming().is_some().then_some(request_body);
        let rules = request_body.is_some().then(|| Arc::clone(rules));
        Self {
            request_body,
            rules,
            idle_timer: IdleTimer::default(),
            idle_timeout: route.timeouts.idle,
            rate_monitor: route.body_rate_min.map(BodyRateMonitor::new),
            remaining: route.body_max,
            progress: None,
            slot: None,
            presence: None,
        }
    }

    /// Tells the exchange when its client has sent all.
    pub(crate) fn of_client(mut self, presence: &Presence) -> Self {
        self.presence = self.request_body.is_some().then(|| presence.clone());
        self
    }

    /// No body.
    pub(crate) fn empty() -> Self {
        let (idle_timer, idle_timeout, rate_monitor) = (IdleTimer::default(), Duration::MAX, None);
        Self {
            request_body: None,
            rules: None,
            idle_timer,
            idle_timeout,
            rate_monitor,
            remaining: 0,
            progress: None,
            slot: None,
            presence: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.request_body.is_none()
    }

    /// The smallest possible length in bytes.
    pub(crate) fn announced(&self) -> u64 {
        self.incoming().map_or(0, |incoming| incoming.size_hint().lower())
    }

    /// Starts sending on this slot, and shares the progress.
    pub(crate) fn begin(&mut self, slot: &StreamSlot) -> UploadProgress {
        self.slot = Some(slot.clone());
        self.progress.insert(UploadProgress::begin()).clone()
    }

    /// The upstream's response has started: the minimum rate no longer applies.
    pub(crate) fn responded(&mut self) {
        self.rate_monitor = None;
    }

    fn incoming(&self) -> Option<&Incoming> {
        self.request_body.as_ref()?.incoming()
    }

    /// Waits for the client. Ready with the error after a timeout.
    fn poll_overdue(&mut self, context: &mut Context<'_>, held_back: Duration) -> Poll<BodyError> {
        if self.idle_timer.poll_elapsed(context, self.idle_timeout).is_ready() {
            return Poll::Ready(BodyError::Idle(self.idle_timeout));
        }
        if self.progress.as_ref().is_some_and(UploadProgress::has_response) {
            self.rate_monitor = None;
        }
        let Some(rate_monitor) = &mut self.rate_monitor else { return Poll::Pending };
        ready!(rate_monitor.poll_too_slow(context, held_back));
        Poll::Ready(BodyError::BelowMinRate(rate_monitor.rate()))
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(request_body) = &mut self.request_body else { return Poll::Ready(None) };
        let frame = request_body.poll_frame(context);
        let held_back = request_body.held_back();
        let Poll::Ready(frame) = frame else {
            return self.poll_overdue(context, held_back).map(|overdue| Some(Err(overdue)));
        };
        self.idle_timer.reset();
        let Some(frame) = frame else {
            self.presence.iter().for_each(Presence::has_sent_all);
            return Poll::Ready(None);
        };
        let mut frame = frame?;
        if let (Some(trailers), Some(rules)) = (frame.trailers_mut(), &self.rules) {
            clean_trailers(trailers, &rules.http_settings.rules, &rules.read);
        }
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(rate_monitor) = &mut self.rate_monitor {
            rate_monitor.received(length, held_back);
        }
        let Some(remaining) = self.remaining.checked_sub(length) else {
            return Poll::Ready(Some(Err(BodyError::TooLarge)));
        };
        self.remaining = remaining;
        if self.incoming().is_some_and(Incoming::is_end_stream) {
            self.presence.iter().for_each(Presence::has_sent_all);
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.progress.iter().for_each(UploadProgress::received); // nothing waits for the client any more
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Download(download) => download.poll_next(context),
            Self::WithPermit(held_back) => Pin::new(held_back).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Download(download) => download.is_end(),
            Self::WithPermit(held_back) => held_back.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Download(download) => download.size(),
            Self::WithPermit(held_back) => held_back.size_hint(),
        }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = this.poll_next(context);
        let Some(progress) = &this.progress else { return frame };
        match frame {
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(progress.stop(error)))),
            Poll::Ready(_) => progress.received(),
            Poll::Pending => progress.awaiting_client(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }
}
