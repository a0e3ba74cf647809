//! Whether a request that got no response was certainly not processed.

use std::error::Error;
use std::io;

use crate::decide::Failure;

impl Failure {
    /// Looks through an error and its sources for proof that the server did not process the request: no connection was
    /// made, or HTTP/2 refused the stream.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            if is_proof(error) {
                return Self::NotSent;
            }
            next = error.source();
        }
        Self::Unknown
    }
}

fn is_proof(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        return is_unprocessed(error);
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        // An error within an `io::Error` is not among its sources, but in its place.
        let inner =
            error.get_ref().and_then(|inner| (inner as &(dyn Error + 'static)).downcast_ref::<h2::Error>());
        return error.kind() == io::ErrorKind::ConnectionRefused || inner.is_some_and(is_unprocessed);
    }
    #[cfg(feature = "reqwest")]
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return error.is_connect();
    }
    false
}

/// RFC 9113 §8.7: a refused stream, and streams that a graceful GOAWAY leaves out, were not processed. A stream that such a
/// GOAWAY does not leave out goes on, so it does not end with this error.
fn is_unprocessed(error: &h2::Error) -> bool {
    let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    refused || (error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR))
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
