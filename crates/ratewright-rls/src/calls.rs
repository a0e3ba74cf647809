//! Answers the calls of a connection where they are read.
//!
//! ```text
//!   read all that has come ──► answer each call ──► write all answers at once
//!                                 └─ waits for Redis ─┘
//! ```
//!
//! The library would make a task of each call. One that is decided in memory is over before that task could have been handed to another
//! thread; and of those that wait for Redis many get their answer at once, and are written at once if they are in one hand.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::rt::Executor;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls of a connection.
#[derive(Default)]
pub(crate) struct Calls {
    begun: Begun,
    waiting: FuturesUnordered<Call>,
}

/// Those that nobody has looked at yet. A connection puts its calls here.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<Mutex<Vec<Call>>>);

impl Calls {
    /// Where the connection is to put its calls.
    pub(crate) fn begun(&self) -> Begun {
        self.begun.clone()
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

    /// Lets calls go on, and tells whether one is over, so that there is something to write.
    fn answer(&mut self, cx: &mut Context<'_>) -> bool {
        let mut is_answered = false;
        for mut call in self.begun.take() {
            // Nobody needs to be woken: one that is not ready is polled again, by a waker that counts.
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

impl Begun {
    fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Begun {
    fn execute(&self, call: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(call));
    }
}
