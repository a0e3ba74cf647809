//! Results of earlier stages about a request, passed on so that later stages do not repeat the work.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Version};
use ratewright_core::{Decision, Verdict};

use crate::address::{self, Proxies};
use crate::http_settings::HttpSettings;
use crate::identify::RequestToken;
use crate::jwt::TokenError;

/// What earlier stages know about a request. It travels from layer to layer as an extension of the request.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The address of the connection's other end.
    pub peer: IpAddr,
    /// True if the peer is authenticated as a trusted proxy, by its address or otherwise.
    pub is_trusted_proxy: bool,
    /// The client's address, if a stage has determined it.
    pub client: Option<IpAddr>,
    /// True if the path is normal, except perhaps for a slash at its end.
    pub has_normal_path: bool,
    /// The token, if a stage has verified it.
    pub token: Option<Arc<VerifiedToken>>,
    /// The HTTP settings under which the other fields were found. `None`: they are valid under any.
    pub http_settings: Option<Arc<HttpSettings>>,
    /// The length of the body, if the stage that reads it has determined it.
    pub body: Option<BodyLength>,
    /// Where later stages record their decisions. `None`: no stage reads them.
    pub report: Option<Arc<DecisionReport>>,
}

/// The length of a request body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// Known, in bytes.
    Bytes(u64),
    /// Unknown until the body ends. Its pieces are charged as they arrive.
    Unknown,
    /// Unknown, and nothing charges the pieces. Counts as longer than any limit, so the request is denied.
    NotMetered,
}

impl BodyLength {
    /// The length according to the request's head. Without `Content-Length`, an HTTP/1.1 request has no body unless it is
    /// chunked; an HTTP/2 request may have one.
    pub fn of(request: &Parts) -> Self {
        if request.headers.contains_key(TRANSFER_ENCODING) {
            return Self::Unknown; // even beside a Content-Length
        }
        let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
        let length = lengths.next().map(|value| value.to_str().ok().and_then(|text| text.parse().ok()));
        match length {
            Some(Some(length)) => Self::Bytes(length),
            None if request.version < Version::HTTP_2 => Self::Bytes(0),
            Some(None) | None => Self::Unknown,
        }
    }
}

/// The decisions that later stages made about a request, for the stage that started it.
#[derive(Debug, Default)]
pub struct DecisionReport {
    wants_explanation: bool,
    written: Mutex<ReportState>,
}

#[derive(Debug, Default)]
struct ReportState {
    policy: Option<String>,
    is_denied: bool,
    explanation: Option<String>,
}

impl DecisionReport {
    /// A report that also explains decisions.
    pub fn with_explanation() -> Self {
        Self { wants_explanation: true, ..Self::default() }
    }

    /// Records a decision. The last one with a policy wins.
    pub fn record(&self, decision: &Decision, explanation: impl FnOnce() -> String) {
        let refused = decision.refused().map(|(policy, _)| policy.name());
        let policy = refused.or_else(|| decision.tightest().map(|(policy, ..)| policy.name()));
        let explanation = self.wants_explanation.then(explanation);
        let mut written = self.written();
        if let Some(policy) = policy {
            (written.policy, written.is_denied) =
                (Some(policy.to_owned()), decision.verdict() == Verdict::Deny);
        }
        if let Some(explanation) = explanation {
            let before = written.explanation.take().map_or(String::new(), |before| before + " | ");
            written.explanation = Some(before + &explanation);
        }
    }

    /// The policy that denied the request, or else the tightest policy that allowed it.
    pub fn policy(&self) -> Option<String> {
        self.written().policy.clone()
    }

    /// True if the limiter denied the request. A 429 may also come from the upstream.
    pub fn is_denied(&self) -> bool {
        self.written().is_denied
    }

    /// Why the request was limited or not.
    pub fn explanation(&self) -> Option<String> {
        self.written().explanation.clone()
    }

    fn written(&self) -> MutexGuard<'_, ReportState> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of verifying a request's token: its claims, or why it is invalid.
#[derive(Debug)]
pub struct VerifiedToken {
    pub(crate) token: RequestToken,
    pub(crate) refused: Option<TokenError>,
}

impl VerifiedToken {
    /// True if the request has a valid token.
    pub fn is_valid(&self) -> bool {
        matches!(self.token, RequestToken::Valid(_))
    }
}

impl RequestContext {
    /// A context with nothing but the peer.
    pub fn of(peer: IpAddr) -> Self {
        Self {
            peer,
            is_trusted_proxy: false,
            client: None,
            has_normal_path: false,
            token: None,
            http_settings: None,
            body: None,
            report: None,
        }
    }

    /// The part that is valid under these HTTP settings: others may trust other proxies and tokens.
    #[must_use]
    pub fn valid_under(self, http_settings: &Arc<HttpSettings>) -> Self {
        let is_valid =
            self.http_settings.as_ref().is_none_or(|found_under| Arc::ptr_eq(found_under, http_settings));
        if is_valid { self } else { Self { report: self.report, body: self.body, ..Self::of(self.peer) } }
    }

    /// The client's address.
    pub fn client(&self, headers: &HeaderMap, proxies: &Proxies) -> IpAddr {
        self.client.unwrap_or_else(|| address::client_address(headers, self.peer, proxies))
    }
}
