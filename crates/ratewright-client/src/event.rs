//! What happens to a call, for metrics and logs.

use std::time::Duration;

use http::{Method, StatusCode, Uri};

use crate::retry_decision::{Cause, Why};

/// Something that happened to a call.
///
/// ```
/// use ratewright_client::{EventKind, Retry};
///
/// let retry = Retry::builder()
///     .on_event(|event| match event.kind {
///         EventKind::Waiting { wait, cause, .. } => println!("{} waits {wait:?}: {cause:?}", event.uri),
///         _ => {}
///     })
///     .build();
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// Where it goes. It may hold secrets in its query: log its host and path.
    pub uri: &'a Uri,
    /// Sends so far.
    pub attempts: u32,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The request waits in the gate for its turn. A request that gets its turn at once is not queued.
    Queued,
    /// The request is being sent.
    Sending,
    /// The request will be sent again.
    Waiting {
        /// After this time.
        wait: Duration,
        /// The reason.
        cause: Cause,
        /// The status of the response, if there was one.
        status: Option<StatusCode>,
    },
    /// The call ended with a response.
    Returned {
        /// The reason.
        why: Why,
        /// The status of the response.
        status: StatusCode,
    },
    /// The call ended with an error: the last send failed, the deadline passed, or the service inside the tower layer broke.
    Failed {
        /// The reason.
        why: Why,
    },
}
