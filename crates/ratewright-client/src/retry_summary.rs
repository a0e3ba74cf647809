//! How a call ended: with a response, or at its deadline.

use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime};

use http::{Extensions, Response};

use crate::call::CallError;
use crate::retry_decision::Why;

/// How a call ended. It is in the extensions of the response; [`RetrySummary::of`] finds it there, and in errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RetrySummary {
    /// How many times the request was sent.
    pub attempts: u32,
    /// Why there was no further attempt.
    pub why: Why,
    /// When the server accepts the request again, as far as is known: something to show to people.
    pub retry_at: Option<SystemTime>,
}

/// The deadline of a call passed while it waited in the gate, or until the service inside the tower layer was ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("deadline of {deadline:?} passed {waited_for} (attempts: {attempts}); raise it, or send less")]
#[non_exhaustive]
pub struct DeadlineError {
    /// How many times the request was sent.
    pub attempts: u32,
    /// The policy's deadline.
    pub deadline: Duration,
    /// When the lane of the request opens, as far as is known.
    pub retry_at: Option<SystemTime>,
    pub(crate) waited_for: WaitedFor,
}

/// What a call waited for when its deadline passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitedFor {
    /// Its turn in the gate.
    Turn,
    /// The service inside the tower layer.
    #[cfg(feature = "tower")]
    Service,
}

/// What a [`RetrySummary`] can be found in: the responses and errors of this crate's clients.
pub trait HasRetrySummary {
    /// See [`RetrySummary::of`].
    fn retry_summary(&self) -> Option<RetrySummary>;
}

impl RetrySummary {
    /// Reads the summary of a response, of an error, or of a `Result` of both.
    ///
    /// Returns `None` for an error of the HTTP client itself, which cannot carry a summary. [`Event`](crate::Event)s report those
    /// calls too.
    ///
    /// ```
    /// use ratewright_client::{Retry, RetrySummary, Why};
    /// # use http::{HeaderMap, Method, Response};
    /// # use ratewright_client::call::RequestInfo;
    /// # use ratewright_client::retry_decision::BodyKind;
    /// # async fn send() -> Result<Response<String>, std::io::Error> { Ok(Response::new(String::new())) }
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let uri = "https://api.example.com/items".parse().unwrap();
    /// # let request = RequestInfo::new(&Method::GET, &uri, &HeaderMap::new(), BodyKind::None);
    /// let result = Retry::new().send(request, |_attempt| send()).await;
    /// assert_eq!(RetrySummary::of(&result).map(|summary| summary.why), Some(Why::Done));
    /// # });
    /// ```
    pub fn of(ended: &impl HasRetrySummary) -> Option<Self> {
        ended.retry_summary()
    }

    pub(crate) fn in_extensions(extensions: &Extensions) -> Option<Self> {
        extensions.get().copied()
    }

    /// The summary of a deadline error, which may be inside an error of `reqwest-middleware`.
    pub(crate) fn in_error(error: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = error.downcast_ref::<DeadlineError>() {
            return Some(error.summary());
        }
        #[cfg(feature = "reqwest")]
        if let Some(reqwest_middleware::Error::Middleware(error)) = error.downcast_ref() {
            return error.downcast_ref().map(DeadlineError::summary);
        }
        None
    }
}

impl fmt::Display for WaitedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Turn => "in the queue behind a rate limit",
            #[cfg(feature = "tower")]
            Self::Service => "before the inner service was ready",
        })
    }
}

impl DeadlineError {
    fn summary(&self) -> RetrySummary {
        RetrySummary { attempts: self.attempts, why: Why::Deadline, retry_at: self.retry_at }
    }
}

impl<R: HasRetrySummary, E: HasRetrySummary> HasRetrySummary for Result<R, E> {
    fn retry_summary(&self) -> Option<RetrySummary> {
        match self {
            Ok(response) => response.retry_summary(),
            Err(error) => error.retry_summary(),
        }
    }
}

impl<B> HasRetrySummary for Response<B> {
    fn retry_summary(&self) -> Option<RetrySummary> {
        RetrySummary::in_extensions(self.extensions())
    }
}

impl<E> HasRetrySummary for CallError<E> {
    fn retry_summary(&self) -> Option<RetrySummary> {
        match self {
            Self::Deadline(error) => Some(error.summary()),
            Self::Send(_) => None,
        }
    }
}

/// The error of the tower layer.
impl HasRetrySummary for Box<dyn Error + Send + Sync> {
    fn retry_summary(&self) -> Option<RetrySummary> {
        RetrySummary::in_error(&**self)
    }
}
