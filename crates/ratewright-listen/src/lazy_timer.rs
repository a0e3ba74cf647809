//! One runtime timer for a deadline that keeps moving.
//!
//! Registering a timer with the runtime for each frame, or each request head, costs more than reading it. Here one
//! runtime timer keeps running: it mostly fires early, for a deadline that has moved, and is then reset to the current
//! one.
//!
//! ```text
//!   heads     ├─1─┤ ├2┤     ├────────── 3, slow ──────────
//!   deadlines       ▲1  ▲2                               ▲3
//!   fires           ●────────── reset ───────────────────●  times out
//! ```

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is created on first use, and keeps running while its deadline moves later.
#[derive(Debug, Default)]
pub struct LazyTimer(Option<Pin<Box<Sleep>>>);

impl LazyTimer {
    /// Ready at `deadline`.
    pub fn poll_at(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        loop {
            // Even if the task has no budget left: a timer that is not registered never fires.
            ready!(pin!(tokio::task::unconstrained(timer.as_mut())).poll(cx));
            if deadline <= timer.deadline() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }

    /// True if the runtime timer fires at the deadline or before.
    pub(crate) fn fires_by(&self, deadline: Instant) -> bool {
        self.0.as_ref().is_some_and(|timer| timer.deadline() <= deadline && !timer.is_elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn it_is_ready_at_the_last_deadline_whether_that_moved_later_or_earlier() {
        let (mut timer, begin) = (LazyTimer::default(), Instant::now());
        for seconds in [10, 30, 5, 20, 3] {
            let deadline = begin + Duration::from_secs(seconds);
            assert!(poll_fn(|cx| Poll::Ready(timer.poll_at(cx, deadline))).await.is_pending());
        }
        poll_fn(|cx| timer.poll_at(cx, begin + Duration::from_secs(7))).await;
        assert_eq!(begin.elapsed().as_secs(), 7);
        poll_fn(|cx| timer.poll_at(cx, begin + Duration::from_secs(8))).await;
        assert_eq!(begin.elapsed().as_secs(), 8);
    }
}
