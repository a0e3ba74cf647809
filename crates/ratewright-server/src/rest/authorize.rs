//! Forward authentication: a proxy asks whether its client's request may pass, and acts on the status.
//!
//! ```text
//!   client ──► nginx, Caddy, Traefik, HAProxy, Envoy ──► upstream
//!                        │  ▲
//!        the request's head  200, or 429 with Retry-After and a problem body
//!                        ▼  │
//!                 /api/v1/authorize
//! ```
//!
//! `api.authorize` selects how the proxy sends the client's request: see [`ratewright_http::identify::original_request`]. The gateway would
//! make the same [`Query`] from this request, so both use the same buckets.
//!
//! nginx treats only 401 and 403 as a denial. With `?status=403` every rejection of a client's request gets that status.
//! `X-Ratewright-Status` holds the real status and `X-Ratewright-Problem` the body, because nginx discards bodies. The other
//! protocols ignore the parameter: their query string may come from the client.
//!
//! The caller must be a trusted proxy: see [`Access::authenticate_proxy`](crate::access_control::Access::authenticate_proxy). The
//! cross-site check does not apply, because proxies relay the client's `Host`, `Origin` and `Sec-Fetch-Site`. A cross-site page
//! still cannot call the endpoint: the required headers trigger a CORS preflight, and the preflight fails. Only a page that
//! uses DNS rebinding can, on the proxy's own machine; where people browse the web there, use a token.
//!
//! Any 200 means "allowed" to a proxy, so an authorization request to another path of the listener gets 400: a client of Caddy
//! can choose that path. See [`misdirected`].

use std::convert::Infallible;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::any;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use ratewright_core::decision::Observe;
use ratewright_core::query::{Ask, Entrypoint};
use ratewright_core::{Clock, Decision, Limiter, Micros, Query, Store, Timestamp, Verdict};
use ratewright_http::identify::identify_with_context;
use ratewright_http::identify::original_request::{
    AuthorizeProtocol, OriginalRequest, OriginalRequestError, is_authorization_request,
};
use ratewright_http::request_context::BodyLength;
use ratewright_http::{CorrelationId, Problem, ProblemContext, RateLimitHeaders, RequestContext};
use ratewright_listen::LogThrottle;
use tracing::{debug, warn};

use super::wire::CORRELATION_ID;
use super::{Rest, respond};
use crate::access_control::Caller;
use crate::response::HandlerResult;
use crate::settings::ServerSettings;

/// The endpoint's path. With `ext-authz` the client's path follows it.
pub const AUTHORIZE: &str = "/api/v1/authorize";

const STATUS: HeaderName = HeaderName::from_static("x-ratewright-status");
const PROBLEM: HeaderName = HeaderName::from_static("x-ratewright-problem");

/// The most bytes of all headers, with a problem among them: nginx reads a response's head into a buffer of 4 KiB, and takes a
/// longer one for a failure.
const HEADERS_LENGTH_MAX: usize = 3_500;

/// The longest path in a problem that is sent as a header.
const INSTANCE_MAX: usize = 512;

/// The status that replaces the real one in rejections, if requested.
type StatusOverride = Option<StatusCode>;

/// The route of forward authentication. It authenticates callers itself: `Authorization` is the client's.
pub fn authorize_router<S, O, C>(api: Rest<S, O, C>) -> Router
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
    C: Clock + 'static,
{
    let handler = any(authorize::<S, O, C>);
    Router::new()
        .route(AUTHORIZE, handler.clone())
        .route("/api/v1/authorize/", handler.clone())
        .route("/api/v1/authorize/{*path}", handler)
        .with_state(Arc::new(api))
}

async fn authorize<S, O, C>(State(api): State<Arc<Rest<S, O, C>>>, request: Request) -> HandlerResult
where
    S: Store<Error = Infallible>,
    O: Observe,
    C: Clock,
{
    let settings = api.settings.load();
    let protocol = settings.authorize.ok_or_else(disabled)?;
    let caller = Caller::of(&request);
    let peer = caller.peer;
    settings
        .access
        .authenticate_proxy(caller, &settings.http_settings.rules.proxies)
        .inspect_err(|_| warn_untrusted_caller(peer))?;
    let (request, _) = request.into_parts();
    let status = status_override(protocol, request.uri.query())?;
    let now = api.clock.now();
    let original = OriginalRequest::read(request, protocol, AUTHORIZE, &settings.http_settings.rules.proxies);
    let original = match original {
        Ok(original) => original,
        Err(OriginalRequestError::Proxy(problem)) => {
            warn_invalid_request(problem.detail());
            return Err(problem.into());
        }
        Err(OriginalRequestError::Client(problem)) => {
            return respond(override_status(problem.render(), status));
        }
    };
    let id = CorrelationId::new(&original.parts.headers, fastrand::u128(..));
    let settings = arc_swap::Guard::into_inner(settings);
    match decide(&api.limiter, &settings, &original, peer, (&id, now)).await {
        Ok(decision) => {
            respond(render(&decision, &settings, (&original.parts, &id), status, api.clock.now()))
        }
        Err(problem) => {
            let problem = problem.of_request(Some(original.parts.uri.path()), &id.text());
            respond(override_status(problem.render(), status))
        }
    }
}

/// Decides on the client's request.
async fn decide<S, O>(
    limiter: &Limiter<S, O>,
    settings: &ServerSettings,
    original: &OriginalRequest,
    peer: IpAddr,
    (id, now): (&CorrelationId<'_>, Timestamp),
) -> Result<Decision, Problem>
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    let rules = &settings.http_settings.rules;
    let policies = limiter.load();
    if let Some(problem) = original.ambiguity(policies.needs(), rules) {
        return Err(problem);
    }
    let context = RequestContext {
        is_trusted_proxy: true,
        client: Some(original.client),
        body: policies.counts_bytes().then_some(BodyLength::NotMetered), // the proxy keeps the body
        ..RequestContext::of(peer)
    };
    let needs = Arc::clone(policies.needs());
    let facts = identify_with_context(&original.parts, &context, rules, &needs, now);
    settings.http_settings.report_unknown_key(&facts);
    if let Some(cause) = facts.token_error {
        debug!(%cause, "token rejected: its user and claims are ignored");
    }
    if let Some(problem) = facts.problem(rules) {
        return Err(problem);
    }
    let attributes = facts.attributes();
    let query = Query {
        select: facts.select(&[]),
        attributes: &attributes,
        address: facts.address,
        ask: Ask::Spend(NonZeroU32::MIN),
        patience: Micros::ZERO,
        id: Some(id),
        entrypoint: Entrypoint::Authorize,
    };
    Ok(limiter.decide_under(policies, &query).await)
}

/// Renders a decision.
fn render(
    decision: &Decision,
    settings: &ServerSettings,
    (request, id): (&Parts, &CorrelationId<'_>),
    status: StatusOverride,
    now: Timestamp,
) -> Response<String> {
    let mut response = match decision.verdict() {
        Verdict::Allow => Response::new(String::new()),
        Verdict::Deny => {
            let id = id.text();
            let path = request.uri.path();
            let context = ProblemContext {
                kind: &settings.http_settings.problem_type,
                instance: (status.is_none() || path.len() <= INSTANCE_MAX).then_some(path),
                correlation_id: &id,
                now,
            };
            let mut response = Problem::denial(decision, &context).render();
            if let Ok(id) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(CORRELATION_ID, id);
            }
            response
        }
    };
    let headers = response.headers_mut();
    // First: an empty map makes room for all of them at once.
    if let Some(fields) = RateLimitHeaders::of(decision, now) {
        fields.render(settings.http_settings.headers, headers);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match decision.verdict() {
        Verdict::Allow => response,
        Verdict::Deny => override_status(response, status),
    }
}

/// Gives a rejection the status that the proxy understands. The real status and the body go into headers.
fn override_status(mut response: Response<String>, status: StatusOverride) -> Response<String> {
    if let Some(status) = status {
        let problem = escape_non_ascii(response.body());
        let real = std::mem::replace(response.status_mut(), status);
        response.headers_mut().insert(STATUS, real.as_u16().into());
        let others = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
        if problem.len() + others.sum::<usize>() <= HEADERS_LENGTH_MAX
            && let Ok(problem) = HeaderValue::from_str(&problem)
        {
            response.headers_mut().insert(PROBLEM, problem);
        }
    }
    response
}

/// Escapes the non-ASCII characters of a JSON text, so that it fits in a header.
fn escape_non_ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    text
}

/// Reads the status override from the query string.
fn status_override(protocol: AuthorizeProtocol, query: Option<&str>) -> Result<StatusOverride, Problem> {
    match query {
        // With the other protocols the query string may be the client's: Caddy appends it.
        _ if protocol != AuthorizeProtocol::AuthRequest => Ok(None),
        None | Some("") => Ok(None),
        Some("status=401") => Ok(Some(StatusCode::UNAUTHORIZED)),
        Some("status=403") => Ok(Some(StatusCode::FORBIDDEN)),
        Some(_) => {
            let detail = format!("invalid query string; {AUTHORIZE} accepts only status=401 or status=403");
            Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("status"))
        }
    }
}

/// Why a request to another path is rejected, if a proxy meant `/api/v1/authorize`.
pub fn misdirected(settings: &ServerSettings, path: &str, headers: &HeaderMap) -> Option<Problem> {
    settings.authorize?;
    let rest = path.strip_prefix(AUTHORIZE);
    if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) || !is_authorization_request(headers)
    {
        return None;
    }
    let detail = format!("an authorization request must be sent to {AUTHORIZE}");
    Some(Problem::new(StatusCode::BAD_REQUEST, detail))
}

fn disabled() -> Problem {
    let names = AuthorizeProtocol::ALL.map(AuthorizeProtocol::name).join(", ");
    let detail = format!("{AUTHORIZE} is disabled; set api.authorize in the policy file to one of {names}");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

/// Logs what is wrong with a proxy's configuration, at most once a minute. nginx does not show it.
#[cold]
fn warn_invalid_request(detail: &str) {
    static THROTTLE: LazyLock<LogThrottle> = LazyLock::new(|| LogThrottle::new(Duration::from_secs(60)));
    if let Some(suppressed) = THROTTLE.admit() {
        warn!(detail, suppressed, "authorization request invalid: the proxy is misconfigured");
    }
}

/// Logs a rejected caller, at most once a minute.
#[cold]
fn warn_untrusted_caller(peer: IpAddr) {
    static THROTTLE: LazyLock<LogThrottle> = LazyLock::new(|| LogThrottle::new(Duration::from_secs(60)));
    if let Some(suppressed) = THROTTLE.admit() {
        warn!(
            %peer,
            suppressed,
            "authorization request rejected: caller is not a trusted proxy; if it is your proxy, add its address to clients.trusted_proxies"
        );
    }
}
