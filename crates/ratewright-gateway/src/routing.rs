//! Stages 2 to 6: gives a request an id, checks it and finds its route, or rejects it.
//!
//! ```text
//!   id ─► framing ─► identity ─► target ─► preflight? ─► the route of the requested method
//!            400        400         400        │ no          │ with cors: 204, 403  │ without: like any other request
//!                                              └─► the route of host, path and method; or 404, 405
//! ```
//!
//! A preflight asks about another request, so it uses the route of that request: a route may match POST only.

use std::convert::Infallible;

use http::header::{ALLOW, CONNECTION, VARY};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri, Version};
use ratewright_core::Store;
use ratewright_core::decision::Observe;
use ratewright_http::correlation::given_id;
use ratewright_http::identify::METHOD_OVERRIDES;
use ratewright_http::{Problem, ProblemContext, parts};

use crate::body::Body;
use crate::cors::{Cors, PREFLIGHT_VARY, PreflightError, is_preflight, requested_method};
use crate::headers::{FramingError, check_framing, check_identity};
use crate::route_table::RouteLookup;
use crate::settings::GatewaySettings;
use crate::stages::ConnectionContext;
use crate::target::Target;
use crate::worker::{LiveRoutes, Worker};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How a request is handled, with the index of its route.
pub(crate) enum Routed {
    /// Limited and forwarded by this route.
    Forward(usize),
    /// A preflight for this route, or without a route for the whole gateway. The gateway responds.
    Preflight(Option<usize>),
}

/// A request that is not forwarded.
pub(crate) struct Rejection {
    problem: Problem,
    allow: Vec<Method>,
    /// The request's route, if it was found.
    route: Option<usize>,
    /// True if the rest of the connection cannot be parsed reliably.
    pub(crate) closes_connection: bool,
}

impl Routed {
    /// The index of the route.
    pub(crate) fn route(&self) -> Option<usize> {
        match self {
            Self::Forward(number) => Some(*number),
            Self::Preflight(number) => *number,
        }
    }
}

/// The CORS rules for a response. Without a route, those of the gateway. A forwarded preflight has none: its route has
/// no CORS rules, so the upstream decides.
pub(crate) fn cors_of<'a>(
    settings: &'a GatewaySettings,
    routed: &Result<Routed, Box<Rejection>>,
    head: &Parts,
) -> Option<&'a Cors> {
    let number = routed.as_ref().map_or_else(|rejection| rejection.route, Routed::route);
    let cors = match number {
        Some(number) => settings.routes.nth(number)?.cors.as_deref()?,
        None => settings.cors.as_deref()?,
    };
    let is_forwarded = matches!(routed, Ok(Routed::Forward(_)));
    (!is_forwarded || !is_preflight(head)).then_some(cors)
}

impl<S, O> Worker<S, O>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// Checks a request, finds its route and normalizes its target.
    pub(crate) fn route(
        &self,
        live: &LiveRoutes<S, O>,
        client: &ConnectionContext,
        head: &mut Parts,
    ) -> Result<Routed, Box<Rejection>> {
        assign_request_id(head);
        if live.snapshot.settings.strips_method_override {
            METHOD_OVERRIDES.iter().for_each(|name| drop(head.headers.remove(name)));
        }
        let host = client
            .guard
            .next_verdict()
            .map_or_else(|| check_framing(head), Err)
            .map_err(Rejection::closing)?;
        check_identity(head, &live.rules.read).map_err(|error| Rejection::bad_request(error.to_string()))?;
        let case = live.snapshot.http_settings.rules.case;
        let target = Target::of(&head.method, &head.uri, case)
            .map_err(|error| Rejection::bad_request(error.to_string()))?;
        let find =
            |method: &Method| live.snapshot.settings.routes.find(host.as_deref(), target.path(), method);
        let routed = match preflight(&live.snapshot.settings, head, find) {
            Some(preflight) => preflight,
            None => Routed::Forward(number_of(find(&head.method), &head.method)?),
        };
        if let Routed::Forward(number) = routed {
            check_overrides(head, number, find)?;
        }
        if let Some(rewritten) = target.rewritten().cloned() {
            let mut uri = std::mem::take(&mut head.uri).into_parts();
            uri.path_and_query = Some(rewritten);
            head.uri = Uri::from_parts(uri).map_err(|_| Rejection::bad_request("invalid path"))?;
        }
        Ok(routed)
    }

    /// The response to a preflight: 204, or 403 that does not say what is allowed.
    #[cold]
    pub(crate) fn respond_to_preflight(&self, head: &Parts, cors: Option<&Cors>) -> Response<Body> {
        let allowed = cors.ok_or(PreflightError::Origin).and_then(|cors| cors.preflight(&head.headers));
        match allowed {
            Ok(headers) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                *response.headers_mut() = headers;
                response
            }
            Err(error) => {
                let mut response =
                    self.reject(head, &Rejection::new(StatusCode::FORBIDDEN, error.to_string()));
                response.headers_mut().insert(VARY, PREFLIGHT_VARY);
                response
            }
        }
    }

    /// The response to a rejected request.
    pub(crate) fn reject(&self, head: &Parts, rejection: &Rejection) -> Response<Body> {
        let occasion = ProblemContext {
            kind: Problem::BLANK,
            instance: Some(head.uri.path()),
            correlation_id: given_id(&head.headers).unwrap_or_default(),
            now: self.shared.wall.now(),
        };
        let mut response = rejection.problem.clone().on(&occasion).render().map(Body::from);
        if !rejection.allow.is_empty() {
            let names: Vec<_> = rejection.allow.iter().map(Method::as_str).collect();
            let allow = HeaderValue::from_str(&names.join(", "));
            response.headers_mut().extend(allow.map(|allow| (ALLOW, allow)));
        }
        if rejection.closes_connection && head.version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// How a preflight is handled, if the request is one and CORS rules apply.
fn preflight<'a>(
    settings: &GatewaySettings,
    head: &Parts,
    find: impl Fn(&Method) -> RouteLookup<'a>,
) -> Option<Routed> {
    if !is_preflight(head) {
        return None;
    }
    let find = |method: &Method| match find(method) {
        RouteLookup::Route(route, number) => Some((route, number)),
        RouteLookup::MethodNotAllowed(_) | RouteLookup::NoRoute => None,
    };
    let asked = requested_method(&head.headers).and_then(|method| find(&method));
    match asked.or_else(|| find(&head.method)) {
        Some((route, number)) => route.cors.is_some().then_some(Routed::Preflight(Some(number))),
        None => settings.cors.is_some().then_some(Routed::Preflight(None)),
    }
}

/// The index of the route that was found for a method.
fn number_of(found: RouteLookup<'_>, method: &Method) -> Result<usize, Box<Rejection>> {
    match found {
        RouteLookup::Route(_, number) => Ok(number),
        RouteLookup::MethodNotAllowed(allow) => {
            let detail = format!("method {method} is not allowed for this path");
            let mut rejection = Rejection::new(StatusCode::METHOD_NOT_ALLOWED, detail);
            rejection.allow = allow;
            Err(rejection)
        }
        RouteLookup::NoRoute => {
            Err(Rejection::new(StatusCode::NOT_FOUND, "no route matches this host and path"))
        }
    }
}

/// Rejects a method override to a method of another route.
fn check_overrides<'a>(
    head: &Parts,
    number: usize,
    find: impl Fn(&Method) -> RouteLookup<'a>,
) -> Result<(), Box<Rejection>> {
    let reject = |detail: String| {
        let mut rejection = Rejection::bad_request(detail);
        rejection.route = Some(number);
        Err(rejection)
    };
    let is_elsewhere =
        |method: &Method| !matches!(find(method), RouteLookup::Route(_, other) if other == number);
    let others = parts::overriding_methods(head);
    if others.is_truncated {
        return reject("too many method overrides; send at most one".to_owned());
    }
    let mut others = others.readable.iter().filter_map(|method| Method::from_bytes(method.as_bytes()).ok());
    match others.find(is_elsewhere) {
        None => Ok(()),
        Some(method) => reject(format!(
            "method override {method} does not belong to the route of {}; send the request with method {method}",
            head.method
        )),
    }
}

/// Sets `X-Request-Id` if the request has no id, for the upstream and for problems.
fn assign_request_id(head: &mut Parts) {
    if given_id(&head.headers).is_none() {
        let id = HeaderValue::from_bytes(&hex(fastrand::u128(..))).expect("digits are a value");
        head.headers.insert(REQUEST_ID, id);
    }
}

/// A number as 32 hexadecimal digits.
pub(crate) fn hex(number: u128) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 32];
    for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(number.to_be_bytes()) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    digits
}

impl Rejection {
    fn new(status: StatusCode, detail: impl Into<String>) -> Box<Self> {
        let problem = Problem::new(status, detail);
        Box::new(Self { problem, allow: Vec::new(), route: None, closes_connection: false })
    }

    fn bad_request(detail: impl Into<String>) -> Box<Self> {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// A rejection that closes the connection, since the end of the request is ambiguous.
    fn closing(framing: FramingError) -> Box<Self> {
        let mut rejection = Self::bad_request(framing.to_string());
        rejection.closes_connection = true;
        rejection
    }
}
