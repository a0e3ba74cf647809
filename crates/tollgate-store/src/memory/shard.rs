//! A part of the table, behind one lock.
//!
//! Expiry is free: a bucket that is full again is no bucket. Nobody sweeps; each new key makes its shard look
//! at a few slots, and those that mean nothing any more go. The hand moves on from there, and as keys lie in
//! the order of a keyed hash, what it meets next is a random sample that no client can arrange.
//!
//! At the cap, of a sample the state with the least-spent fraction of its quota goes, to make room for the
//! new key. A flood of new keys therefore pushes out itself: each of its keys has spent one unit, while a
//! client that is over its limit has spent all. What is lost is the least that could be.

use hashbrown::HashTable;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::State;
use tollgate_core::{Quota, Timestamp};

use super::slot::{Identity, Slot, Unpacked};

/// Slots that each new key looks at for ones that mean nothing any more.
const SWEPT: usize = 4;

/// States of which the least spent goes, when room must be made.
const SAMPLED: usize = 16;

/// A part of the table.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<Slot>,
    logs: Vec<SlidingLog>,
    free_logs: Vec<u32>,
    hand: usize,
    n_max: usize,
    n_evicted: u64,
}

/// A key's state, taken out for a moment.
#[derive(Debug)]
pub(super) struct Opened {
    /// Where it lies, if it is there. Good until another key is put in.
    pub(super) place: Option<usize>,
    pub(super) state: State,
}

impl Shard {
    pub(super) fn new(n_max: usize) -> Self {
        Self { n_max, ..Self::default() }
    }

    pub(super) fn n_keys(&self) -> usize {
        self.table.len()
    }

    pub(super) fn n_max(&self) -> usize {
        self.n_max
    }

    pub(super) fn n_evicted(&self) -> u64 {
        self.n_evicted
    }

    /// Bytes on the heap for keys, apart from what is in logs.
    pub(super) fn n_bytes(&self) -> usize {
        self.table.allocation_size()
            + self.logs.capacity() * size_of::<SlidingLog>()
            + self.free_logs.capacity() * size_of::<u32>()
    }

    /// The key's state; a fresh one if there is none, or one of another kind. A log moves out, and must
    /// be put back.
    #[inline]
    pub(super) fn open(&mut self, id: Identity, quota: &Quota) -> Opened {
        let place = self.table.find_bucket_index(id.hash(), |slot| slot.identity() == id);
        let slot = place.and_then(|place| self.table.get_bucket(place));
        let state = match slot.and_then(|slot| slot.unpack(quota)) {
            Some(Unpacked::Inline(state)) => state,
            Some(Unpacked::Log(index)) => State::Log(self.log(index).map(std::mem::take).unwrap_or_default()),
            None => State::fresh(quota),
        };
        Opened { place, state }
    }

    /// Puts a state back that was not changed.
    #[inline]
    pub(super) fn close(&mut self, opened: Opened) {
        if let Opened { place: Some(place), state: State::Log(entries) } = opened {
            self.put_log(place, entries);
        }
    }

    /// Stores a state that was changed, over the one it was opened from. Says no if it is a new key, which
    /// must wait until all opened ones are back: putting it in moves others.
    #[inline]
    pub(super) fn replace(&mut self, id: Identity, opened: Opened, quota: &Quota) -> Result<(), Opened> {
        let Some(place) = opened.place else { return Err(opened) };
        let Some(slot) = self.table.get_bucket_mut(place) else { return Err(opened) };
        let log = slot.log();
        if log.is_none() && matches!(opened.state, State::Log(_)) {
            // Another kind of state lay under the same identity: it must go, with a log of its own.
            self.remove(place);
            return Err(Opened { place: None, ..opened });
        }
        *slot = Slot::pack(id, &opened.state, quota, log.unwrap_or_default());
        if let State::Log(entries) = opened.state {
            self.put_log(place, entries);
        }
        Ok(())
    }

    /// Puts a new key in. All opened states must be back.
    pub(super) fn insert(&mut self, id: Identity, state: State, quota: &Quota, now: Timestamp) {
        self.sweep(now);
        if self.n_max <= self.table.len() {
            self.evict(now);
        }
        let log = match &state {
            State::Log(_) => self.free_log(),
            State::Token(_) | State::Queue(_) | State::Stepped(_) | State::Counter(_) | State::Window(_) => 0,
        };
        let slot = Slot::pack(id, &state, quota, log);
        if let (State::Log(entries), Some(place)) = (state, self.log(log)) {
            *place = entries;
        }
        self.table.insert_unique(id.hash(), slot, |slot| slot.identity().hash());
    }

    /// Forgets a key.
    pub(super) fn forget(&mut self, id: Identity) {
        if let Some(place) = self.table.find_bucket_index(id.hash(), |slot| slot.identity() == id) {
            self.remove(place);
        }
    }

    /// Removes the key at a place, with its log.
    pub(super) fn remove(&mut self, place: usize) {
        let Ok(entry) = self.table.get_bucket_entry(place) else { return };
        let (slot, _) = entry.remove();
        if let Some(index) = slot.log() {
            if let Some(log) = self.log(index) {
                *log = SlidingLog::default();
            }
            self.free_logs.push(index);
        }
    }

    /// Lets go of states that mean nothing any more, among the next few slots.
    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..SWEPT.min(self.table.num_buckets()) {
            let place = self.next_place();
            if self.table.get_bucket(place).is_some_and(|slot| slot.is_gone(now)) {
                self.remove(place);
            }
        }
    }

    /// Lets go of the least-spent state of the next few.
    fn evict(&mut self, now: Timestamp) {
        let mut coolest = None;
        let mut n_seen = 0;
        for _ in 0..self.table.num_buckets() {
            let place = self.next_place();
            let Some(slot) = self.table.get_bucket(place) else { continue };
            let heat = if slot.is_gone(now) { 0 } else { 1 + slot.heat(now) };
            if coolest.is_none_or(|(_, least)| heat < least) {
                coolest = Some((place, heat));
            }
            n_seen += 1;
            if n_seen == SAMPLED {
                break;
            }
        }
        if let Some((place, heat)) = coolest {
            self.remove(place);
            self.n_evicted += u64::from(heat > 0);
        }
    }

    fn next_place(&mut self) -> usize {
        self.hand = if self.hand + 1 < self.table.num_buckets() { self.hand + 1 } else { 0 };
        self.hand
    }

    fn put_log(&mut self, place: usize, entries: SlidingLog) {
        let index = self.table.get_bucket(place).and_then(Slot::log);
        if let Some(log) = index.and_then(|index| self.log(index)) {
            *log = entries;
        }
    }

    fn log(&mut self, index: u32) -> Option<&mut SlidingLog> {
        self.logs.get_mut(index as usize)
    }

    /// The index of a log that nobody uses.
    fn free_log(&mut self) -> u32 {
        self.free_logs.pop().unwrap_or_else(|| {
            self.logs.push(SlidingLog::default());
            u32::try_from(self.logs.len() - 1).unwrap_or(u32::MAX)
        })
    }
}
