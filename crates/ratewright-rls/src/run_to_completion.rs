//! Work that sends its response before it ends, and runs to completion even if the caller is gone.
//!
//! Corrections run after the response. If Envoy cancels its call, the charges remain, so the refunds must still be made.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// The response of some work. If this is dropped, the work continues in a task of its own.
pub(crate) struct RunToCompletion<T> {
    work: Option<Work>,
    answer: oneshot::Receiver<T>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<T> RunToCompletion<T> {
    /// Starts `work`, which sends its response.
    pub(crate) fn new<W>(work: impl FnOnce(oneshot::Sender<T>) -> W) -> Self
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        Self { work: Some(Box::pin(work(reply))), answer }
    }
}

/// `None` if the work ended without a response.
impl<T> Future for RunToCompletion<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            self.work = None;
        }
        Pin::new(&mut self.answer).poll(cx).map(Result::ok)
    }
}

impl<T> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
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

    #[tokio::test]
    async fn what_is_dropped_halfway_is_finished_all_the_same() {
        let ((answer, waits), (done, is_done)) = (oneshot::channel::<u32>(), oneshot::channel::<u32>());
        let mut work = RunToCompletion::<u32>::new(|reply| async move {
            done.send(waits.await.unwrap()).unwrap();
            drop(reply);
        });
        assert_eq!((&mut work).now_or_never(), None, "it waits");
        drop(work);
        answer.send(7).unwrap();
        assert_eq!(is_done.await, Ok(7));
    }

    /// The answer is there before the work is over, which has begun what comes after the answer.
    #[tokio::test]
    async fn an_answer_does_not_wait_for_what_comes_after_it() {
        let ((go_on, waits), (done, is_done)) = (oneshot::channel::<u32>(), oneshot::channel::<u32>());
        let (begin, mut has_begun) = oneshot::channel();
        let work = RunToCompletion::new(|reply| async {
            reply.send(7).unwrap();
            begin.send(()).unwrap();
            done.send(waits.await.unwrap()).unwrap();
        });
        assert_eq!(work.now_or_never(), Some(Some(7)));
        has_begun.try_recv().expect("it was sent before anybody reads the answer");
        go_on.send(8).unwrap();
        assert_eq!(is_done.await, Ok(8));
    }

    #[tokio::test]
    async fn what_is_over_is_not_done_twice() {
        let work = RunToCompletion::new(|reply| async { reply.send(7).unwrap() });
        assert_eq!(work.await, Some(7));
        assert_eq!(RunToCompletion::<u32>::new(|_reply| async {}).await, None);
    }
}
