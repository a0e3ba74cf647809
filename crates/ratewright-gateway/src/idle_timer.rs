//! Idle timeouts, at almost no cost for each frame of a body.

use std::task::{Context, Poll};
use std::time::Duration;

use ratewright_listen::LazyTimer;
use tokio::time::Instant;

/// Measures how long nothing has arrived.
#[derive(Debug, Default)]
pub(crate) struct IdleTimer {
    timer: LazyTimer,
    /// When the current pause began.
    since: Option<Instant>,
}

impl IdleTimer {
    /// Ends the pause: data arrived.
    pub(crate) fn reset(&mut self) {
        self.since = None;
    }

    /// Ready when the pause exceeds the timeout.
    pub(crate) fn poll_elapsed(&mut self, context: &mut Context<'_>, idle_timeout: Duration) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        // No deadline: the timeout is endless.
        let Some(until) = since.checked_add(idle_timeout) else { return Poll::Pending };
        self.timer.poll_at(context, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn only_an_uninterrupted_pause_elapses() {
        let mut idle_timer = IdleTimer::default();
        let (begin, idle_timeout) = (Instant::now(), Duration::from_secs(10));
        for _ in 0..5 {
            let pause = poll_fn(|context| idle_timer.poll_elapsed(context, idle_timeout));
            assert!(timeout(Duration::from_secs(7), pause).await.is_err());
            idle_timer.reset();
        }
        poll_fn(|context| idle_timer.poll_elapsed(context, idle_timeout)).await;
        let took = begin.elapsed();
        assert!(Duration::from_secs(45) <= took && took < Duration::from_secs(46), "{took:?}");
        idle_timer.reset();
        poll_fn(|context| idle_timer.poll_elapsed(context, Duration::from_secs(1))).await;
        assert!(begin.elapsed() < Duration::from_secs(47), "a shorter one is not kept waiting");
    }
}
