//! Runs the calls of a connection in the task that reads them.
//!
//! ```text
//!   read all that arrived ──► answer each call ──► write all responses at once
//!                                 └─ waits for Redis ─┘
//! ```
//!
//! hyper would spawn a task for each call. A call that is decided in memory ends before such a task would start. Calls that wait for Redis often
//! get their responses together, and one task writes them together.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::rt::Executor;

type CallFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls of a connection.
#[derive(Default)]
pub(crate) struct InlineExecutor {
    queue: CallQueue,
    waiting: FuturesUnordered<CallFuture>,
}

/// Calls that have not been polled yet. The connection pushes its calls here.
#[derive(Clone, Default)]
pub(crate) struct CallQueue(Arc<Mutex<Vec<CallFuture>>>);

impl InlineExecutor {
    /// Where the connection pushes its calls.
    pub(crate) fn queue(&self) -> CallQueue {
        self.queue.clone()
    }

    /// Drives the connection and its calls.
    pub(crate) fn poll<C: Future>(
        &mut self,
        mut connection: Pin<&mut C>,
        cx: &mut Context<'_>,
    ) -> Poll<C::Output> {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            if !self.answer(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Polls the calls. True if one has ended, so that there is something to write.
    fn answer(&mut self, cx: &mut Context<'_>) -> bool {
        let mut is_answered = false;
        for mut call in self.queue.take() {
            // No waker is needed: a pending call is polled again below, with the real one.
            if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                self.waiting.push(call);
            } else {
                is_answered = true;
            }
        }
        while let Poll::Ready(Some(())) = self.waiting.poll_next_unpin(cx) {
            is_answered = true;
        }
        is_answered
    }
}

impl CallQueue {
    fn take(&self) -> Vec<CallFuture> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for CallQueue {
    fn execute(&self, call: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(call));
    }
}
