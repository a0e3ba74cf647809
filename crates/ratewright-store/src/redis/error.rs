//! Errors of calls to Redis.

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, ErrorKind, RedisError, ServerErrorKind};

/// Why a store gave no decision. A denial is a decision, not an error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was sent, so nothing was spent.
    #[error("cannot reach Redis at {endpoint}: {cause}")]
    Unreachable {
        /// The address.
        endpoint: Endpoint,
        /// The error of the last attempt.
        cause: String,
    },
    /// The queue to Redis is full. Nothing was sent, so nothing was spent.
    #[error("queue to Redis at {endpoint} is full: {n_max} decisions are waiting")]
    QueueFull {
        /// The address.
        endpoint: Endpoint,
        /// The length of the queue.
        n_max: usize,
    },
    /// It was sent; whether it was applied is unknown.
    #[error("Redis at {endpoint} timed out after {deadline:?}")]
    TimedOut {
        /// The address.
        endpoint: Endpoint,
        /// The deadline.
        deadline: Duration,
    },
    /// The connection broke after it was sent; whether it was applied is unknown.
    #[error("connection to Redis at {endpoint} lost: {cause}")]
    Lost {
        /// The address.
        endpoint: Endpoint,
        /// The error.
        cause: String,
    },
    /// Redis rejected the call. Nothing was spent.
    #[error("Redis at {endpoint} rejected the call: {reply}")]
    Refused {
        /// The address.
        endpoint: Endpoint,
        /// The reply.
        reply: String,
    },
    /// The reply lacks some charges; whether they were applied is unknown.
    #[error("store reply incomplete: {n_standings} of {n_charges} charges")]
    Incomplete {
        /// How many charges were sent.
        n_charges: usize,
        /// How many standings came back.
        n_standings: usize,
    },
    /// The script never replies like this.
    #[error("unexpected reply from Redis at {endpoint}: {got}; expected {expected}")]
    BadReply {
        /// The address.
        endpoint: Endpoint,
        /// The reply.
        got: String,
        /// What the script sends.
        expected: &'static str,
    },
}

/// The kind of a [`StoreError`], as metrics label it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FailureKind {
    /// Nothing was sent.
    Unreachable,
    /// The queue is full.
    QueueFull,
    /// The deadline passed.
    TimedOut,
    /// The connection broke.
    Lost,
    /// Redis rejected the call.
    Refused,
    /// The reply was unexpected.
    BadReply,
}

/// The address of a Redis, never with a user or password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint(pub(super) std::sync::Arc<str>);

impl StoreError {
    /// True if the charges may have been spent although no reply came.
    pub fn may_have_spent(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Lost { .. } | Self::Incomplete { .. } | Self::BadReply { .. } => {
                true
            }
            Self::Unreachable { .. } | Self::QueueFull { .. } | Self::Refused { .. } => false,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Unreachable { .. } => FailureKind::Unreachable,
            Self::QueueFull { .. } => FailureKind::QueueFull,
            Self::TimedOut { .. } => FailureKind::TimedOut,
            Self::Lost { .. } => FailureKind::Lost,
            Self::Refused { .. } => FailureKind::Refused,
            Self::Incomplete { .. } | Self::BadReply { .. } => FailureKind::BadReply,
        }
    }

    /// Translates an error of the client library for a call that was sent.
    pub(super) fn of_call(endpoint: &Endpoint, error: &RedisError) -> Self {
        let endpoint = endpoint.clone();
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "another crate's, and open: an unknown kind counts as a lost connection"
        )]
        match error.kind() {
            // The server's own error. With its `#!lua` line a script is rejected before it runs.
            // It ran and failed; how far it got is unknown.
            _ if error.to_string().contains("user_script:") => {
                Self::BadReply { endpoint, got: words(error), expected: "an answer" }
            }
            ErrorKind::Server(ServerErrorKind::ResponseError) => {
                Self::BadReply { endpoint, got: words(error), expected: "an answer" }
            }
            ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => {
                Self::Refused { endpoint, reply: words(error) }
            }
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                Self::BadReply { endpoint, got: words(error), expected: "an answer" }
            }
            _ => Self::Lost { endpoint, cause: words(error) },
        }
    }
}

impl FailureKind {
    /// All kinds, in order.
    pub const ALL: [Self; 6] =
        [Self::Unreachable, Self::QueueFull, Self::TimedOut, Self::Lost, Self::Refused, Self::BadReply];

    /// The label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::QueueFull => "queue_full",
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
            Self::Refused => "refused",
            Self::BadReply => "bad_reply",
        }
    }
}

/// The text of an error in one line. The library's errors hold no credentials, but a server's reply may be long.
pub(super) fn words(error: &RedisError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}

impl Endpoint {
    /// All addresses of a client.
    pub(super) fn of<'a>(addresses: impl Iterator<Item = &'a ConnectionAddr>) -> Self {
        let addresses: Vec<_> = addresses.map(ToString::to_string).collect();
        Self(addresses.join(", ").into())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
