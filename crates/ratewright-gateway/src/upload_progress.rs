//! The progress of a request body over HTTP/2, for the task that waits for the response.
//!
//! hyper drives an HTTP/2 connection: it reads the body when the window has room, and hides why a body failed. This
//! type reports both to the waiting task.
//!
//! ```text
//!   upstream's turn ── the window has room, but no frame arrived ──► client's turn
//!          ▲  since the last frame                                    │
//!          └──────────────── a frame arrives, or the end ─────────────┘
//! ```
//!
//! An upstream that opens no window gets no more frames, so its response timeout runs, as it does after the end of the
//! body.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::body::BodyError;

/// The progress of a request body. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct UploadProgress(Arc<Mutex<UploadState>>);

#[derive(Debug)]
struct UploadState {
    /// When the upstream's turn began. None: it is the client's turn.
    since: Option<Instant>,
    stopped: Option<BodyError>,
    has_response: bool,
}

impl UploadProgress {
    /// Starts with the upstream's turn.
    pub(crate) fn begin() -> Self {
        Self(Arc::new(Mutex::new(UploadState {
            since: Some(Instant::now()),
            stopped: None,
            has_response: false,
        })))
    }

    /// A frame arrived, or the end.
    pub(crate) fn received(&self) {
        self.0.lock().since = Some(Instant::now());
    }

    /// The window has room for more than the client has sent.
    pub(crate) fn awaiting_client(&self) {
        self.0.lock().since = None;
    }

    /// Records why the body failed, and returns the error for hyper.
    pub(crate) fn stop(&self, why: BodyError) -> BodyError {
        self.0.lock().stopped = Some(why);
        BodyError::Stopped
    }

    /// Why the body failed.
    pub(crate) fn stopped(&self) -> Option<BodyError> {
        self.0.lock().stopped.take()
    }

    /// The response has started.
    pub(crate) fn responded(&self) {
        self.0.lock().has_response = true;
    }

    /// True if the response has started.
    pub(crate) fn has_response(&self) -> bool {
        self.0.lock().has_response
    }

    /// Waits until the upstream's turn has lasted for `within`.
    pub(crate) async fn upstream_timeout(&self, within: Duration) {
        loop {
            let now = Instant::now();
            let since = self.0.lock().since.unwrap_or(now);
            match since.checked_add(within) {
                None => std::future::pending().await, // the timeout is endless
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

    async fn is_late(progress: &UploadProgress, after: u64) -> bool {
        timeout(Duration::from_secs(after), progress.upstream_timeout(WITHIN)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn only_time_waiting_for_the_upstream_counts() {
        let progress = UploadProgress::begin();
        assert!(!is_late(&progress, 9).await);
        progress.awaiting_client();
        assert!(!is_late(&progress, 1_000).await, "the client is slow, not the server");
        progress.received();
        assert!(!is_late(&progress, 9).await);
        progress.received();
        assert!(!is_late(&progress, 9).await, "it makes headway");
        assert!(is_late(&progress, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_upstream_timeout_restarts_with_each_piece() {
        let progress = UploadProgress::begin();
        progress.awaiting_client();
        let waiting = tokio::spawn({
            let progress = progress.clone();
            async move { progress.upstream_timeout(WITHIN).await }
        });
        advance(Duration::from_secs(25)).await;
        progress.received();
        let begin = Instant::now();
        waiting.await.unwrap();
        assert!((10..12).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    }
}
