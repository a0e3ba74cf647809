//! Bodies, both ways, frame by frame.
//!
//! ```text
//!   client ── Inbound ──► Upload ──► server               counted against body_max; pauses and the pace have their limits
//!   client ◄── Body ◄── Download ◄── Incoming ── server   keeps the server's lease, gives the connection back at its end
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

use crate::h1::SendError;
use crate::h2::Place;
use crate::headers::{HeaderRules, clean_trailers};
use crate::inbound::{Inbound, InboundError};
use crate::pace::{BodyRate, Pace};
use crate::pool::Borrowed;
use crate::progress::Progress;
use crate::quiet::Quiet;
use crate::route::Route;
use crate::upstream::Lease;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// Ours, a problem for example.
    Text(Option<Bytes>),
    /// A server's.
    Download(Download),
    /// One that holds a permit.
    Held(Box<PermitBody<Body>>),
}

/// A server's answer on its way.
#[derive(Debug)]
pub(crate) struct Download {
    source: Source,
    pause_max: Duration,
    /// The server is busy until the end.
    lease: Option<Lease>,
    /// When all of it must be over.
    ends: Option<(Pin<Box<Sleep>>, Duration)>,
    /// Why it breaks off, until what came before has been passed on.
    broken: Option<BodyError>,
}

/// Where an answer comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A connection of its own, until its end.
    Http1(Option<Borrowed>),
    /// A stream of a connection that is shared, and its place there.
    Http2(Incoming, Quiet, Option<Place>),
}

/// A client's body on its way.
#[derive(Debug)]
pub(crate) struct Upload {
    inbound: Option<Inbound>,
    /// Tells which trailers claim something.
    rules: Option<Arc<HeaderRules>>,
    quiet: Quiet,
    pause_max: Duration,
    /// How fast it comes. None: as slowly as it likes.
    pace: Option<Pace>,
    left: u64,
    /// Where it is told how far it has come, beside whoever reads it.
    progress: Option<Progress>,
    /// The place on a shared connection by which it is sent.
    place: Option<Place>,
}

/// Why a body ends before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The client sends more than it may.
    #[error("the body is longer than the route allows")]
    TooLong,
    /// A policy that counts bytes has no room for more of it.
    #[error("the body does not fit a limit on bytes")]
    OverLimit {
        /// When it would; nothing if never.
        retry_after: Option<Micros>,
    },
    /// Nothing came for too long.
    #[error("nothing came for {0:?}")]
    Quiet(Duration),
    /// The client sends too little.
    #[error("request body too slow: less than {0}")]
    Slow(BodyRate),
    /// All of it took too long.
    #[error("not over within {0:?}")]
    TooSlow(Duration),
    /// The client broke off, or a server that is spoken to by HTTP/2.
    #[error("the body broke off")]
    Broken(#[source] hyper::Error),
    /// The server broke off.
    #[error("the answer broke off")]
    Unfinished(#[source] Box<SendError>),
    /// Why is told elsewhere.
    #[error("the body stopped")]
    Stopped,
}

impl From<InboundError> for BodyError {
    fn from(error: InboundError) -> Self {
        match error {
            InboundError::Broken(error) => Self::Broken(error),
            InboundError::OverLimit { retry_after } => Self::OverLimit { retry_after },
        }
    }
}

impl Body {
    /// Breaks a server's answer off if it is not over by then.
    pub(crate) fn end_by(self, by: Instant, total: Duration) -> Self {
        match self {
            Self::Download(download) => Self::Download(download.end_by(by, total)),
            other @ (Self::Text(_) | Self::Held(_)) => other,
        }
    }

    pub(crate) fn empty() -> Self {
        Self::Text(None)
    }

    /// How long a pause may be in it. None: it is ours, and has none.
    pub(crate) fn pause_max(&self) -> Option<Duration> {
        match self {
            Self::Text(_) => None,
            Self::Download(download) => Some(download.pause_max),
            Self::Held(held) => held.get_ref().pause_max(),
        }
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Text((!text.is_empty()).then(|| text.into()))
    }
}

impl Download {
    /// The body of an answer, whose end sets the server and the connection free.
    pub(crate) fn new(source: Source, pause_max: Duration, lease: Lease) -> Self {
        let mut download = Self { source, pause_max, lease: Some(lease), ends: None, broken: None };
        download.end_if_over();
        download
    }

    /// Breaks it off if it is not over by then; `total` is how long all of it may take.
    pub(crate) fn end_by(mut self, by: Instant, total: Duration) -> Self {
        if !self.is_end() {
            self.ends = Some((Box::pin(sleep_until(by)), total));
        }
        self
    }

    /// Sets free what was held, once nothing more is to come.
    fn end_if_over(&mut self) {
        let pause_max = self.pause_max;
        let is_over = match &mut self.source {
            Source::Http1(borrowed) => {
                let over = borrowed.take_if(|borrowed| borrowed.connection.is_done());
                over.map(|borrowed| borrowed.give_back(pause_max)).is_some()
            }
            Source::Http2(incoming, _, place) => {
                place.take_if(|_| incoming.is_end_stream());
                place.is_none()
            }
        };
        if is_over {
            self.lease = None;
        }
    }

    fn is_end(&self) -> bool {
        match &self.source {
            Source::Http1(borrowed) => borrowed.is_none() && self.broken.is_none(),
            Source::Http2(incoming, ..) => incoming.is_end_stream() && self.broken.is_none(),
        }
    }

    fn size(&self) -> SizeHint {
        match &self.source {
            Source::Http1(None) => SizeHint::with_exact(0),
            Source::Http1(Some(borrowed)) => {
                borrowed.connection.left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Source::Http2(incoming, ..) => incoming.size_hint(),
        }
    }

    /// What came before goes out first: an error takes along whatever has not been written yet.
    fn break_off<T>(&mut self, context: &Context<'_>, error: BodyError) -> Poll<T> {
        self.broken = Some(error);
        self.ends = None;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let pause_max = self.pause_max;
        if let Some((ends, total)) = &mut self.ends
            && ends.as_mut().poll(context).is_ready()
        {
            let total = *total;
            return self.break_off(context, BodyError::TooSlow(total));
        }
        let frame = match &mut self.source {
            Source::Http1(None) => return Poll::Ready(None),
            Source::Http1(Some(borrowed)) => {
                let frame = ready!(borrowed.connection.poll_frame(context, pause_max));
                frame.map(|frame| frame.map_err(|error| BodyError::Unfinished(Box::new(error))))
            }
            Source::Http2(incoming, quiet, _) => match Pin::new(incoming).poll_frame(context) {
                Poll::Ready(frame) => {
                    quiet.broke();
                    frame.map(|frame| frame.map_err(BodyError::Broken))
                }
                Poll::Pending => {
                    ready!(quiet.poll_too_long(context, pause_max));
                    Some(Err(BodyError::Quiet(pause_max)))
                }
            },
        };
        if let Some(Err(error)) = frame {
            return self.break_off(context, error);
        }
        // The connection can serve others while the last piece is still on its way.
        self.end_if_over();
        Poll::Ready(frame)
    }
}

impl Upload {
    /// A client's body on this route.
    pub(crate) fn new(inbound: Inbound, rules: &Arc<HeaderRules>, route: &Route) -> Self {
        let inbound = inbound.incoming().is_some().then_some(inbound);
        let rules = inbound.is_some().then(|| Arc::clone(rules));
        Self {
            inbound,
            rules,
            quiet: Quiet::default(),
            pause_max: route.timeouts.idle,
            pace: route.body_rate_min.map(Pace::new),
            left: route.body_max,
            progress: None,
            place: None,
        }
    }

    /// Nothing to send.
    pub(crate) fn nothing() -> Self {
        let (quiet, pause_max, pace) = (Quiet::default(), Duration::MAX, None);
        Self { inbound: None, rules: None, quiet, pause_max, pace, left: 0, progress: None, place: None }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.inbound.is_none()
    }

    /// The bytes that it has at least.
    pub(crate) fn announced(&self) -> u64 {
        self.incoming().map_or(0, |incoming| incoming.size_hint().lower())
    }

    /// It is sent by this place, and tells there how far it has come.
    pub(crate) fn begin(&mut self, place: &Place) -> Progress {
        self.place = Some(place.clone());
        self.progress.insert(Progress::begin()).clone()
    }

    /// The upstream's response has begun: from now on the body may come as slowly as it likes.
    pub(crate) fn answered(&mut self) {
        self.pace = None;
    }

    fn incoming(&self) -> Option<&Incoming> {
        self.inbound.as_ref()?.incoming()
    }

    /// Waits for the client. Ready with the reason when that has been too long.
    fn poll_overdue(&mut self, context: &mut Context<'_>, held: Duration) -> Poll<BodyError> {
        if self.quiet.poll_too_long(context, self.pause_max).is_ready() {
            return Poll::Ready(BodyError::Quiet(self.pause_max));
        }
        if self.progress.as_ref().is_some_and(Progress::is_answered) {
            self.pace = None;
        }
        let Some(pace) = &mut self.pace else { return Poll::Pending };
        ready!(pace.poll_too_slow(context, held));
        Poll::Ready(BodyError::Slow(pace.rate()))
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(inbound) = &mut self.inbound else { return Poll::Ready(None) };
        let frame = inbound.poll_frame(context);
        let held = inbound.held();
        let Poll::Ready(frame) = frame else {
            return self.poll_overdue(context, held).map(|overdue| Some(Err(overdue)));
        };
        self.quiet.broke();
        let Some(frame) = frame else { return Poll::Ready(None) };
        let mut frame = frame?;
        if let (Some(trailers), Some(rules)) = (frame.trailers_mut(), &self.rules) {
            clean_trailers(trailers, &rules.dialect.rules, &rules.read);
        }
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        if let Some(pace) = &mut self.pace {
            pace.came(length, held);
        }
        let Some(left) = self.left.checked_sub(length) else {
            return Poll::Ready(Some(Err(BodyError::TooLong)));
        };
        self.left = left;
        Poll::Ready(Some(Ok(frame)))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.progress.iter().for_each(Progress::came); // nobody waits for the client any more
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
            Self::Download(download) => download.poll_piece(context),
            Self::Held(held) => Pin::new(held).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Download(download) => download.is_end(),
            Self::Held(held) => held.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Download(download) => download.size(),
            Self::Held(held) => held.size_hint(),
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
        let frame = this.poll_piece(context);
        let Some(progress) = &this.progress else { return frame };
        match frame {
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(progress.stop(error)))),
            Poll::Ready(_) => progress.came(),
            Poll::Pending => progress.is_awaited(),
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
