//! The stages of a request, from the outside in. This is the whole way; each stage is a file of its own.
//!
//! ```text
//!   1  count      how many, with which status, how long           counts.rs, access_log.rs
//!   2  name       an id to find the request by                    ratewright_http::given_id
//!   3  framing    refuse what two servers could read differently  strict.rs, headers/framing.rs
//!   4  identity   reject requests with ambiguous identity         headers/identity.rs
//!   5  target     the one path: matched, limited, forwarded       target.rs
//!   6  route      host, path and method; or 400, 404, 405         routes.rs
//!   7  permit     requests in flight; or 429, 400, 403            ratewright_tower::InFlight
//!   8  rates      identify, decide, render; or 429, 400, 403      ratewright_tower::RateLimit
//!   9  forward    headers, server, connection, bodies; or 502…    forward.rs
//! ```
//!
//! Whatever refuses a request answers it itself, with a problem; the stages within never see it.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{ALLOW, CONNECTION, CONTENT_LENGTH};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use ratewright_core::{Observe, Store, Timestamp};
use ratewright_http::address::client_address;
use ratewright_http::path::{Case, is_plain};
use ratewright_http::{Known, METHOD_OVERRIDES, Occasion, Problem, Report, Rules, given_id, parts};
use ratewright_tower::{InFlight, RateLimit};
use tower_service::Service;

use crate::access_log::{Arrival, Noted};
use crate::backlog::Backlog;
use crate::body::Body;
use crate::explain;
use crate::forward::{Arriving, Forward};
use crate::headers::{self, Framing, check_framing, check_identity};
use crate::inbound::Inbound;
use crate::route::Route;
use crate::routes::Found;
use crate::scheme::Scheme;
use crate::strict::Flag;
use crate::target::Target;
use crate::trouble::Gone;
use crate::tunnel::Opening;
use crate::worker::{Live, Worker};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

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
}

/// A request that goes no further.
struct Refused {
    problem: Problem,
    allow: Vec<Method>,
    /// True if nothing that comes after it on its connection can be relied on.
    is_last: bool,
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
            _ if wants_explanation => Some(Arc::new(Report::with_explanation())),
            true => Some(Arc::default()),
            false => None,
        };
        let placed = self.place(&live, client, &mut head);
        let address =
            client_address(&head.headers, client.peer.address, &live.snapshot.dialect.rules.proxies);
        let route = placed.as_ref().ok().and_then(|number| settings.routes.nth(*number));
        let noted = report.as_ref().filter(|_| settings.has_access_log);
        let noted = noted.map(|report| self.note((address, report), &head, (began_at, route)));
        let count = placed.as_ref().map_or(&live.nowhere, |number| &live.limited[*number].1);
        let counting = count.begin(&*self.shared.clock, began_at);
        let mut answer = match placed {
            Ok(number) => {
                let known = Known {
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
            Err(refused) => {
                if refused.is_last {
                    body.abandon();
                }
                self.refuse(&head, &refused)
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
        (client, report): (IpAddr, &Arc<Report>),
        head: &Parts,
        (began_at, route): (Timestamp, Option<&'a Arc<Route>>),
    ) -> Box<Noted<'a>> {
        let (clock, at) = (&*self.shared.clock, self.shared.wall.now());
        let arrival = Arrival { clock, began_at, at, client, report: Arc::clone(report) };
        Box::new(Noted::new(&*self.gateway.access_log, arrival, head, route.map(|route| &*route.id)))
    }

    /// Finds the route of a request, and makes the request ready for it.
    fn place(&self, live: &Live<S, O>, client: &Client, head: &mut Parts) -> Result<usize, Box<Refused>> {
        name(head);
        if live.snapshot.settings.strips_method_override {
            METHOD_OVERRIDES.iter().for_each(|name| drop(head.headers.remove(name)));
        }
        let host = client.flag.take().map_or_else(|| check_framing(head), Err).map_err(Refused::at_once)?;
        check_identity(head, &live.rules.read)
            .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        let case = live.snapshot.dialect.rules.case;
        let target = Target::of(&head.method, &head.uri, case)
            .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        let number = match live.snapshot.settings.routes.find(host.as_deref(), target.path(), &head.method) {
            Found::Route(_, number) => number,
            Found::WrongMethod(allow) => {
                let detail = format!("{} does not go with this path", head.method);
                let mut refused = Refused::new(StatusCode::METHOD_NOT_ALLOWED, detail);
                refused.allow = allow;
                return Err(refused);
            }
            Found::Nowhere => {
                return Err(Refused::new(StatusCode::NOT_FOUND, "there is no route for this host and path"));
            }
        };
        let routes = &live.snapshot.settings.routes;
        let is_elsewhere = |method: &Method| !matches!(routes.find(host.as_deref(), target.path(), method), Found::Route(_, other) if other == number);
        let others = parts::overriding_methods(head);
        if others.is_truncated {
            let detail = "too many method overrides; send at most one";
            return Err(Refused::new(StatusCode::BAD_REQUEST, detail));
        }
        let mut others =
            others.readable.iter().filter_map(|method| Method::from_bytes(method.as_bytes()).ok());
        if let Some(method) = others.find(is_elsewhere) {
            let detail = format!(
                "method override {method} does not belong to the route of {}; send the request with method {method}",
                head.method
            );
            return Err(Refused::new(StatusCode::BAD_REQUEST, detail));
        }
        if let Some(rewritten) = target.rewritten().cloned() {
            let mut uri = std::mem::take(&mut head.uri).into_parts();
            uri.path_and_query = Some(rewritten);
            head.uri = Uri::from_parts(uri)
                .map_err(|_| Refused::new(StatusCode::BAD_REQUEST, "the path is no path"))?;
        }
        Ok(number)
    }

    /// The answer to a request that goes no further.
    fn refuse(&self, head: &Parts, refused: &Refused) -> Response<Body> {
        let occasion = Occasion {
            kind: Problem::BLANK,
            instance: Some(head.uri.path()),
            correlation_id: given_id(&head.headers).unwrap_or_default(),
            now: self.shared.wall.now(),
        };
        let mut answer = refused.problem.clone().on(&occasion).render().map(Body::from);
        if !refused.allow.is_empty() {
            let names: Vec<_> = refused.allow.iter().map(Method::as_str).collect();
            let allow = HeaderValue::from_str(&names.join(", "));
            answer.headers_mut().extend(allow.map(|allow| (ALLOW, allow)));
        }
        if refused.is_last && head.version < Version::HTTP_2 {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

/// Answers a request that needs a permit.
async fn permitted<S, O>(
    mut service: InFlight<RateLimit<Forward, S, O>, O>,
    known: Known,
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
fn has_normal_path(head: &Parts, rules: &Rules) -> bool {
    rules.case == Case::Sensitive && (!head.uri.path().contains('%') || is_plain(head.uri.path()))
}

/// Gives a request that has no id to be found by one, for the server and for problems.
fn name(head: &mut Parts) {
    if given_id(&head.headers).is_none() {
        let id = HeaderValue::from_bytes(&hex(fastrand::u128(..))).expect("digits are a value");
        head.headers.insert(REQUEST_ID, id);
    }
}

/// A number in 32 hexadecimal digits.
pub(crate) fn hex(number: u128) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 32];
    for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(number.to_be_bytes()) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    digits
}

impl Refused {
    fn new(status: StatusCode, detail: impl Into<String>) -> Box<Self> {
        Box::new(Self { problem: Problem::new(status, detail), allow: Vec::new(), is_last: false })
    }

    /// Refused because nobody can tell where it ends.
    fn at_once(framing: Framing) -> Box<Self> {
        let mut refused = Self::new(StatusCode::BAD_REQUEST, framing.to_string());
        refused.is_last = true;
        refused
    }
}
