//! The innermost stage: a request is sent to a server, and its answer comes back.
//!
//! ```text
//!   head: what is passed on ─► server? ─► connection? ─► send ─► answer ─► 101: tunnel
//!                               ▲            │ none       │ none    └────► head: what is passed back, body
//!                               └────────────┴────────────┘ another server or connection, if nothing can have happened twice
//! ```
//!
//! A request is sent again only if it certainly never reached a server, if the server says that it has not looked at it, or if doing
//! it twice is the same as doing it once (its method is idempotent); and only if it has no body that would be gone.

mod streams;

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{EXPECT, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::upgrade::OnUpgrade;
use ratewright_tower::BodyMeter;
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use crate::body::{Body, Download, Source, Upload};
use crate::client_tls::ClientTls;
use crate::dial::dial_http1;
use crate::h1::{Http1, SendError, Sent};
use crate::headers::{HeaderRules, Hop, Peer, Told, Upgrade, UpgradeError, join_cookies, strip_hop_by_hop};
use crate::inbound::Inbound;
use crate::notes::Notes;
use crate::pool::{Borrowed, Wanted};
use crate::route::{HostPolicy, Route};
use crate::scheme::Scheme;
use crate::trouble::Trouble;
use crate::tunnel::{Opening, Tunnel};
use crate::upstream::{Lease, Protocol, Tried};
use crate::worker::Shared;

/// Sends requests to the servers of one route. Clones are the same.
#[derive(Clone)]
pub(crate) struct Forward(Arc<Way>);

/// The way to the servers of one route.
struct Way {
    route: Arc<Route>,
    /// Which headers are believed, and read.
    rules: Arc<HeaderRules>,
    shared: Arc<Shared>,
    /// Where the worker keeps the connections of each server.
    slots: Vec<usize>,
    notes: Notes,
}

/// The body of a request, with how the request came to us.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) body: Inbound,
    pub(crate) peer: Peer,
    /// The client's address.
    pub(crate) client: IpAddr,
    pub(crate) scheme: Scheme,
}

/// A request as it is sent.
struct Sending {
    head: Parts,
    /// What the server is told besides.
    told: Told,
    /// None: it is gone, and the request cannot be sent again.
    body: Option<Upload>,
    /// What the client will speak if the upstream agrees, and the connection on which it will.
    upgrade: Option<(Upgrade, OnUpgrade)>,
    /// True if each server is asked by its own name.
    names_server: bool,
}

impl Sending {
    /// True if sending it twice is the same as sending it once, and can be done.
    fn is_repeatable(&self) -> bool {
        self.body.as_ref().is_some_and(Upload::is_nothing) && is_idempotent(&self.head.method)
    }
}

impl Forward {
    pub(crate) fn new(route: Arc<Route>, rules: Arc<HeaderRules>, shared: Arc<Shared>) -> Self {
        let protocol = route.upstream.protocol();
        let ca = route.upstream.tls().and_then(ClientTls::ca);
        let slots = route.upstream.servers().map(|server| shared.pool.slot(server, protocol, ca)).collect();
        Self(Arc::new(Way { route, rules, shared, slots, notes: Notes::default() }))
    }
}

impl Way {
    /// Sends a request, and tells what came of it.
    async fn forward(&self, sending: &mut Sending) -> Result<Response<Body>, Trouble> {
        if sending.body.as_ref().is_some_and(|upload| upload.announced() > self.route.body_max) {
            return Err(Trouble::BodyTooLong(self.route.body_max));
        }
        match self.route.timeouts.total {
            None => self.attempt_all(sending, &mut None).await,
            Some(total) => {
                let by = Instant::now() + total;
                let mut lease = None;
                let has_body = sending.body.as_ref().is_some_and(|upload| !upload.is_nothing());
                let Ok(attempted) = timeout_at(by, self.attempt_all(sending, &mut lease)).await else {
                    // With a body it may have been the client that took so long.
                    let trouble = Trouble::TooSlow(total);
                    if let Some(mut lease) = lease.filter(|_| !has_body) {
                        let (now, server) = (self.shared.clock.now(), lease.server());
                        self.notes.failed((&self.route, server), &trouble, &sending.head, now);
                        self.judge_failed(&mut lease);
                    }
                    return Err(trouble);
                };
                Ok(attempted?.map(|body| body.end_by(by, total)))
            }
        }
    }

    /// Holds it against a server that it failed.
    fn judge_failed(&self, lease: &mut Lease) {
        if let Some(eject_for) = lease.failed(self.shared.clock.now()) {
            self.notes.ejected((&self.route, lease.server()), eject_for);
        }
    }

    /// Takes away and adds what has to be before a request is passed on.
    fn prepare(&self, request: Request<Arriving>) -> Sending {
        let (mut head, Arriving { body, peer, client, scheme }) = request.into_parts();
        let is_http1 = self.route.upstream.protocol() == Protocol::Http1;
        let upgrade =
            Upgrade::asked_for(&head).filter(|_| is_http1).zip(head.extensions.remove::<OnUpgrade>());
        let rules = &self.rules.dialect.rules;
        let body = body.metered(head.extensions.remove::<BodyMeter>());
        let body = Upload::new(body, &self.rules, &self.route);
        if head.version >= Version::HTTP_2 {
            join_cookies(&mut head.headers);
        }
        strip_hop_by_hop(&mut head.headers, rules.user_header.as_ref());
        head.headers.remove(EXPECT); // whoever waits for our word gets it when the body is asked for
        let target = head.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        let host = target.clone().or_else(|| head.headers.get(HOST).cloned());
        // In HTTP/1.0 a client need not say whom it asks.
        let names_server = match &self.route.host {
            HostPolicy::Upstream => true,
            HostPolicy::Keep => host.is_none(),
            HostPolicy::Fixed(_) => false,
        };
        let hop = Hop { peer: &peer, client, scheme, host };
        let told = hop.tell(&mut head.headers, rules, &self.rules.read);
        match &self.route.host {
            HostPolicy::Fixed(fixed) => drop(head.headers.insert(HOST, fixed.clone())),
            HostPolicy::Keep => target.into_iter().for_each(|host| drop(head.headers.insert(HOST, host))),
            HostPolicy::Upstream => {} // each server its own
        }
        if let Some((upgrade, _)) = &upgrade {
            upgrade.write(&mut head.headers);
        }
        if head.uri.authority().is_some() {
            let path = std::mem::take(&mut head.uri).into_parts().path_and_query;
            head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        }
        head.extensions.clear();
        Sending { head, told, body: Some(body), upgrade, names_server }
    }

    /// Tries servers until one answers, as long as trying again does no harm. `present` is the one that is tried.
    async fn attempt_all(
        &self,
        sending: &mut Sending,
        present: &mut Option<Lease>,
    ) -> Result<Response<Body>, Trouble> {
        let is_idempotent = is_idempotent(&sending.head.method);
        let mut tried = Tried::default();
        let (mut n_retries, mut n_repeated) = (0, 0);
        let mut last: Option<(Trouble, Instant)> = None;
        loop {
            let Some(picked) = self.route.upstream.pick(self.shared.clock.now(), &tried) else {
                return Err(last.map_or(Trouble::NoServer, |(trouble, _)| trouble));
            };
            let failed_at = last.as_ref().map(|(_, failed_at)| *failed_at);
            let attempted = self.attempt(present.insert(picked), sending, failed_at).await;
            let Some(mut lease) = present.take() else { return Err(Trouble::NoServer) };
            let trouble = match attempted {
                Ok((answer, source)) => {
                    if lease.succeeded() {
                        self.notes.back((&self.route, lease.server()));
                    }
                    return self.accept((answer, source), lease, sending);
                }
                Err(trouble) => trouble,
            };
            if trouble.is_the_servers() || trouble.is_ours() {
                let (now, server) = (self.shared.clock.now(), lease.server());
                self.notes.failed((&self.route, server), &trouble, &sending.head, now);
            }
            if trouble.is_the_servers() {
                self.judge_failed(&mut lease);
                tried.add(&lease);
            }
            // A connection that was closed while it was idle takes nothing from what the route allows.
            let (was_unseen, may_pass) = (trouble.was_unseen(), is_idempotent && trouble.may_pass());
            // Who was refused unseen is sent again once at least: the server may only have left.
            let repeats_max = self.route.retries_max.max(u32::from(was_unseen));
            let is_harmless = !trouble.was_sent() || ((was_unseen || may_pass) && n_repeated < repeats_max);
            if sending.body.is_none() || !is_harmless || trouble.is_ours() || n_retries == RETRIES_MAX {
                return Err(trouble);
            }
            n_retries += 1;
            n_repeated += u32::from(trouble.was_sent());
            last = Some((trouble, Instant::now()));
        }
    }

    /// Sends a request to one server. Its body stays if there is none, or if nothing was sent. If it was sent before,
    /// `failed_at` is when that failed: whoever was let down by an old connection is not sent to the next old one.
    async fn attempt(
        &self,
        lease: &Lease,
        sending: &mut Sending,
        failed_at: Option<Instant>,
    ) -> Result<(Response<()>, Source), Trouble> {
        let slot = self.slots[lease.number()];
        if sending.names_server {
            sending.head.headers.insert(HOST, lease.server().host_field().clone());
        }
        if self.route.upstream.protocol() == Protocol::Http2 {
            // Boxed: HTTP/1.1 need not have the room for it.
            return Box::pin(self.attempt_stream(lease, slot, sending, failed_at)).await;
        }
        let is_repeatable = sending.is_repeatable();
        let wanted = if is_repeatable { Wanted::Any } else { Wanted::Fresh };
        let pooled = if failed_at.is_some() { None } else { self.shared.pool.take(slot, wanted) };
        let is_old = pooled.is_some();
        let connection = match pooled {
            Some(connection) => connection,
            None => dial_http1(lease.server(), self.tls(), &self.route.timeouts).await?,
        };
        let sent = self.exchange(connection, slot, sending).await;
        // Closed for having been idle, just as we sent: that says nothing of the server.
        sent.map_err(|trouble| match trouble {
            Trouble::Unsent(_) if is_old => Trouble::Stale,
            Trouble::Closed(_) if is_old && is_repeatable => Trouble::Stale,
            Trouble::Closed(cause) if !is_old => Trouble::BrokeOff(cause),
            trouble @ (Trouble::NoServer
            | Trouble::Stale
            | Trouble::Unreachable(_)
            | Trouble::Unsent(_)
            | Trouble::NoAnswer(_)
            | Trouble::TooSlow(_)
            | Trouble::Closed(_)
            | Trouble::BrokeOff(_)
            | Trouble::Refused(_)
            | Trouble::Garbled
            | Trouble::BadUpgrade(_)
            | Trouble::BodyTooLong(_)
            | Trouble::OverLimit { .. }
            | Trouble::ClientQuiet(_)
            | Trouble::ClientSlow(_)
            | Trouble::ClientGarbled
            | Trouble::ClientGone) => trouble,
        })
    }

    /// Whose certificates are good.
    fn tls(&self) -> &ClientTls {
        self.route.upstream.tls().unwrap_or(&self.shared.tls)
    }

    /// Sends on a connection of its own.
    async fn exchange(
        &self,
        mut connection: Box<Http1>,
        slot: usize,
        sending: &mut Sending,
    ) -> Result<(Response<()>, Source), Trouble> {
        let upload = sending.body.take().unwrap_or_else(Upload::nothing);
        let is_empty = upload.is_nothing();
        let sent = Sent { head: &sending.head, told: Some(&sending.told) };
        let answered = connection.exchange(sent, upload, self.route.timeouts.header).await;
        sending.body = if is_empty { Some(Upload::nothing()) } else { connection.unsent() };
        match answered {
            Ok(answer) => {
                let borrowed = Borrowed::new(Arc::clone(&self.shared.pool), slot, connection);
                Ok((answer, Source::Http1(Some(borrowed))))
            }
            Err(SendError::Closed(cause) | SendError::Broken(cause)) if connection.unsent().is_some() => {
                Err(Trouble::Unsent(cause.into()))
            }
            Err(error) => Err(Trouble::of_sent(error, self.route.body_max)),
        }
    }

    /// What the client is given of a server's answer.
    fn accept(
        &self,
        (mut answer, source): (Response<()>, Source),
        lease: Lease,
        sending: &mut Sending,
    ) -> Result<Response<Body>, Trouble> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.open_tunnel((answer, source), lease, sending);
        }
        strip_hop_by_hop(answer.headers_mut(), None);
        let body = Body::Download(Download::new(source, self.route.timeouts.idle, lease));
        Ok(answer.map(|()| body))
    }

    /// Opens a tunnel, if the 101 response agrees to the upgrade that the client asked for. Otherwise the connection to the
    /// upstream is closed: nobody knows what it speaks now.
    fn open_tunnel(
        &self,
        (mut answer, source): (Response<()>, Source),
        lease: Lease,
        sending: &mut Sending,
    ) -> Result<Response<Body>, Trouble> {
        let agreed = match (sending.upgrade.take(), source) {
            (Some((upgrade, client)), Source::Http1(Some(borrowed))) => {
                upgrade.check(answer.headers()).map(|()| (upgrade, client, borrowed))
            }
            _ => Err(UpgradeError::Unasked),
        };
        let (upgrade, client, borrowed) = agreed.map_err(|error| {
            let (trouble, now) = (Trouble::BadUpgrade(error), self.shared.clock.now());
            self.notes.failed((&self.route, lease.server()), &trouble, &sending.head, now);
            trouble
        })?;
        strip_hop_by_hop(answer.headers_mut(), None);
        let (server, said) = borrowed.connection.switch();
        let pause_max = self.route.timeouts.tunnel_idle;
        answer.extensions_mut().insert(Opening::of(Tunnel { client, server, said, lease, pause_max }));
        upgrade.write(answer.headers_mut());
        Ok(answer.map(|()| Body::empty()))
    }
}

/// How often a request goes out again at most, however many servers there are.
const RETRIES_MAX: u32 = 8;

/// True if doing it twice is the same as doing it once.
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE].contains(method)
}

impl Service<Request<Arriving>> for Forward {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Arriving>) -> Self::Future {
        let way = Arc::clone(&self.0);
        let mut sending = way.prepare(request);
        Box::pin(async move {
            let answer = way.forward(&mut sending).await;
            Ok(answer.unwrap_or_else(|trouble| way.shared.tell(&trouble, &sending.head)))
        })
    }
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forward").field("route", &self.0.route.id).finish_non_exhaustive()
    }
}
