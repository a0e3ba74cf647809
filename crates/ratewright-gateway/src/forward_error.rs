//! Why forwarding failed, and the client's response.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use ratewright_core::Micros;
use ratewright_http::{Problem, ProblemContext};

use crate::body::{Body, BodyError};
use crate::body_rate::BodyRate;
use crate::dial::DialError;
use crate::h1::SendError;
use crate::headers::UpgradeError;
use crate::upstream::FailureKind;

/// The error of a library or of the operating system.
pub(crate) type BoxedCause = Box<dyn Error + Send + Sync>;

/// Why there is no response from an upstream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    /// All servers were tried.
    #[error("no server left to try")]
    NoServer,
    /// The pooled connection was closed before anything was sent.
    #[error("connection closed while idle")]
    StaleConnection,
    /// No connection could be opened.
    #[error("upstream unreachable")]
    Unreachable(#[source] DialError),
    /// The connection was open, but nothing could be sent.
    #[error("request not sent: upstream closed the connection")]
    NotSent(#[source] BoxedCause),
    /// `timeouts.header` elapsed before the response head.
    #[error("no response head within {0:?}")]
    HeaderTimeout(Duration),
    /// `timeouts.total` elapsed.
    #[error("request not finished within {0:?}")]
    TotalTimeout(Duration),
    /// A pooled connection was closed after something was sent and before any byte of the response.
    #[error("pooled connection closed before the response")]
    ClosedBeforeResponse(#[source] BoxedCause),
    /// The connection was lost after something was sent.
    #[error("connection to the upstream lost")]
    ConnectionLost(#[source] BoxedCause),
    /// The upstream reports that it did not process the request.
    #[error("upstream did not process the request")]
    StreamRefused(#[source] BoxedCause),
    /// The response is invalid.
    #[error("invalid response from the upstream")]
    InvalidResponse,
    /// A 101 response does not match the requested upgrade.
    #[error("invalid 101 response from the upstream")]
    BadUpgrade(#[source] UpgradeError),
    /// The request body exceeds `body_max`.
    #[error("request body exceeds {0} bytes")]
    BodyTooLarge(u64),
    /// A policy that counts bytes denied the request body.
    #[error("request body exceeds a limit on bytes")]
    OverLimit {
        /// When it would be allowed. None: never.
        retry_after: Option<Micros>,
    },
    /// The client sent no data within the idle timeout.
    #[error("no data from the client for {0:?}")]
    ClientIdle(Duration),
    /// The client sends more slowly than `body_rate_min`.
    #[error("request body too slow: less than {0}")]
    ClientSlow(BodyRate),
    /// The request body is invalid.
    #[error("invalid request body")]
    ClientInvalid,
    /// The client aborted its request body.
    #[error("client aborted the request body")]
    ClientAborted,
}

/// A response extension: the client has aborted the request, so it counts as 499.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAborted;

impl ForwardError {
    /// The error of a request that was sent at least in part.
    pub(crate) fn from_send_error(error: SendError, body_max: u64) -> Self {
        match error {
            SendError::Closed(cause) => Self::ClosedBeforeResponse(cause.into()),
            SendError::Broken(cause) => Self::ConnectionLost(cause.into()),
            SendError::Invalid(_) => Self::InvalidResponse,
            SendError::TimedOut(pause) => Self::HeaderTimeout(pause),
            SendError::Upload(error) => Self::from_body_error(&error, body_max),
        }
    }

    /// The same for an HTTP/2 stream.
    pub(crate) fn from_stream_error(error: hyper::Error) -> Self {
        if is_unprocessed_stream(&error) {
            Self::StreamRefused(error.into())
        } else if error.is_parse() {
            Self::InvalidResponse
        } else {
            Self::ConnectionLost(error.into())
        }
    }

    /// The error of a request body.
    pub(crate) fn from_body_error(error: &BodyError, body_max: u64) -> Self {
        match error {
            BodyError::TooLarge => Self::BodyTooLarge(body_max),
            BodyError::OverLimit { retry_after } => Self::OverLimit { retry_after: *retry_after },
            BodyError::Idle(pause) => Self::ClientIdle(*pause),
            BodyError::BelowMinRate(rate) => Self::ClientSlow(*rate),
            BodyError::Interrupted(error) if is_invalid_body(error) => Self::ClientInvalid,
            BodyError::Interrupted(_)
            | BodyError::ResponseIncomplete(_)
            | BodyError::TotalTimeout(_)
            | BodyError::Stopped => Self::ClientAborted,
        }
    }

    /// How the server failed. None: it is not to blame.
    pub(crate) fn upstream_failure(&self) -> Option<FailureKind> {
        match self {
            Self::Unreachable(DialError::LocalResources(_)) => None,
            Self::Unreachable(error) if error.is_refusal() => Some(FailureKind::Unreachable),
            Self::Unreachable(DialError::TimedOut(_)) => Some(FailureKind::NoConnection),
            Self::HeaderTimeout(_) => Some(FailureKind::NoResponse),
            // A server with too many connections closes new ones.
            Self::Unreachable(_) | Self::NotSent(_) | Self::ConnectionLost(_) | Self::InvalidResponse => {
                Some(FailureKind::Broken)
            }
            Self::NoServer
            | Self::StaleConnection
            | Self::ClosedBeforeResponse(_)
            | Self::StreamRefused(_) // it is shutting down or overloaded
            | Self::TotalTimeout(_)
            | Self::BadUpgrade(_) // the upstream works; clients must not be able to eject it with odd upgrades
            | Self::BodyTooLarge(_)
            | Self::OverLimit { .. }
            | Self::ClientIdle(_)
            | Self::ClientSlow(_)
            | Self::ClientInvalid
            | Self::ClientAborted => None,
        }
    }

    /// True if the upstream may have received part of the request.
    pub(crate) fn was_sent(&self) -> bool {
        !matches!(self, Self::NoServer | Self::StaleConnection | Self::Unreachable(_) | Self::NotSent(_))
    }

    /// True if the upstream reports that it did not process the request.
    pub(crate) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::StreamRefused(_))
    }

    /// True if this host is out of resources, so that a retry would make it worse.
    pub(crate) fn is_local_failure(&self) -> bool {
        matches!(self, Self::Unreachable(DialError::LocalResources(_)))
    }

    /// True if a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::ConnectionLost(_) | Self::InvalidResponse)
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NoServer | Self::Unreachable(DialError::LocalResources(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Unreachable(DialError::TimedOut(_)) | Self::HeaderTimeout(_) | Self::TotalTimeout(_) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::StaleConnection
            | Self::Unreachable(_)
            | Self::NotSent(_)
            | Self::ClosedBeforeResponse(_)
            | Self::ConnectionLost(_)
            | Self::StreamRefused(_)
            | Self::InvalidResponse
            | Self::BadUpgrade(_) => StatusCode::BAD_GATEWAY,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::OverLimit { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::ClientIdle(_) | Self::ClientSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::ClientInvalid | Self::ClientAborted => StatusCode::BAD_REQUEST,
        }
    }

    /// The response to the client. It does not name the server.
    pub(crate) fn render(&self, occasion: &ProblemContext<'_>) -> Response<Body> {
        let detail = match self {
            Self::BodyTooLarge(bytes) => format!("request body exceeds {bytes} bytes"),
            Self::OverLimit { retry_after: Some(wait) } => {
                format!("request body exceeds a limit on bytes; retry after {} seconds", seconds(*wait))
            }
            Self::OverLimit { retry_after: None } => {
                "request body exceeds a limit on bytes; send a smaller one".to_owned()
            }
            Self::ClientIdle(pause) => format!("no data of the request body for {pause:?}"),
            Self::ClientSlow(rate) => format!("request body too slow; send at least {rate}"),
            Self::ClientInvalid => "invalid request body".to_owned(),
            Self::ClientAborted => "request body incomplete".to_owned(),
            Self::HeaderTimeout(_) | Self::TotalTimeout(_) | Self::Unreachable(DialError::TimedOut(_)) => {
                "upstream did not respond in time".to_owned()
            }
            Self::NoServer | Self::StaleConnection | Self::Unreachable(_) | Self::NotSent(_) => {
                "upstream unreachable".to_owned()
            }
            Self::ClosedBeforeResponse(_) | Self::ConnectionLost(_) => {
                "upstream closed the connection before it responded".to_owned()
            }
            Self::StreamRefused(_) => "upstream did not accept the request".to_owned(),
            Self::InvalidResponse | Self::BadUpgrade(_) => "upstream sent an invalid response".to_owned(),
        };
        let mut response = Problem::new(self.status(), detail).on(occasion).render().map(Body::from);
        if let Self::OverLimit { retry_after: Some(wait) } = self {
            response.headers_mut().insert(RETRY_AFTER, seconds(*wait).into());
        }
        if matches!(self, Self::ClientAborted) {
            response.extensions_mut().insert(ClientAborted);
        }
        response
    }
}

/// Whole seconds to wait, at least one.
fn seconds(wait: Micros) -> u64 {
    wait.as_secs_ceil().max(1)
}

impl From<DialError> for ForwardError {
    fn from(error: DialError) -> Self {
        Self::Unreachable(error)
    }
}

/// True if the received part of a body is invalid. Otherwise the body is incomplete.
fn is_invalid_body(error: &hyper::Error) -> bool {
    let kind = causes(error).find_map(|cause| cause.downcast_ref()).map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput))
}

/// True if the upstream reports that it did not process the stream: by REFUSED_STREAM, or by a GOAWAY with a lower last
/// stream.
fn is_unprocessed_stream(error: &hyper::Error) -> bool {
    causes(error).find_map(|cause| cause.downcast_ref()).is_some_and(|error: &h2::Error| {
        let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (is_refused || error.is_go_away())
    })
}

/// True if the connection ended without a word about the stream.
pub(crate) fn is_connection_end(error: &hyper::Error) -> bool {
    causes(error).any(<dyn Error>::is::<io::Error>)
}

/// The sources of an error, outermost first.
fn causes(error: &hyper::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}
