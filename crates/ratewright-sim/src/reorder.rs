//! Puts records into the order of time: servers write a line when the response is done, so lines are a little out of
//! order.
//!
//! ```text
//!   lines ──► in order: a queue            ┐
//!         └─► earlier than the last: a heap ┴─► the earliest of both, when it is a minute behind the latest
//! ```
//!
//! # Laws
//! - Records leave in the order of their time; those of one time in the order of their logs and lines.
//! - A record that is at most a minute behind the latest one before it is not lost, unless [`HELD_MAX`] records came
//!   in that minute.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use ratewright_core::{Micros, Timestamp};

use crate::record::Record;
use crate::stored_record::{StoredRecord, Wanted};

/// How far lines may be out of order.
pub(crate) const WINDOW: Micros = Micros::from_secs(60);

/// The most records that wait for their turn: some 100 MB.
const HELD_MAX: usize = 1 << 18;

/// The place of a record in the order: time, log, line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) at: Timestamp,
    pub(crate) log: u32,
    pub(crate) line: u64,
}

/// A record that waits, by its slot.
type Waiting = (Place, usize);

/// Records that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Reorder {
    slots: Vec<StoredRecord>,
    free: Vec<usize>,
    in_order: VecDeque<Waiting>,
    out_of_order: BinaryHeap<Reverse<Waiting>>,
    latest: Timestamp,
    /// The last place that has left.
    left: Option<Place>,
    wanted: Wanted,
    spread: Option<Spread>,
}

/// Requests whose time is a whole second, spread evenly over their second.
#[derive(Debug, Default)]
struct Spread {
    /// How many wait in each second.
    n_waiting: BTreeMap<u64, u64>,
    /// The second of the last one that has left, how many have left, and of how many.
    leaving: (u64, u64, u64),
    left_at: Timestamp,
}

impl Reorder {
    /// With `spreads`, requests whose time is a whole second are spread over it.
    pub(crate) fn new(wanted: Wanted, spreads: bool) -> Self {
        Self { wanted, spread: spreads.then(Spread::default), ..Self::default() }
    }

    /// Keeps a record, and returns its slot.
    pub(crate) fn store(&mut self, record: &Record<'_>) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(StoredRecord::default());
            self.slots.len() - 1
        });
        self.slots[slot].fill(record, &self.wanted);
        slot
    }

    /// Forgets the record in a slot.
    pub(crate) fn free(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// Lets the record in a slot wait for its turn. Returns false, and drops the record, if its turn is over.
    pub(crate) fn push(&mut self, place: Place, slot: usize) -> bool {
        if self.left.is_some_and(|left| place < left) {
            self.free.push(slot);
            return false;
        }
        self.latest = self.latest.max(place.at);
        if let Some(spread) = &mut self.spread
            && self.slots[slot].is_whole_second
        {
            *spread.n_waiting.entry(second(place.at)).or_default() += 1;
        }
        match self.in_order.back() {
            Some((last, _)) if place < *last => self.out_of_order.push(Reverse((place, slot))),
            _ => self.in_order.push_back((place, slot)),
        }
        true
    }

    /// The next record whose turn has come; at the end of all logs, the next one.
    pub(crate) fn pop(&mut self, is_at_end: bool) -> Option<Turn> {
        let first = match (self.in_order.front(), self.out_of_order.peek()) {
            (Some(a), Some(Reverse(b))) => a.min(b),
            (Some(a), None) => a,
            (None, Some(Reverse(b))) => b,
            (None, None) => return None,
        };
        let (place, slot) = *first;
        let n_held = self.in_order.len() + self.out_of_order.len();
        if !is_at_end && self.latest.since(place.at) <= WINDOW && n_held < HELD_MAX {
            return None;
        }
        if self.in_order.front().is_some_and(|first| first.0 == place) {
            self.in_order.pop_front();
        } else {
            self.out_of_order.pop();
        }
        self.left = Some(place);
        self.free.push(slot);
        let at = match &mut self.spread {
            Some(spread) => spread.time_of(place.at, self.slots[slot].is_whole_second),
            None => place.at,
        };
        Some(Turn { at, slot })
    }

    /// The record whose turn it is. It is there until the next one is stored.
    pub(crate) fn record(&self, turn: Turn) -> Record<'_> {
        self.slots[turn.slot].record()
    }
}

impl Spread {
    /// When a request is replayed that has left: the n-th of m in a second after n m-ths of it.
    fn time_of(&mut self, at: Timestamp, is_whole_second: bool) -> Timestamp {
        let mut spread_at = at;
        if is_whole_second {
            if self.leaving.0 != second(at) || self.leaving.1 >= self.leaving.2 {
                self.leaving = (second(at), 0, self.n_waiting.remove(&second(at)).unwrap_or(1));
            }
            let (_, n_before, n_all) = &mut self.leaving;
            spread_at = at + Micros::new(*n_before * 1_000_000 / *n_all);
            *n_before += 1;
        }
        self.left_at = self.left_at.max(spread_at);
        self.left_at
    }
}

fn second(at: Timestamp) -> u64 {
    at.as_micros() / 1_000_000
}

/// A record whose turn has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// When it is replayed: its own time, unless requests are spread over their second.
    pub(crate) at: Timestamp,
    slot: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replay(times: &[u64]) -> (Vec<(u64, u64)>, usize) {
        let mut reorder = Reorder::default();
        let (mut left, mut n_lost) = (Vec::new(), 0);
        let mut take = |reorder: &mut Reorder, is_at_end| {
            while let Some(turn) = reorder.pop(is_at_end) {
                let record = reorder.record(turn);
                assert_eq!(record.at, turn.at);
                left.push((turn.at.as_micros() / 1_000_000, record.request_bytes.unwrap()));
            }
        };
        for (line, seconds) in (1..).zip(times) {
            let at = Timestamp::from_micros(seconds * 1_000_000);
            let slot = reorder.store(&Record { at, request_bytes: Some(line), ..Record::default() });
            n_lost += usize::from(!reorder.push(Place { at, log: 0, line }, slot));
            take(&mut reorder, false);
        }
        take(&mut reorder, true);
        (left, n_lost)
    }

    #[test]
    fn requests_of_a_whole_second_are_spread_over_it() {
        let mut reorder = Reorder::new(Wanted::default(), true);
        for (line, (at, is_whole_second)) in
            (1..).zip([(0, true), (0, true), (700_000, false), (0, true), (0, true), (1_000_000, true)])
        {
            let at = Timestamp::from_micros(5_000_000 + at);
            let slot = reorder.store(&Record { at, is_whole_second, ..Record::default() });
            assert!(reorder.push(Place { at, log: 0, line }, slot));
        }
        let mut times = Vec::new();
        while let Some(turn) = reorder.pop(true) {
            times.push(turn.at.as_micros() - 5_000_000);
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
            let (left, n_lost) = replay(&times);
            prop_assert_eq!(n_lost, 0);
            prop_assert_eq!(left.len(), times.len());
            prop_assert!(left.is_sorted());
        }

        /// Whatever the order, records leave sorted, and each leaves or is counted.
        #[test]
        fn records_always_leave_sorted(times in prop::collection::vec(0u64..500, 0..100)) {
            let (left, n_lost) = replay(&times);
            prop_assert!(left.is_sorted());
            prop_assert_eq!(left.len() + n_lost, times.len());
        }
    }
}
