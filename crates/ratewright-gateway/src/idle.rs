//! When a client's connection has nothing to do any more.
//!
//! hyper has no clock for a client that says nothing from the start, nor for one that speaks HTTP/2 and has said all. Either
//! would keep its place for ever.
//!
//! All requests of a connection share something. Each holds a clone of it until it is answered, and then its answer's body does:
//! whether any is under way is told by how many clones there are, at no cost to those that are.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::body::{Body, BodyError};
use crate::strict::Flag;
use crate::window::Handed;

/// The body of an answer that is under way.
#[derive(Debug)]
pub(crate) struct Passing<T> {
    body: Body,
    _shared: Arc<T>,
    /// Where it is told what was handed out, and how long that may lie about. None: HTTP/1.1.
    handed: Option<(Arc<Handed>, Duration)>,
}

impl<T> Passing<T> {
    pub(crate) fn new(body: Body, shared: Arc<T>) -> Self {
        Self { body, _shared: shared, handed: None }
    }

    /// The same of a stream of HTTP/2, whose client must take some of it within its pause, or within `otherwise`.
    pub(crate) fn of_stream(self, otherwise: Duration) -> Self {
        let pause_max = self.body.pause_max().unwrap_or(otherwise);
        Self { handed: Handed::of_this_stream().map(|handed| (handed, pause_max)), ..self }
    }
}

/// Ready when nothing has been under way, and nothing has begun, for `within`, and at the latest after twice as long. The
/// connection itself holds one clone.
pub(crate) async fn until_idle<T>(shared: Weak<T>, flag: Flag, within: Duration) {
    let mut before = (true, 0);
    loop {
        tokio::time::sleep(within).await;
        let now = (shared.strong_count() <= 1, flag.n_taken());
        if now.0 && now == before {
            return;
        }
        before = now;
    }
}

impl<T> http_body::Body for Passing<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if let Some((handed, pause_max)) = &this.handed {
            match frame {
                Poll::Ready(Some(Ok(_))) => handed.out(*pause_max),
                Poll::Ready(_) | Poll::Pending => handed.taken(),
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use tokio::time::{Instant, timeout};

    const WITHIN: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_idle_and_who_asks_has_as_long_again() {
        let (shared, flag, begin) = (Arc::new(()), Flag::default(), Instant::now());
        until_idle(Arc::downgrade(&shared), flag.clone(), WITHIN).await;
        assert_eq!(begin.elapsed().as_secs(), 10);
        let mut idle = pin!(until_idle(Arc::downgrade(&shared), flag.clone(), WITHIN));
        for _ in 0..5 {
            assert!(timeout(Duration::from_secs(9), idle.as_mut()).await.is_err());
            flag.take();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_is_waited_for_and_its_end_is_no_idleness() {
        let (shared, flag) = (Arc::new(()), Flag::default());
        let request = Arc::clone(&shared);
        let mut idle = pin!(until_idle(Arc::downgrade(&shared), flag, WITHIN));
        assert!(timeout(Duration::from_secs(39), idle.as_mut()).await.is_err());
        drop(request);
        let ended = Instant::now();
        idle.await;
        assert!(ended.elapsed() >= WITHIN, "{:?}", ended.elapsed());
    }
}
