//! The innermost stage: sends a request to an upstream and returns its response.
//!
//! ```text
//!   prepare head ─► pick server ─► connection ─► send ─► response ─► 101: tunnel
//!                       ▲              │ failed    │ failed  └─────► clean head, stream body
//!                       └──────────────┴───────────┘ retry elsewhere, if that cannot repeat an effect
//! ```
//!
//! A request is retried only if it never reached an upstream, if the upstream reports that it did not process it, or if
//! its method is idempotent; and only if no part of its body is lost.

mod http2;

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

use crate::abort::Presence;
use crate::body::{Body, Download, DownloadSource, Upload};
use crate::dial::dial_http1;
use crate::forward_error::ForwardError;
use crate::h1::{Http1, OutboundHead, SendError};
use crate::headers::{
    ConnectionPeer, ForwardingHeaders, HeaderRules, Hop, Upgrade, UpgradeError, join_cookies,
    strip_hop_by_hop,
};
use crate::pool::{Freshness, PooledConnection};
use crate::request_body::RequestBody;
use crate::route::{HostPolicy, Route};
use crate::scheme::Scheme;
use crate::tunnel::{Tunnel, TunnelSlot};
use crate::upstream::{Failure, FailureKind, Lease, Protocol, Tried};
use crate::upstream_log::UpstreamLog;
use crate::upstream_tls::ClientTls;
use crate::worker::WorkerContext;

/// Sends requests to the upstream of one route. Clones share their state.
#[derive(Clone)]
pub(crate) struct Forward(Arc<RouteForwarder>);

/// Forwards the requests of one route.
struct RouteForwarder {
    route: Arc<Route>,
    /// Which headers are trusted and which are read by policies.
    rules: Arc<HeaderRules>,
    shared: Arc<WorkerContext>,
    /// The worker's pool slot for each server.
    slots: Vec<usize>,
    log: UpstreamLog,
}

/// A request body, with where the request came from.
#[derive(Debug)]
pub(crate) struct BodyWithClient {
    pub(crate) body: RequestBody,
    pub(crate) peer: ConnectionPeer,
    /// The client's address.
    pub(crate) client: IpAddr,
    pub(crate) scheme: Scheme,
    pub(crate) presence: Presence,
}

/// A request as sent to the upstream.
struct OutboundRequest {
    head: Parts,
    /// Headers that the gateway adds.
    forwarding: ForwardingHeaders,
    /// None: part of it is lost, so the request cannot be retried.
    body: Option<Upload>,
    /// The upgrade that the client asked for, and its connection.
    upgrade: Option<(Upgrade, OnUpgrade)>,
    /// True if `Host` names the chosen server.
    uses_server_host: bool,
    client: IpAddr,
    /// Whether the client still waits.
    presence: Presence,
}

impl OutboundRequest {
    /// An upstream gets the request now, unless the client has left meanwhile.
    fn begin(&self, upload: &Upload) -> Result<(), ForwardError> {
        if self.presence.is_gone() {
            return Err(ForwardError::ClientAborted);
        }
        if upload.is_empty() {
            self.presence.has_sent_all();
        }
        Ok(())
    }

    /// True if the request is idempotent and has no body.
    fn is_repeatable(&self) -> bool {
        self.body.as_ref().is_some_and(Upload::is_empty) && is_idempotent(&self.head.method)
    }
}

impl Forward {
    pub(crate) fn new(route: Arc<Route>, rules: Arc<HeaderRules>, shared: Arc<WorkerContext>) -> Self {
        let protocol = route.upstream.protocol();
        let ca = route.upstream.tls().and_then(ClientTls::ca);
        let slots = route.upstream.servers().map(|server| shared.pool.slot(server, protocol, ca)).collect();
        Self(Arc::new(RouteForwarder { route, rules, shared, slots, log: UpstreamLog::default() }))
    }
}

impl RouteForwarder {
    /// Forwards a request within `timeouts.total`.
    async fn forward(&self, outbound: &mut OutboundRequest) -> Result<Response<Body>, ForwardError> {
        if outbound.body.as_ref().is_some_and(|upload| upload.announced() > self.route.body_max) {
            return Err(ForwardError::BodyTooLarge(self.route.body_max));
        }
        match self.route.timeouts.total {
            None => self.attempt_all(outbound, &mut None).await,
            Some(total) => {
                let by = Instant::now() + total;
                let mut lease = None;
                let has_body = outbound.body.as_ref().is_some_and(|upload| !upload.is_empty());
                let Ok(attempted) = timeout_at(by, self.attempt_all(outbound, &mut lease)).await else {
                    // With a body, the client may be the slow side.
                    let error = ForwardError::TotalTimeout(total);
                    if let Some(mut lease) = lease.filter(|_| !has_body) {
                        let (now, server) = (self.shared.clock.now(), lease.server());
                        self.log.failed((&self.route, server), &error, &outbound.head, now);
                        self.record_failure(&mut lease, FailureKind::NoResponse, outbound.client);
                    }
                    return Err(error);
                };
                Ok(attempted?.map(|body| body.with_deadline(by, total)))
            }
        }
    }

    /// Counts a failure against the server, and logs an ejection.
    fn record_failure(&self, lease: &mut Lease, kind: FailureKind, client: IpAddr) {
        if let Some(eject_for) = lease.failed(Failure { kind, client }, self.shared.clock.now()) {
            self.log.ejected(&self.route, lease, eject_for);
        }
    }

    /// Removes and adds headers before forwarding.
    fn prepare(&self, request: Request<BodyWithClient>) -> OutboundRequest {
        let (mut head, BodyWithClient { body, peer, client, scheme, presence }) = request.into_parts();
        let is_http1 = self.route.upstream.protocol() == Protocol::Http1;
        let upgrade =
            Upgrade::requested_by(&head).filter(|_| is_http1).zip(head.extensions.remove::<OnUpgrade>());
        let rules = &self.rules.http_settings.rules;
        let body = body.metered(head.extensions.remove::<BodyMeter>());
        let body = Upload::new(body, &self.rules, &self.route).of_client(&presence);
        if head.version >= Version::HTTP_2 {
            join_cookies(&mut head.headers);
        }
        strip_hop_by_hop(&mut head.headers, rules.user_header.as_ref());
        head.headers.remove(EXPECT); // hyper sends 100 Continue when the body is read
        let target = head.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        let host = target.clone().or_else(|| head.headers.get(HOST).cloned());
        // HTTP/1.0 requests may lack `Host`.
        let uses_server_host = match &self.route.host {
            HostPolicy::Upstream => true,
            HostPolicy::Keep => host.is_none(),
            HostPolicy::Fixed(_) => false,
        };
        let hop = Hop { peer: &peer, client, scheme, host };
        let forwarding = hop.forwarding_headers(&mut head.headers, rules, &self.rules.read);
        match &self.route.host {
            HostPolicy::Fixed(fixed) => drop(head.headers.insert(HOST, fixed.clone())),
            HostPolicy::Keep => target.into_iter().for_each(|host| drop(head.headers.insert(HOST, host))),
            HostPolicy::Upstream => {} // set for each attempt
        }
        if let Some((upgrade, _)) = &upgrade {
            upgrade.write(&mut head.headers);
        }
        if head.uri.authority().is_some() {
            let path = std::mem::take(&mut head.uri).into_parts().path_and_query;
            head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        }
        head.extensions.clear();
        OutboundRequest { head, forwarding, body: Some(body), upgrade, uses_server_host, client, presence }
    }

    /// Tries servers until one responds, as long as a retry is safe. `current` holds the lease of the running attempt.
    async fn attempt_all(
        &self,
        outbound: &mut OutboundRequest,
        current: &mut Option<Lease>,
    ) -> Result<Response<Body>, ForwardError> {
        let is_idempotent = is_idempotent(&outbound.head.method);
        let mut tried = Tried::default();
        let (mut n_retries, mut n_repeated) = (0, 0);
        let mut last: Option<(ForwardError, Instant)> = None;
        loop {
            let Some(picked) = self.route.upstream.pick(self.shared.clock.now(), &tried) else {
                return Err(last.map_or(ForwardError::NoServer, |(error, _)| error));
            };
            let failed_at = last.as_ref().map(|(_, failed_at)| *failed_at);
            let attempted = self.attempt(current.insert(picked), outbound, failed_at).await;
            let Some(mut lease) = current.take() else { return Err(ForwardError::NoServer) };
            let error = match attempted {
                Ok((response, source)) => {
                    if lease.succeeded(outbound.client, self.shared.clock.now()) {
                        self.log.recovered((&self.route, lease.server()));
                    }
                    return self.accept((response, source), lease, outbound);
                }
                Err(error) => error,
            };
            if error.upstream_failure().is_some() || error.is_local_failure() {
                let (now, server) = (self.shared.clock.now(), lease.server());
                self.log.failed((&self.route, server), &error, &outbound.head, now);
            }
            if let Some(kind) = error.upstream_failure() {
                self.record_failure(&mut lease, kind, outbound.client);
                tried.add(&lease);
            }
            // A connection that was closed while idle does not use up a retry.
            let (is_unprocessed, is_transient) =
                (error.is_unprocessed(), is_idempotent && error.is_transient());
            // An unprocessed request is retried at least once: the upstream may only be shutting down.
            let repeats_max = self.route.retries_max.max(u32::from(is_unprocessed));
            let may_retry =
                !error.was_sent() || ((is_unprocessed || is_transient) && n_repeated < repeats_max);
            if outbound.presence.is_gone()
                || outbound.body.is_none()
                || !may_retry
                || error.is_local_failure()
                || n_retries == RETRIES_MAX
            {
                return Err(error);
            }
            n_retries += 1;
            n_repeated += u32::from(error.was_sent());
            last = Some((error, Instant::now()));
        }
    }

    /// Sends a request to one server. The body is kept if it is empty or nothing was sent. After a failed attempt,
    /// `failed_at` is its time: the retry uses no connection older than that.
    async fn attempt(
        &self,
        lease: &Lease,
        outbound: &mut OutboundRequest,
        failed_at: Option<Instant>,
    ) -> Result<(Response<()>, DownloadSource), ForwardError> {
        let slot = self.slots[lease.number()];
        if outbound.uses_server_host {
            outbound.head.headers.insert(HOST, lease.server().host_header().clone());
        }
        if self.route.upstream.protocol() == Protocol::Http2 {
            // Boxed to keep the future of HTTP/1.1 requests small.
            return Box::pin(self.attempt_stream(lease, slot, outbound, failed_at)).await;
        }
        let is_repeatable = outbound.is_repeatable();
        let freshness = if is_repeatable { Freshness::Any } else { Freshness::Fresh };
        let pooled = if failed_at.is_some() { None } else { self.shared.pool.take(slot, freshness) };
        let is_old = pooled.is_some();
        let connection = match pooled {
            Some(connection) => connection,
            None => dial_http1(lease.server(), self.tls(), &self.route.timeouts).await?,
        };
        let sent = self.exchange(connection, slot, outbound).await;
        // The upstream closed an idle connection while we sent: not a failure of the upstream.
        sent.map_err(|error| match error {
            ForwardError::NotSent(_) if is_old => ForwardError::StaleConnection,
            ForwardError::ClosedBeforeResponse(_) if is_old && is_repeatable => ForwardError::StaleConnection,
            ForwardError::ClosedBeforeResponse(cause) if !is_old => ForwardError::ConnectionLost(cause),
            error @ (ForwardError::NoServer
            | ForwardError::StaleConnection
            | ForwardError::Unreachable(_)
            | ForwardError::NotSent(_)
            | ForwardError::HeaderTimeout(_)
            | ForwardError::TotalTimeout(_)
            | ForwardError::ClosedBeforeResponse(_)
            | ForwardError::ConnectionLost(_)
            | ForwardError::StreamRefused(_)
            | ForwardError::InvalidResponse
            | ForwardError::BadUpgrade(_)
            | ForwardError::BodyTooLarge(_)
            | ForwardError::OverLimit { .. }
            | ForwardError::ClientIdle(_)
            | ForwardError::ClientSlow(_)
            | ForwardError::ClientInvalid
            | ForwardError::ClientAborted) => error,
        })
    }

    /// The upstream's own TLS settings, or the default.
    fn tls(&self) -> &ClientTls {
        self.route.upstream.tls().unwrap_or(&self.shared.tls)
    }

    /// Sends a request on an HTTP/1.1 connection.
    async fn exchange(
        &self,
        mut connection: Box<Http1>,
        slot: usize,
        outbound: &mut OutboundRequest,
    ) -> Result<(Response<()>, DownloadSource), ForwardError> {
        let upload = outbound.body.take().unwrap_or_else(Upload::empty);
        let is_empty = upload.is_empty();
        outbound.begin(&upload)?;
        let sent = OutboundHead { head: &outbound.head, forwarding: Some(&outbound.forwarding) };
        let responded = connection.exchange(sent, upload, self.route.timeouts.header).await;
        outbound.body = if is_empty { Some(Upload::empty()) } else { connection.take_unsent() };
        match responded {
            Ok(response) => {
                let pooled = PooledConnection::new(Arc::clone(&self.shared.pool), slot, connection);
                Ok((response, DownloadSource::Http1(Some(pooled))))
            }
            Err(SendError::Closed(cause) | SendError::Broken(cause))
                if connection.take_unsent().is_some() =>
            {
                Err(ForwardError::NotSent(cause.into()))
            }
            Err(error) => Err(ForwardError::from_send_error(error, self.route.body_max)),
        }
    }

    /// Makes the client's response from the upstream's.
    fn accept(
        &self,
        (mut response, source): (Response<()>, DownloadSource),
        lease: Lease,
        outbound: &mut OutboundRequest,
    ) -> Result<Response<Body>, ForwardError> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.open_tunnel((response, source), lease, outbound);
        }
        strip_hop_by_hop(response.headers_mut(), None);
        let body = Body::Download(Download::new(source, self.route.timeouts.idle, lease));
        Ok(response.map(|()| body))
    }

    /// Opens a tunnel if the 101 response matches the requested upgrade. Otherwise closes the upstream connection,
    /// since its protocol is unknown.
    fn open_tunnel(
        &self,
        (mut response, source): (Response<()>, DownloadSource),
        lease: Lease,
        outbound: &mut OutboundRequest,
    ) -> Result<Response<Body>, ForwardError> {
        let agreed = match (outbound.upgrade.take(), source) {
            (Some((upgrade, client)), DownloadSource::Http1(Some(pooled))) => {
                upgrade.check(response.headers()).map(|()| (upgrade, client, pooled))
            }
            _ => Err(UpgradeError::Unasked),
        };
        let (upgrade, client, pooled) = agreed.map_err(|error| {
            let (error, now) = (ForwardError::BadUpgrade(error), self.shared.clock.now());
            self.log.failed((&self.route, lease.server()), &error, &outbound.head, now);
            error
        })?;
        strip_hop_by_hop(response.headers_mut(), None);
        let (server, early_data) = pooled.connection.switch();
        let idle_timeout = self.route.timeouts.tunnel_idle;
        response.extensions_mut().insert(TunnelSlot::of(Tunnel {
            client,
            server,
            early_data,
            lease,
            idle_timeout,
        }));
        upgrade.write(response.headers_mut());
        Ok(response.map(|()| Body::empty()))
    }
}

/// The most retries of a request, regardless of the number of servers.
const RETRIES_MAX: u32 = 8;

/// True if the method is idempotent.
fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE].contains(method)
}

impl Service<Request<BodyWithClient>> for Forward {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<BodyWithClient>) -> Self::Future {
        let forwarder = Arc::clone(&self.0);
        let mut outbound = forwarder.prepare(request);
        Box::pin(async move {
            let response = forwarder.forward(&mut outbound).await;
            Ok(response.unwrap_or_else(|error| forwarder.shared.error_response(&error, &outbound.head)))
        })
    }
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forward").field("route", &self.0.route.id).finish_non_exhaustive()
    }
}
