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
//!
//! The number of such exchanges is bounded, because each has an upstream connection, and no client connection that would
//! count. Beyond it, the upstream connection is closed, and the permits are held as long as the response might have taken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Response;
use ratewright_tower::{InFlightFuture, PermitBody};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

/// The most aborted requests in flight of an HTTP/2 connection. With more it is closed.
const OF_CONNECTION_MAX: usize = 100;

/// The most kept exchanges of the gateway.
const KEPT_MAX: usize = 4_096;

/// What an exchange and its client know of each other. Clones share it. None: the request holds no permit, and nobody asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presence(Option<Arc<PresenceFlags>>);

#[derive(Debug, Default)]
struct PresenceFlags {
    has_sent: AtomicBool,
    is_gone: AtomicBool,
}

/// The kept exchanges of the gateway. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct KeptExchanges(Arc<Semaphore>);

/// The aborted requests in flight of one connection. Clones share the connection.
#[derive(Clone, Debug)]
pub(crate) struct AbortedRequests(Arc<AbortedState>);

#[derive(Debug)]
struct AbortedState {
    n: AtomicUsize,
    max: usize,
    exceeded: Notify,
    kept: KeptExchanges,
}

/// One of them, until dropped.
struct AbortedRequest(AbortedRequests);

/// A response that its client waits for. If it is dropped before, the client has disconnected.
pub(crate) struct UntilAnswered<F>
where
    InFlightFuture<F>: Exchange,
{
    exchange: Option<Pin<Box<InFlightFuture<F>>>>,
    presence: Presence,
    aborted: AbortedRequests,
    /// How long the upstream may take.
    within: Duration,
}

/// The future of a response that can outlive its client.
pub(crate) trait Exchange: Future + Send + 'static {}

impl<T: Future + Send + 'static> Exchange for T {}

impl Presence {
    /// That of a request with a permit.
    pub(crate) fn tracked() -> Self {
        Self(Some(Arc::default()))
    }

    /// The client has sent its whole request, and an upstream is getting it.
    pub(crate) fn has_sent_all(&self) {
        self.0.iter().for_each(|flags| flags.has_sent.store(true, Ordering::Relaxed));
    }

    /// True if the client has disconnected.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|flags| flags.is_gone.load(Ordering::Relaxed))
    }

    /// The client has disconnected. True if it had sent its whole request.
    fn leave(&self) -> bool {
        let Some(flags) = &self.0 else { return false };
        flags.is_gone.store(true, Ordering::Relaxed);
        flags.has_sent.load(Ordering::Relaxed)
    }
}

impl Default for KeptExchanges {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(KEPT_MAX)))
    }
}

impl AbortedRequests {
    /// Those of a new connection. A trusted proxy has many clients, of whom one must not end the connection of all.
    pub(crate) fn new(is_trusted_proxy: bool, kept: KeptExchanges) -> Self {
        let max = if is_trusted_proxy { usize::MAX } else { OF_CONNECTION_MAX };
        Self(Arc::new(AbortedState { n: AtomicUsize::new(0), max, exceeded: Notify::new(), kept }))
    }

    /// Ready when the connection has too many.
    pub(crate) async fn exceeded(&self) {
        self.0.exceeded.notified().await;
    }

    fn add(&self) -> AbortedRequest {
        if self.0.n.fetch_add(1, Ordering::Relaxed) >= self.0.max {
            self.0.exceeded.notify_one();
        }
        AbortedRequest(self.clone())
    }
}

impl Drop for AbortedRequest {
    fn drop(&mut self) {
        self.0.0.n.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F> UntilAnswered<F>
where
    InFlightFuture<F>: Exchange,
{
    pub(crate) fn new(
        exchange: InFlightFuture<F>,
        presence: Presence,
        aborted: AbortedRequests,
        within: Duration,
    ) -> Self {
        Self { exchange: Some(Box::pin(exchange)), presence, aborted, within }
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
        if !self.presence.leave() {
            return;
        }
        let Some(permit) = exchange.as_mut().abort() else { return };
        let Ok(worker) = Handle::try_current() else { return };
        let (aborted, within) = (self.aborted.add(), self.within);
        let kept = Arc::clone(&self.aborted.0.kept.0).try_acquire_owned();
        worker.spawn(async move {
            if let Ok(_kept) = kept {
                drop(exchange.await);
            } else {
                drop(exchange);
                tokio::time::sleep(within).await;
            }
            drop((permit, aborted));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use ratewright_core::query::AttributeName;
    use ratewright_core::{ManualClock, Policies, Policy, Quota};
    use ratewright_http::RequestContext;
    use ratewright_tower::{InFlightLayer, PermitLimiter, RequestReader};
    use tower_layer::Layer;
    use tower_service::Service;

    /// An upstream that never responds.
    #[derive(Clone)]
    struct Never;

    impl Service<Request<()>> for Never {
        type Response = Response<String>;
        type Error = std::convert::Infallible;
        type Future = std::future::Pending<Result<Response<String>, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::pending()
        }
    }

    /// Otherwise, a client that fills the number of kept exchanges would be free of every limit.
    #[tokio::test(start_paused = true)]
    async fn without_room_for_the_exchange_its_permit_is_held_all_the_same() {
        let within = Duration::from_secs(30);
        let one = Policy::new("one", Quota::per_second(1)).unwrap().by(&[AttributeName::Ip]);
        let limiter = PermitLimiter::new(Policies::new(vec![one]).unwrap());
        let reader = RequestReader::new(ManualClock::default());
        let mut service = InFlightLayer::new(&limiter, reader).layer(Never);
        let mut request = Request::new(());
        request.extensions_mut().insert(RequestContext::of([192, 0, 2, 7].into()));
        let (presence, no_room) = (Presence::tracked(), KeptExchanges(Arc::new(Semaphore::new(0))));
        presence.has_sent_all();
        let aborted = AbortedRequests::new(false, no_room);
        drop(UntilAnswered::new(service.call(request), presence, aborted, within));
        tokio::task::yield_now().await; // the task of the permit begins
        tokio::time::advance(within / 2).await;
        assert_eq!(limiter.permits().n_keys(), 1);
        tokio::time::advance(within).await;
        tokio::task::yield_now().await;
        assert_eq!(limiter.permits().n_keys(), 0);
    }
}
