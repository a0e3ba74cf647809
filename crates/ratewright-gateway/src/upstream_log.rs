//! Log lines about upstreams: failures, at most one per second and route; ejections and recoveries.

use std::error::Error;
use std::time::Duration;

use http::request::Parts;
use ratewright_core::{Micros, Timestamp};
use ratewright_http::correlation::given_id;
use ratewright_listen::LogThrottle;
use tracing::{info, warn};

use crate::forward_error::ForwardError;
use crate::route::Route;
use crate::upstream::Lease;
use crate::upstream::UpstreamServer;

/// The shortest interval between two logged failures.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The log of one route.
#[derive(Debug)]
pub(crate) struct UpstreamLog(LogThrottle);

impl Default for UpstreamLog {
    fn default() -> Self {
        Self(LogThrottle::new(LOG_INTERVAL))
    }
}

impl UpstreamLog {
    /// Logs a failed attempt, whether or not a retry succeeds.
    #[cold]
    pub(crate) fn failed(
        &self,
        (route, server): (&Route, &UpstreamServer),
        error: &ForwardError,
        request: &Parts,
        now: Timestamp,
    ) {
        let Some(suppressed) = self.0.admit_at(now.as_micros()) else { return };
        let (cause, request_id) = (cause(error), given_id(&request.headers));
        warn!(
            route = %route.id, %server, %error, cause, request_id, suppressed,
            "upstream request failed"
        );
    }

    /// Logs an ejection.
    #[cold]
    pub(crate) fn ejected(&self, route: &Route, lease: &Lease, eject_for: Micros) {
        let (id, server, seconds) = (&route.id, lease.server(), eject_for.as_secs_ceil());
        if lease.is_probe() {
            warn!(route = %id, %server, seconds, "upstream ejected: probe failed ({id} {server}), retrying in {seconds}s");
            return;
        }
        let n_failures = route.upstream.health().failures_max;
        warn!(
            route = %id, %server, seconds,
            "upstream ejected: {n_failures} consecutive failures ({id} {server}), retrying in {seconds}s"
        );
    }

    /// Logs a recovery.
    #[cold]
    pub(crate) fn recovered(&self, (route, server): (&Route, &UpstreamServer)) {
        info!(route = %route.id, %server, "upstream back ({} {server})", route.id);
    }
}

/// The sources of an error, outermost first: `connection failed: Connection refused (os error 111)`.
fn cause(error: &ForwardError) -> Option<String> {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let mut words: Vec<String> = causes.map(ToString::to_string).collect();
    words.dedup(); // some errors repeat their source
    (!words.is_empty()).then(|| words.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::DialError;

    #[test]
    fn the_root_cause_is_logged() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = ForwardError::Unreachable(DialError::Connect(refused));
        assert_eq!(cause(&error).unwrap(), "connection failed: connection refused");
        assert_eq!(cause(&ForwardError::InvalidResponse), None);
    }
}
