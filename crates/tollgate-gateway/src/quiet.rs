//! How long nothing has come.
//!
//! Setting a timer for every piece of a body would cost more than passing the piece on. Here one timer is left to run: when
//! it rings it is asked how long ago the last piece came, and mostly set anew.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// A limit on pauses.
#[derive(Debug)]
pub(crate) struct Quiet {
    pause_max: Duration,
    ring: Option<Pin<Box<Sleep>>>,
    /// When the present pause began, if there is one.
    since: Option<Instant>,
}

impl Quiet {
    pub(crate) fn new(pause_max: Duration) -> Self {
        Self { pause_max, ring: None, since: None }
    }

    /// Something came.
    pub(crate) fn broke(&mut self) {
        self.since = None;
    }

    /// Ready when the pause has been too long; tells how long it may be.
    pub(crate) fn poll_too_long(&mut self, context: &mut Context<'_>) -> Poll<Duration> {
        if self.pause_max == Duration::MAX {
            return Poll::Pending;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let ring = self.ring.get_or_insert_with(|| Box::pin(sleep(self.pause_max)));
        loop {
            ready!(ring.as_mut().poll(context));
            let until = since + self.pause_max;
            if until <= ring.deadline() {
                return Poll::Ready(self.pause_max);
            }
            ring.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn only_a_whole_pause_is_too_long() {
        let mut quiet = Quiet::new(Duration::from_secs(10));
        let begin = Instant::now();
        for _ in 0..5 {
            let pause = timeout(Duration::from_secs(7), poll_fn(|context| quiet.poll_too_long(context)));
            assert!(pause.await.is_err());
            quiet.broke();
        }
        assert_eq!(poll_fn(|context| quiet.poll_too_long(context)).await, Duration::from_secs(10));
        let took = begin.elapsed();
        assert!(Duration::from_secs(45) <= took && took < Duration::from_secs(46), "{took:?}");
    }
}
