//! Retries as a tower layer, around an HTTP client that is a `Service`.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{BodyFactory, ReplayBody};
use crate::call::Next;
use crate::retry::{RequestInfo, Retry};
use crate::retry_decision::BodyKind;

/// The traits of [`RetryLayer`] and [`RetryService`], in the versions that they take.
pub use {tower_layer, tower_service};

/// Puts retries around a client.
///
/// ```
/// # use std::convert::Infallible;
/// use ratewright_client::call::ReplayBody;
/// use ratewright_client::layer::tower_layer::Layer;
/// use ratewright_client::{Retry, RetryLayer};
/// # type Body = http_body_util::Empty<bytes::Bytes>;
/// # let client = tower::service_fn(|_: http::Request<ReplayBody<Body>>| async {
/// #     Ok::<_, Infallible>(http::Response::new(Body::new()))
/// # });
///
/// let client = RetryLayer::new(Retry::new()).layer(client);
/// ```
///
/// The client must take requests with a [`ReplayBody`]. Errors are boxed.
///
/// Bodies of a known length up to [`replay_max`](crate::RetryPolicy::replay_max) are read before they are sent, and kept to be sent
/// again. A longer one, or one of unknown length, is sent once, unless a [`BodyFactory`] is among the request's extensions.
#[derive(Clone, Debug, Default)]
pub struct RetryLayer {
    retry: Retry,
}

/// A client with retries.
#[derive(Clone, Debug)]
pub struct RetryService<S> {
    retry: Retry,
    inner: S,
}

/// An error of any kind.
type BoxError = Box<dyn Error + Send + Sync>;

/// The inner client's error. A box is not an error itself, so it cannot be asked for its sources.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct InnerError(#[source] BoxError);

/// What a request's body is made of, attempt after attempt.
enum Bodies<B> {
    Kept { data: Bytes, trailers: Option<HeaderMap> },
    Factory(BodyFactory<B>),
    Once(Option<B>),
}

impl RetryLayer {
    /// With the budget, gate and policy of `retry`.
    pub fn new(retry: Retry) -> Self {
        Self { retry }
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = RetryService<S>;

    fn layer(&self, inner: S) -> RetryService<S> {
        RetryService { retry: self.retry.clone(), inner }
    }
}

impl<S, B, R> Service<Request<B>> for RetryService<S>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError> + Send,
    R: Body + Send + 'static,
    R::Data: Send,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `poll_ready` has made `self.inner` ready, not its clone. So `self.inner` sends this request, and the clone takes
        // its place.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(send(self.retry.clone(), inner, request))
    }
}

async fn send<S, B, R>(retry: Retry, mut inner: S, request: Request<B>) -> Result<Response<R>, BoxError>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body + Send,
    R::Data: Send,
{
    let (parts, body) = request.into_parts();
    let factory = parts.extensions.get::<BodyFactory<B>>().cloned();
    let (mut bodies, kind) =
        Bodies::of(body, factory, retry.shared.policy.replay_max).await.map_err(Into::into)?;
    let info = RequestInfo::new(&parts.method, &parts.uri, &parts.headers, kind);
    let mut call = retry.call(info.with_extensions(&parts.extensions));
    let mut kept = Some(parts);
    let mut is_ready = true; // `poll_ready` was called for the first attempt
    loop {
        // First readiness, so that the request has no place in its lane while it waits for the service.
        loop {
            if !std::mem::replace(&mut is_ready, false) {
                call.ready(poll_fn(|context| inner.poll_ready(context).map_err(Into::into))).await?;
            }
            if call.try_turn() {
                break;
            }
            inner = inner.clone(); // others may use what was reserved, while this request waits in its lane
            call.queue().await?;
        }
        call.start()?;
        let is_last = call.is_last() || matches!(bodies, Bodies::Once(_));
        let (Some(mut parts), Some(body)) = (copy(&mut kept, is_last), bodies.next()) else {
            unreachable!("a request is sent again only if its parts were kept");
        };
        if let Some((name, value)) = call.attempt_header() {
            parts.headers.insert(name, value);
        }
        let result = inner.call(Request::from_parts(parts, body)).await;
        match call.next(result.map_err(|error| InnerError(error.into()))).await {
            Next::Return(result) => return result.map_err(|InnerError(error)| error),
            Next::Again => {}
        }
    }
}

/// A request's head to send; the last one is not copied.
fn copy(kept: &mut Option<Parts>, is_last: bool) -> Option<Parts> {
    if is_last { kept.take() } else { kept.clone() }
}

impl<B: Body<Data = Bytes>> Bodies<B> {
    async fn of(
        body: B,
        factory: Option<BodyFactory<B>>,
        replay_max: usize,
    ) -> Result<(Self, BodyKind), B::Error> {
        if let Some(factory) = factory {
            return Ok((Self::Factory(factory), BodyKind::Factory));
        }
        if body.is_end_stream() {
            return Ok((Self::Kept { data: Bytes::new(), trailers: None }, BodyKind::None));
        }
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        if length.is_none_or(|length| length > replay_max) {
            return Ok((Self::Once(Some(body)), BodyKind::Stream));
        }
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned();
        let data = collected.to_bytes();
        let kind = BodyKind::Bytes(data.len());
        Ok((Self::Kept { data, trailers }, kind))
    }

    fn next(&mut self) -> Option<ReplayBody<B>> {
        match self {
            Self::Kept { data, trailers } => {
                Some(ReplayBody::Kept { data: data.clone(), trailers: trailers.clone() })
            }
            Self::Factory(factory) => Some(ReplayBody::Own(factory.make())),
            Self::Once(body) => body.take().map(ReplayBody::Own),
        }
    }
}
