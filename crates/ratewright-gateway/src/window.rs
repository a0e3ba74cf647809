//! Answers that a client of HTTP/2 does not take.
//!
//! Such a client says how much it has room for, stream by stream. One that never makes room keeps a stream, a connection to a
//! server and a permit for as long as it likes: the connection itself is fine, and writes on it are not held up.
//!
//! ```text
//!   stream's task ──► hyper ──► Passing ──► Body     a piece is handed out: Handed says so
//!        │                                           hyper asks for the next one when there was room for it
//!        └── quiet for too long? ◄── Handed          no: the task ends, and with it stream, connection and permit
//! ```
//!
//! hyper asks a body for nothing as long as it has a piece that nobody has room for, so no body can notice. Its task can: each
//! stream has one of its own, and it is ours, by way of [`Streams`]. HTTP/1.1 needs none of this; there a write waits, and
//! `ratewright_listen::WriteTimeout` has a limit for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use parking_lot::Mutex;
use pin_project_lite::pin_project;

use crate::quiet::Quiet;

tokio::task_local! {
    /// Of the stream whose task this is.
    static HANDED: Arc<Handed>;
}

/// Runs the streams of HTTP/2 connections, each until its answer is over or nobody takes it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streams;

/// What a stream's answer and its task tell each other.
#[derive(Debug, Default)]
pub(crate) struct Handed(Mutex<Piece>);

/// The piece of an answer that was handed out last.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    number: u64,
    /// How long it may lie about. None: the next one has been asked for.
    lies_for: Option<Duration>,
}

impl Handed {
    /// Of the stream whose task this is. Nothing, if it is none.
    pub(crate) fn of_this_stream() -> Option<Arc<Self>> {
        HANDED.try_with(Arc::clone).ok()
    }

    /// A piece was handed out. Some of it must be taken within `pause_max`.
    pub(crate) fn out(&self, pause_max: Duration) {
        let mut piece = self.0.lock();
        piece.number += 1;
        piece.lies_for = Some(pause_max);
    }

    /// The next piece is asked for, so there was room for the last one.
    pub(crate) fn taken(&self) {
        self.0.lock().lies_for = None;
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let handed = Arc::<Handed>::default();
        let attended = Attended { stream, handed: Arc::clone(&handed), quiet: Quiet::default(), seen: 0 };
        tokio::spawn(HANDED.scope(handed, attended));
    }
}

pin_project! {
    /// A stream that is given up when what was handed out is not taken.
    struct Attended<F> {
        #[pin]
        stream: F,
        handed: Arc<Handed>,
        quiet: Quiet,
        // The number of the last piece.
        seen: u64,
    }
}

impl<F: Future<Output = ()>> Future for Attended<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(context).is_ready() {
            return Poll::Ready(());
        }
        let piece = *this.handed.0.lock();
        if piece.number != *this.seen || piece.lies_for.is_none() {
            this.quiet.broke();
            *this.seen = piece.number;
        }
        let Some(pause_max) = piece.lies_for else { return Poll::Pending };
        ready!(this.quiet.poll_too_long(context, pause_max));
        Poll::Ready(()) // dropped, the stream is reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};

    const PAUSE_MAX: Duration = Duration::from_secs(10);

    /// How long a stream lasts that does this.
    async fn lasts<F>(stream: impl FnOnce(Arc<Handed>) -> F) -> u64
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (begin, (held, ended)) = (Instant::now(), oneshot::channel::<()>());
        let (handing, handed) = oneshot::channel();
        Streams.execute(async move { drop(handing.send(Handed::of_this_stream())) });
        assert!(handed.await.unwrap().is_some(), "a stream's task knows what it hands out");
        assert!(Handed::of_this_stream().is_none(), "and others do not");
        let handed = Arc::<Handed>::default();
        let stream = stream(Arc::clone(&handed));
        let stream = async move {
            stream.await;
            drop(held);
        };
        let attended = Attended { stream, handed, quiet: Quiet::default(), seen: 0 };
        tokio::spawn(attended);
        ended.await.unwrap_err();
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_lasts_until_a_piece_is_not_taken() {
        let slow = |handed: Arc<Handed>| async move {
            for _ in 0..5 {
                handed.out(PAUSE_MAX);
                sleep(Duration::from_secs(9)).await;
            }
            std::future::pending().await
        };
        assert_eq!(lasts(slow).await, 4 * 9 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_its_time_is_not_the_clients_fault() {
        let quiet = |handed: Arc<Handed>| async move {
            sleep(Duration::from_secs(100)).await;
            handed.out(PAUSE_MAX);
            sleep(Duration::from_secs(9)).await;
            handed.taken();
            sleep(Duration::from_secs(100)).await;
            handed.out(PAUSE_MAX);
            sleep(Duration::from_secs(9)).await;
        };
        assert_eq!(lasts(quiet).await, 218);
    }
}
