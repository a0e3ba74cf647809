//! Closes client connections without requests.
//!
//! hyper has no timeout for a client that never sends a byte, nor for an idle HTTP/2 client. Either would keep its
//! connection slot for ever.
//!
//! All requests of a connection share an `Arc`. Each holds a clone until its response body ends, so the reference count
//! shows whether a request is in flight, at no further cost.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use ratewright_listen::client_slots::ClientSlot;

use crate::body::{Body, BodyError};
use crate::framing_guard::GuardHandle;
use crate::stalled_stream::FrameTracker;

/// A response body that marks its request as in flight.
#[derive(Debug)]
pub(crate) struct TrackedBody<T> {
    body: Body,
    _shared: Arc<T>,
    _slot: Option<ClientSlot>,
    /// Tracks frames that were handed to hyper, with the stall timeout. None: HTTP/1.1.
    tracker: Option<(Arc<FrameTracker>, Duration)>,
}

impl<T> TrackedBody<T> {
    pub(crate) fn new(body: Body, shared: Arc<T>, slot: Option<ClientSlot>) -> Self {
        Self { body, _shared: shared, _slot: slot, tracker: None }
    }

    /// The same for an HTTP/2 stream. Its client must read within the body's idle timeout, or within `otherwise`.
    pub(crate) fn of_stream(self, otherwise: Duration) -> Self {
        let idle_timeout = self.body.idle_timeout().unwrap_or(otherwise);
        Self { tracker: FrameTracker::current().map(|tracker| (tracker, idle_timeout)), ..self }
    }
}

/// Ready when no request has been in flight or started for `within`, after at most twice that time. The connection
/// itself holds one clone of `shared`.
pub(crate) async fn until_idle<T>(shared: Weak<T>, guard: GuardHandle, within: Duration) {
    let mut before = (true, 0);
    loop {
        tokio::time::sleep(within).await;
        let now = (shared.strong_count() <= 1, guard.n_requests());
        if now.0 && now == before {
            return;
        }
        before = now;
    }
}

/// Ready when there was no request for `within`, and nothing was written either, after at most twice that time. After the
/// last body has ended, hyper may still have the end of a response to write.
pub(crate) async fn until_still<T>(shared: Weak<T>, guard: GuardHandle, within: Duration) {
    let mut before = None;
    loop {
        let now = (shared.strong_count() <= 1).then(|| (guard.n_requests(), guard.n_written()));
        if now.is_some() && now == before {
            return;
        }
        before = now;
        tokio::time::sleep(within).await;
    }
}

impl<T> http_body::Body for TrackedBody<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let Some((tracker, idle_timeout)) = &this.tracker {
            match frame {
                Poll::Ready(Some(Ok(_))) => tracker.handed_out(*idle_timeout),
                Poll::Ready(_) | Poll::Pending => tracker.taken(),
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::time::{Instant, timeout};

    const WITHIN: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_idle_and_a_request_restarts_the_timer() {
        let (shared, guard, begin) = (Arc::new(()), GuardHandle::default(), Instant::now());
        until_idle(Arc::downgrade(&shared), guard.clone(), WITHIN).await;
        assert_eq!(begin.elapsed().as_secs(), 10);
        let mut idle = pin!(until_idle(Arc::downgrade(&shared), guard.clone(), WITHIN));
        for _ in 0..5 {
            assert!(timeout(Duration::from_secs(9), idle.as_mut()).await.is_err());
            guard.next_verdict();
        }
    }

    /// hyper may have the end of a response to write after the body has ended.
    #[tokio::test(start_paused = true)]
    async fn a_connection_to_which_is_written_is_not_still() {
        let (shared, guard) = (Arc::new(()), GuardHandle::default());
        let mut still = pin!(until_still(Arc::downgrade(&shared), guard.clone(), WITHIN));
        for _ in 0..5 {
            assert!(timeout(Duration::from_secs(9), still.as_mut()).await.is_err());
            guard.wrote(&Poll::Ready(Ok(1)));
        }
        let last = Instant::now();
        still.await;
        assert!(last.elapsed() >= WITHIN, "{:?}", last.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_flight_postpones_idleness() {
        let (shared, guard) = (Arc::new(()), GuardHandle::default());
        let request = Arc::clone(&shared);
        let mut idle = pin!(until_idle(Arc::downgrade(&shared), guard, WITHIN));
        assert!(timeout(Duration::from_secs(39), idle.as_mut()).await.is_err());
        drop(request);
        let ended = Instant::now();
        idle.await;
        assert!(ended.elapsed() >= WITHIN, "{:?}", ended.elapsed());
    }
}
