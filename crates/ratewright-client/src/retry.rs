//! What all calls of a client share, and how it is set up.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method, Uri};

use crate::budget::BudgetSize;
use crate::call::{Call, CallError, Next};
use crate::event::Event;
use crate::gate::Gate;
use crate::policy::RetryPolicy;
use crate::response::ResponseHead;
use crate::retry_decision::{BodyKind, Repeat, RequestKind};
use crate::timer::{Timer, TokioTimer};

/// Retries, with what all calls share: the budget and the gate of each origin. Clones share them.
#[derive(Clone, Debug)]
pub struct Retry {
    pub(crate) shared: Arc<RetryInner>,
}

/// Sets up a [`Retry`].
#[derive(Debug, Default)]
pub struct RetryBuilder {
    shared: RetryInner,
}

#[derive(Debug)]
pub(crate) struct RetryInner {
    pub(crate) policy: RetryPolicy,
    pub(crate) gate: Gate,
    pub(crate) has_gate: bool,
    pub(crate) budget: Option<BudgetSize>,
    pub(crate) has_attempt_header: bool,
    pub(crate) timer: Box<dyn Timer>,
    pub(crate) random: Random,
    pub(crate) on_event: OnEvent,
}

pub(crate) struct Random(Box<dyn Fn() -> f64 + Send + Sync>);

#[derive(Default)]
pub(crate) struct OnEvent(Option<Handler>);

type Handler = Box<dyn Fn(&Event<'_>) + Send + Sync>;

/// Which of a caller's users or accounts a request is for, if each has limits of its own at the server. Put it into a
/// request's extensions; the requests of one partition do not wait for another's limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition(pub String);

/// What a call has to know of its request.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// Where it goes, absolute.
    pub uri: Uri,
    /// Whether it can be sent twice.
    pub kind: RequestKind,
    /// See [`Partition`].
    pub partition: String,
}

impl RequestInfo {
    /// Reads a request's head.
    pub fn new(method: &Method, uri: &Uri, headers: &HeaderMap, body: BodyKind) -> Self {
        let key = headers.get("idempotency-key");
        let kind = RequestKind {
            method: method.clone(),
            has_idempotency_key: key.is_some_and(|key| !key.is_empty()),
            body,
            repeat: Repeat::Auto,
        };
        Self { uri: uri.clone(), kind, partition: String::new() }
    }

    /// Reads what the caller has put into a request's extensions: [`Repeat`] and [`Partition`].
    #[must_use]
    pub fn with_extensions(mut self, extensions: &http::Extensions) -> Self {
        if let Some(repeat) = extensions.get::<Repeat>() {
            self.kind.repeat = *repeat;
        }
        if let Some(Partition(partition)) = extensions.get::<Partition>() {
            self.partition.clone_from(partition);
        }
        self
    }
}

impl Retry {
    /// The default policy.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A builder for custom settings.
    pub fn builder() -> RetryBuilder {
        RetryBuilder::default()
    }

    /// Begins a call. See [`Call`] for the loop.
    pub fn call(&self, request: RequestInfo) -> Call {
        Call::new(self.shared.clone(), request)
    }

    /// Sends until there is something to return. `send` gets the number of the attempt, from 1, and makes the request.
    ///
    /// ```
    /// use ratewright_client::call::RequestInfo;
    /// use ratewright_client::retry_decision::BodyKind;
    /// use ratewright_client::Retry;
    /// # use http::{HeaderMap, Method, Response};
    /// # async fn my_http_client() -> Result<Response<String>, std::io::Error> { Ok(Response::new(String::new())) }
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let retry = Retry::new();
    /// let uri = "https://api.example.com/items".parse().unwrap();
    /// let request = RequestInfo::new(&Method::GET, &uri, &HeaderMap::new(), BodyKind::None);
    /// let response = retry.send(request, |_attempt| my_http_client()).await.unwrap();
    /// # assert_eq!(response.status(), 200);
    /// # });
    /// ```
    pub async fn send<R, E, F, S>(&self, request: RequestInfo, mut send: S) -> Result<R, CallError<E>>
    where
        R: ResponseHead,
        E: std::error::Error + 'static,
        F: Future<Output = Result<R, E>>,
        S: FnMut(u32) -> F,
    {
        let mut call = self.call(request);
        loop {
            let attempt = call.turn().await?;
            let result = send(attempt).await;
            match call.next(result).await {
                Next::Return(result) => return result.map_err(CallError::Send),
                Next::Again => {}
            }
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

impl RetryBuilder {
    /// How patient calls are.
    #[must_use]
    pub fn policy(mut self, policy: RetryPolicy) -> Self {
        self.shared.policy = policy;
        self
    }

    /// No gate: each call waits on its own, and calls with equal waits retry together.
    #[must_use]
    pub fn without_gate(mut self) -> Self {
        self.shared.has_gate = false;
        self
    }

    /// How many retries an origin can be asked to bear.
    #[must_use]
    pub fn budget(mut self, size: BudgetSize) -> Self {
        self.shared.budget = Some(size);
        self
    }

    /// No budget: every call uses all its attempts, also while the server fails.
    #[must_use]
    pub fn without_budget(mut self) -> Self {
        self.shared.budget = None;
        self
    }

    /// Retries do not carry `Ratewright-Attempt`.
    #[must_use]
    pub fn without_attempt_header(mut self) -> Self {
        self.shared.has_attempt_header = false;
        self
    }

    /// Sees everything that happens, for metrics and logs. It is called within calls, so it must not block.
    #[must_use]
    pub fn on_event(mut self, handler: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.shared.on_event = OnEvent(Some(Box::new(handler)));
        self
    }

    /// Replaces the clock.
    #[must_use]
    pub fn timer(mut self, timer: impl Timer + 'static) -> Self {
        self.shared.timer = Box::new(timer);
        self
    }

    /// Replaces the random source; it must return values in [0, 1).
    #[must_use]
    pub fn random(mut self, random: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.shared.random = Random(Box::new(random));
        self
    }

    /// Ready to be shared.
    pub fn build(self) -> Retry {
        Retry { shared: Arc::new(self.shared) }
    }
}

impl Default for RetryInner {
    fn default() -> Self {
        Self {
            policy: RetryPolicy::default(),
            gate: Gate::default(),
            has_gate: true,
            budget: Some(BudgetSize::default()),
            has_attempt_header: true,
            timer: Box::new(TokioTimer::default()),
            random: Random(Box::new(fastrand::f64)),
            on_event: OnEvent::default(),
        }
    }
}

impl Random {
    pub(crate) fn next(&self) -> f64 {
        (self.0)()
    }
}

impl OnEvent {
    pub(crate) fn emit(&self, event: &Event<'_>) {
        if let Some(handler) = &self.0 {
            handler(event);
        }
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

impl fmt::Debug for OnEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnEvent" } else { "None" })
    }
}
