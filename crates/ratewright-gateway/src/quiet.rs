//! How long nothing has come.
//!
//! Setting a timer for every piece of a body would cost more than passing the piece on. Here one timer is left to run: when
//! it rings it is asked how long ago the last piece came, and mostly set anew.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is set when it is first needed, and left to run while it is set later and later.
#[derive(Debug, Default)]
pub(crate) struct Ring(Option<Pin<Box<Sleep>>>);

impl Ring {
    /// Ready when it is time.
    pub(crate) fn poll_at(&mut self, context: &mut Context<'_>, until: Instant) -> Poll<()> {
        let ring = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if until < ring.deadline() {
            ring.as_mut().reset(until);
        }
        loop {
            ready!(ring.as_mut().poll(context));
            if until <= ring.deadline() {
                return Poll::Ready(());
            }
            ring.as_mut().reset(until);
        }
    }
}

/// How long nothing has come.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    ring: Ring,
    /// When the present pause began, if there is one.
    since: Option<Instant>,
}

impl Quiet {
    /// Something came.
    pub(crate) fn broke(&mut self) {
        self.since = None;
    }

    /// Ready when the pause has been too long.
    pub(crate) fn poll_too_long(&mut self, context: &mut Context<'_>, pause_max: Duration) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        // One that never ends.
        let Some(until) = since.checked_add(pause_max) else { return Poll::Pending };
        self.ring.poll_at(context, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn only_a_whole_pause_is_too_long() {
        let mut quiet = Quiet::default();
        let (begin, pause_max) = (Instant::now(), Duration::from_secs(10));
        for _ in 0..5 {
            let pause = poll_fn(|context| quiet.poll_too_long(context, pause_max));
            assert!(timeout(Duration::from_secs(7), pause).await.is_err());
            quiet.broke();
        }
        poll_fn(|context| quiet.poll_too_long(context, pause_max)).await;
        let took = begin.elapsed();
        assert!(Duration::from_secs(45) <= took && took < Duration::from_secs(46), "{took:?}");
        quiet.broke();
        poll_fn(|context| quiet.poll_too_long(context, Duration::from_secs(1))).await;
        assert!(begin.elapsed() < Duration::from_secs(47), "a shorter one is not kept waiting");
    }
}
