//! What is counted of requests: how many with which status, how long they took, and how many are in flight.
//!
//! Counts belong to labels, not to routes, so that they survive a reload. There are as many labels as the policy file has
//! ever had, and a flood of requests that lead nowhere is one of them.
//!
//! Every request is counted once. One whose client goes away before the answer has a status that no answer has, [`GONE`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use parking_lot::RwLock;
use ratewright_core::{Clock, Histogram, Micros, Reading, Timestamp};

/// The label of requests that have no route.
pub const NOWHERE: &str = "none";

/// The status of requests whose client went away before the answer, as nginx has it.
pub const GONE: u16 = 499;

/// What is counted of all requests.
#[derive(Debug, Default)]
pub struct Counts {
    by_label: RwLock<BTreeMap<Arc<str>, Arc<Count>>>,
}

/// What is counted under one label.
#[derive(Debug)]
pub(crate) struct Count {
    /// From 100 to 599, in the order of their numbers.
    by_status: Box<[AtomicU64]>,
    took: Histogram,
    /// How many began, those in flight included.
    n_begun: AtomicU64,
}

/// A request that is under way, and will be counted whatever becomes of it.
pub(crate) struct Counting<'a> {
    count: &'a Count,
    clock: &'a dyn Clock,
    began_at: Timestamp,
    status: u16,
}

/// What was counted under one label.
#[derive(Debug)]
pub struct Counted {
    /// The label.
    pub label: Arc<str>,
    /// The statuses that occurred, and how often.
    pub by_status: Vec<(u16, u64)>,
    /// How long it took until the head of the answer was there.
    pub took: Reading,
    /// Requests for which it is not there yet.
    pub n_in_flight: u64,
}

const FIRST: u16 = 100;
const N_STATUSES: usize = 500;

impl Counts {
    /// Where requests of a label are counted.
    pub(crate) fn of(&self, label: &str) -> Arc<Count> {
        let known = self.by_label.read().get(label).cloned();
        known.unwrap_or_else(|| Arc::clone(self.by_label.write().entry(label.into()).or_default()))
    }

    /// What was counted, in the order of the labels.
    pub fn read(&self) -> Vec<Counted> {
        let by_label = self.by_label.read();
        let counted = by_label.iter().map(|(label, count)| {
            let took = count.took.read(); // before those that began, so that none ends that did not begin
            Counted {
                label: Arc::clone(label),
                by_status: (FIRST..)
                    .zip(&count.by_status)
                    .map(|(status, n)| (status, n.load(Ordering::Relaxed)))
                    .filter(|(_, n)| *n > 0)
                    .collect(),
                n_in_flight: count.n_begun.load(Ordering::Acquire).saturating_sub(took.n),
                took,
            }
        });
        counted.filter(|counted| counted.took.n > 0 || counted.n_in_flight > 0).collect()
    }
}

impl Count {
    /// A request that began at this time.
    pub(crate) fn begin<'a>(&'a self, clock: &'a dyn Clock, began_at: Timestamp) -> Counting<'a> {
        self.n_begun.fetch_add(1, Ordering::Release);
        Counting { count: self, clock, began_at, status: GONE }
    }

    /// Counts a request.
    fn observe(&self, status: u16, took: Micros) {
        let place = usize::from(status.saturating_sub(FIRST)).min(N_STATUSES - 1);
        self.by_status[place].fetch_add(1, Ordering::Relaxed);
        self.took.observe(took);
    }
}

impl Counting<'_> {
    /// The head of the answer is there.
    pub(crate) fn answered(mut self, status: StatusCode) {
        self.status = status.as_u16();
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.count.observe(self.status, self.clock.now().since(self.began_at));
    }
}

impl Default for Count {
    fn default() -> Self {
        let by_status = (0..N_STATUSES).map(|_| AtomicU64::new(0)).collect();
        Self { by_status, took: Histogram::default(), n_begun: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratewright_core::ManualClock;

    #[test]
    fn requests_are_counted_by_label_and_status() {
        let counts = Counts::default();
        for (label, status) in
            [(Some("/a"), 200), (Some("/a"), 200), (None, 404), (Some("/a"), 429), (Some("/a"), 999)]
        {
            let count = counts.of(label.unwrap_or(NOWHERE));
            count.observe(status, Micros::from_secs(1));
        }
        let read: Vec<_> = counts.read().into_iter().map(|c| (c.label.to_string(), c.by_status)).collect();
        assert_eq!(
            read,
            [("/a".to_owned(), vec![(200, 2), (429, 1), (599, 1)]), ("none".to_owned(), vec![(404, 1)])]
        );
    }

    #[test]
    fn a_request_is_in_flight_until_its_answer_is_there_or_its_client_goes() {
        let (counts, clock) = (Counts::default(), ManualClock::at(Timestamp::from_micros(1)));
        let in_flight = || counts.read().first().map(|counted| (counted.n_in_flight, counted.took.n));
        let count = counts.of("/a");
        assert_eq!(in_flight(), None);
        let (answered, gone) = (count.begin(&clock, clock.now()), count.begin(&clock, clock.now()));
        assert_eq!(in_flight(), Some((2, 0)));
        answered.answered(StatusCode::OK);
        assert_eq!(in_flight(), Some((1, 1)));
        drop(gone);
        assert_eq!(in_flight(), Some((0, 2)));
    }
}
