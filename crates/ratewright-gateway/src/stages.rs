//! The stages of a request, from the outside in. This is the whole way; each stage is a file of its own.
//!
//! ```text
//!   1  count      how many, with which status, how long           counts.rs, access_log.rs
//!   2  name       an id to find the request by                    ratewright_http::given_id
//!   3  framing    refuse what two servers could read differently  strict.rs, headers/framing.rs
//!   4  identity   reject requests with ambiguous identity         headers/identity.rs
//!   5  target     the one path: matched, limited, forwarded       target.rs
//!   6  route      host, path and method; or 400, 404, 405;        routing.rs, routes.rs
//!                 preflights of routes with CORS: 204 or 403      cors.rs
//!   7  permit     requests in flight; or 429, 400, 403            ratewright_tower::InFlight
//!   8  rates      identify, decide, render; or 429, 400, 403      ratewright_tower::RateLimit
//!   9  forward    headers, server, connection, bodies; or 502…    forward.rs
//! ```
//!
//! Whatever refuses a request answers it itself, with a problem; the stages within never see it.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use ratewright_core::{Observe, Store, Timestamp};
use ratewright_http::address::client_address;
use ratewright_http::path::{Case, is_plain};
use ratewright_http::{DecisionReport, IdentityRules, RequestContext};
use ratewright_listen::Stop;
use ratewright_tower::{InFlight, RateLimit};
use tower_service::Service;

use crate::access_log::{Arrival, Noted};
use crate::backlog::Backlog;
use crate::body::Body;
use crate::explain;
use crate::forward::{Arriving, Forward};
use crate::headers;
use crate::inbound::Inbound;
use crate::route::Route;
use crate::routing::{Routed, cors_of};
use crate::scheme::Scheme;
use crate::strict::Flag;
use crate::trouble::Gone;
use crate::tunnel::Opening;
use crate::worker::Worker;

/// A route's stages from the permit on.
pub(crate) enum Limited<S, O> {
    /// Nothing limits what is under way.
    Rated(RateLimit<Forward, S, O>),
    /// Something does.
    Permitted(InFlight<RateLimit<Forward, S, O>, O>),
}

/// Who is at the other end of a connection, and how it is spoken to.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) peer: headers::Peer,
    pub(crate) scheme: Scheme,
    /// What the connection's stream tells of its requests.
    pub(crate) flag: Flag,
    /// Where a tunnel is left that the connection becomes.
    pub(crate) tunnel: Opening,
    /// Bodies of its requests that are not read.
    pub(crate) backlog: Backlog,
    /// Whether the connection is to end.
    pub(crate) stop: Stop,
}

impl<S, O> Worker<S, O>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    /// Answers one request.
    pub(crate) async fn answer(&self, client: &Client, request: Request<Incoming>) -> Response<Body> {
        let began_at = self.shared.clock.now();
        let live = self.live();
        let (mut head, body) = request.into_parts();
        let body = Inbound::new(body, &head, &client.backlog);
        let is_head = head.method == Method::HEAD;
        let settings = &live.snapshot.settings;
        let wants_explanation = explain::take(&mut head, settings.explain_tokens.as_ref());
        let report = match settings.has_access_log {
            _ if wants_explanation => Some(Arc::new(DecisionReport::with_explanation())),
            true => Some(Arc::default()),
            false => None,
        };
        let routed = self.route(&live, client, &mut head);
        let address =
            client_address(&head.headers, client.peer.address, &live.snapshot.dialect.rules.proxies);
        let number = routed.as_ref().ok().and_then(Routed::route);
        let route = number.and_then(|number| settings.routes.nth(number));
        let cors = cors_of(settings, &routed, &head);
        let is_preflight = matches!(routed, Ok(Routed::Preflight(_)));
        let cors_headers = cors.filter(|_| !is_preflight).map(|cors| cors.headers_for(&head.headers));
        let noted = report.as_ref().filter(|_| settings.has_access_log);
        let noted = noted.map(|report| self.note((address, report), &head, (began_at, route)));
        let count = number.map_or(&live.nowhere, |number| &live.limited[number].1);
        let counting = count.begin(&*self.shared.clock, began_at);
        let mut answer = match routed {
            Ok(Routed::Preflight(_)) => self.answer_preflight(&head, cors),
            Ok(Routed::Forward(number)) => {
                let known = RequestContext {
                    peer: client.peer.address,
                    client: Some(address),
                    has_normal_path: has_normal_path(&head, &live.snapshot.dialect.rules),
                    token: None,
                    dialect: None,
                    body: Some(body.length()),
                    report: report.clone(),
                };
                let (peer, scheme) = (client.peer.clone(), client.scheme);
                let request = Request::from_parts(head, Arriving { body, peer, client: address, scheme });
                match &live.limited[number].0 {
                    Limited::Rated(service) => {
                        let Ok(answer) = service.call_known(known, request).await;
                        answer
                    }
                    Limited::Permitted(service) => Box::pin(permitted(service.clone(), known, request)).await,
                }
            }
            Err(rejection) => {
                if rejection.is_last {
                    body.abandon();
                }
                self.reject(&head, &rejection)
            }
        };
        if is_head {
            strip_body(&mut answer);
        }
        answer.headers_mut().remove(explain::EXPLAIN); // an upstream must not speak for us
        if let Some(report) = report.filter(|_| wants_explanation) {
            explain::add(&mut answer, &report);
        }
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            client.flag.let_through(); // before the client is told that it may
            if let Some(opening) = answer.extensions_mut().remove::<Opening>() {
                let body = std::mem::replace(answer.body_mut(), Body::empty());
                client.tunnel.take_over(&opening, body);
            }
        } else if let Some(cors_headers) = cors_headers {
            cors_headers.write(answer.headers_mut());
        }
        if answer.extensions().get::<Gone>().is_none() {
            counting.answered(answer.status());
            if let Some(noted) = noted {
                noted.answered(answer.status());
            }
        }
        answer
    }

    /// Notes a request for the log. Boxed: mostly there is no log, and requests need not have the room for it.
    #[cold]
    fn note<'a>(
        &'a self,
        (client, report): (IpAddr, &Arc<DecisionReport>),
        head: &Parts,
        (began_at, route): (Timestamp, Option<&'a Arc<Route>>),
    ) -> Box<Noted<'a>> {
        let (clock, at) = (&*self.shared.clock, self.shared.wall.now());
        let arrival = Arrival { clock, began_at, at, client, report: Arc::clone(report) };
        Box::new(Noted::new(&*self.gateway.access_log, arrival, head, route.map(|route| &*route.id)))
    }
}

/// Answers a request that needs a permit.
async fn permitted<S, O>(
    mut service: InFlight<RateLimit<Forward, S, O>, O>,
    known: RequestContext,
    mut request: Request<Arriving>,
) -> Response<Body>
where
    S: Store<Error = Infallible> + 'static,
    O: Observe + 'static,
{
    request.extensions_mut().insert(known); // where both layers look for it
    let Ok(answer) = service.call(request).await;
    answer.map(|body| Body::Held(Box::new(body)))
}

/// Takes the body of what is answered to HEAD. In HTTP/2 a client would take it for a protocol error.
fn strip_body(answer: &mut Response<Body>) {
    if answer.body().is_end_stream() {
        return;
    }
    let length = answer.body().size_hint().exact();
    *answer.body_mut() = Body::empty();
    if let Some(length) = length {
        answer.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
}

/// True if the path of a request that was placed need not be normalised again to be limited.
fn has_normal_path(head: &Parts, rules: &IdentityRules) -> bool {
    rules.case == Case::Sensitive && (!head.uri.path().contains('%') || is_plain(head.uri.path()))
}
