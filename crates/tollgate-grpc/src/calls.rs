//! Answers the calls of a connection where they are read.
//!
//! ```text
//!   read all that has come ──► answer each call ──► write all answers at once
//! ```
//!
//! The library makes a task of each call. One that is decided in memory is over before that task would have been handed to another thread, so
//! here only those become tasks that have to wait.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls of a connection that nobody has looked at yet.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<Call>>>);

impl Calls {
    /// Drives a connection whose calls come here.
    pub(crate) fn poll<C: Future>(
        &self,
        mut connection: Pin<&mut C>,
        cx: &mut Context<'_>,
    ) -> Poll<C::Output> {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            let calls = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            if calls.is_empty() {
                return Poll::Pending;
            }
            for mut call in calls {
                // Nobody needs to be woken: one that is not ready is polled again, by a waker that counts.
                if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                    tokio::spawn(call);
                }
            }
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(call));
    }
}
