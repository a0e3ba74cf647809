//! What can go wrong behind the gateway, and how the client is told.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use ratewright_core::Micros;
use ratewright_http::{Problem, ProblemContext};

use crate::body::{Body, BodyError};
use crate::dial::DialError;
use crate::h1::SendError;
use crate::headers::UpgradeError;
use crate::pace::BodyRate;

/// What the library or the operating system says.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

/// Why there is no answer of a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// All have been tried, or there are none.
    #[error("no server is left to try")]
    NoServer,
    /// It was closed while it was idle. Nothing was sent.
    #[error("a connection was closed before it could be used")]
    Stale,
    /// There is no connection.
    #[error("the server cannot be reached")]
    Unreachable(#[source] DialError),
    /// There was a connection, and nothing could be sent.
    #[error("the server took no request")]
    Unsent(#[source] Cause),
    /// The head of the answer did not come in time.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// All of it took too long.
    #[error("not done within {0:?}")]
    TooSlow(Duration),
    /// A connection that was kept was closed after something was sent, and before anything of an answer came.
    #[error("a connection was closed as it was used")]
    Closed(#[source] Cause),
    /// The connection broke after something was sent.
    #[error("the server broke off")]
    BrokeOff(#[source] Cause),
    /// The server said that it has not looked at the request.
    #[error("the server refused the request unseen")]
    Refused(#[source] Cause),
    /// What came was no answer to what was asked.
    #[error("the server's answer makes no sense")]
    Garbled,
    /// A 101 response opens no tunnel, since it does not agree to the upgrade that the client asked for.
    #[error("invalid 101 response from the upstream")]
    BadUpgrade(#[source] UpgradeError),
    /// The client's body is too long.
    #[error("the body is longer than {0} bytes")]
    BodyTooLong(u64),
    /// The client's body does not fit a limit on bytes.
    #[error("the body does not fit a limit on bytes")]
    OverLimit {
        /// When it would; nothing if never.
        retry_after: Option<Micros>,
    },
    /// The client stopped sending its body.
    #[error("the client sent nothing for {0:?}")]
    ClientQuiet(Duration),
    /// The client sends its body too slowly.
    #[error("request body too slow: less than {0}")]
    ClientSlow(BodyRate),
    /// The client's body is no body.
    #[error("the client's body makes no sense")]
    ClientGarbled,
    /// The client broke off.
    #[error("the client broke off")]
    ClientGone,
}

/// Says of an answer that its client has broken off, and hardly anybody reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone;

impl Trouble {
    /// What became of a request of which something was sent.
    pub(crate) fn of_sent(error: SendError, body_max: u64) -> Self {
        match error {
            SendError::Closed(cause) => Self::Closed(cause.into()),
            SendError::Broken(cause) => Self::BrokeOff(cause.into()),
            SendError::Garbled(_) => Self::Garbled,
            SendError::Quiet(pause) => Self::NoAnswer(pause),
            SendError::Upload(error) => Self::of_body(&error, body_max),
        }
    }

    /// The same, on a connection that is shared.
    pub(crate) fn of_sent_stream(error: hyper::Error) -> Self {
        if is_unseen(&error) {
            Self::Refused(error.into())
        } else if error.is_parse() {
            Self::Garbled
        } else {
            Self::BrokeOff(error.into())
        }
    }

    /// What stopped the client's body.
    pub(crate) fn of_body(error: &BodyError, body_max: u64) -> Self {
        match error {
            BodyError::TooLong => Self::BodyTooLong(body_max),
            BodyError::OverLimit { retry_after } => Self::OverLimit { retry_after: *retry_after },
            BodyError::Quiet(pause) => Self::ClientQuiet(*pause),
            BodyError::Slow(rate) => Self::ClientSlow(*rate),
            BodyError::Broken(error) if is_garbled(error) => Self::ClientGarbled,
            BodyError::Broken(_) | BodyError::Unfinished(_) | BodyError::TooSlow(_) | BodyError::Stopped => {
                Self::ClientGone
            }
        }
    }

    /// True if it speaks against the server.
    pub(crate) fn is_the_servers(&self) -> bool {
        match self {
            Self::Unreachable(DialError::Ours(_)) => false,
            Self::Unreachable(_)
            | Self::Unsent(_)
            | Self::NoAnswer(_)
            | Self::BrokeOff(_)
            | Self::Garbled => true,
            Self::NoServer
            | Self::Stale
            | Self::Closed(_)
            | Self::Refused(_) // it leaves, or has enough to do
            | Self::TooSlow(_)
            | Self::BadUpgrade(_) // it answers; and a client that asks for odd upgrades must not have it ejected
            | Self::BodyTooLong(_)
            | Self::OverLimit { .. }
            | Self::ClientQuiet(_)
            | Self::ClientSlow(_)
            | Self::ClientGarbled
            | Self::ClientGone => false,
        }
    }

    /// True if a server may have seen something of the request.
    pub(crate) fn was_sent(&self) -> bool {
        !matches!(self, Self::NoServer | Self::Stale | Self::Unreachable(_) | Self::Unsent(_))
    }

    /// True if the server has certainly done nothing.
    pub(crate) fn was_unseen(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// True if the machine is at its end, and trying again would only make it worse.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Unreachable(DialError::Ours(_)))
    }

    /// True if the same request may fare better the next time.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::BrokeOff(_) | Self::Garbled)
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NoServer | Self::Unreachable(DialError::Ours(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable(DialError::TimedOut(_)) | Self::NoAnswer(_) | Self::TooSlow(_) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Stale
            | Self::Unreachable(_)
            | Self::Unsent(_)
            | Self::Closed(_)
            | Self::BrokeOff(_)
            | Self::Refused(_)
            | Self::Garbled
            | Self::BadUpgrade(_) => StatusCode::BAD_GATEWAY,
            Self::BodyTooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::OverLimit { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::ClientQuiet(_) | Self::ClientSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::ClientGarbled | Self::ClientGone => StatusCode::BAD_REQUEST,
        }
    }

    /// What the client is told. Which server it was is not its affair.
    pub(crate) fn render(&self, occasion: &ProblemContext<'_>) -> Response<Body> {
        let detail = match self {
            Self::BodyTooLong(bytes) => format!("The body is longer than {bytes} bytes, and may not be."),
            Self::OverLimit { retry_after: Some(wait) } => {
                format!("The body exceeds a limit on bytes. Try again in {} seconds.", seconds(*wait))
            }
            Self::OverLimit { retry_after: None } => {
                "The body exceeds a limit on bytes, and never fits it.".to_owned()
            }
            Self::ClientQuiet(pause) => format!("Nothing of the body came for {pause:?}."),
            Self::ClientSlow(rate) => format!("The body came too slowly; send at least {rate}."),
            Self::ClientGarbled => "The body makes no sense.".to_owned(),
            Self::ClientGone => "The body broke off.".to_owned(),
            Self::NoAnswer(_) | Self::TooSlow(_) | Self::Unreachable(DialError::TimedOut(_)) => {
                "The server behind this gateway did not answer in time.".to_owned()
            }
            Self::NoServer | Self::Stale | Self::Unreachable(_) | Self::Unsent(_) => {
                "The server behind this gateway cannot be reached.".to_owned()
            }
            Self::Closed(_) | Self::BrokeOff(_) => {
                "The server behind this gateway broke off before it answered.".to_owned()
            }
            Self::Refused(_) => "The server behind this gateway took no request.".to_owned(),
            Self::Garbled | Self::BadUpgrade(_) => "The upstream sent an invalid response.".to_owned(),
        };
        let mut answer = Problem::new(self.status(), detail).on(occasion).render().map(Body::from);
        if let Self::OverLimit { retry_after: Some(wait) } = self {
            answer.headers_mut().insert(RETRY_AFTER, seconds(*wait).into());
        }
        if matches!(self, Self::ClientGone) {
            answer.extensions_mut().insert(Gone);
        }
        answer
    }
}

/// Whole seconds to wait, at least one.
fn seconds(wait: Micros) -> u64 {
    wait.as_secs_ceil().max(1)
}

impl From<DialError> for Trouble {
    fn from(error: DialError) -> Self {
        Self::Unreachable(error)
    }
}

/// True if what came of a body breaks the rules of bodies. Otherwise it is its end that did not come.
fn is_garbled(error: &hyper::Error) -> bool {
    let kind = causes(error).find_map(|cause| cause.downcast_ref()).map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput))
}

/// True if the server says that it has not looked at a request: it refused the stream, or said goodbye and that an earlier stream
/// was its last. Streams that a goodbye does not exclude end otherwise.
fn is_unseen(error: &hyper::Error) -> bool {
    causes(error).find_map(|cause| cause.downcast_ref()).is_some_and(|error: &h2::Error| {
        let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (is_refused || error.is_go_away())
    })
}

/// True if a connection ended without a word about the stream.
pub(crate) fn is_ended(error: &hyper::Error) -> bool {
    causes(error).any(<dyn Error>::is::<io::Error>)
}

/// What is behind an error, from the outside in.
fn causes(error: &hyper::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}
