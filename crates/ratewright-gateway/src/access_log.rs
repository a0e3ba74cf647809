//! The access log: one entry per request.
//!
//! An entry starts when the route is known and is recorded with the response head. If the client disconnects first, it
//! is recorded without a status, so every request is recorded exactly once.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::USER_AGENT;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Version};
use ratewright_core::{Clock, Micros, Timestamp};
use ratewright_http::correlation::given_id;
use ratewright_http::parts;
use ratewright_http::request_context::DecisionReport;

/// A log of requests. It is called only if `has_access_log` is set.
pub trait AccessLog: Send + Sync {
    /// Records a request. Called on the serving thread, so it must not block.
    fn record(&self, entry: &AccessLogEntry<'_>);
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct AccessLogEntry<'a> {
    /// When it arrived, in wall-clock time.
    pub at: Timestamp,
    /// The client's address, as identified.
    pub client: IpAddr,
    /// The method.
    pub method: &'a Method,
    /// The host in lower case and without a port.
    pub host: Option<&'a str>,
    /// The path as forwarded, or as received if there is no route. Without the query, which may contain secrets.
    pub path: &'a str,
    /// The name of the route. None: no route matched.
    pub route: Option<&'a str>,
    /// The policy that denied the request, or the tightest one that allowed it. None: no policy applied.
    pub policy: Option<&'a str>,
    /// True if the limiter denied it.
    pub is_denied: bool,
    /// The response status. None: the client disconnected first.
    pub status: Option<StatusCode>,
    /// Time until the response head.
    pub duration: Micros,
    /// The request id.
    pub id: &'a str,
    /// The `User-Agent` header.
    pub user_agent: Option<&'a [u8]>,
    /// The client's HTTP version.
    pub version: Version,
}

/// Discards all entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAccessLog;

impl AccessLog for NoAccessLog {
    fn record(&self, _: &AccessLogEntry<'_>) {}
}

/// An entry that is not recorded yet.
pub(crate) struct PendingEntry<'a> {
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
    user_agent: Option<HeaderValue>,
    version: Version,
    report: Arc<DecisionReport>,
    is_recorded: bool,
}

/// When a request arrived, by both clocks, and from which client.
pub(crate) struct Arrival<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) began_at: Timestamp,
    pub(crate) at: Timestamp,
    pub(crate) client: IpAddr,
    /// Filled by the limiter.
    pub(crate) report: Arc<DecisionReport>,
}

impl<'a> PendingEntry<'a> {
    /// Starts an entry for a request with an id and a normalized path.
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
            user_agent: head.headers.get(USER_AGENT).cloned(),
            version: head.version,
            report,
            is_recorded: false,
        }
    }

    /// Records the entry with the response status.
    pub(crate) fn responded(mut self, status: StatusCode) {
        self.record(Some(status));
    }

    fn record(&mut self, status: Option<StatusCode>) {
        self.is_recorded = true;
        let policy = self.report.policy();
        self.log.record(&AccessLogEntry {
            at: self.at,
            client: self.client,
            method: &self.method,
            host: self.host.as_deref(),
            path: &self.path,
            route: self.route,
            policy: policy.as_deref(),
            is_denied: self.report.is_denied(),
            status,
            duration: self.clock.now().since(self.began_at),
            id: &self.id,
            user_agent: self.user_agent.as_ref().map(HeaderValue::as_bytes),
            version: self.version,
        });
    }
}

impl Drop for PendingEntry<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record(None);
        }
    }
}
