//! Resets HTTP/2 streams whose client does not read the response.
//!
//! A client announces a flow-control window for each stream. If it never opens the window, it holds the stream, an
//! upstream connection and a permit for ever, although the connection itself is alive and writes do not block.
//!
//! ```text
//!   stream task ──► hyper ──► TrackedBody ──► Body      hands out a frame: FrameTracker records it
//!        │                                              hyper polls the next frame once the last one fits the window
//!        └── stalled for too long? ◄── FrameTracker     yes: the task ends and releases stream, connection and permit
//! ```
//!
//! hyper does not poll a body while a frame waits for the window, so the body cannot notice. The task of the stream
//! can: [`StreamExecutor`] spawns it. HTTP/1.1 needs none of this: its writes block, and `ratewright_listen::WriteTimeout`
//! limits them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use parking_lot::Mutex;
use pin_project_lite::pin_project;

use crate::idle_timer::IdleTimer;

tokio::task_local! {
    /// The tracker of the current stream task.
    static TRACKER: Arc<FrameTracker>;
}

/// Spawns HTTP/2 stream tasks, each until its response ends or stalls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamExecutor;

/// Shared by a response body and its stream task.
#[derive(Debug, Default)]
pub(crate) struct FrameTracker(Mutex<LastFrame>);

/// The last frame that was handed to hyper.
#[derive(Clone, Copy, Debug, Default)]
struct LastFrame {
    number: u64,
    /// The stall timeout. None: hyper has polled for the next frame.
    take_within: Option<Duration>,
}

impl FrameTracker {
    /// The tracker of the current stream task. None: this is not one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        TRACKER.try_with(Arc::clone).ok()
    }

    /// A frame was handed to hyper. The client must make room for it within `idle_timeout`.
    pub(crate) fn handed_out(&self, idle_timeout: Duration) {
        let mut frame = self.0.lock();
        frame.number += 1;
        frame.take_within = Some(idle_timeout);
    }

    /// hyper polls for the next frame, so the last one fit the window.
    pub(crate) fn taken(&self) {
        self.0.lock().take_within = None;
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let tracker = Arc::<FrameTracker>::default();
        let guarded =
            StallGuard { stream, tracker: Arc::clone(&tracker), idle_timer: IdleTimer::default(), n_seen: 0 };
        tokio::spawn(TRACKER.scope(tracker, guarded));
    }
}

pin_project! {
    /// A stream task that ends when its last frame stalls.
    struct StallGuard<F> {
        #[pin]
        stream: F,
        tracker: Arc<FrameTracker>,
        idle_timer: IdleTimer,
        // The number of the last frame.
        n_seen: u64,
    }
}

impl<F: Future<Output = ()>> Future for StallGuard<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(context).is_ready() {
            return Poll::Ready(());
        }
        let frame = *this.tracker.0.lock();
        if frame.number != *this.n_seen || frame.take_within.is_none() {
            this.idle_timer.reset();
            *this.n_seen = frame.number;
        }
        let Some(idle_timeout) = frame.take_within else { return Poll::Pending };
        ready!(this.idle_timer.poll_elapsed(context, idle_timeout));
        Poll::Ready(()) // dropping the stream resets it
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};

    const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long a stream lasts, in seconds.
    async fn seconds_until_end<F>(stream: impl FnOnce(Arc<FrameTracker>) -> F) -> u64
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (begin, (held, ended)) = (Instant::now(), oneshot::channel::<()>());
        let (handing, tracker) = oneshot::channel();
        StreamExecutor.execute(async move { drop(handing.send(FrameTracker::current())) });
        assert!(tracker.await.unwrap().is_some(), "a stream's task knows what it hands out");
        assert!(FrameTracker::current().is_none(), "and others do not");
        let tracker = Arc::<FrameTracker>::default();
        let stream = stream(Arc::clone(&tracker));
        let stream = async move {
            stream.await;
            drop(held);
        };
        let guarded = StallGuard { stream, tracker, idle_timer: IdleTimer::default(), n_seen: 0 };
        tokio::spawn(guarded);
        ended.await.unwrap_err();
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_lasts_until_a_frame_stalls() {
        let slow = |tracker: Arc<FrameTracker>| async move {
            for _ in 0..5 {
                tracker.handed_out(IDLE_TIMEOUT);
                sleep(Duration::from_secs(9)).await;
            }
            std::future::pending().await
        };
        assert_eq!(seconds_until_end(slow).await, 4 * 9 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_upstream_is_not_the_clients_fault() {
        let idle_timer = |tracker: Arc<FrameTracker>| async move {
            sleep(Duration::from_secs(100)).await;
            tracker.handed_out(IDLE_TIMEOUT);
            sleep(Duration::from_secs(9)).await;
            tracker.taken();
            sleep(Duration::from_secs(100)).await;
            tracker.handed_out(IDLE_TIMEOUT);
            sleep(Duration::from_secs(9)).await;
        };
        assert_eq!(seconds_until_end(idle_timer).await, 218);
    }
}
