//! What an earlier stage has found out about a request, passed on so that later stages need not repeat it.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Version};
use ratewright_core::{Decision, Verdict};

use crate::address::{self, Proxies};
use crate::dialect::Dialect;
use crate::identify::Token;
use crate::jwt::TokenError;

/// What an earlier stage has found out about a request. As an extension of the request it goes from layer to layer.
#[derive(Clone, Debug)]
pub struct Known {
    /// Who is at the other end of the connection.
    pub peer: IpAddr,
    /// The client's address, once it was looked for.
    pub client: Option<IpAddr>,
    /// True if the path is written in its one spelling, but for a slash at its end.
    pub has_normal_path: bool,
    /// What the token says, once it was verified.
    pub token: Option<Arc<Verified>>,
    /// The rules by which this was found. None: valid under any rules.
    pub dialect: Option<Arc<Dialect>>,
    /// How long the body is, once the stage that reads it has found out.
    pub body: Option<BodyLength>,
    /// Where later stages write down what they decided. None: nobody asks.
    pub report: Option<Arc<Report>>,
}

/// How long the body of a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// So many bytes.
    Bytes(u64),
    /// Unknown until the body ends. Its pieces are charged as they come.
    Unknown,
    /// Unknown, and nothing charges the pieces. Counts as longer than any limit, so the request is denied.
    NotMetered,
}

impl BodyLength {
    /// What the head of a request says. Without a length, HTTP/1.1 has no body unless it is chunked; HTTP/2 may have one.
    pub fn of(request: &Parts) -> Self {
        if request.headers.contains_key(TRANSFER_ENCODING) {
            return Self::Unknown; // whatever length stands beside it
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

/// What the stages of a request decided, for the stage that sent it on its way.
#[derive(Debug, Default)]
pub struct Report {
    wants_explanation: bool,
    written: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    policy: Option<String>,
    is_denied: bool,
    explanation: Option<String>,
}

impl Report {
    /// A report in which decisions are explained too.
    pub fn with_explanation() -> Self {
        Self { wants_explanation: true, ..Self::default() }
    }

    /// Writes down a decision. Of several, the last one counts that a policy took part in.
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

    /// The policy that denied the request, or the tightest of those that let it through.
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

    fn written(&self) -> MutexGuard<'_, Recorded> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request's token says, and why it names nobody, if it does not.
#[derive(Debug)]
pub struct Verified {
    pub(crate) token: Token,
    pub(crate) refused: Option<TokenError>,
}

impl Verified {
    /// True if there is a genuine token.
    pub fn is_genuine(&self) -> bool {
        matches!(self.token, Token::Genuine(_))
    }
}

impl Known {
    /// Nothing but the peer.
    pub fn of(peer: IpAddr) -> Self {
        Self {
            peer,
            client: None,
            has_normal_path: false,
            token: None,
            dialect: None,
            body: None,
            report: None,
        }
    }

    /// What of it holds by these rules: others may trust other proxies and other tokens.
    #[must_use]
    pub fn by(self, dialect: &Arc<Dialect>) -> Self {
        let is_theirs = self.dialect.as_ref().is_none_or(|found_by| Arc::ptr_eq(found_by, dialect));
        if is_theirs { self } else { Self { report: self.report, body: self.body, ..Self::of(self.peer) } }
    }

    /// The client's address.
    pub fn client(&self, headers: &HeaderMap, proxies: &Proxies) -> IpAddr {
        self.client.unwrap_or_else(|| address::client_address(headers, self.peer, proxies))
    }
}
