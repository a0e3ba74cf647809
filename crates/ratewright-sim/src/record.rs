//! One request of a log: what its line says, and nothing that was guessed.

use std::borrow::Cow;
use std::net::IpAddr;

use ratewright_core::Timestamp;
use ratewright_core::query::AttributeName;
use smallvec::SmallVec;

/// One request of a log. A value that the log does not have is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Record<'a> {
    /// When the request arrived. If the line has only the time of the response and the duration, their difference.
    pub at: Timestamp,
    /// True if the line has no fraction of a second.
    pub is_whole_second: bool,
    /// The client's address, as logged.
    pub address: Option<IpAddr>,
    /// `X-Forwarded-For`. Its last entry is the address that connected to the server.
    pub forwarded_for: Option<Cow<'a, str>>,
    /// The method.
    pub method: Cow<'a, str>,
    /// The path, with the query if the line has it.
    pub target: Cow<'a, str>,
    /// The host that the request was for.
    pub host: Option<Cow<'a, str>>,
    /// The user.
    pub user: Option<Cow<'a, str>>,
    /// The name of the gateway's route.
    pub route: Option<Cow<'a, str>>,
    /// The status of the response.
    pub status: Option<u16>,
    /// The size of the request's body in bytes.
    pub request_bytes: Option<u64>,
    /// Headers, cookies and claims.
    pub attributes: Attributes<'a>,
    /// The decision of the limiter that wrote the log.
    pub decision: Option<LoggedDecision<'a>>,
}

/// Headers, cookies and claims of a request.
pub(crate) type Attributes<'a> = SmallVec<[(AttributeName<Cow<'a, str>>, Cow<'a, str>); 2]>;

/// A decision that a line reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LoggedDecision<'a> {
    /// True if the request was denied by a limit.
    pub is_denied: bool,
    /// The policy that denied it.
    pub policy: Option<Cow<'a, str>>,
}
