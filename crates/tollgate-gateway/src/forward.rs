//! The innermost stage: a request is sent to a server, and its answer comes back.
//!
//! ```text
//!   head: what is passed on ─► server? ─► connection? ─► send ─► answer ─► 101: tunnel
//!                               ▲            │ none       │ none    └────► head: what is passed back, body
//!                               └────────────┴────────────┘ another server or connection, if nothing can have happened twice
//! ```
//!
//! A request is sent again only if it certainly never reached a server, or if doing it twice is the same as doing it once (its
//! method is idempotent) and it has no body that would be gone.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{CONNECTION, EXPECT, HOST, UPGRADE};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme as UriScheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::timeout;
use tower_service::Service;

use crate::body::{Body, Download, Inbound, Upload};
use crate::dial::dial;
use crate::headers::{Hop, strip_hop_by_hop, wants_upgrade};
use crate::pool::{Borrowed, Connection, Wanted};
use crate::route::{HostPolicy, Route};
use crate::scheme::Scheme;
use crate::trouble::Trouble;
use crate::tunnel;
use crate::upstream::{Lease, Protocol, Tried};
use crate::worker::Shared;

/// Sends requests to the servers of one route.
#[derive(Clone)]
pub(crate) struct Forward {
    route: Arc<Route>,
    shared: Arc<Shared>,
    /// Where the worker keeps the connections of each server.
    slots: Arc<[usize]>,
}

/// How a request came to us and what it is called, for those stages that must know.
#[derive(Clone, Debug)]
pub(crate) struct Came {
    pub(crate) peer: IpAddr,
    pub(crate) scheme: Scheme,
    pub(crate) id: HeaderValue,
}

/// A request as it is sent.
struct Sending {
    head: Parts,
    body: Upload,
    /// What the client will speak if the server agrees to switch.
    switching: Option<(HeaderValue, OnUpgrade)>,
}

/// Why an attempt failed, and what is left of the request.
struct Failed {
    trouble: Trouble,
    left: Option<(Parts, Upload)>,
}

impl Forward {
    pub(crate) fn new(route: Arc<Route>, shared: Arc<Shared>) -> Self {
        let protocol = route.upstream.protocol();
        let slots = route.upstream.servers().map(|server| shared.pool.slot(server, protocol)).collect();
        Self { route, shared, slots }
    }

    /// Sends a request, and tells what came of it.
    async fn forward(
        &self,
        request: Request<Inbound>,
        came: Option<&Came>,
    ) -> Result<Response<Body>, Trouble> {
        let sending = self.prepare(request, came)?;
        match self.route.timeouts.total {
            None => self.attempt_all(sending).await,
            Some(total) => {
                let attempted = timeout(total, self.attempt_all(sending)).await;
                attempted.unwrap_or(Err(Trouble::TooSlow(total)))
            }
        }
    }

    /// Takes away and adds what has to be before a request is passed on.
    fn prepare(&self, request: Request<Inbound>, came: Option<&Came>) -> Result<Sending, Trouble> {
        let (mut head, body) = request.into_parts();
        if body.announced() > self.route.body_max {
            return Err(Trouble::BodyTooLong(self.route.body_max));
        }
        let switching = wants_upgrade(&head).zip(head.extensions.remove::<OnUpgrade>());
        let body = Upload::new(body, self.route.timeouts.idle, self.route.body_max);
        let dialect = self.shared.dialect.load();
        strip_hop_by_hop(&mut head.headers, dialect.rules.user_header.as_ref());
        head.headers.remove(EXPECT); // whoever waits for our word gets it when the body is asked for
        let asked_for = head.uri.authority().map(|authority| authority.as_str().to_owned());
        let host = asked_for.as_deref().and_then(|host| HeaderValue::from_str(host).ok());
        let host = host.or_else(|| head.headers.get(HOST).cloned());
        if let Some(came) = came {
            let client =
                tollgate_http::address::client_address(&head.headers, came.peer, &dialect.rules.proxies);
            let hop = Hop { peer: came.peer, client, scheme: came.scheme, host: host.clone() };
            hop.tell(&mut head.headers, &dialect.rules);
        }
        drop(dialect);
        match &self.route.host {
            HostPolicy::Fixed(fixed) => drop(head.headers.insert(HOST, fixed.clone())),
            HostPolicy::Keep => host.into_iter().for_each(|host| drop(head.headers.insert(HOST, host))),
            HostPolicy::Upstream => {} // each server its own
        }
        if let Some((protocol, _)) = &switching {
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.insert(UPGRADE, protocol.clone());
        }
        let path = head.uri.path_and_query().cloned();
        head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        head.extensions.clear();
        Ok(Sending { head, body, switching })
    }

    /// Tries servers until one answers, as long as trying again does no harm.
    async fn attempt_all(&self, sending: Sending) -> Result<Response<Body>, Trouble> {
        let Sending { mut head, mut body, mut switching } = sending;
        let mut tried = Tried::default();
        let mut n_retries = 0;
        let mut last = None;
        loop {
            let Some(mut lease) = self.route.upstream.pick(self.shared.clock.now(), &tried) else {
                return Err(last.unwrap_or(Trouble::NoServer));
            };
            let failed = match self.attempt(&mut lease, head, body, n_retries > 0).await {
                Ok((answer, connection)) => {
                    lease.succeeded();
                    return self.accept(answer, lease, connection, switching.take());
                }
                Err(failed) => failed,
            };
            if failed.trouble.is_the_servers() {
                lease.failed(self.shared.clock.now());
                tried.add(&lease);
            }
            match failed.left {
                Some(left) if n_retries < self.route.retries_max || !failed.trouble.was_sent() => {
                    (head, body) = left;
                    n_retries += 1;
                    last = Some(failed.trouble);
                }
                _ => return Err(failed.trouble),
            }
            if n_retries > RETRIES_MAX {
                return Err(last.unwrap_or(Trouble::NoServer));
            }
        }
    }

    /// Sends a request to one server.
    async fn attempt(
        &self,
        lease: &mut Lease,
        mut head: Parts,
        body: Upload,
        is_again: bool,
    ) -> Result<(Response<Incoming>, Option<Borrowed>), Failed> {
        let (timeouts, protocol) = (self.route.timeouts, self.route.upstream.protocol());
        let slot = self.slots[lease.number()];
        let is_repeatable = is_idempotent(&head.method) && body.is_nothing();
        let wanted = if is_repeatable { Wanted::Any } else { Wanted::Fresh };
        // Whoever was let down by an old connection is not sent to the next old one.
        let pooled = if is_again { None } else { self.shared.pool.take(slot, wanted) };
        let is_old = pooled.is_some();
        let connection = match pooled {
            Some(connection) => connection,
            None => match dial(lease.server(), protocol, &self.shared.tls, timeouts.connect).await {
                Ok(connection) => connection,
                Err(error) => {
                    return Err(Failed { trouble: error.into(), left: Some((head, body)) });
                }
            },
        };
        self.address(&mut head, lease);
        let spare = (is_old && is_repeatable).then(|| head.clone());
        let sent = timeout(timeouts.header, self.send(connection, slot, Request::from_parts(head, body)));
        match sent.await {
            Ok(Ok(answered)) => Ok(answered),
            Ok(Err((error, Some(request)))) => {
                let trouble = if is_old { Trouble::Stale } else { Trouble::unsent(error) };
                Err(Failed { trouble, left: Some(request.into_parts()) })
            }
            Ok(Err((error, None))) => {
                let trouble = Trouble::of_sent(error, self.route.body_max);
                // Closed for having been idle, just as we sent: that says nothing of the server.
                let is_stale = spare.is_some() && matches!(trouble, Trouble::BrokeOff(_));
                let trouble = if is_stale { Trouble::Stale } else { trouble };
                Err(Failed { trouble, left: spare.map(|head| (head, Upload::nothing())) })
            }
            Err(_) => Err(Failed { trouble: Trouble::NoAnswer(timeouts.header), left: None }),
        }
    }

    /// Says whom the request is for, in the way of the protocol.
    fn address(&self, head: &mut Parts, lease: &Lease) {
        let server = lease.server();
        if self.route.host == HostPolicy::Upstream {
            head.headers.insert(HOST, server.host_field().clone());
        }
        if self.route.upstream.protocol() == Protocol::Http1 {
            head.version = Version::HTTP_11;
            return;
        }
        head.version = Version::HTTP_2;
        let host = head.headers.remove(HOST);
        let named = host.as_ref().and_then(|host| host.to_str().ok()?.parse().ok());
        let mut uri = std::mem::take(&mut head.uri).into_parts();
        uri.scheme = Some(if server.is_tls() { UriScheme::HTTPS } else { UriScheme::HTTP });
        uri.authority = Some(named.unwrap_or_else(|| server.authority().clone()));
        head.uri = Uri::from_parts(uri).unwrap_or_default();
        if let Some(host) = host {
            head.headers.insert(HOST, host); // so that it is there for another attempt; HTTP/2 does without
        }
    }

    /// Sends, and waits for the head of the answer. What was not sent comes back.
    async fn send(
        &self,
        connection: Connection,
        slot: usize,
        mut request: Request<Upload>,
    ) -> Result<(Response<Incoming>, Option<Borrowed>), (hyper::Error, Option<Request<Upload>>)> {
        match connection {
            Connection::Http1(mut connection) => {
                if let Err(error) = connection.ready().await {
                    return Err((error, Some(request)));
                }
                match connection.try_send_request(request).await {
                    Ok(answer) => {
                        Ok((answer, Some(Borrowed::new(Arc::clone(&self.shared.pool), slot, connection))))
                    }
                    Err(mut error) => {
                        let request = error.take_message();
                        Err((error.into_error(), request))
                    }
                }
            }
            Connection::Http2(mut connection) => {
                if let Err(error) = connection.ready().await {
                    return Err((error, Some(request)));
                }
                request.headers_mut().remove(HOST);
                self.shared.pool.share(slot, &connection);
                match connection.try_send_request(request).await {
                    Ok(answer) => Ok((answer, None)),
                    Err(mut error) => {
                        let request = error.take_message();
                        Err((error.into_error(), request))
                    }
                }
            }
        }
    }

    /// What the client is given of a server's answer.
    fn accept(
        &self,
        mut answer: Response<Incoming>,
        lease: Lease,
        connection: Option<Borrowed>,
        switching: Option<(HeaderValue, OnUpgrade)>,
    ) -> Result<Response<Body>, Trouble> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let server = hyper::upgrade::on(&mut answer);
            let Some((protocol, client)) = switching else {
                return Err(Trouble::Garbled); // nobody asked to switch
            };
            tunnel::open(client, server, lease);
            let mut answer = answer.map(|_| Body::empty());
            strip_hop_by_hop(answer.headers_mut(), None);
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            answer.headers_mut().insert(UPGRADE, protocol);
            return Ok(answer);
        }
        strip_hop_by_hop(answer.headers_mut(), None);
        *answer.version_mut() = Version::HTTP_11;
        let pause_max = self.route.timeouts.idle;
        Ok(answer.map(|incoming| Body::Download(Download::new(incoming, pause_max, lease, connection))))
    }
}

/// How often a request goes out again at most, however many servers there are.
const RETRIES_MAX: u32 = 8;

/// True if doing it twice is the same as doing it once.
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE].contains(method)
}

impl Service<Request<Inbound>> for Forward {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Inbound>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let came = request.extensions_mut().remove::<Came>();
            let path = request.uri().path_and_query().cloned();
            Ok(match this.forward(request, came.as_ref()).await {
                Ok(answer) => answer,
                Err(trouble) => {
                    this.shared.tell(&this.route, &trouble, path.as_ref(), came.as_ref().map(|came| &came.id))
                }
            })
        })
    }
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forward").field("route", &self.route.id).finish_non_exhaustive()
    }
}
