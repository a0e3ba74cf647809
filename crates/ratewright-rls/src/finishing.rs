//! A call that has begun is finished, also if nobody waits for its answer any more.
//!
//! Envoy takes its call back when its time is over. What was charged then stays charged; what is to be given back must be.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Work that goes on by itself when it is dropped.
pub(crate) struct Finishing<T>(Option<Work<T>>)
where
    T: Send + 'static;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: Send + 'static> Finishing<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for Finishing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.0 else { return Poll::Pending }; // it is over, and nobody asks again
        let done = ready!(work.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for Finishing<T> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take()
            && !std::thread::panicking() // then it is the work that did
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_is_dropped_halfway_is_finished_all_the_same() {
        let ((answer, waits), (done, is_done)) = (oneshot::channel::<u32>(), oneshot::channel::<u32>());
        let mut work = Finishing::new(async { done.send(waits.await.unwrap()).unwrap() });
        assert_eq!((&mut work).now_or_never(), None, "it waits");
        drop(work);
        answer.send(7).unwrap();
        assert_eq!(is_done.await, Ok(7));
    }

    #[tokio::test]
    async fn what_is_over_is_not_done_twice() {
        assert_eq!(Finishing::new(async { 7 }).await, 7);
    }
}
