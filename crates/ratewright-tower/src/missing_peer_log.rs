//! The log line about requests without a known peer: at most one a minute for each layer.
//!
//! If the program does not provide the peer's address, every request gets 500. One log line for each would flood
//! the log. The next line says how many were suppressed. A clock that is set back does not silence the log.

use parking_lot::Mutex;
use ratewright_core::{Micros, Timestamp};
use tracing::error;

/// The shortest time between two lines.
const LOGGED_EVERY: Micros = Micros::from_secs(60);

/// Logs requests without a known peer.
#[derive(Debug, Default)]
pub(crate) struct MissingPeerLog(Mutex<LastLine>);

#[derive(Debug, Default)]
struct LastLine {
    logged_at: Option<Timestamp>,
    n_suppressed: u64,
}

impl MissingPeerLog {
    /// Logs the mistake, unless the last line is less than a minute old.
    #[cold]
    pub(crate) fn write(&self, now: Timestamp) {
        let Some(suppressed) = self.admit(now) else { return };
        error!(
            suppressed,
            "request rejected with 500: no peer address to count by; with axum, turn on the feature axum of ratewright-tower and serve the router with into_make_service_with_connect_info::<SocketAddr>(); otherwise add the extension Peer to each request, or set RequestReader::peer"
        );
    }

    /// If a line is due: how many were suppressed since the last one.
    fn admit(&self, now: Timestamp) -> Option<u64> {
        let mut last = self.0.lock();
        if last.logged_at.is_some_and(|at| at <= now && now.since(at) < LOGGED_EVERY) {
            last.n_suppressed += 1;
            return None;
        }
        last.logged_at = Some(now);
        Some(std::mem::take(&mut last.n_suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratewright_core::{Clock, ManualClock};

    #[test]
    fn one_line_a_minute_and_a_clock_set_back_does_not_silence_it() {
        let (log, clock) = (MissingPeerLog::default(), ManualClock::default());
        let mut admitted = Vec::new();
        for seconds in [100, 100, 159, 160, 220, 10, 11, 70] {
            clock.set(Timestamp::default() + Micros::from_secs(seconds));
            admitted.push(log.admit(clock.now()));
        }
        assert_eq!(admitted, [Some(0), None, None, Some(2), Some(0), Some(0), None, Some(1)]);
    }
}
