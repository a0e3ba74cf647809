//! Whether a request that got no response was certainly not processed.

use std::error::Error;
use std::io;

use crate::retry_decision::Failure;

impl Failure {
    /// Looks through an error and its sources for proof that the server did not process the request: no connection was
    /// made, or HTTP/2 refused the stream.
    ///
    /// An error of the request's own body proves nothing, whatever its sources are: a body that is read from another server can
    /// fail because that one refused a connection. Such errors are recognised if they come from hyper or reqwest.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let chain = || std::iter::successors(Some(error), |error| cause(*error));
        if !chain().any(is_of_body) && chain().any(is_proof) { Self::NotSent } else { Self::Unknown }
    }
}

/// The next error inside. `io::Error::source` skips the inner error, so it is taken with `get_ref`.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.map(|inner| inner as _).or_else(|| error.source())
}

fn is_of_body(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "reqwest")]
    if error.downcast_ref().is_some_and(reqwest::Error::is_body) {
        return true;
    }
    error.downcast_ref().is_some_and(hyper::Error::is_user)
}

fn is_proof(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "reqwest")]
    if error.downcast_ref().is_some_and(reqwest::Error::is_connect) {
        return true;
    }
    let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    error.downcast_ref().is_some_and(is_refused) || error.downcast_ref().is_some_and(is_unprocessed)
}

/// RFC 9113 §8.7: a stream that the server refused was not processed, nor were streams above the last id of a graceful GOAWAY.
/// Streams below it continue and never see this error.
fn is_unprocessed(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    let is_left_out = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (is_refused || is_left_out) // hyper resets a stream itself if the request's body fails
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn only_proof_counts() {
        let of = |kind: io::ErrorKind| Failure::of(&Outer(kind.into()));
        assert_eq!(of(io::ErrorKind::ConnectionRefused), Failure::NotSent);
        assert_eq!(of(io::ErrorKind::ConnectionReset), Failure::Unknown);
        assert_eq!(of(io::ErrorKind::TimedOut), Failure::Unknown);
        assert_eq!(
            Failure::of(&Outer(io::Error::other(h2::Error::from(h2::Reason::CANCEL)))),
            Failure::Unknown
        );
    }
}
