//! The REST door.
//!
//! | request | does | answer |
//! |---|---|---|
//! | `GET` or `POST /api/v1/rate-limit/check?algorithm=&key=&permits=` | spends | 200 or 429 |
//! | `GET /api/v1/rate-limit/remaining?algorithm=&key=` | looks | 200 |
//! | `DELETE /api/v1/rate-limit/reset?algorithm=&key=` | forgets | 200 |
//! | `POST /api/v1/decide` | decides under the policy file | 200, 429, or 403 |
//! | `POST /api/v1/decide/batch` | decides up to 1,000 queries | 200 |
//! | `POST /api/v1/explain` | says why a request is limited or not, and spends nothing | 200 |
//! | `POST /api/v1/refund` | gives back what a decision charged | 200 |
//! | `GET /openapi.json` | tells all of this to programs | 200 |
//!
//! The first three take `policy=` in place of `algorithm=`. Without `key` the caller itself is meant. Naming a key means
//! speaking for others, so that is for callers on this machine or with a token, and so are forgetting, deciding and refunding.

mod asked;
mod body;
mod client;
mod decide;
mod in_flight;
mod openapi;
mod params;
mod receipt;
mod wire;

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Router};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use ratewright_core::{Ask, Clock, Limiter, Observe, Store, Verdict};
use ratewright_http::{CorrelationId, Fields, Problem, given_id};

use crate::access::Caller;
use crate::answer::{Answered, Refusal, json, nowhere, wrong_method};
use crate::settings::{Settings, SharedSettings};
use asked::Asked;
use params::{Accepts, Params};

pub use client::IsListed;
pub use decide::{CountInFlight, FindRoute, FoundRoute, Gateway, parse as parse_decide};

/// The longest body of one query, and of a batch.
const BODY_MAX: usize = 256 * 1024;
const BATCH_BODY_MAX: usize = 8 * 1024 * 1024;

/// What the door needs.
pub struct Rest<S, O, C> {
    /// Who decides.
    pub limiter: Arc<Limiter<S, O>>,
    /// What the door goes by.
    pub settings: SharedSettings,
    /// The wall clock: it tells the time of day that answers name.
    pub clock: C,
    /// What the gateway adds to a request, for explanations.
    pub gateway: Gateway,
}

/// The door's routes.
pub fn router<S, O, C>(door: Rest<S, O, C>) -> Router
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    Router::new()
        .route("/api/v1/rate-limit/check", headless(get(check::<S, O, C>).post(check::<S, O, C>), "GET,POST"))
        .route("/api/v1/rate-limit/remaining", headless(get(remaining::<S, O, C>), "GET"))
        .route("/api/v1/rate-limit/reset", delete(reset::<S, O, C>))
        .route("/api/v1/decide", post(decide::<S, O, C>))
        .route("/api/v1/decide/batch", post(decide_batch::<S, O, C>))
        .route("/api/v1/explain", post(explain::<S, O, C>))
        .route("/api/v1/refund", post(refund::<S, O, C>).layer(Extension(Arc::<receipt::Used>::default())))
        .route("/openapi.json", get(openapi))
        .fallback(elsewhere)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Arc::new(door))
}

/// Keys, for those who run it: `GET /api/v1/admin/key?policy=&key=` shows one under each quota, `DELETE` resets it. The key must be
/// named: an operator is not a client. `GET /api/v1/admin/client?ip=` shows the buckets of an address under all policies that
/// `is_listed` accepts.
pub fn key_router<S, O, C>(door: Rest<S, O, C>, is_listed: IsListed) -> Router
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    Router::new()
        .route("/api/v1/admin/key", headless(get(inspect::<S, O, C>).delete(forget::<S, O, C>), "GET,DELETE"))
        .route("/api/v1/admin/client", headless(get(client::<S, O, C>).layer(Extension(is_listed)), "GET"))
        .route("/api/v1/explain", post(explain::<S, O, C>))
        .with_state(Arc::new(door))
}

async fn check<S, O, C>(State(door): State<Arc<Rest<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let begun = door.clock.now();
    let settings = door.settings.load();
    let policies = door.limiter.load();
    let params = params(&request, Accepts::Permits)?;
    let asked = Asked::understand(&request, &params, Accepts::Permits, &settings, &policies, begun)?;
    let id = CorrelationId::new(request.headers(), fastrand::u128(..));
    let decision = asked.decide(&door.limiter, &policies, Ask::Spend(asked.permits), &id).await;
    let now = door.clock.now();
    let level = wire::Level::of(&asked, &decision, now)?;
    let mut response = wire::checked(&asked, &decision, &level, settings.dialect.fields)?;
    if decision.verdict() == Verdict::Deny {
        name(&mut response, &id.text());
    }
    mark(&mut response, request.headers());
    answer(response)
}

async fn remaining<S, O, C>(State(door): State<Arc<Rest<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = door.settings.load();
    let now = door.clock.now();
    let policies = door.limiter.load();
    let params = params(&request, Accepts::Key)?;
    let asked = Asked::understand(&request, &params, Accepts::Key, &settings, &policies, now)?;
    let decision = asked.look(&door.limiter, &policies).await;
    let mut response = wire::looked(&asked, &decision, now, settings.dialect.fields)?;
    mark(&mut response, request.headers());
    answer(response)
}

async fn reset<S, O, C>(State(door): State<Arc<Rest<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    door.forget(request, Accepts::Key).await
}

async fn inspect<S, O, C>(State(door): State<Arc<Rest<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = door.settings.load();
    let now = door.clock.now();
    let policies = door.limiter.load();
    let params = params(&request, Accepts::NamedKey)?;
    if let Some(permits) = in_flight::policies_of(&params.which, &policies, &door.gateway) {
        let asked = Asked::understand(&request, &params, Accepts::NamedKey, &settings, &permits, now)?;
        return answer(in_flight::inspected(&asked, &permits, &door.gateway)?);
    }
    let asked = Asked::understand(&request, &params, Accepts::NamedKey, &settings, &policies, now)?;
    let decision = asked.look(&door.limiter, &policies).await;
    answer(wire::inspected(&asked, &decision, now)?)
}

async fn client<S, O, C>(
    State(door): State<Arc<Rest<S, O, C>>>,
    Extension(is_listed): Extension<IsListed>,
    request: Request,
) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = door.settings.load_full();
    let ip = client::parse(request.uri().query().unwrap_or_default())?;
    let client = client::Client::new(ip, &settings.dialect.rules);
    answer(client.inspect(&door.limiter, &door.gateway, is_listed).await)
}

async fn forget<S, O, C>(State(door): State<Arc<Rest<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    door.forget(request, Accepts::NamedKey).await
}

impl<S, O, C> Rest<S, O, C>
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    /// Forgets the key that is named.
    async fn forget(&self, request: Request, accepts: Accepts) -> Answered {
        let settings = self.settings.load();
        entrust(&request, &settings, "reset", "ask there")?;
        let policies = self.limiter.load();
        let params = params(&request, accepts)?;
        if accepts == Accepts::NamedKey
            && in_flight::policies_of(&params.which, &policies, &self.gateway).is_some()
        {
            return Err(in_flight::not_reset(params.which.policy()).into());
        }
        let now = self.clock.now();
        let asked = Asked::understand(&request, &params, accepts, &settings, &policies, now)?;
        answer(wire::forgotten(&asked, asked.reset(&self.limiter, &policies).await))
    }
}

async fn decide<S, O, C>(State(door): State<Arc<Rest<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let begun = door.clock.now();
    let settings = door.settings.load_full();
    entrust(&request, &settings, "decide", "ask /api/v1/rate-limit/check about yourself")?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BODY_MAX).await?;
    let asked = decide::parse(&body)?;
    let id = match given_id(&head.headers).or_else(|| asked.given_id()) {
        Some(id) => Cow::Borrowed(id),
        None => Cow::Owned(format!("{:032x}", fastrand::u128(..))),
    };
    let deciding =
        decide::Deciding { limiter: &door.limiter, settings: &settings, now: begun, id: Some(&id) };
    let decided = deciding.decide(&asked).await?;
    let now = door.clock.now();
    let mut response = decided.render(&settings, now, &id);
    expose(&mut response, &head.headers);
    answer(response)
}

async fn decide_batch<S, O, C>(State(door): State<Arc<Rest<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let begun = door.clock.now();
    let settings = door.settings.load_full();
    entrust(&request, &settings, "decide", "ask /api/v1/rate-limit/check about yourself")?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BATCH_BODY_MAX).await?;
    let asked = decide::parse_batch(&body)?;
    let id = given_id(&head.headers);
    let deciding = decide::Deciding { limiter: &door.limiter, settings: &settings, now: begun, id };
    let decided = deciding.decide_all(&asked).await?;
    answer(decide::render_all(&decided))
}

async fn explain<S, O, C>(State(door): State<Arc<Rest<S, O, C>>>, request: Request) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = door.settings.load_full();
    entrust(&request, &settings, "explain", "ask there")?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BODY_MAX).await?;
    let asked = decide::parse(&body)?;
    let now = door.clock.now();
    let deciding = decide::Deciding { limiter: &door.limiter, settings: &settings, now, id: None };
    let explanation = deciding.explain(&asked, &door.gateway).await?;
    answer(explanation.render())
}

async fn refund<S, O, C>(
    State(door): State<Arc<Rest<S, O, C>>>,
    Extension(used): Extension<Arc<receipt::Used>>,
    request: Request,
) -> Answered
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    entrust(&request, &door.settings.load(), "refund", "ask there")?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BODY_MAX).await?;
    let receipt = receipt::parse(&body)?;
    let paid = receipt.paid()?;
    let n_refunded = if used.admit(&receipt) { door.limiter.refund_paid(&paid).await } else { 0 };
    answer(json(StatusCode::OK, &wire::Refunded::of(n_refunded)))
}

async fn openapi() -> Response<Body> {
    let mut response = Response::new(Body::from(openapi::document()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Why a request is limited or not, as JSON: what `POST /api/v1/explain` answers to this body.
///
/// # Errors
/// If the body is not understood.
pub async fn explanation<S, O>(
    limiter: &Limiter<S, O>,
    settings: &Settings,
    now: ratewright_core::Timestamp,
    gateway: &Gateway,
    body: &[u8],
) -> Result<serde_json::Value, Problem>
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    let asked = decide::parse(body)?;
    let explanation = decide::Deciding { limiter, settings, now, id: None }.explain(&asked, gateway).await?;
    Ok(serde_json::to_value(&explanation).expect("it has texts and numbers only"))
}

/// What is asked for, in the URL.
fn params(request: &Request, accepts: Accepts) -> Result<Params<'_>, Problem> {
    Params::parse(request.uri().query().unwrap_or_default(), accepts)
}

/// Refuses callers who may not speak for others.
fn entrust(request: &Request, settings: &Settings, what: &str, instead: &str) -> Result<(), Problem> {
    settings.access.entrust(Caller::of(request), what, instead)
}

/// Who asks.
fn peer(request: &Request) -> Result<IpAddr, Problem> {
    let info = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let unknown = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the caller's address is not known");
    info.map(|ConnectInfo(peer)| peer.ip()).ok_or_else(unknown)
}

/// Gives the answer the id of its request, so that both can be found, and lets a page read it.
fn mark(response: &mut Response<String>, headers: &HeaderMap) {
    if let Some(id) = given_id(headers) {
        name(response, id);
    }
    expose(response, headers);
}

fn name(response: &mut Response<String>, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(wire::CORRELATION_ID, id);
    }
}

/// Lets a page that a browser runs read the fields. Who is no page, and so names no origin, need not be told.
fn expose(response: &mut Response<String>, headers: &HeaderMap) {
    if headers.contains_key(header::ORIGIN) {
        Fields::expose(response.headers_mut());
    }
}

async fn elsewhere(request: Request) -> Refusal {
    nowhere(
        &request,
        "/api/v1/rate-limit/check, /remaining or /reset, /api/v1/decide, /api/v1/explain, or /openapi.json",
    )
}

/// Allows these methods, and not HEAD: it would have to do what GET does, and could not tell what came of it.
fn headless<S: Clone + Send + Sync + 'static>(
    methods: MethodRouter<S>,
    allowed: &'static str,
) -> MethodRouter<S> {
    let refuse = move |request: Request| async move {
        let mut response = wrong_method(request).await.into_response();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        response
    };
    methods.head(refuse).fallback(refuse)
}

fn answer(response: Response<String>) -> Answered {
    Ok(response.map(Body::from))
}

impl<S, O, C> fmt::Debug for Rest<S, O, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
