//! A part of the table, behind one lock.
//!
//! Expiry is free: a bucket that is full again needs no slot. There is no sweeper; each new key makes its shard inspect
//! a few slots, and expired ones are removed. The next inspection continues from there. Keys are in the order of a
//! keyed hash, so each inspection sees a random sample that no client can arrange.
//!
//! At the cap, the shard takes a sample and evicts the state that has spent the smallest fraction of its quota. A flood
//! of new keys therefore evicts keys of the flood: each has spent one unit, while a client over its limit has spent its
//! whole quota. So an eviction forgets few spent units. The entries of sliding window logs have their own cap, in bytes,
//! with the same eviction.

use ratewright_core::algorithm::Bucket;
use ratewright_core::algorithm::fixed_window::FixedWindow;
use ratewright_core::algorithm::leaky_bucket::Queue;
use ratewright_core::algorithm::sliding_counter::SlidingCounter;
use ratewright_core::algorithm::sliding_log::SlidingLog;
use ratewright_core::algorithm::stepped::Stepped;
use ratewright_core::algorithm::token_bucket::TokenBucket;
use ratewright_core::quota::{Algorithm, Leak, Refill};
use ratewright_core::{Quota, Timestamp};

use super::changed_quota::{Origin, WrittenUnder};
use super::keys_by_limit::KeysByLimit;
use super::slot::{Identity, Inline, Slot};
use super::table::Table;

/// How many slots each new key inspects for expired states, and the most that it removes. It is the size of the
/// smallest table, so that the result there does not depend on the positions of the keys.
const SWEPT: usize = 8;

/// States of which the least spent goes, when room must be made.
const SAMPLED: usize = 16;

/// The most bytes of log entries in a shard for each key that it may hold, and the minimum of that cap.
const LOG_BYTES_PER_KEY: usize = 256;
const LOG_BYTES_MIN: usize = 1 << 20;

/// A part of the table.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) table: Table,
    logs: Vec<SlidingLog>,
    free_logs: Vec<u32>,
    n_log_bytes: usize,
    hand: usize,
    n_max: usize,
    n_evicted: u64,
    by_limit: KeysByLimit,
    /// The quotas whose states are here.
    pub(super) quotas: WrittenUnder,
    /// When the last state that waits for its quota is gone.
    pub(super) parked_until: u64,
}

/// Something to do with a bucket, whichever kind it is of.
pub(super) trait Visit {
    /// What comes of it.
    type Output;

    /// What the visit is for.
    fn purpose(&self) -> VisitPurpose;

    /// Does it, and says what became of the bucket.
    fn visit<B: Bucket>(self, bucket: &mut B, quota: &Quota, now: Timestamp) -> (Self::Output, BucketChange);

    /// The output for a refund under a quota that was never charged: the changed bucket is not stored.
    #[inline(always)]
    fn discarded(output: Self::Output) -> Self::Output {
        output
    }
}

/// What a visit is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum VisitPurpose {
    /// To spend, if it fits.
    Charge,
    /// To give back.
    Refund,
    /// To learn how things stand. Nothing is stored, whatever must be mended, so that a look changes nothing for others.
    Look,
}

/// What became of a bucket that was visited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BucketChange {
    /// It is as it was.
    Nothing,
    /// It was changed; if it was never seen before, there was nothing to change.
    Changed,
    /// It was spent from.
    Spent,
}

impl Shard {
    pub(super) fn new(n_max: usize) -> Self {
        Self { n_max, ..Self::default() }
    }

    pub(super) fn n_keys(&self) -> usize {
        self.table.n_keys()
    }

    pub(super) fn n_max(&self) -> usize {
        self.n_max
    }

    pub(super) fn n_evicted(&self) -> u64 {
        self.n_evicted
    }

    /// Bytes on the heap.
    pub(super) fn n_bytes(&self) -> usize {
        self.table.n_bytes()
            + self.n_log_bytes
            + self.logs.capacity() * size_of::<SlidingLog>()
            + self.free_logs.capacity() * size_of::<u32>()
            + self.by_limit.n_bytes()
            + self.quotas.n_bytes()
    }

    /// Visits a key's bucket, or a fresh one for a new key.
    #[inline(always)]
    pub(super) fn visit<V: Visit>(
        &mut self,
        id: Identity,
        quota: &Quota,
        now: Timestamp,
        visit: V,
    ) -> V::Output {
        match quota.algorithm() {
            Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(Leak::Meter) => {
                self.visit_inline::<TokenBucket, V>(id, quota, now, visit)
            }
            Algorithm::LeakyBucket(Leak::Queue) => self.visit_inline::<Queue, V>(id, quota, now, visit),
            Algorithm::TokenBucket(Refill::Stepped) => self.visit_inline::<Stepped, V>(id, quota, now, visit),
            Algorithm::SlidingWindowCounter => self.visit_inline::<SlidingCounter, V>(id, quota, now, visit),
            Algorithm::FixedWindow(_) => self.visit_inline::<FixedWindow, V>(id, quota, now, visit),
            Algorithm::SlidingWindow => self.visit_log(id, quota, now, visit),
        }
    }

    #[inline(always)]
    fn visit_inline<B: Inline, V: Visit>(
        &mut self,
        id: Identity,
        quota: &Quota,
        now: Timestamp,
        visit: V,
    ) -> V::Output {
        let mut loaded;
        let (slot, origin) = match self.table.find(id) {
            Some(slot) if slot.tag() == quota.tag() => (slot, Origin::InUse),
            _ => {
                let origin;
                (loaded, origin) = self.load_for_quota::<B>(id, quota, now);
                (&mut loaded, origin)
            }
        };
        // A single call site: with several, the compiler returns the answer through memory.
        let mut bucket = slot.unpack::<B>(quota);
        let purpose = visit.purpose();
        let mended = bucket.mend(quota, now) && purpose != VisitPurpose::Look;
        let (mut answer, change) = visit.visit(&mut bucket, quota, now);
        if origin != Origin::InUse {
            let change =
                if mended && change == BucketChange::Nothing { BucketChange::Changed } else { change };
            self.store_for_quota(Slot::pack(id, &bucket, quota), origin, purpose, change, quota, now);
            if origin == Origin::Inherited && purpose == VisitPurpose::Refund {
                answer = V::discarded(answer);
            }
        } else if mended || change != BucketChange::Nothing {
            *slot = Slot::pack(id, &bucket, quota);
        }
        answer
    }

    fn visit_log<V: Visit>(&mut self, id: Identity, quota: &Quota, now: Timestamp, visit: V) -> V::Output {
        let found = self.table.find(id).and_then(|slot| Some((slot.log()?, slot)));
        let Some((index, slot)) = found else {
            let mut log = SlidingLog::default();
            let (answer, change) = visit.visit(&mut log, quota, now);
            if change == BucketChange::Spent {
                let index = self.free_log();
                let slot = Slot::pack_log(id, &log, index, quota);
                self.n_log_bytes += log.n_bytes();
                self.logs[index as usize] = log;
                self.insert(slot, now);
                self.evict_logs(id, now);
            }
            return answer;
        };
        let log = &mut self.logs[index as usize];
        if visit.purpose() == VisitPurpose::Look {
            // What it tells leaves out what has left the window; only what must be mended needs another log.
            if !log.lies_ahead(quota, now) {
                return visit.visit(log, quota, now).0;
            }
            let mut log = log.clone();
            log.mend(quota, now);
            return visit.visit(&mut log, quota, now).0;
        }
        let n_bytes = log.n_bytes();
        let mended = log.mend(quota, now);
        let (answer, change) = visit.visit(log, quota, now);
        if mended || change != BucketChange::Nothing {
            *slot = Slot::pack_log(id, log, index, quota);
        }
        self.n_log_bytes = self.n_log_bytes - n_bytes + log.n_bytes();
        self.evict_logs(id, now);
        answer
    }

    /// Puts a new key in.
    #[cold]
    pub(super) fn insert(&mut self, slot: Slot, now: Timestamp) {
        self.sweep(now);
        if self.n_max <= self.table.n_keys() {
            self.evict(now);
        }
        self.by_limit.add(slot.identity());
        self.table.insert(slot);
    }

    /// Forgets the state of an identity.
    pub(super) fn forget(&mut self, id: Identity) {
        if let Some(place) = self.table.place_of(id) {
            self.remove(place);
        }
    }

    /// Forgets all keys, and lets their memory go.
    pub(super) fn clear(&mut self) {
        *self = Self { n_max: self.n_max, n_evicted: self.n_evicted, ..Self::default() };
    }

    /// Removes the key at a place, with its log.
    fn remove(&mut self, place: usize) {
        let Some(slot) = self.table.remove(place) else { return };
        self.by_limit.remove(slot.identity());
        if let Some(index) = slot.log() {
            let log = std::mem::take(&mut self.logs[index as usize]);
            self.n_log_bytes -= log.n_bytes();
            self.free_logs.push(index);
        }
    }

    /// Lets go of states that mean nothing any more, among the next few places.
    fn sweep(&mut self, now: Timestamp) {
        let mut n_removed = 0;
        for _ in 0..SWEPT.min(self.table.n_places()) {
            let place = self.next_place();
            // Removing may move the next one here.
            while n_removed < SWEPT && self.table.at(place).is_some_and(|slot| slot.is_gone(now)) {
                self.remove(place);
                n_removed += 1;
            }
        }
    }

    /// Lets go of the least-spent state of the next few, of a limit that has more than its share of keys if there is one.
    fn evict(&mut self, now: Timestamp) {
        if let Some((place, heat)) = self.coolest(now, |_| true) {
            self.remove(place);
            self.n_evicted += u64::from(heat > 0);
        }
    }

    /// Removes logs, each time the least spent of the next few, while they take more than their share of memory. The
    /// log of the current charge stays.
    fn evict_logs(&mut self, in_hand: Identity, now: Timestamp) {
        while self.n_log_bytes > LOG_BYTES_MIN.max(self.n_max * LOG_BYTES_PER_KEY) {
            let of_another = |slot: &Slot| slot.log().is_some() && slot.identity() != in_hand;
            let Some((place, heat)) = self.coolest(now, of_another) else { return };
            self.remove(place);
            self.n_evicted += u64::from(heat > 0);
        }
    }

    /// Of the next few states that are eligible the least spent, and how much it is: zero if nothing. Limits that have no more
    /// keys than their share come last.
    fn coolest(&mut self, now: Timestamp, eligible: impl Fn(&Slot) -> bool) -> Option<(usize, u64)> {
        let mut coolest = None;
        let mut n_seen = 0;
        for _ in 0..self.table.n_places() {
            let place = self.next_place();
            let Some(slot) = self.table.at(place).filter(|slot| eligible(slot)) else { continue };
            let heat = if slot.is_gone(now) { 0 } else { 1 + slot.heat(now) };
            let is_within_share = heat > 0 && self.by_limit.is_within_share(slot.identity(), self.n_max);
            if coolest.is_none_or(|(_, least)| (is_within_share, heat) < least) {
                coolest = Some((place, (is_within_share, heat)));
            }
            n_seen += 1;
            if n_seen == SAMPLED {
                break;
            }
        }
        coolest.map(|(place, (_, heat))| (place, heat))
    }

    fn next_place(&mut self) -> usize {
        self.hand = if self.hand + 1 < self.table.n_places() { self.hand + 1 } else { 0 };
        self.hand
    }

    /// The index of a log that nobody uses.
    fn free_log(&mut self) -> u32 {
        self.free_logs.pop().unwrap_or_else(|| {
            self.logs.push(SlidingLog::default());
            u32::try_from(self.logs.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratewright_core::Micros;
    use ratewright_core::quota::WindowStart;

    /// Keys of one home lie in one chain, in which each removal moves the next key to the place that was just looked at.
    #[test]
    fn a_new_key_in_the_smallest_table_forgets_all_that_is_gone() {
        let quota =
            Quota::new(Algorithm::FixedWindow(WindowStart::FirstHit), "9/s".parse().unwrap()).unwrap();
        let (then, now) = (Timestamp::default(), Timestamp::default() + Micros::from_secs(10));
        let slot = |home: u64, n: u8, opened_at: Timestamp| {
            Slot::pack(
                Identity::new(home, u64::from(n) << 40, n),
                &FixedWindow { opened_at, count: 1 },
                &quota,
            )
        };
        for (home, hand) in (0..8).flat_map(|home| (0..8).map(move |hand| (home, hand))) {
            let mut shard = Shard::new(100);
            for n in 1..=5 {
                // One of them stays.
                shard.insert(slot(home, n, if n == 3 { now } else { then }), then);
            }
            assert_eq!((shard.n_keys(), shard.table.n_places()), (5, 8));
            shard.hand = hand;
            shard.insert(slot(home, 6, now), now);
            assert_eq!(shard.n_keys(), 2, "home {home}, hand {hand}");
        }
    }
}
