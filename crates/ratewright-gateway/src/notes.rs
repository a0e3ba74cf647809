//! What the log is told of servers: that they fail, once a second for each route at most; that they are left alone, and are back.

use std::error::Error;
use std::time::Duration;

use http::request::Parts;
use ratewright_core::{Micros, Timestamp};
use ratewright_http::given_id;
use ratewright_listen::LogThrottle;
use tracing::{info, warn};

use crate::route::Route;
use crate::server::Server;
use crate::trouble::Trouble;

/// Failures are told once in this time.
const CALM: Duration = Duration::from_secs(1);

/// The log of one route.
#[derive(Debug)]
pub(crate) struct Notes(LogThrottle);

impl Default for Notes {
    fn default() -> Self {
        Self(LogThrottle::new(CALM))
    }
}

impl Notes {
    /// A server failed, whether another one answers in its place or not.
    #[cold]
    pub(crate) fn failed(
        &self,
        (route, server): (&Route, &Server),
        trouble: &Trouble,
        request: &Parts,
        now: Timestamp,
    ) {
        let Some(suppressed) = self.0.admit(now.as_micros()) else { return };
        let (cause, request_id) = (cause(trouble), given_id(&request.headers));
        warn!(
            route = %route.id, %server, %trouble, cause, request_id, suppressed,
            "a request got no answer from its server"
        );
    }

    /// A server is left alone.
    #[cold]
    pub(crate) fn ejected(&self, (route, server): (&Route, &Server), eject_for: Micros) {
        let seconds = eject_for.as_secs_ceil();
        warn!(route = %route.id, %server, seconds, "a server is left alone, since it failed too often");
    }

    /// A server is asked again.
    #[cold]
    pub(crate) fn back(&self, (route, server): (&Route, &Server)) {
        info!(route = %route.id, %server, "a server that was left alone is back");
    }
}

/// All that is behind a trouble, the last word last: `no connection: Connection refused (os error 111)`.
fn cause(trouble: &Trouble) -> Option<String> {
    let causes = std::iter::successors(trouble.source(), |&cause| cause.source());
    let mut words: Vec<String> = causes.map(ToString::to_string).collect();
    words.dedup(); // some say what their cause says
    (!words.is_empty()).then(|| words.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::DialError;

    #[test]
    fn the_last_cause_is_told_too() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let trouble = Trouble::Unreachable(DialError::Refused(refused));
        assert_eq!(cause(&trouble).unwrap(), "no connection: connection refused");
        assert_eq!(cause(&Trouble::Garbled), None);
    }
}
