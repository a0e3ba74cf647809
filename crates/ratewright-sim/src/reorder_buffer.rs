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
//! - A record that is at most a minute behind the latest one before it is not lost, unless the records of that minute
//!   take more than [`BYTES_MAX`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ratewright_core::{Micros, Timestamp};

use crate::record::Record;
use crate::stored_record::{NeededAttributes, StoredRecord};

/// How far lines may be out of order.
pub(crate) const WINDOW: Micros = Micros::from_secs(60);

/// Maximum size of all waiting records: some 300,000 of the usual length.
const BYTES_MAX: usize = 100_000_000;

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
    /// The size of the waiting records.
    n_bytes: usize,
    /// True if a record was released early, to keep the size.
    was_full: bool,
    spreads: bool,
    /// The replay time of the last record that was spread.
    released_at: Timestamp,
    /// Records of the second that is being released, if requests are spread over their second.
    releasing: VecDeque<DueRecord>,
}

impl ReorderBuffer {
    /// With `spreads`, requests whose time is a whole second are spread over it.
    pub(crate) fn new(needed: NeededAttributes, spreads: bool) -> Self {
        Self { needed, spreads, ..Self::default() }
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

    /// True if there were so many records that some were released less than a minute behind the latest.
    pub(crate) fn was_full(&self) -> bool {
        self.was_full
    }

    /// The attributes that are kept.
    pub(crate) fn needed(&self) -> &NeededAttributes {
        &self.needed
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
        self.n_bytes += self.slots[slot].n_bytes();
        match self.in_order.back() {
            Some((last, _)) if key < *last => self.out_of_order.push(Reverse((key, slot))),
            _ => self.in_order.push_back((key, slot)),
        }
        true
    }

    /// Releases the next record that is due; at the end of all logs, the next one.
    pub(crate) fn pop(&mut self, is_at_end: bool) -> Option<DueRecord> {
        if self.releasing.is_empty() {
            let first = self.first()?;
            // A second is spread as a whole, so it waits for its last record.
            let due_from = if self.spreads { end_of_second(first.at) } else { first.at };
            let (is_full, may_wait) = (self.n_bytes > BYTES_MAX, self.latest.since(due_from) <= WINDOW);
            if !is_at_end && may_wait && !is_full {
                return None;
            }
            self.was_full |= is_full && !is_at_end && may_wait;
            if !self.spreads {
                let (key, slot) = self.take_first()?;
                self.free.push(slot);
                return Some(DueRecord { at: key.at, slot });
            }
            self.release_second(second(first.at), !may_wait || is_at_end);
        }
        let due = self.releasing.pop_front()?;
        self.free.push(due.slot);
        Some(due)
    }

    /// The first waiting record.
    fn first(&self) -> Option<SortKey> {
        let in_order = self.in_order.front().map(|(key, _)| *key);
        let out_of_order = self.out_of_order.peek().map(|Reverse((key, _))| *key);
        match (in_order, out_of_order) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn take_first(&mut self) -> Option<Waiting> {
        let first = self.first()?;
        let (key, slot) = match self.in_order.front() {
            Some((key, _)) if *key == first => self.in_order.pop_front()?,
            _ => self.out_of_order.pop()?.0,
        };
        self.n_bytes -= self.slots[slot].n_bytes();
        self.last_released = Some(key);
        Some((key, slot))
    }

    /// Releases all waiting records of a second; if there are too many, those that wait so far. Request n of m (from 0) without a fraction is placed n/m into it.
    fn release_second(&mut self, second_released: u64, is_whole_second: bool) {
        let mut released: Vec<Waiting> = Vec::new();
        while self.first().is_some_and(|first| second(first.at) == second_released) {
            released.extend(self.take_first());
        }
        if is_whole_second {
            // A record of this second that comes now is too late.
            let at = end_of_second(Timestamp::from_micros(second_released * 1_000_000));
            self.last_released = Some(SortKey { at, log: u32::MAX, line: u64::MAX });
        }
        let released_at = self.released_at;
        let is_whole = |slot: usize| self.slots[slot].is_whole_second;
        let n_all = released.iter().filter(|(_, slot)| is_whole(*slot)).count() as u64;
        let mut n_before = 0;
        let mut due: Vec<_> = released
            .into_iter()
            .map(|(key, slot)| {
                let mut at = key.at;
                if is_whole(slot) {
                    at = at + Micros::new(n_before * 1_000_000 / n_all);
                    n_before += 1;
                }
                DueRecord { at: at.max(released_at), slot }
            })
            .collect();
        due.sort_by_key(|due| due.at); // stable: records of one time keep their order
        self.released_at = due.last().map_or(released_at, |due| due.at);
        self.releasing.extend(due);
    }

    /// A released record. It is there until the next one is stored.
    pub(crate) fn record(&self, due: DueRecord) -> Record<'_> {
        self.slots[due.slot].record()
    }
}

/// The last microsecond of a second.
fn end_of_second(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(second(at) * 1_000_000 + 999_999)
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
        replay_with(times, false)
    }

    fn replay_with(times: &[u64], spreads: bool) -> (Vec<(u64, u64)>, usize) {
        let mut reorder = ReorderBuffer::new(NeededAttributes::default(), spreads);
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
        assert_eq!(times, [0, 250_000, 500_000, 700_000, 750_000, 1_000_000]);
    }

    /// 64 KiB of path in each line of a second: a small compressed file could take all memory.
    #[test]
    fn the_size_of_waiting_records_is_bounded() {
        for spreads in [false, true] {
            let mut reorder = ReorderBuffer::new(NeededAttributes::default(), spreads);
            let target = "x".repeat(60_000);
            let (mut n_released, mut last) = (0, Timestamp::default());
            for line in 0..5_000 {
                let record =
                    Record { target: target.as_str().into(), is_whole_second: true, ..Record::default() };
                let slot = reorder.store(&record);
                assert!(
                    reorder.push(SortKey { at: Timestamp::default(), log: 0, line }, slot),
                    "nothing is lost"
                );
                while let Some(due) = reorder.pop(false) {
                    n_released += 1;
                    assert!(last <= due.at, "time goes forward");
                    last = due.at;
                }
            }
            assert!((3_000..5_000).contains(&n_released), "{n_released}");
            assert!(reorder.slots.len() < 2_000 && reorder.n_bytes <= BYTES_MAX && reorder.was_full());
        }
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
            let (spread, n_lost) = replay_with(&times, true);
            prop_assert_eq!((spread.len(), n_lost), (times.len(), 0));
            prop_assert!(spread.is_sorted_by_key(|record| record.0));
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
