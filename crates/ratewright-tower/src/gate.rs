//! Identify, decide, and the answer of who is denied: what both layers do alike.

use std::convert::Infallible;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::header::{AUTHORIZATION, CONTENT_LENGTH, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use ratewright_core::{
    Ask, AttributeName, Decision, Limiter, Observe, Policies, Query, Store, Timestamp, Verdict,
};
use ratewright_http::address::{AddressOrigin, newly_ignored};
use ratewright_http::explain::{Explain, IdentitySources};
use ratewright_http::{
    BodyLength, CorrelationId, DecisionReport, Dialect, Facts, HeaderStyle, Problem, ProblemContext,
    RateLimitHeaders, RequestContext, identify_with_context,
};
use smallvec::SmallVec;
use tracing::{debug, error, warn};

use crate::door::Door;

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// A limiter behind a door.
#[derive(Debug)]
pub(crate) struct Gate<S, O> {
    pub(crate) limiter: Arc<Limiter<S, O>>,
    pub(crate) door: Door,
}

/// What was decided about a request, and what is needed until its answer is there.
#[derive(Debug)]
pub(crate) struct Asked<K> {
    pub(crate) decision: Decision,
    /// What is kept of the query.
    pub(crate) kept: K,
    pub(crate) manner: Manner,
}

/// How an answer speaks of limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// When the limiter decided.
    now: Timestamp,
    /// The request's id, if it brought none.
    made_id: u128,
    style: HeaderStyle,
    is_cross_origin: bool,
}

/// The value of a future that is there at the first poll.
pub(crate) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl<S: Store<Error = Infallible>, O: Observe> Gate<S, O> {
    /// Identifies the client and decides. Stores what it found in `known`; if `known` is empty, the peer comes from the request's
    /// extensions or from the door. `keep` extracts what must outlive the query.
    pub(crate) async fn ask<K>(
        &self,
        request: &Parts,
        known: &mut Option<RequestContext>,
        keep: impl FnOnce(&Query<'_>, &Decision) -> K,
    ) -> Result<Asked<K>, Problem> {
        let door = &self.door;
        if known.is_none() {
            let before = request.extensions.get::<RequestContext>().cloned();
            let before = before.map(|known| known.valid_under(&door.dialect.load()));
            *known = before.or_else(|| (door.peer)(request).map(RequestContext::of));
        }
        let Some(known) = known else { return Err(unknown_peer()) };
        let (now, made_id) = (door.clock.now(), fastrand::u128(..));
        let id = CorrelationId::new(&request.headers, made_id);
        let policies = door.rule_set.as_ref().map_or_else(|| self.limiter.load(), |set| set.load());
        let needs = Arc::clone(policies.needs());
        if policies.counts_bytes() && known.body.is_none() {
            known.body = Some(match BodyLength::of(request) {
                BodyLength::Unknown if !door.meters_bodies => BodyLength::NotMetered,
                length @ (BodyLength::Bytes(_) | BodyLength::Unknown | BodyLength::NotMetered) => length,
            });
        }
        let dialect = door.dialect.load();
        let mut facts = identify_with_context(request, known, &dialect.rules, &needs, now);
        self.tell_more(request, &policies, &mut facts);
        let proxies = &dialect.rules.proxies;
        if let Some(header) = newly_ignored(&request.headers, known.peer, proxies, now) {
            warn_of_ignored(header, known.peer);
        }
        dialect.report_unknown_key(&facts);
        if let Some(cause) = facts.token_error {
            debug!(%cause, "token rejected: its user and claims are ignored");
        }
        if let Some(problem) = facts.problem(&dialect.rules) {
            return Err(problem);
        }
        let style = dialect.headers;
        drop(dialect);
        (known.client, known.token) = (facts.address, facts.token.take());
        let attributes = facts.attributes();
        let named: SmallVec<[&str; 4]> = door.policies.iter().map(AsRef::as_ref).collect();
        let query = Query {
            select: facts.select(&named),
            attributes: &attributes,
            address: facts.address,
            ask: Ask::Spend(door.cost.as_ref().map_or(NonZeroU32::MIN, |cost| cost(request))),
            patience: door.patience,
            id: Some(&id),
            entrypoint: door.entrypoint,
        };
        let decision = self.limiter.decide_under(policies, &query).await;
        if let Some(report) = &known.report {
            self.report(report, request, known, &facts, (&query, &decision));
        }
        let kept = keep(&query, &decision);
        let manner = Manner { now, made_id, style, is_cross_origin: request.headers.contains_key(ORIGIN) };
        Ok(Asked { decision, kept, manner })
    }

    /// Writes down what was decided, for the stage that asked for it.
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
            let dialect = self.door.dialect.load();
            let rules = &dialect.rules;
            let has_token = known.token.as_ref().is_some_and(|token| token.is_valid());
            let sources = IdentitySources {
                has_authorization: request.headers.contains_key(AUTHORIZATION),
                is_by_user_header: !has_token
                    && rules.user_header.is_some()
                    && rules.proxies.trust(known.peer),
            };
            let address = AddressOrigin::of(&request.headers, known.peer, &rules.proxies);
            Explain { query, decision, facts, rules, address, sources }.line()
        });
    }

    /// What the door knows besides what the request says.
    fn tell_more<'a>(&'a self, request: &Parts, policies: &Policies, facts: &mut Facts<'a>) {
        if let Some(route) = &self.door.route {
            facts.set(AttributeName::Route, &**route);
        }
        for (name, value) in &self.door.attributes {
            let own = AttributeName::Named(&**name);
            if policies.needs().iter().any(|need| need.is(&own))
                && let Some(value) = value(request)
            {
                facts.set(own, value);
            }
        }
    }

    /// The answer of who is denied.
    pub(crate) fn deny<K>(&self, request: &Parts, asked: &Asked<K>) -> Response<String> {
        let dialect = self.door.dialect.load();
        let id = CorrelationId::new(&request.headers, asked.manner.made_id).text();
        let mut answer = denial(request, &id, asked, &dialect);
        asked.render(answer.headers_mut());
        if request.method == Method::HEAD {
            // In HTTP/2 a client would take the body for a protocol error.
            let length = answer.body().len();
            answer.headers_mut().insert(CONTENT_LENGTH, length.into());
            answer.body_mut().clear();
        }
        answer
    }
}

impl<S, O> Gate<S, O> {
    /// The response to a request that is not decided on.
    pub(crate) fn reject(&self, request: &Parts, problem: Problem) -> Response<String> {
        let id = CorrelationId::new(&request.headers, fastrand::u128(..)).text();
        let (kind, instance, now) = (Problem::BLANK, Some(request.uri.path()), self.door.clock.now());
        problem.on(&ProblemContext { kind, instance, correlation_id: &id, now }).render()
    }
}

impl<K> Asked<K> {
    pub(crate) fn is_denied(&self) -> bool {
        self.decision.verdict() == Verdict::Deny
    }

    /// The same, with no more to say of limits than when to come back.
    #[must_use]
    pub(crate) fn tersely(mut self) -> Self {
        self.manner.style = HeaderStyle { x_ratelimit: false, ietf: false, ..self.manner.style };
        self
    }

    /// Adds the rate limit fields to an answer.
    pub(crate) fn render(&self, headers: &mut HeaderMap) {
        let Manner { now, style, is_cross_origin, .. } = self.manner;
        let Some(fields) = RateLimitHeaders::of(&self.decision, now) else { return };
        fields.render(style, headers);
        if is_cross_origin {
            RateLimitHeaders::expose(headers);
        }
    }
}

fn denial<K>(request: &Parts, id: &str, asked: &Asked<K>, dialect: &Dialect) -> Response<String> {
    let path = request.uri.path();
    let occasion = ProblemContext {
        kind: &dialect.problem_type,
        instance: Some(path),
        correlation_id: id,
        now: asked.manner.now,
    };
    let mut answer = Problem::denial(&asked.decision, &occasion).render();
    if let Ok(id) = HeaderValue::from_str(id) {
        answer.headers_mut().insert(CORRELATION_ID, id);
    }
    answer
}

/// Clients behind a proxy that is not trusted look like one.
#[cold]
fn warn_of_ignored(header: &'static str, peer: IpAddr) {
    warn!(
        header,
        %peer,
        "forwarding header ignored: the peer is not in clients.trusted_proxies, so all clients behind it count as one; if it is your proxy, add its network there"
    );
}

/// Nobody told who is asking: a slip of the program that must not open the gate.
#[cold]
fn unknown_peer() -> Problem {
    error!("a request has no peer address, so it cannot be limited; give the Door a `peer` function");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "it is not known from where this request came")
}
