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

/// The body of an answer that is under way.
#[derive(Debug)]
pub(crate) struct Passing<T> {
    body: Body,
    _shared: Arc<T>,
}

impl<T> Passing<T> {
    pub(crate) fn new(body: Body, shared: Arc<T>) -> Self {
        Self { body, _shared: shared }
    }
}

/// Ready when nothing has been under way, and nothing has begun, for `within`. The connection itself holds one clone.
pub(crate) async fn until_idle<T>(shared: Weak<T>, flag: Flag, within: Duration) {
    let mut n_before = 0;
    loop {
        tokio::time::sleep(within).await;
        let n = flag.n_taken();
        if n == n_before && shared.strong_count() <= 1 {
            return;
        }
        n_before = n;
    }
}

impl<T> http_body::Body for Passing<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
