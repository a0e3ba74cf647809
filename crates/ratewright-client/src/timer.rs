//! The clock that calls wait by.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A clock, and waiting for it. Give [`RetryBuilder::timer`](crate::RetryBuilder::timer) one of your own to test without
/// waiting, or to run without tokio's timers.
pub trait Timer: Send + Sync + fmt::Debug {
    /// Time since some moment in the past, on a clock that nobody sets.
    fn now(&self) -> Duration;

    /// The time of day. Only dates that servers send are compared with it.
    fn wall(&self) -> SystemTime;

    /// Waits until `now` has reached a time.
    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Tokio's clock. `tokio::time::pause` stops it in tests.
#[derive(Debug, Default)]
pub(crate) struct TokioTimer {
    start: std::sync::OnceLock<Instant>,
}

impl TokioTimer {
    fn start(&self) -> Instant {
        *self.start.get_or_init(Instant::now)
    }
}

impl Timer for TokioTimer {
    fn now(&self) -> Duration {
        self.start().elapsed()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place of this crate where the time of day is read"
    )]
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self.start().checked_add(at) {
            Some(at) => Box::pin(tokio::time::sleep_until(at)),
            None => Box::pin(std::future::pending()),
        }
    }
}
