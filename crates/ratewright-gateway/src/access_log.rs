//! What is told of requests to whoever keeps a log of them.
//!
//! A request is noted when its route is known, and told when the head of its answer is there. One whose client goes away before
//! that is told without a status, so that every request is told exactly once.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Version};
use ratewright_core::{Clock, Micros, Timestamp};
use ratewright_http::{DecisionReport, given_id, parts};

/// Keeps a log of requests. It is asked only while the settings say so.
pub trait AccessLog: Send + Sync {
    /// Takes a request down. Called by the thread that serves, so it must not wait for anything.
    fn record(&self, entry: &Entry<'_>);
}

/// One request, as it is told.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// When it came, by the time of day.
    pub at: Timestamp,
    /// Who asked, as it was found out.
    pub client: IpAddr,
    /// What for.
    pub method: &'a Method,
    /// The host, in lower case and without a port, if there is one.
    pub host: Option<&'a str>,
    /// The path as it was forwarded; or as it was written, if it led nowhere. Without the query, which may hold secrets.
    pub path: &'a str,
    /// The name of the route. None: it led nowhere.
    pub route: Option<&'a str>,
    /// The policy that denied it, or the tightest of those that let it through. None: no limit applied.
    pub policy: Option<&'a str>,
    /// True if the limiter denied it.
    pub is_denied: bool,
    /// The answer's. None: the client went away before there was one.
    pub status: Option<StatusCode>,
    /// How long it took until the head of the answer was there.
    pub took: Micros,
    /// What the request is called.
    pub id: &'a str,
    /// Which program asked, as it says itself.
    pub agent: Option<&'a [u8]>,
    /// The HTTP that the client speaks.
    pub version: Version,
}

/// Keeps no log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlogged;

impl AccessLog for Unlogged {
    fn record(&self, _: &Entry<'_>) {}
}

/// A request of which it is not known yet what becomes of it.
pub(crate) struct Noted<'a> {
    log: &'a dyn AccessLog,
    clock: &'a dyn Clock,
    began_at: Timestamp,
    at: Timestamp,
    client: IpAddr,
    method: Method,
    host: Option<String>,
    path: String,
    route: Option<&'a str>,
    id: String,
    agent: Option<HeaderValue>,
    version: Version,
    report: Arc<DecisionReport>,
    is_told: bool,
}

/// When a request came, by both clocks, and who asked.
pub(crate) struct Arrival<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) began_at: Timestamp,
    pub(crate) at: Timestamp,
    pub(crate) client: IpAddr,
    /// Where the limiter writes down what it decided.
    pub(crate) report: Arc<DecisionReport>,
}

impl<'a> Noted<'a> {
    /// Notes a request that has its name and its path, and perhaps a route.
    pub(crate) fn new(
        log: &'a dyn AccessLog,
        arrival: Arrival<'a>,
        head: &Parts,
        route: Option<&'a str>,
    ) -> Self {
        let Arrival { clock, began_at, at, client, report } = arrival;
        Self {
            log,
            clock,
            began_at,
            at,
            client,
            method: head.method.clone(),
            host: parts::host(head).map(|host| host.into_owned()),
            path: head.uri.path().to_owned(),
            route,
            id: given_id(&head.headers).unwrap_or_default().to_owned(),
            agent: head.headers.get(USER_AGENT).cloned(),
            version: head.version,
            report,
            is_told: false,
        }
    }

    /// The head of the answer is there.
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.tell(Some(status));
    }

    fn tell(&mut self, status: Option<StatusCode>) {
        self.is_told = true;
        let policy = self.report.policy();
        self.log.record(&Entry {
            at: self.at,
            client: self.client,
            method: &self.method,
            host: self.host.as_deref(),
            path: &self.path,
            route: self.route,
            policy: policy.as_deref(),
            is_denied: self.report.is_denied(),
            status,
            took: self.clock.now().since(self.began_at),
            id: &self.id,
            agent: self.agent.as_ref().map(HeaderValue::as_bytes),
            version: self.version,
        });
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell(None);
        }
    }
}
