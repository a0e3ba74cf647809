//! Unread request bodies of one HTTP/2 connection.
//!
//! All streams of a connection share one flow-control window. A body that waits for its upstream or for a decision may
//! fill that window, and then the client cannot send the other bodies either. That time does not count against
//! `body_rate_min`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The unread bodies of one connection. Clones share the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog(Arc<Mutex<BacklogState>>);

#[derive(Debug, Default)]
struct BacklogState {
    n_waiting: usize,
    /// When the current period with unread bodies began.
    since: Option<Instant>,
    /// The length of earlier periods.
    total: Duration,
}

/// An unread body, until dropped.
#[derive(Debug)]
pub(crate) struct UnreadBody(Backlog);

impl Backlog {
    /// Registers an unread body.
    pub(crate) fn wait(&self) -> UnreadBody {
        let mut state = self.0.lock();
        state.n_waiting += 1;
        state.since.get_or_insert_with(Instant::now);
        UnreadBody(self.clone())
    }

    /// Total time with at least one unread body.
    pub(crate) fn total(&self) -> Duration {
        let state = self.0.lock();
        state.total + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for UnreadBody {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.n_waiting = state.n_waiting.saturating_sub(1);
        if state.n_waiting == 0 {
            let lasted = state.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            state.total += lasted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn time_counts_once_while_any_body_waits() {
        let (backlog, second) = (Backlog::default(), Duration::from_secs(1));
        advance(second).await;
        let first = backlog.wait();
        advance(second).await;
        let other = backlog.clone().wait();
        advance(second).await;
        drop(first);
        advance(second).await;
        assert_eq!(backlog.total(), 3 * second);
        drop(other);
        advance(second).await;
        assert_eq!(backlog.total(), 3 * second);
    }
}
