//! Limits on requests under way.
//!
//! Put this layer outside the rate limits: a request that finds no permit has then cost nothing, and one that is denied
//! by a rate gives its permit back at once.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use ratewright_core::{Limiter, Observe, Unobserved};
use tower_layer::Layer;
use tower_service::Service;

use crate::door::Door;
use crate::gate::{Gate, at_once};
use crate::held::Held;
use crate::permits::{Permit, Permits};

/// Limits how many requests are under way.
pub struct InFlightLayer<O = Unobserved> {
    gate: Arc<Gate<Arc<Permits>, O>>,
}

/// A service with a limit on requests under way.
pub struct InFlight<T, O = Unobserved> {
    inner: T,
    gate: Arc<Gate<Arc<Permits>, O>>,
}

pin_project! {
    /// The answer of a service with a limit on requests under way, to come.
    #[derive(Debug)]
    pub struct InFlightFuture<F> {
        #[pin]
        stage: Stage<F>,
    }
}

pin_project! {
    #[project = Now]
    #[derive(Debug)]
    enum Stage<F> {
        Answering { #[pin] answer: F, permit: Option<Permit> },
        Answered { answer: Option<Response<String>> },
    }
}

impl<O: Observe> InFlightLayer<O> {
    /// A layer that asks `limiter` for a permit for each request, as `door` reads it. The capacity of a policy is the most
    /// that may be under way at once; its rate says nothing.
    pub fn new(limiter: Arc<Limiter<Arc<Permits>, O>>, door: Door) -> Self {
        Self { gate: Arc::new(Gate { limiter, door }) }
    }
}

impl<T, O> Layer<T> for InFlightLayer<O> {
    type Service = InFlight<T, O>;

    fn layer(&self, inner: T) -> Self::Service {
        InFlight { inner, gate: Arc::clone(&self.gate) }
    }
}

impl<T, O, B, R> Service<Request<B>> for InFlight<T, O>
where
    T: Service<Request<B>, Response = Response<R>>,
    R: From<String>,
    O: Observe,
{
    type Response = Response<Held<R>>;
    type Error = T::Error;
    type Future = InFlightFuture<T::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let permits = self.gate.limiter.store();
        let dialect = self.gate.door.dialect.load_full();
        let mut known = None;
        let asking = self.gate.ask(&parts, &mut known, |query, decision| permits.permit(query, decision));
        let asked = at_once(asking).expect("permits never wait");
        if let Some(mut known) = known {
            known.dialect.get_or_insert(dialect);
            parts.extensions.insert(known); // for the layers within
        }
        let stage = match asked {
            Ok(asked) if asked.is_denied() => {
                Stage::Answered { answer: Some(self.gate.deny(&parts, &asked.tersely())) }
            }
            Ok(asked) => {
                let answer = self.inner.call(Request::from_parts(parts, body));
                Stage::Answering { answer, permit: Some(asked.kept) }
            }
            Err(problem) => Stage::Answered { answer: Some(self.gate.reject(&parts, problem)) },
        };
        InFlightFuture { stage }
    }
}

impl<F, R, E> Future for InFlightFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: From<String>,
{
    type Output = Result<Response<Held<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().stage.project() {
            Now::Answering { answer, permit } => {
                let answer = ready!(answer.poll(context))?;
                let permit = permit.take();
                Poll::Ready(Ok(answer.map(|body| Held::new(body, permit))))
            }
            Now::Answered { answer } => {
                let answer = answer.take().expect("a future is not polled after it is ready");
                Poll::Ready(Ok(answer.map(Held::from)))
            }
        }
    }
}

impl<O> Clone for InFlightLayer<O> {
    fn clone(&self) -> Self {
        Self { gate: Arc::clone(&self.gate) }
    }
}

impl<T: Clone, O> Clone for InFlight<T, O> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), gate: Arc::clone(&self.gate) }
    }
}

impl<O> fmt::Debug for InFlightLayer<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightLayer").field("door", &self.gate.door).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug, O> fmt::Debug for InFlight<T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("inner", &self.inner).finish_non_exhaustive()
    }
}
