//! Identify, decide, and render a denial: the part that [`RateLimit`](crate::RateLimit) and [`InFlight`](crate::InFlight) share.

use std::convert::Infallible;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::header::{AUTHORIZATION, CONTENT_LENGTH, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use ratewright_core::decision::Observe;
use ratewright_core::query::{Ask, AttributeName};
use ratewright_core::{Decision, Limiter, Policies, Query, Store, Timestamp};
use ratewright_http::address::{AddressOrigin, ClientName, newly_ignored};
use ratewright_http::explain::{Explain, IdentitySources};
use ratewright_http::headers::WrittenHeaders;
use ratewright_http::identify::{AmbiguousPaths, identify_with_context};
use ratewright_http::request_context::{BodyLength, DecisionReport};
use ratewright_http::{
    CorrelationId, Facts, HeaderStyle, HttpSettings, Problem, ProblemContext, RateLimitHeaders,
    RequestContext,
};
use smallvec::SmallVec;
use tracing::{debug, warn};

use crate::missing_peer_log::MissingPeerLog;
use crate::request_reader::RequestReader;

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// A limiter, and how it reads requests.
#[derive(Debug)]
pub(crate) struct Decider<S, O> {
    pub(crate) limiter: Arc<Limiter<S, O>>,
    pub(crate) reader: RequestReader,
    missing_peers: MissingPeerLog,
}

/// How a response shows the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenderContext {
    /// When the limiter decided.
    now: Timestamp,
    /// The correlation id, if the request has none.
    generated_id: u128,
    style: HeaderStyle,
    is_cross_origin: bool,
}

/// The rate limit headers of a response. None are written if no enforced limit applies.
#[derive(Debug)]
pub(crate) struct ResponseHeaders {
    written: Option<WrittenHeaders>,
    is_cross_origin: bool,
}

/// Polls a future once. None: it is not ready.
pub(crate) fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl<S: Store<Error = Infallible>, O: Observe> Decider<S, O> {
    /// Identifies the client and decides. Stores what it finds in `known`; if `known` is empty, the peer comes from the
    /// request's extensions or from the reader. `finish` turns the decision into the value that is needed later. A
    /// decision is large, so `finish` moves it out only if it is still needed.
    pub(crate) async fn decide<K>(
        &self,
        request: &Parts,
        known: &mut Option<RequestContext>,
        finish: impl FnOnce(&Query<'_>, &mut Decision, RenderContext) -> K,
    ) -> Result<K, Problem> {
        let reader = &self.reader;
        if known.is_none() {
            *known = match request.extensions.get::<RequestContext>() {
                Some(before) => Some(before.clone().valid_under(&reader.http_settings.load())),
                None => (reader.peer)(request).map(RequestContext::of),
            };
        }
        let Some(known) = known else { return Err(self.unknown_peer()) };
        let (now, generated_id) = (reader.clock.now(), fastrand::u128(..));
        let id = CorrelationId::new(&request.headers, generated_id);
        let policies = reader.rule_set.as_ref().map_or_else(|| self.limiter.load(), |set| set.load());
        if policies.counts_bytes() && known.body.is_none() {
            known.body = Some(match BodyLength::of(request) {
                BodyLength::Unknown if !reader.meters_bodies => BodyLength::NotMetered,
                length @ (BodyLength::Bytes(_) | BodyLength::Unknown | BodyLength::NotMetered) => length,
            });
        }
        let http_settings = reader.http_settings.load();
        let (client, needs);
        let mut facts = if self.needs_only_the_address(&policies, known, &http_settings) {
            let address = known.client(&request.headers, &http_settings.rules.proxies);
            client = ClientName::new(address, http_settings.rules.ipv6_prefix);
            Facts::of_client(address, client.as_str())
        } else {
            needs = Arc::clone(policies.needs());
            identify_with_context(request, known, &http_settings.rules, &needs, now)
        };
        self.add_attributes(request, &policies, &mut facts);
        let proxies = &http_settings.rules.proxies;
        if let Some(header) = newly_ignored(&request.headers, known.peer, proxies, now) {
            warn_of_ignored(header, known.peer);
        }
        http_settings.report_unknown_key(&facts);
        if let Some(cause) = facts.token_error {
            debug!(%cause, "token rejected: its user and claims are ignored");
        }
        if let Some(problem) = facts.problem(&http_settings.rules) {
            return Err(problem);
        }
        let style = http_settings.headers;
        drop(http_settings);
        known.client = facts.address;
        if let Some(token) = facts.token.take() {
            known.token = Some(token);
        }
        let attributes = facts.attributes();
        let named: SmallVec<[&str; 4]> = reader.policies.iter().map(AsRef::as_ref).collect();
        let query = Query {
            select: facts.select(&named),
            attributes: &attributes,
            address: facts.address,
            ask: Ask::Spend(reader.cost.as_ref().map_or(NonZeroU32::MIN, |cost| cost(request))),
            patience: reader.patience,
            id: Some(&id),
            entrypoint: reader.entrypoint,
        };
        let mut decision = Decision::under(policies);
        self.limiter.decide_into(&query, &mut decision).await;
        if let Some(report) = &known.report {
            self.report(report, request, known, &facts, (&query, &decision));
        }
        // Cheaper than a lookup.
        let is_cross_origin = request.headers.keys().any(|name| *name == ORIGIN);
        let rendering = RenderContext { now, generated_id, style, is_cross_origin };
        Ok(finish(&query, &mut decision, rendering))
    }

    /// True if no policy, observer or report needs more of the request than the client's address.
    fn needs_only_the_address(
        &self,
        policies: &Policies,
        known: &RequestContext,
        http_settings: &HttpSettings,
    ) -> bool {
        policies.needs().iter().all(|name| matches!(name, AttributeName::Ip))
            && !self.limiter.reads_attributes()
            && known.report.is_none()
            && http_settings.rules.ambiguous_paths == AmbiguousPaths::Count
    }

    /// Records the decision for the outer stage that asked for a report.
    #[cold]
    fn report(
        &self,
        report: &DecisionReport,
        request: &Parts,
        known: &RequestContext,
        facts: &Facts<'_>,
        (query, decision): (&Query<'_>, &Decision),
    ) {
        report.record(decision, || {
            let http_settings = self.reader.http_settings.load();
            let rules = &http_settings.rules;
            let sources = IdentitySources { has_authorization: request.headers.contains_key(AUTHORIZATION) };
            let address = AddressOrigin::of(&request.headers, known.peer, &rules.proxies);
            Explain { query, decision, facts, rules, address, sources }.line()
        });
    }

    /// Adds the reader's route and attributes.
    fn add_attributes<'a>(&'a self, request: &Parts, policies: &Policies, facts: &mut Facts<'a>) {
        if let Some(route) = &self.reader.route {
            facts.set(AttributeName::Route, &**route);
        }
        for (name, value) in &self.reader.attributes {
            let own = AttributeName::Named(&**name);
            if policies.needs().iter().any(|need| need.is(&own))
                && let Some(value) = value(request)
            {
                facts.set(own, value);
            }
        }
    }

    /// The response to a denied request.
    pub(crate) fn deny(
        &self,
        request: &Parts,
        decision: &Decision,
        rendering: RenderContext,
    ) -> Response<String> {
        let http_settings = self.reader.http_settings.load();
        let id = CorrelationId::new(&request.headers, rendering.generated_id).text();
        let mut response = denial(request, &id, (decision, rendering.now), &http_settings);
        rendering.headers(decision).put_into(response.headers_mut());
        without_body_for_head(request, response)
    }
}

impl<S, O> Decider<S, O> {
    pub(crate) fn new(limiter: Arc<Limiter<S, O>>, reader: RequestReader) -> Self {
        Self { limiter, reader, missing_peers: MissingPeerLog::default() }
    }

    /// The response if the program provides no peer address. Requests must not pass unlimited because of this mistake.
    #[cold]
    fn unknown_peer(&self) -> Problem {
        self.missing_peers.write(self.reader.clock.now());
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "peer address of the request is unknown")
    }

    /// The response to a request that cannot be decided on.
    pub(crate) fn reject(&self, request: &Parts, problem: Problem) -> Response<String> {
        let id = CorrelationId::new(&request.headers, fastrand::u128(..)).text();
        let (kind, instance, now) = (Problem::BLANK, Some(request.uri.path()), self.reader.clock.now());
        let response = problem.on(&ProblemContext { kind, instance, correlation_id: &id, now }).render();
        without_body_for_head(request, response)
    }
}

impl ResponseHeaders {
    /// Adds them to a response.
    pub(crate) fn put_into(self, headers: &mut HeaderMap) {
        let Some(written) = self.written else { return };
        written.put_into(headers);
        if self.is_cross_origin {
            RateLimitHeaders::expose(headers);
        }
    }
}

impl RenderContext {
    /// The same without rate limit headers other than `Retry-After`.
    #[must_use]
    pub(crate) fn with_retry_after_only(mut self) -> Self {
        self.style = self.style.x_ratelimit(false).ietf(false);
        self
    }

    /// The rate limit headers of the response.
    pub(crate) fn headers(&self, decision: &Decision) -> ResponseHeaders {
        let written = RateLimitHeaders::of(decision, self.now).map(|headers| headers.write(self.style));
        ResponseHeaders { written, is_cross_origin: self.is_cross_origin }
    }
}

fn denial(
    request: &Parts,
    id: &str,
    (decision, now): (&Decision, Timestamp),
    http_settings: &HttpSettings,
) -> Response<String> {
    let instance = Some(request.uri.path());
    let occasion = ProblemContext { kind: &http_settings.problem_type, instance, correlation_id: id, now };
    let mut response = Problem::denial(decision, &occasion).render();
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(CORRELATION_ID, id);
    }
    response
}

/// The response without its body if the request is HEAD: in HTTP/2 a body would be a protocol error.
fn without_body_for_head(request: &Parts, mut response: Response<String>) -> Response<String> {
    if request.method == Method::HEAD {
        let length = response.body().len();
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        response.body_mut().clear();
    }
    response
}

/// All clients behind an untrusted proxy count as one.
#[cold]
fn warn_of_ignored(header: &'static str, peer: IpAddr) {
    warn!(
        header,
        %peer,
        "forwarding header ignored: the peer is not in clients.trusted_proxies, so all clients behind it count as one; if it is your proxy, add its network there"
    );
}
