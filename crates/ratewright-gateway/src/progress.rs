//! How far a client's body has come, for somebody who waits for the answer and does not read the body.
//!
//! A connection of HTTP/2 is driven by the library: it reads bodies when there is room for more, and keeps to itself what stops
//! them. Here whoever waits for the answer learns both.
//!
//! ```text
//!   the server's turn ── there is room, and nothing has come ──► the client's turn
//!          ▲  since the last piece                                    │
//!          └──────────────── a piece comes, or the end ───────────────┘
//! ```
//!
//! A server that makes no room is not asked for more, so the time in which it must answer runs, as it does after the end.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::body::BodyError;

/// How far a client's body has come. Clones are of the same.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Since when it is the server's turn. None: it is the client's.
    since: Option<Instant>,
    stopped: Option<BodyError>,
    is_answered: bool,
}

impl Progress {
    /// It is the server's turn from now on.
    pub(crate) fn begin() -> Self {
        Self(Arc::new(Mutex::new(State { since: Some(Instant::now()), stopped: None, is_answered: false })))
    }

    /// A piece came, or the end.
    pub(crate) fn came(&self) {
        self.0.lock().since = Some(Instant::now());
    }

    /// There is room for more than the client has sent.
    pub(crate) fn is_awaited(&self) {
        self.0.lock().since = None;
    }

    /// It stopped before its end. What the library is told instead of the reason is returned.
    pub(crate) fn stop(&self, why: BodyError) -> BodyError {
        self.0.lock().stopped = Some(why);
        BodyError::Stopped
    }

    /// Why it stopped, if it did.
    pub(crate) fn stopped(&self) -> Option<BodyError> {
        self.0.lock().stopped.take()
    }

    /// The response has begun.
    pub(crate) fn answered(&self) {
        self.0.lock().is_answered = true;
    }

    /// True if the response has begun.
    pub(crate) fn is_answered(&self) -> bool {
        self.0.lock().is_answered
    }

    /// Waits until it has been the server's turn for so long.
    pub(crate) async fn until_late(&self, within: Duration) {
        loop {
            let now = Instant::now();
            let since = self.0.lock().since.unwrap_or(now);
            match since.checked_add(within) {
                None => std::future::pending().await, // one that never ends
                Some(by) if by <= now => return,
                Some(by) => sleep_until(by).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, timeout};

    const WITHIN: Duration = Duration::from_secs(10);

    async fn is_late(progress: &Progress, after: u64) -> bool {
        timeout(Duration::from_secs(after), progress.until_late(WITHIN)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_servers_turn_counts() {
        let progress = Progress::begin();
        assert!(!is_late(&progress, 9).await);
        progress.is_awaited();
        assert!(!is_late(&progress, 1_000).await, "the client is slow, not the server");
        progress.came();
        assert!(!is_late(&progress, 9).await);
        progress.came();
        assert!(!is_late(&progress, 9).await, "it makes headway");
        assert!(is_late(&progress, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_turn_is_the_servers_while_somebody_waits() {
        let progress = Progress::begin();
        progress.is_awaited();
        let waiting = tokio::spawn({
            let progress = progress.clone();
            async move { progress.until_late(WITHIN).await }
        });
        advance(Duration::from_secs(25)).await;
        progress.came();
        let begin = Instant::now();
        waiting.await.unwrap();
        assert!((10..12).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    }
}
