//! Request metrics: how many by status, how long they took, and how many are in flight.
//!
//! Metrics belong to labels, not to routes, so they survive a reload. There are as many labels as the policy file ever
//! had, and one for all requests without a route.
//!
//! Every request is counted once. If the client disconnects before the response, its status is
//! [`CLIENT_CLOSED_REQUEST`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use parking_lot::RwLock;
use ratewright_core::{Clock, Micros, Timestamp};
use ratewright_telemetry::{Histogram, Reading};

/// The label of requests without a route.
pub const NO_ROUTE: &str = "none";

/// The status of requests whose client disconnected before the response, as in nginx.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The metrics of all requests.
#[derive(Debug, Default)]
pub struct RequestMetrics {
    by_label: RwLock<BTreeMap<Arc<str>, Arc<RouteCounters>>>,
}

/// The counters of one label.
#[derive(Debug)]
pub(crate) struct RouteCounters {
    /// Statuses 100 to 599.
    by_status: Box<[AtomicU64]>,
    duration: Histogram,
    /// Requests started, including those in flight.
    n_begun: AtomicU64,
}

/// A request in flight. It is counted when dropped.
pub(crate) struct InFlightRequest<'a> {
    counters: &'a RouteCounters,
    clock: &'a dyn Clock,
    began_at: Timestamp,
    status: u16,
}

/// The metrics of one label.
#[derive(Debug)]
pub struct RouteMetrics {
    /// The label.
    pub label: Arc<str>,
    /// The number of requests for each status that occurred.
    pub by_status: Vec<(u16, u64)>,
    /// Time until the response head.
    pub duration: Reading,
    /// Requests without a response head so far.
    pub n_in_flight: u64,
}

const FIRST: u16 = 100;
const N_STATUSES: usize = 500;

impl RequestMetrics {
    /// The counters of a label.
    pub(crate) fn of(&self, label: &str) -> Arc<RouteCounters> {
        let known = self.by_label.read().get(label).cloned();
        known.unwrap_or_else(|| Arc::clone(self.by_label.write().entry(label.into()).or_default()))
    }

    /// All metrics, ordered by label.
    pub fn read(&self) -> Vec<RouteMetrics> {
        let by_label = self.by_label.read();
        let all = by_label.iter().map(|(label, counters)| {
            let duration = counters.duration.read(); // read before n_begun, so that no request ends before it begins
            RouteMetrics {
                label: Arc::clone(label),
                by_status: (FIRST..)
                    .zip(&counters.by_status)
                    .map(|(status, n)| (status, n.load(Ordering::Relaxed)))
                    .filter(|(_, n)| *n > 0)
                    .collect(),
                n_in_flight: counters.n_begun.load(Ordering::Acquire).saturating_sub(duration.n),
                duration,
            }
        });
        all.filter(|metrics| metrics.duration.n > 0 || metrics.n_in_flight > 0).collect()
    }
}

impl RouteCounters {
    /// Starts counting a request.
    pub(crate) fn begin<'a>(&'a self, clock: &'a dyn Clock, began_at: Timestamp) -> InFlightRequest<'a> {
        self.n_begun.fetch_add(1, Ordering::Release);
        InFlightRequest { counters: self, clock, began_at, status: CLIENT_CLOSED_REQUEST }
    }

    /// Counts a request.
    fn observe(&self, status: u16, duration: Micros) {
        let index = usize::from(status.saturating_sub(FIRST)).min(N_STATUSES - 1);
        self.by_status[index].fetch_add(1, Ordering::Relaxed);
        self.duration.observe(duration);
    }
}

impl InFlightRequest<'_> {
    /// Sets the response status.
    pub(crate) fn responded(mut self, status: StatusCode) {
        self.status = status.as_u16();
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.counters.observe(self.status, self.clock.now().since(self.began_at));
    }
}

impl Default for RouteCounters {
    fn default() -> Self {
        let by_status = (0..N_STATUSES).map(|_| AtomicU64::new(0)).collect();
        Self { by_status, duration: Histogram::default(), n_begun: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratewright_core::ManualClock;

    #[test]
    fn requests_are_counted_by_label_and_status() {
        let metrics = RequestMetrics::default();
        for (label, status) in
            [(Some("/a"), 200), (Some("/a"), 200), (None, 404), (Some("/a"), 429), (Some("/a"), 999)]
        {
            let counters = metrics.of(label.unwrap_or(NO_ROUTE));
            counters.observe(status, Micros::from_secs(1));
        }
        let read: Vec<_> = metrics.read().into_iter().map(|c| (c.label.to_string(), c.by_status)).collect();
        assert_eq!(
            read,
            [("/a".to_owned(), vec![(200, 2), (429, 1), (599, 1)]), ("none".to_owned(), vec![(404, 1)])]
        );
    }

    #[test]
    fn a_request_is_in_flight_until_its_response_or_a_disconnect() {
        let (metrics, clock) = (RequestMetrics::default(), ManualClock::at(Timestamp::from_micros(1)));
        let in_flight = || metrics.read().first().map(|m| (m.n_in_flight, m.duration.n));
        let counters = metrics.of("/a");
        assert_eq!(in_flight(), None);
        let (responded, gone) = (counters.begin(&clock, clock.now()), counters.begin(&clock, clock.now()));
        assert_eq!(in_flight(), Some((2, 0)));
        responded.responded(StatusCode::OK);
        assert_eq!(in_flight(), Some((1, 1)));
        drop(gone);
        assert_eq!(in_flight(), Some((0, 2)));
    }
}
