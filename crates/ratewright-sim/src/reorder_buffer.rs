//! Puts records into time order: servers write a line when the response is done, so lines are a little out of
//! order.
//!
//! ```text
//!   lines ──► in order: a queue            ┐
//!         └─► earlier than the last: a heap ┴─► the earliest of both, when it is a minute behind the latest
//! ```
//!
//! # Laws
//! - Records are released in time order; those of one time in the order of their logs and lines.
//! - A record that is at most a minute behind the latest one before it is not lost, unless [`HELD_MAX`] records came
//!   in that minute.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use ratewright_core::{Micros, Timestamp};

use crate::record::Record;
use crate::stored_record::{NeededAttributes, StoredRecord};

/// How far lines may be out of order.
pub(crate) const WINDOW: Micros = Micros::from_secs(60);

/// Maximum number of waiting records: some 100 MB.
const HELD_MAX: usize = 1 << 18;

/// Records are sorted by time, log and line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SortKey {
    pub(crate) at: Timestamp,
    pub(crate) log: u32,
    pub(crate) line: u64,
}

/// A record that waits, by its slot.
type Waiting = (SortKey, usize);

/// Records that wait until they are released in time order.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer {
    slots: Vec<StoredRecord>,
    free: Vec<usize>,
    in_order: VecDeque<Waiting>,
    out_of_order: BinaryHeap<Reverse<Waiting>>,
    latest: Timestamp,
    /// The last record that was released.
    last_released: Option<SortKey>,
    needed: NeededAttributes,
    spread: Option<Spread>,
}

/// Requests whose time is a whole second, spread evenly over their second.
#[derive(Debug, Default)]
struct Spread {
    /// How many wait in each second.
    n_waiting: BTreeMap<u64, u64>,
    /// The second of the last request that was released, how many of that second were released, and of how many.
    releasing: (u64, u64, u64),
    released_at: Timestamp,
}

impl ReorderBuffer {
    /// With `spreads`, requests whose time is a whole second are spread over it.
    pub(crate) fn new(needed: NeededAttributes, spreads: bool) -> Self {
        Self { needed, spread: spreads.then(Spread::default), ..Self::default() }
    }

    /// Keeps a record, and returns its slot.
    pub(crate) fn store(&mut self, record: &Record<'_>) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(StoredRecord::default());
            self.slots.len() - 1
        });
        self.slots[slot].fill(record, &self.needed);
        slot
    }

    /// Frees a slot.
    pub(crate) fn free(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// Lets the record in a slot wait. Returns false, and drops the record, if a later one was released already.
    pub(crate) fn push(&mut self, key: SortKey, slot: usize) -> bool {
        if self.last_released.is_some_and(|last| key < last) {
            self.free.push(slot);
            return false;
        }
        self.latest = self.latest.max(key.at);
        if let Some(spread) = &mut self.spread
            && self.slots[slot].is_whole_second
        {
            *spread.n_waiting.entry(second(key.at)).or_default() += 1;
        }
        match self.in_order.back() {
            Some((last, _)) if key < *last => self.out_of_order.push(Reverse((key, slot))),
            _ => self.in_order.push_back((key, slot)),
        }
        true
    }

    /// Releases the next record that is due; at the end of all logs, the next one.
    pub(crate) fn pop(&mut self, is_at_end: bool) -> Option<DueRecord> {
        let first = match (self.in_order.front(), self.out_of_order.peek()) {
            (Some(a), Some(Reverse(b))) => a.min(b),
            (Some(a), None) => a,
            (None, Some(Reverse(b))) => b,
            (None, None) => return None,
        };
        let (key, slot) = *first;
        let n_held = self.in_order.len() + self.out_of_order.len();
        if !is_at_end && self.latest.since(key.at) <= WINDOW && n_held < HELD_MAX {
            return None;
        }
        if self.in_order.front().is_some_and(|first| first.0 == key) {
            self.in_order.pop_front();
        } else {
            self.out_of_order.pop();
        }
        self.last_released = Some(key);
        self.free.push(slot);
        let at = match &mut self.spread {
            Some(spread) => spread.time_of(key.at, self.slots[slot].is_whole_second),
            None => key.at,
        };
        Some(DueRecord { at, slot })
    }

    /// A released record. It is there until the next one is stored.
    pub(crate) fn record(&self, due: DueRecord) -> Record<'_> {
        self.slots[due.slot].record()
    }
}

impl Spread {
    /// Replay time of a released request: request n of m (from 0) is placed n/m into its second.
    fn time_of(&mut self, at: Timestamp, is_whole_second: bool) -> Timestamp {
        let mut spread_at = at;
        if is_whole_second {
            if self.releasing.0 != second(at) || self.releasing.1 >= self.releasing.2 {
                self.releasing = (second(at), 0, self.n_waiting.remove(&second(at)).unwrap_or(1));
            }
            let (_, n_before, n_all) = &mut self.releasing;
            spread_at = at + Micros::new(*n_before * 1_000_000 / *n_all);
            *n_before += 1;
        }
        self.released_at = self.released_at.max(spread_at);
        self.released_at
    }
}

fn second(at: Timestamp) -> u64 {
    at.as_micros() / 1_000_000
}

/// A record that was released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueRecord {
    /// When it is replayed: its own time, unless requests are spread over their second.
    pub(crate) at: Timestamp,
    slot: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replay(times: &[u64]) -> (Vec<(u64, u64)>, usize) {
        let mut reorder = ReorderBuffer::default();
        let (mut released, mut n_lost) = (Vec::new(), 0);
        let mut take = |reorder: &mut ReorderBuffer, is_at_end| {
            while let Some(due) = reorder.pop(is_at_end) {
                let record = reorder.record(due);
                assert_eq!(record.at, due.at);
                released.push((due.at.as_micros() / 1_000_000, record.request_bytes.unwrap()));
            }
        };
        for (line, seconds) in (1..).zip(times) {
            let at = Timestamp::from_micros(seconds * 1_000_000);
            let slot = reorder.store(&Record { at, request_bytes: Some(line), ..Record::default() });
            n_lost += usize::from(!reorder.push(SortKey { at, log: 0, line }, slot));
            take(&mut reorder, false);
        }
        take(&mut reorder, true);
        (released, n_lost)
    }

    #[test]
    fn requests_of_a_whole_second_are_spread_over_it() {
        let mut reorder = ReorderBuffer::new(NeededAttributes::default(), true);
        for (line, (at, is_whole_second)) in
            (1..).zip([(0, true), (0, true), (700_000, false), (0, true), (0, true), (1_000_000, true)])
        {
            let at = Timestamp::from_micros(5_000_000 + at);
            let slot = reorder.store(&Record { at, is_whole_second, ..Record::default() });
            assert!(reorder.push(SortKey { at, log: 0, line }, slot));
        }
        let mut times = Vec::new();
        while let Some(due) = reorder.pop(true) {
            times.push(due.at.as_micros() - 5_000_000);
        }
        assert_eq!(times, [0, 250_000, 500_000, 750_000, 750_000, 1_000_000]);
    }

    #[test]
    fn lines_within_a_minute_are_sorted_and_later_ones_are_dropped() {
        assert_eq!(replay(&[100, 40, 100, 99]), (vec![(40, 2), (99, 4), (100, 1), (100, 3)], 0));
        assert_eq!(replay(&[100, 161, 100, 99, 101]), (vec![(100, 1), (100, 3), (101, 5), (161, 2)], 1));
    }

    proptest! {
        /// Disorder of up to a minute changes nothing.
        #[test]
        fn disorder_within_a_minute_is_sorted(
            steps in prop::collection::vec(0u64..40, 1..200),
            delays in prop::collection::vec(0u64..60, 200),
        ) {
            let mut now = 1_000;
            let arrivals = steps.iter().map(|step| { now += step; now });
            let mut lines: Vec<_> = arrivals.zip(&delays).map(|(at, delay)| (at + delay, at)).collect();
            lines.sort_by_key(|line| line.0);
            let times: Vec<_> = lines.iter().map(|line| line.1).collect();
            let (released, n_lost) = replay(&times);
            prop_assert_eq!(n_lost, 0);
            prop_assert_eq!(released.len(), times.len());
            prop_assert!(released.is_sorted());
        }

        /// Whatever the order, records leave sorted, and each leaves or is counted.
        #[test]
        fn records_always_leave_sorted(times in prop::collection::vec(0u64..500, 0..100)) {
            let (released, n_lost) = replay(&times);
            prop_assert!(released.is_sorted());
            prop_assert_eq!(released.len() + n_lost, times.len());
        }
    }
}
