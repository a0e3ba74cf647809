//! Why Redis gave no answer.

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, ErrorKind, RedisError, ServerErrorKind};

/// Why a store gave no answer. Being over quota is an answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was sent, so nothing was spent.
    #[error("cannot reach Redis at {endpoint}: {cause}")]
    Unreachable {
        /// Where.
        endpoint: Endpoint,
        /// What went wrong when it was tried last.
        cause: String,
    },
    /// So many wait for Redis already that no more are sent. Nothing was spent.
    #[error("{n_max} decisions wait for Redis at {endpoint} already")]
    Crowded {
        /// Where.
        endpoint: Endpoint,
        /// The most that may wait.
        n_max: usize,
    },
    /// It was sent; whether it was applied is unknown.
    #[error("Redis at {endpoint} did not answer within {deadline:?}")]
    TimedOut {
        /// Where.
        endpoint: Endpoint,
        /// How long it had.
        deadline: Duration,
    },
    /// The connection broke after it was sent; whether it was applied is unknown.
    #[error("lost Redis at {endpoint}: {cause}")]
    Lost {
        /// Where.
        endpoint: Endpoint,
        /// What happened.
        cause: String,
    },
    /// Redis answered that it will not. Nothing was spent.
    #[error("Redis at {endpoint} refuses: {reply}")]
    Refused {
        /// Where.
        endpoint: Endpoint,
        /// Its words.
        reply: String,
    },
    /// The answer says nothing of some charges; whether they were applied is unknown.
    #[error("the store answered {n_standings} of {n_charges} charges")]
    Incomplete {
        /// How many charges were sent.
        n_charges: usize,
        /// How many standings came back.
        n_standings: usize,
    },
    /// The answer is none that our script gives.
    #[error("Redis at {endpoint} answered {got} where {expected} was due")]
    Garbled {
        /// Where.
        endpoint: Endpoint,
        /// What came.
        got: String,
        /// What should have come.
        expected: &'static str,
    },
}

/// A [`StoreError`] in one word, as metrics write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FailureKind {
    /// Nothing was sent.
    Unreachable,
    /// Too many wait already.
    Crowded,
    /// No answer came in time.
    TimedOut,
    /// The connection broke.
    Lost,
    /// Redis will not.
    Refused,
    /// The answer makes no sense.
    Garbled,
}

/// Where a Redis is: addresses, and never a user or password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint(pub(super) std::sync::Arc<str>);

impl StoreError {
    /// True if the charges may have been spent although no answer came.
    pub fn may_have_spent(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Lost { .. } | Self::Incomplete { .. } | Self::Garbled { .. } => {
                true
            }
            Self::Unreachable { .. } | Self::Crowded { .. } | Self::Refused { .. } => false,
        }
    }

    /// Which it is.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Unreachable { .. } => FailureKind::Unreachable,
            Self::Crowded { .. } => FailureKind::Crowded,
            Self::TimedOut { .. } => FailureKind::TimedOut,
            Self::Lost { .. } => FailureKind::Lost,
            Self::Refused { .. } => FailureKind::Refused,
            Self::Incomplete { .. } | Self::Garbled { .. } => FailureKind::Garbled,
        }
    }

    /// What an error of the client library means, of a call that was sent.
    pub(super) fn of_call(endpoint: &Endpoint, error: &RedisError) -> Self {
        let endpoint = endpoint.clone();
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "another crate's, and open: what is not known is lost"
        )]
        match error.kind() {
            // An error in words: the server's. With its `#!lua` line a script is refused before it runs.
            // It ran, and stumbled: how far it got, nobody knows.
            _ if error.to_string().contains("user_script:") => {
                Self::Garbled { endpoint, got: words(error), expected: "an answer" }
            }
            ErrorKind::Server(ServerErrorKind::ResponseError) => {
                Self::Garbled { endpoint, got: words(error), expected: "an answer" }
            }
            ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => {
                Self::Refused { endpoint, reply: words(error) }
            }
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
                Self::Garbled { endpoint, got: words(error), expected: "an answer" }
            }
            _ => Self::Lost { endpoint, cause: words(error) },
        }
    }
}

impl FailureKind {
    /// All there are, in their order.
    pub const ALL: [Self; 6] =
        [Self::Unreachable, Self::Crowded, Self::TimedOut, Self::Lost, Self::Refused, Self::Garbled];

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Crowded => "queue_full",
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
            Self::Refused => "refused",
            Self::Garbled => "bad_reply",
        }
    }
}

/// What an error says, in one line. The library's errors hold no credentials, but what a server echoes may be long.
pub(super) fn words(error: &RedisError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}

impl Endpoint {
    /// All addresses that a client was given.
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
