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
//! `api.authorize` says where the call describes the client's request: see [`ratewright_http::original_request`]. The query is the same as
//! that of the gateway for this request, so both use the same buckets.
//!
//! nginx takes only 401 and 403 for a denial. With `?status=403` every rejection has that status; the real one is in
//! `X-Ratewright-Status`, and the problem body in `X-Ratewright-Problem`, since nginx discards bodies. Other sources
//! have no such parameter: the query of their calls may be the client's.
//!
//! The caller must be a trusted proxy: see [`Access::authenticate_proxy`](crate::access::Access::authenticate_proxy). The guard
//! against web pages does not apply, because proxies relay the client's `Host`, `Origin` and `Sec-Fetch-Site`. A page of another
//! site cannot make the call: it needs headers that browsers send only after a preflight, which gets no permission.

use std::convert::Infallible;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::any;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use ratewright_core::decision::Observe;
use ratewright_core::query::{Ask, AttributeName, Entrypoint};
use ratewright_core::{Clock, Decision, Limiter, Micros, Query, Store, Timestamp, Verdict};
use ratewright_http::address::ClientName;
use ratewright_http::identify::{AmbiguousPaths, identify_with_context};
use ratewright_http::original_request::{InvalidDescription, OriginalRequest, OriginalRequestSource};
use ratewright_http::request_context::BodyLength;
use ratewright_http::{CorrelationId, Facts, Problem, ProblemContext, RateLimitHeaders, RequestContext};
use ratewright_listen::LogThrottle;
use tracing::{debug, warn};

use super::wire::CORRELATION_ID;
use super::{Rest, respond};
use crate::access::Caller;
use crate::response::HandlerResult;
use crate::settings::ServerSettings;

/// The path of the endpoint. The client's path may follow.
pub const AUTHORIZE: &str = "/api/v1/authorize";

const STATUS: HeaderName = HeaderName::from_static("x-ratewright-status");
const PROBLEM: HeaderName = HeaderName::from_static("x-ratewright-problem");

/// The longest problem that is sent as a header: nginx reads a response's head into a buffer of 4 KiB.
const PROBLEM_HEADER_MAX: usize = 2_048;

/// The longest path in a problem that is sent as a header.
const INSTANCE_MAX: usize = 512;

/// The status of rejections, if the call sets it.
type DenialStatus = Option<StatusCode>;

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
    let source = settings.authorize.ok_or_else(disabled)?;
    let caller = Caller::of(&request);
    let peer = caller.peer;
    settings
        .access
        .authenticate_proxy(caller, &settings.dialect.rules.proxies)
        .inspect_err(|_| warn_of_untrusted(peer))?;
    let (call, _) = request.into_parts();
    let status = denial_status(source, call.uri.query())?;
    let now = api.clock.now();
    let original = OriginalRequest::read(call, source, AUTHORIZE, &settings.dialect.rules.proxies);
    let OriginalRequest { parts, client } = match original {
        Ok(original) => original,
        Err(InvalidDescription::Proxy(problem)) => return Err(problem.into()),
        Err(InvalidDescription::Client(problem)) => return respond(rejection(problem.render(), status)),
    };
    let known = RequestContext { client: Some(client), ..RequestContext::of(peer) };
    let id = CorrelationId::new(&parts.headers, fastrand::u128(..));
    let settings = arc_swap::Guard::into_inner(settings);
    match decide(&api.limiter, &settings, &parts, known, (&id, now)).await {
        Ok(decision) => respond(render(&decision, &settings, (&parts, &id), status, api.clock.now())),
        Err(problem) => {
            let problem = problem.of_request(Some(parts.uri.path()), &id.text());
            respond(rejection(problem.render(), status))
        }
    }
}

/// Decides on the client's request.
async fn decide<S, O>(
    limiter: &Limiter<S, O>,
    settings: &ServerSettings,
    request: &Parts,
    mut known: RequestContext,
    (id, now): (&CorrelationId<'_>, Timestamp),
) -> Result<Decision, Problem>
where
    S: Store<Error = Infallible>,
    O: Observe,
{
    let rules = &settings.dialect.rules;
    let policies = limiter.load();
    if policies.counts_bytes() {
        known.body = Some(BodyLength::NotMetered); // the proxy keeps the body
    }
    let (name, needs);
    let is_by_address_only = policies.needs().iter().all(|name| matches!(name, AttributeName::Ip))
        && !limiter.reads_attributes()
        && rules.ambiguous_paths == AmbiguousPaths::Count;
    let facts = match known.client {
        Some(address) if is_by_address_only => {
            name = ClientName::new(address, rules.ipv6_prefix);
            Facts::of_client(address, name.as_str())
        }
        Some(_) | None => {
            needs = Arc::clone(policies.needs());
            identify_with_context(request, &known, rules, &needs, now)
        }
    };
    settings.dialect.report_unknown_key(&facts);
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
    status: DenialStatus,
    now: Timestamp,
) -> Response<String> {
    let mut response = match decision.verdict() {
        Verdict::Allow => Response::new(String::new()),
        Verdict::Deny => {
            let id = id.text();
            let path = request.uri.path();
            let context = ProblemContext {
                kind: &settings.dialect.problem_type,
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
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(fields) = RateLimitHeaders::of(decision, now) {
        fields.render(settings.dialect.headers, headers);
    }
    match decision.verdict() {
        Verdict::Allow => response,
        Verdict::Deny => rejection(response, status),
    }
}

/// Gives a rejection the status that the proxy understands. The real status and the body go into headers.
fn rejection(mut response: Response<String>, status: DenialStatus) -> Response<String> {
    if let Some(status) = status {
        let problem = in_ascii(response.body());
        let real = std::mem::replace(response.status_mut(), status);
        response.headers_mut().insert(STATUS, real.as_u16().into());
        if problem.len() <= PROBLEM_HEADER_MAX
            && let Ok(problem) = HeaderValue::from_str(&problem)
        {
            response.headers_mut().insert(PROBLEM, problem);
        }
    }
    response
}

/// JSON with all other characters as escapes.
fn in_ascii(json: &str) -> String {
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

/// The status that the call wants for rejections.
fn denial_status(source: OriginalRequestSource, query: Option<&str>) -> Result<DenialStatus, Problem> {
    match query {
        // With other sources the query may be the client's: Caddy appends it.
        _ if source != OriginalRequestSource::XOriginal => Ok(None),
        None | Some("") => Ok(None),
        Some("status=401") => Ok(Some(StatusCode::UNAUTHORIZED)),
        Some("status=403") => Ok(Some(StatusCode::FORBIDDEN)),
        Some(_) => {
            let detail = format!("the only parameter of {AUTHORIZE} is status, and it is 401 or 403");
            Err(Problem::new(StatusCode::BAD_REQUEST, detail).about("status"))
        }
    }
}

fn disabled() -> Problem {
    let names = OriginalRequestSource::ALL.map(OriginalRequestSource::name).join(", ");
    let detail = format!("{AUTHORIZE} is disabled; set api.authorize in the policy file to one of {names}");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

/// Tells the operator why a proxy denies everything.
#[cold]
fn warn_of_untrusted(peer: IpAddr) {
    static THROTTLE: LazyLock<LogThrottle> = LazyLock::new(|| LogThrottle::new(Duration::from_secs(60)));
    if let Some(n_suppressed) = THROTTLE.admit() {
        warn!(
            %peer,
            n_suppressed,
            "authorize call rejected: the caller is not a trusted proxy; if it is your proxy, add its address to clients.trusted_proxies"
        );
    }
}
