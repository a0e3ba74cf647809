//! The REST entrypoint.
//!
//! | request | does | response |
//! |---|---|---|
//! | `GET` or `POST /api/v1/rate-limit/check?algorithm=&key=&permits=` | spends units | 200 or 429 |
//! | `GET /api/v1/rate-limit/remaining?algorithm=&key=` | shows a bucket | 200 |
//! | `DELETE /api/v1/rate-limit/reset?algorithm=&key=` | resets a bucket | 200 |
//! | `POST /api/v1/decide` | decides under the policy file | 200, 400, 403 or 429 |
//! | `POST /api/v1/decide/batch` | decides up to 1,000 queries | 200 |
//! | `POST /api/v1/explain` | says why a request is limited or not, and spends nothing | 200 |
//! | any method `/api/v1/authorize` | decides for a proxy, in `authorize.rs` | 200, 400, 403 or 429 |
//! | `POST /api/v1/refund` | refunds what a decision charged | 200 |
//! | `GET /openapi.json` | describes this API | 200 |
//!
//! The first three take `policy=` in place of `algorithm=`. Without `key`, the caller's own bucket is meant. Calls
//! that concern other clients (with `key`, reset, decide, refund) are for local callers and those with a token.

mod authorize;
mod bucket_target;
mod client_buckets;
mod decide;
mod in_flight;
#[cfg(test)]
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
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use ratewright_core::decision::Observe;
use ratewright_core::query::Ask;
use ratewright_core::{Clock, Limiter, Store, Verdict};
use ratewright_http::correlation::given_id;
use ratewright_http::{CorrelationId, Problem, RateLimitHeaders};

use crate::access_control::Caller;
use crate::body::{self, BodyLimits};
use crate::response::{HandlerResult, ProblemResponse, json, method_not_allowed, not_found};
use crate::settings::{ServerSettings, SharedServerSettings};
use bucket_target::BucketTarget;
use params::{AcceptedParams, Params};

pub use authorize::{AUTHORIZE, authorize_router, misdirected};
pub use client_buckets::IsListed;
pub use decide::{CountInFlight, FindRoute, FoundRoute, GatewayView, parse as parse_decide};

/// The limits on the body of one query, and of a batch.
const BODY_LIMITS: BodyLimits = BodyLimits::json(256 * 1024);
const BATCH_BODY_LIMITS: BodyLimits = BodyLimits::json(8 * 1024 * 1024);

/// The description of this API, generated: see `rest/openapi.rs`.
const OPENAPI: &str = include_str!("../openapi.json");

/// The state of the REST entrypoint.
pub struct Rest<S, O, C> {
    /// Decides queries.
    pub limiter: Arc<Limiter<S, O>>,
    /// The current settings.
    pub settings: SharedServerSettings,
    /// The wall clock, for times in responses.
    pub clock: C,
    /// The gateway's routes and requests in flight, for explanations.
    pub gateway: GatewayView,
}

/// The routes of the REST entrypoint.
pub fn router<S, O, C>(api: Rest<S, O, C>) -> Router
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    Router::new()
        .route(
            "/api/v1/rate-limit/check",
            without_head(get(check::<S, O, C>).post(check::<S, O, C>), "GET,POST"),
        )
        .route("/api/v1/rate-limit/remaining", without_head(get(remaining::<S, O, C>), "GET"))
        .route("/api/v1/rate-limit/reset", delete(reset::<S, O, C>))
        .route("/api/v1/decide", post(decide::<S, O, C>))
        .route("/api/v1/decide/batch", post(decide_batch::<S, O, C>))
        .route("/api/v1/explain", post(explain::<S, O, C>))
        .route(
            "/api/v1/refund",
            post(refund::<S, O, C>).layer(Extension(Arc::<receipt::UsedReceipts>::default())),
        )
        .route("/openapi.json", get(openapi))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::new(api))
}

/// Routes of the admin API for buckets: `GET /api/v1/admin/key?policy=&key=` shows a key under each quota, `DELETE` resets it.
/// `POST /api/v1/admin/reset` does so too, with the same parameters in its body: a key may be a secret.
/// The key is required, because an operator is not a client. `GET /api/v1/admin/client?ip=` and `POST /api/v1/admin/client` show
/// the buckets of a client under all policies that `is_listed` accepts.
pub fn key_router<S, O, C>(api: Rest<S, O, C>, is_listed: IsListed) -> Router
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    Router::new()
        .route(
            "/api/v1/admin/key",
            without_head(get(inspect::<S, O, C>).delete(reset_named::<S, O, C>), "GET,DELETE"),
        )
        .route(
            "/api/v1/admin/client",
            without_head(
                get(client::<S, O, C>).post(client::<S, O, C>).layer(Extension(is_listed)),
                "GET,POST",
            ),
        )
        .route("/api/v1/admin/reset", post(reset_posted::<S, O, C>))
        .route("/api/v1/explain", post(explain::<S, O, C>))
        .with_state(Arc::new(api))
}

async fn check<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let begun = api.clock.now();
    let settings = api.settings.load();
    let policies = api.limiter.load();
    let params = params(&request, AcceptedParams::Permits)?;
    let target =
        BucketTarget::resolve(&request, &params, AcceptedParams::Permits, &settings, &policies, begun)?;
    let id = CorrelationId::new(request.headers(), fastrand::u128(..));
    let decision = target.decide(&api.limiter, &policies, Ask::Spend(target.permits), &id).await;
    let now = api.clock.now();
    let limit_status = wire::LimitStatus::of(&target, &decision, now)?;
    let mut response =
        wire::check_response(&target, &decision, &limit_status, settings.http_settings.headers)?;
    if decision.verdict() == Verdict::Deny {
        set_correlation_id(&mut response, &id.text());
    }
    add_request_id(&mut response, request.headers());
    respond(response)
}

async fn remaining<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = api.settings.load();
    let now = api.clock.now();
    let policies = api.limiter.load();
    let params = params(&request, AcceptedParams::Key)?;
    let target = BucketTarget::resolve(&request, &params, AcceptedParams::Key, &settings, &policies, now)?;
    let decision = target.look(&api.limiter, &policies).await;
    let mut response = wire::remaining_response(&target, &decision, now, settings.http_settings.headers)?;
    add_request_id(&mut response, request.headers());
    respond(response)
}

async fn reset<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    api.reset_key(request, AcceptedParams::Key).await
}

async fn inspect<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = api.settings.load();
    let now = api.clock.now();
    let policies = api.limiter.load();
    let params = params(&request, AcceptedParams::NamedKey)?;
    if let Some(permits) = in_flight::policies_of(&params.policy_ref, &policies, &api.gateway) {
        let target =
            BucketTarget::resolve(&request, &params, AcceptedParams::NamedKey, &settings, &permits, now)?;
        return respond(in_flight::inspect_response(&target, &permits, &api.gateway)?);
    }
    let target =
        BucketTarget::resolve(&request, &params, AcceptedParams::NamedKey, &settings, &policies, now)?;
    let decision = target.look(&api.limiter, &policies).await;
    respond(wire::inspect_response(&target, &decision, now)?)
}

async fn client<S, O, C>(
    State(api): State<Arc<Rest<S, O, C>>>,
    Extension(is_listed): Extension<IsListed>,
    request: Request,
) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = api.settings.load_full();
    if request.method() == Method::GET {
        let ip = client_buckets::parse(request.uri().query().unwrap_or_default())?;
        let client = client_buckets::ClientLookup::of_address(ip, &settings.http_settings.rules);
        return respond(client.inspect(&api.limiter, &api.gateway, is_listed).await);
    }
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BODY_LIMITS).await?;
    let lookup = client_buckets::parse_request(&body)?;
    let (rates, permits) = (api.limiter.policies(), (api.gateway.permits)());
    let of_permits = permits.needs().iter().filter(|name| !rates.needs().contains(name));
    let needs: Vec<_> = rates.needs().iter().chain(of_permits).cloned().collect();
    let client = lookup.client(&settings, &needs, api.clock.now())?;
    respond(client.inspect(&api.limiter, &api.gateway, is_listed).await)
}

async fn reset_named<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    api.reset_key(request, AcceptedParams::NamedKey).await
}

async fn reset_posted<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let (mut head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BODY_LIMITS).await?;
    let uri = [b"/?", &*body].concat();
    head.uri = Uri::try_from(uri).map_err(|_| {
        let detail = "body is not a form; send policy=NAME&key=KEY, percent-encoded";
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    api.reset_key(Request::from_parts(head, Body::empty()), AcceptedParams::NamedKey).await
}

impl<S, O, C> Rest<S, O, C>
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    /// Resets a key.
    async fn reset_key(&self, request: Request, accepted: AcceptedParams) -> HandlerResult {
        let settings = self.settings.load();
        authorize(&request, &settings, "reset", "send one of api.tokens")?;
        let policies = self.limiter.load();
        let params = params(&request, accepted)?;
        if accepted == AcceptedParams::NamedKey
            && in_flight::policies_of(&params.policy_ref, &policies, &self.gateway).is_some()
        {
            return Err(in_flight::cannot_reset(params.policy_ref.policy()).into());
        }
        let now = self.clock.now();
        let target = BucketTarget::resolve(&request, &params, accepted, &settings, &policies, now)?;
        respond(wire::reset_response(&target, target.reset(&self.limiter, &policies).await))
    }
}

async fn decide<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let begun = api.clock.now();
    let settings = api.settings.load_full();
    authorize(&request, &settings, "decide", "use /api/v1/rate-limit/check for your own address")?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BODY_LIMITS).await?;
    let query = decide::parse(&body)?;
    let id = match given_id(&head.headers).or_else(|| query.given_id()) {
        Some(id) => Cow::Borrowed(id),
        None => Cow::Owned(format!("{:032x}", fastrand::u128(..))),
    };
    let decider =
        decide::RestDecider { limiter: &api.limiter, settings: &settings, now: begun, id: Some(&id) };
    let result = decider.decide(&query).await?;
    let now = api.clock.now();
    let mut response = result.render(&settings, now, &id);
    expose(&mut response, &head.headers);
    respond(response)
}

async fn decide_batch<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let begun = api.clock.now();
    let settings = api.settings.load_full();
    authorize(&request, &settings, "decide", "use /api/v1/rate-limit/check for your own address")?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BATCH_BODY_LIMITS).await?;
    let queries = decide::parse_batch(&body)?;
    let id = given_id(&head.headers);
    let decider = decide::RestDecider { limiter: &api.limiter, settings: &settings, now: begun, id };
    let result = decider.decide_all(&queries).await?;
    respond(decide::render_all(&result))
}

async fn explain<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = api.settings.load_full();
    authorize(&request, &settings, "explain", "send one of api.tokens")?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BODY_LIMITS).await?;
    let query = decide::parse(&body)?;
    let now = api.clock.now();
    let decider = decide::RestDecider { limiter: &api.limiter, settings: &settings, now, id: None };
    let explanation = decider.explain(&query, &api.gateway).await?;
    respond(explanation.render())
}

async fn refund<S, O, C>(
    State(api): State<Arc<Rest<S, O, C>>>,
    Extension(used): Extension<Arc<receipt::UsedReceipts>>,
    request: Request,
) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    authorize(&request, &api.settings.load(), "refund", "send one of api.tokens")?;
    let (head, body) = request.into_parts();
    let body = body::read(&head.headers, body, BODY_LIMITS).await?;
    let receipt = receipt::parse(&body)?;
    let paid = receipt.paid()?;
    let n_refunded = if used.admit(&receipt) { api.limiter.refund_paid(&paid).await } else { 0 };
    respond(json(StatusCode::OK, &wire::RefundResponse::of(n_refunded)))
}

async fn openapi() -> Response<Body> {
    let mut response = Response::new(Body::from(OPENAPI));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Why a request is limited or not, as JSON: the response of `POST /api/v1/explain` to this body.
///
/// # Errors
/// If the body is invalid.
pub async fn explanation<S, O>(
    limiter: &Limiter<S, O>,
    settings: &ServerSettings,
    now: ratewright_core::Timestamp,
    gateway: &GatewayView,
    body: &[u8],
) -> Result<serde_json::Value, Problem>
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    let query = decide::parse(body)?;
    let explanation =
        decide::RestDecider { limiter, settings, now, id: None }.explain(&query, gateway).await?;
    Ok(serde_json::to_value(&explanation).expect("it contains strings and numbers only"))
}

/// The parameters in the URL.
fn params(request: &Request, accepted: AcceptedParams) -> Result<Params<'_>, Problem> {
    Params::parse(request.uri().query().unwrap_or_default(), accepted)
}

/// Rejects callers that may not act for other clients.
fn authorize(request: &Request, settings: &ServerSettings, what: &str, instead: &str) -> Result<(), Problem> {
    settings.access.authorize(Caller::of(request), what, instead)
}

/// The caller's address.
fn peer(request: &Request) -> Result<IpAddr, Problem> {
    let info = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let unknown = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the caller's address is unknown");
    info.map(|ConnectInfo(peer)| peer.ip()).ok_or_else(unknown)
}

/// Adds the request's own id to the response, and lets web pages read it.
fn add_request_id(response: &mut Response<String>, headers: &HeaderMap) {
    if let Some(id) = given_id(headers) {
        set_correlation_id(response, id);
    }
    expose(response, headers);
}

fn set_correlation_id(response: &mut Response<String>, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(wire::CORRELATION_ID, id);
    }
}

/// Lets web pages read the rate limit headers. Only browsers send `Origin`, so other callers do not need this.
fn expose(response: &mut Response<String>, headers: &HeaderMap) {
    if headers.contains_key(header::ORIGIN) {
        RateLimitHeaders::expose(response.headers_mut());
    }
}

async fn unknown_path(request: Request) -> ProblemResponse {
    not_found(
        &request,
        "/api/v1/rate-limit/check, /remaining or /reset, /api/v1/decide, /api/v1/explain, /api/v1/authorize, or /openapi.json",
    )
}

/// Allows these methods, but not HEAD: it would spend like GET, without a body that says so.
fn without_head<S: Clone + Send + Sync + 'static>(
    methods: MethodRouter<S>,
    allowed: &'static str,
) -> MethodRouter<S> {
    let reject = move |request: Request| async move {
        let mut response = method_not_allowed(request).await.into_response();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        response
    };
    methods.head(reject).fallback(reject)
}

fn respond(response: Response<String>) -> HandlerResult {
    Ok(response.map(Body::from))
}

impl<S, O, C> fmt::Debug for Rest<S, O, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
