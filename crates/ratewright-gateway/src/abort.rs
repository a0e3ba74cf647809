//! Requests in flight whose client has disconnected.
//!
//! Most upstreams do not notice that a client is gone, and finish its work. If the request were no longer in flight, a
//! client could exceed a limit of `in_flight` by aborting each request. So an exchange whose request was sent
//! completely goes on, until the upstream responds or times out, if one of its permits asks for it.
//!
//! ```text
//!   client ──► [until answered ──► permit ──► rates ──► forward] ──► upstream
//!      ╳                │
//!      disconnects      └─► a task of its own: waits for the response's head, discards it, releases the permits
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::Response;
use ratewright_listen::client_slots::ClientSlot;
use ratewright_tower::{InFlightFuture, PermitBody};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::worker::StreamSlots;

/// The most kept exchanges of an HTTP/2 connection. With more it is closed.
const KEPT_MAX: usize = 100;

/// What an exchange and its client know of each other. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presence(Arc<PresenceFlags>);

#[derive(Debug, Default)]
struct PresenceFlags {
    has_sent: AtomicBool,
    is_gone: AtomicBool,
}

/// The kept exchanges of one connection. Clones share the connection.
#[derive(Clone, Debug)]
pub(crate) struct KeptExchanges(Arc<KeptState>);

#[derive(Debug)]
struct KeptState {
    n: AtomicUsize,
    max: usize,
    exceeded: Notify,
    slots: StreamSlots,
}

/// One of them, until dropped.
struct KeptExchange {
    all: KeptExchanges,
    _slot: ClientSlot,
}

/// A response that its client waits for. If it is dropped before, the client has disconnected.
pub(crate) struct UntilAnswered<F>
where
    InFlightFuture<F>: Exchange,
{
    exchange: Option<Pin<Box<InFlightFuture<F>>>>,
    presence: Presence,
    kept: KeptExchanges,
}

/// The future of a response that can outlive its client.
pub(crate) trait Exchange: Future + Send + 'static {}

impl<T: Future + Send + 'static> Exchange for T {}

impl Presence {
    /// The client has sent its whole request, and an upstream is getting it.
    pub(crate) fn has_sent_all(&self) {
        self.0.has_sent.store(true, Ordering::Relaxed);
    }

    /// True if the client has disconnected.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed)
    }
}

impl KeptExchanges {
    /// Those of a new connection. A trusted proxy has many clients, of whom one must not end the connection of all.
    pub(crate) fn new(is_trusted_proxy: bool, slots: StreamSlots) -> Self {
        let max = if is_trusted_proxy { usize::MAX } else { KEPT_MAX };
        Self(Arc::new(KeptState { n: AtomicUsize::new(0), max, exceeded: Notify::new(), slots }))
    }

    /// Ready when the connection has too many.
    pub(crate) async fn exceeded(&self) {
        self.0.exceeded.notified().await;
    }

    /// None: the client has too many requests in flight.
    fn keep(&self) -> Option<KeptExchange> {
        let slot = self.0.slots.take()?;
        if self.0.n.fetch_add(1, Ordering::Relaxed) >= self.0.max {
            self.0.exceeded.notify_one();
        }
        Some(KeptExchange { all: self.clone(), _slot: slot })
    }
}

impl Drop for KeptExchange {
    fn drop(&mut self) {
        self.all.0.n.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F> UntilAnswered<F>
where
    InFlightFuture<F>: Exchange,
{
    pub(crate) fn new(exchange: InFlightFuture<F>, presence: Presence, kept: KeptExchanges) -> Self {
        Self { exchange: Some(Box::pin(exchange)), presence, kept }
    }
}

impl<F, B, E> Future for UntilAnswered<F>
where
    InFlightFuture<F>: Exchange<Output = Result<Response<PermitBody<B>>, E>>,
{
    type Output = Result<Response<PermitBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let exchange = this.exchange.as_mut().expect("a future is not polled after it is ready");
        let response = ready!(exchange.as_mut().poll(context));
        this.exchange = None;
        Poll::Ready(response)
    }
}

impl<F> Drop for UntilAnswered<F>
where
    InFlightFuture<F>: Exchange,
{
    fn drop(&mut self) {
        let Some(mut exchange) = self.exchange.take() else { return };
        self.presence.0.is_gone.store(true, Ordering::Relaxed);
        let is_kept = self.presence.0.has_sent.load(Ordering::Relaxed) && exchange.as_mut().abort();
        if is_kept
            && let Some(kept) = self.kept.keep()
            && let Ok(worker) = Handle::try_current()
        {
            worker.spawn(async move {
                drop(exchange.await);
                drop(kept);
            });
        }
    }
}
