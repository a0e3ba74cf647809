//! The stages of a request, from the outside in.
//!
//! ```text
//!   1  metrics    count by status, duration, requests in flight   metrics.rs, access_log.rs
//!   2  id         a request id                                    ratewright_http::correlation::given_id
//!   3  framing    reject ambiguous framing: 400                   framing_guard.rs, headers/framing.rs
//!   4  identity   reject ambiguous identity: 400                  headers/identity.rs
//!   5  target     one path: matched, limited, forwarded; or 400   target.rs
//!   6  route      host, path and method; or 400, 404, 405;        routing.rs, route_table.rs
//!                 preflights of routes with CORS: 204 or 403      cors.rs
//!   7  permit     requests in flight; or 400, 403, 429            ratewright_tower::InFlight
//!   8  rates      identify, decide, render; or 400, 403, 429      ratewright_tower::RateLimit
//!   9  forward    headers, upstream, connection, bodies;          forward.rs
//!                 or 400, 408, 413, 429, 502, 503, 504            forward_error.rs
//! ```
//!
//! A stage that rejects a request responds with a problem; the inner stages never see the request.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use ratewright_core::decision::Observe;
use ratewright_core::{Store, Timestamp};
use ratewright_http::address::client_address;
use ratewright_http::path::{Case, is_plain};
use ratewright_http::request_context::DecisionReport;
use ratewright_http::{IdentityRules, RequestContext};
use ratewright_listen::Shutdown;
use ratewright_tower::{InFlight, RateLimit};
use tower_service::Service;

use crate::abort::{AbortedRequests, Presence, UntilAnswered};
use crate::access_log::{Arrival, PendingEntry};
use crate::body::Body;
use crate::explain_header;
use crate::forward::{BodyWithClient, Forward};
use crate::forward_error::ClientAborted;
use crate::framing_guard::GuardHandle;
use crate::headers;
use crate::request_body::RequestBody;
use crate::route::Route;
use crate::routing::{Routed, cors_of};
use crate::scheme::Scheme;
use crate::tunnel::TunnelSlot;
use crate::unread_bodies::Backlog;
use crate::worker::Worker;

/// The stages of a route, from the permit on.
pub(crate) enum RouteStages<S, O> {
    /// No policy limits concurrency.
    RateOnly(RateLimit<Forward, S, O>),
    /// A policy limits concurrency.
    WithPermit(InFlight<RateLimit<Forward, S, O>, O>),
}

/// A client connection.
#[derive(Debug)]
pub(crate) struct ConnectionContext {
    pub(crate) peer: headers::ConnectionPeer,
    pub(crate) scheme: Scheme,
    /// Reports requests with invalid framing.
    pub(crate) guard: GuardHandle,
    /// The tunnel that the connection becomes.
    pub(crate) tunnel: TunnelSlot,
    /// The unread bodies of its requests.
    pub(crate) backlog: Backlog,
    /// Its requests that go on without it.
    pub(crate) aborted: AbortedRequests,
    /// Whether the gateway is stopping.
    pub(crate) stop: Shutdown,
}

impl<S, O> Worker<S, O>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// Responds to one request.
    pub(crate) async fn respond(
        &self,
        client: &ConnectionContext,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let began_at = self.shared.clock.now();
        let live = self.live();
        let (mut head, body) = request.into_parts();
        let body = RequestBody::new(body, &head, &client.backlog);
        let is_head = head.method == Method::HEAD;
        let settings = &live.snapshot.settings;
        let wants_explanation = explain_header::take(&mut head, settings.explain_tokens.as_ref());
        let report = match settings.has_access_log {
            _ if wants_explanation => Some(Arc::new(DecisionReport::with_explanation())),
            true => Some(Arc::default()),
            false => None,
        };
        let routed = self.route(&live, client, &mut head);
        let address =
            client_address(&head.headers, client.peer.address, &live.snapshot.http_settings.rules.proxies);
        let number = routed.as_ref().ok().and_then(Routed::route);
        let route = number.and_then(|number| settings.routes.nth(number));
        let cors = cors_of(settings, &routed, &head);
        let is_preflight = matches!(routed, Ok(Routed::Preflight(_)));
        let cors_headers = cors.filter(|_| !is_preflight).map(|cors| cors.headers_for(&head.headers));
        let log_entry = report.as_ref().filter(|_| settings.has_access_log);
        let log_entry =
            log_entry.map(|report| self.start_log_entry((address, report), &head, (began_at, route)));
        let counters = number.map_or(&live.no_route, |number| &live.stages[number].1);
        let in_flight = counters.begin(&*self.shared.clock, began_at);
        let mut response = match routed {
            Ok(Routed::Preflight(_)) => self.respond_to_preflight(&head, cors),
            Ok(Routed::Forward(number)) => {
                let known = RequestContext {
                    peer: client.peer.address,
                    is_trusted_proxy: false,
                    client: Some(address),
                    has_normal_path: has_normal_path(&head, &live.snapshot.http_settings.rules),
                    token: None,
                    http_settings: None,
                    body: Some(body.length()),
                    report: report.clone(),
                };
                let (peer, scheme) = (client.peer.clone(), client.scheme);
                let presence = match &live.stages[number].0 {
                    RouteStages::RateOnly(_) => Presence::default(),
                    RouteStages::WithPermit(_) => Presence::tracked(),
                };
                let body = BodyWithClient { body, peer, client: address, scheme, presence: presence.clone() };
                let request = Request::from_parts(head, body);
                match &live.stages[number].0 {
                    RouteStages::RateOnly(service) => {
                        let Ok(response) = service.call_known(known, request).await;
                        response
                    }
                    RouteStages::WithPermit(service) => {
                        let exchange = permitted(service.clone(), known, request);
                        let within = route.map_or(settings.timeouts.header, |route| route.timeouts.header);
                        let Ok(response) =
                            UntilAnswered::new(exchange, presence, client.aborted.clone(), within).await;
                        response.map(|body| Body::WithPermit(Box::new(body)))
                    }
                }
            }
            Err(rejection) => {
                if rejection.closes_connection {
                    body.abandon();
                }
                self.reject(&head, &rejection)
            }
        };
        if is_head {
            strip_body(&mut response);
        }
        response.headers_mut().remove(explain_header::EXPLAIN); // set by the gateway only
        if let Some(report) = report.filter(|_| wants_explanation) {
            explain_header::add(&mut response, &report);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            client.guard.pass_through(); // before the client gets the 101
            if let Some(opening) = response.extensions_mut().remove::<TunnelSlot>() {
                let body = std::mem::replace(response.body_mut(), Body::empty());
                client.tunnel.transfer_from(&opening, body);
            }
        } else if let Some(cors_headers) = cors_headers {
            cors_headers.write(response.headers_mut());
        }
        if response.extensions().get::<ClientAborted>().is_none() {
            in_flight.responded(response.status());
            if let Some(log_entry) = log_entry {
                log_entry.responded(response.status());
            }
        }
        response
    }

    /// Starts an access log entry. Boxed to keep the future of requests without a log small.
    #[cold]
    fn start_log_entry<'a>(
        &'a self,
        (client, report): (IpAddr, &Arc<DecisionReport>),
        head: &Parts,
        (began_at, route): (Timestamp, Option<&'a Arc<Route>>),
    ) -> Box<PendingEntry<'a>> {
        let (clock, at) = (&*self.shared.clock, self.shared.wall.now());
        let arrival = Arrival { clock, began_at, at, client, report: Arc::clone(report) };
        Box::new(PendingEntry::new(&*self.gateway.access_log, arrival, head, route.map(|route| &*route.id)))
    }
}

/// The response to a request that needs a permit.
fn permitted<T: Service<Request<BodyWithClient>>>(
    mut service: T,
    known: RequestContext,
    mut request: Request<BodyWithClient>,
) -> T::Future {
    request.extensions_mut().insert(known); // both layers read it there
    service.call(request)
}

/// Removes the body of a response to HEAD. HTTP/2 clients would treat it as a protocol error.
fn strip_body(response: &mut Response<Body>) {
    if response.body().is_end_stream() {
        return;
    }
    let length = response.body().size_hint().exact();
    *response.body_mut() = Body::empty();
    if let Some(length) = length {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
}

/// True if the path is normalized, so that the limiter need not do it again.
fn has_normal_path(head: &Parts, rules: &IdentityRules) -> bool {
    rules.case == Case::Sensitive && (!head.uri.path().contains('%') || is_plain(head.uri.path()))
}
