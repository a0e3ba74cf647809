//! Retries for reqwest: a client that is ready to use, and a middleware for clients that have others.

use std::cell::Cell;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, Method, StatusCode, Uri};
use reqwest::{Body, IntoUrl, Request, Response, redirect};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, RequestBuilder};

use crate::body::BodyFactory;
use crate::call::Next;
use crate::response::{DRAIN_MAX, ResponseHead};
use crate::retry::{RequestInfo, Retry};
use crate::retry_decision::BodyKind;
use crate::retry_summary::{HasRetrySummary, RetrySummary};

/// An HTTP client with retries: reqwest's, and its request builder.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ratewright_client::Client::new();
/// let response = client.get("https://api.example.com/items").send().await?;
/// println!("{}", response.text().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    inner: ClientWithMiddleware,
}

impl Client {
    /// A client with reqwest's defaults and ours.
    ///
    /// # Panics
    /// If TLS cannot be set up, as `reqwest::Client::new` does.
    pub fn new() -> Self {
        let redirects = redirect::Policy::default();
        Self::with(reqwest::Client::builder(), redirects, Retry::new()).expect("reqwest can set up TLS")
    }

    /// A client with your settings. `redirects` replaces the builder's own policy, which cannot be read: the client must see
    /// redirects, since a POST that was redirected must not be repeated.
    ///
    /// # Errors
    /// Those of the builder.
    pub fn with(
        builder: reqwest::ClientBuilder,
        redirects: redirect::Policy,
        retry: Retry,
    ) -> Result<Self, reqwest::Error> {
        let client = builder.redirect(noticed(redirects)).build()?;
        Ok(Self { inner: ClientBuilder::new(client).with(NoticesRedirects(retry)).build() })
    }

    /// Begins a request.
    pub fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        self.inner.request(method, url)
    }

    /// Begins a `GET`.
    pub fn get(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Begins a `HEAD`.
    pub fn head(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Begins a `POST`.
    pub fn post(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Begins a `PUT`.
    pub fn put(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Begins a `PATCH`.
    pub fn patch(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Begins a `DELETE`.
    pub fn delete(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Sends a request.
    pub async fn execute(&self, request: Request) -> Result<Response, Error> {
        self.inner.execute(request).await
    }
}

impl BodyFactory<Body> {
    /// Makes a body for reqwest: bytes, text, a stream.
    pub fn reqwest<B: Into<Body>>(make: impl Fn() -> B + Send + Sync + 'static) -> Self {
        Self::new(move || make().into())
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

tokio::task_local! {
    /// True once this attempt was redirected.
    static IS_REDIRECTED: Cell<bool>;
}

/// A policy that leaves a note: neither an error nor a response tells whether it is that of the first hop. The URL of a
/// response does not, since a redirect may lead to the request's own URL.
fn noticed(policy: redirect::Policy) -> redirect::Policy {
    redirect::Policy::custom(move |attempt| {
        let _ = IS_REDIRECTED.try_with(|noted| noted.set(true));
        policy.redirect(attempt)
    })
}

/// The middleware of [`Client`].
struct NoticesRedirects(Retry);

/// Whether the client below leaves a note when it is redirected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Redirects {
    Noticed,
    Unknown,
}

#[async_trait]
impl Middleware for NoticesRedirects {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> Result<Response, Error> {
        send(&self.0, request, extensions, next, Redirects::Noticed).await
    }
}

/// Retries for a client of yours. Its responses and errors do not tell whether it was redirected before, so they prove nothing:
/// a request that must not be processed twice is sent once.
#[async_trait]
impl Middleware for Retry {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> Result<Response, Error> {
        send(self, request, extensions, next, Redirects::Unknown).await
    }
}

async fn send(
    retry: &Retry,
    request: Request,
    extensions: &mut Extensions,
    next: reqwest_middleware::Next<'_>,
    redirects: Redirects,
) -> Result<Response, Error> {
    let factory = extensions.get::<BodyFactory<Body>>().cloned();
    let info = info(&request, factory.is_some()).with_extensions(extensions);
    let mut requests = Requests { kept: Some(request), factory };
    let mut call = retry.call(info);
    loop {
        call.turn().await.map_err(Error::middleware)?;
        let mut copy = requests.next(call.is_last()).expect("a request that was not kept is not sent again");
        if let Some((name, value)) = call.attempt_header() {
            copy.headers_mut().insert(name, value);
        }
        let attempt = async {
            let result = next.clone().run(copy, extensions).await;
            (result, IS_REDIRECTED.with(Cell::get))
        };
        let (result, is_noted) = IS_REDIRECTED.scope(Cell::new(false), attempt).await;
        if is_noted || redirects == Redirects::Unknown {
            call.redirected();
        }
        match call.next(result).await {
            Next::Return(result) => return result,
            Next::Again => {}
        }
    }
}

/// A request, attempt after attempt.
struct Requests {
    kept: Option<Request>,
    factory: Option<BodyFactory<Body>>,
}

impl Requests {
    fn next(&mut self, is_last: bool) -> Option<Request> {
        if let Some(factory) = &self.factory {
            self.kept.as_mut()?.body_mut().take();
            let mut copy = self.kept.as_ref()?.try_clone()?;
            *copy.body_mut() = Some(factory.make());
            return Some(copy);
        }
        let copy = if is_last { None } else { self.kept.as_ref()?.try_clone() };
        copy.or_else(|| self.kept.take()) // a stream cannot be copied, and is sent once
    }
}

fn info(request: &Request, has_factory: bool) -> RequestInfo {
    let body = match request.body() {
        _ if has_factory => BodyKind::Factory,
        None => BodyKind::None,
        Some(body) => body.as_bytes().map_or(BodyKind::Stream, |bytes| BodyKind::Bytes(bytes.len())),
    };
    let uri = Uri::try_from(request.url().as_str()).unwrap_or_default();
    RequestInfo::new(request.method(), &uri, request.headers(), body)
}

impl ResponseHead for Response {
    fn status(&self) -> StatusCode {
        Response::status(self)
    }

    fn headers(&self) -> &HeaderMap {
        Response::headers(self)
    }

    fn extensions_mut(&mut self) -> &mut Extensions {
        Response::extensions_mut(self)
    }

    async fn drain(mut self) {
        let mut read = 0;
        while let Ok(Some(chunk)) = self.chunk().await {
            read += chunk.len();
            if read > DRAIN_MAX {
                return;
            }
        }
    }
}

impl HasRetrySummary for Response {
    fn retry_summary(&self) -> Option<RetrySummary> {
        RetrySummary::in_extensions(self.extensions())
    }
}

/// The error of [`Client`], and of clients with [`Retry`] as a middleware.
impl HasRetrySummary for Error {
    fn retry_summary(&self) -> Option<RetrySummary> {
        RetrySummary::in_error(self)
    }
}
