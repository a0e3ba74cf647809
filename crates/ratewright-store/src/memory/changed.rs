//! Buckets whose quota was changed: a reload, or another share of it while Redis is gone.
//!
//! A state means something only under the quota that wrote it. Another quota that comes to the same key begins with the
//! same share spent, and from then on has a state of its own; the first one's waits beside it, in case its quota comes back. So
//! no quota repays what another granted.
//!
//! ```text
//!   key                     10/min: 5 spent
//!   100/s comes             100/s: 50 spent      parked: 10/min: 5 spent
//!   10/min comes again      10/min: 5 spent, less what it earned meanwhile      parked: 100/s
//! ```
//!
//! `redis/apply.lua` does the same.

use std::collections::HashMap;

use ratewright_core::{Quota, Timestamp};

use super::shard::{Change, Purpose, Shard, Visit};
use super::slot::{Identity, Inline, Slot};
use super::table::Table;

/// The quotas under which the states of a shard were written, by their tags.
#[derive(Debug, Default)]
pub(super) struct WrittenUnder {
    quotas: HashMap<u32, Quota>,
    /// The tag that was noted last. Most shards know one quota.
    last: u32,
}

impl WrittenUnder {
    /// Notes a quota. Quotas that no state was written under are dropped when there are many.
    #[inline(always)]
    pub(super) fn note(&mut self, quota: &Quota, table: &Table) {
        if quota.tag() != self.last {
            self.note_another(quota, table);
        }
    }

    #[cold]
    fn note_another(&mut self, quota: &Quota, table: &Table) {
        self.last = quota.tag();
        if self.quotas.contains_key(&quota.tag()) {
            return;
        }
        if self.quotas.len() >= 16 + 2 * table.n_keys() {
            let tags: std::collections::HashSet<u32> = table.iter().map(Slot::tag).collect();
            self.quotas.retain(|tag, _| tags.contains(tag));
        }
        self.quotas.insert(quota.tag(), quota.clone());
    }

    /// Bytes on the heap, about.
    pub(super) fn n_bytes(&self) -> usize {
        self.quotas.capacity() * size_of::<(u32, Quota)>()
    }
}

impl Shard {
    /// Visits the bucket of a quota that did not write the state in use.
    #[cold]
    #[inline(never)]
    pub(super) fn visit_changed<B: Inline, V: Visit>(
        &mut self,
        id: Identity,
        quota: &Quota,
        now: Timestamp,
        visit: V,
    ) -> V::Answer {
        let in_use = self.table.get(id).filter(|slot| !self.is_gone::<B>(slot, quota, now)).copied();
        let own = self.table.get(id.parked(quota.tag())).map(|slot| slot.unpack::<B>(quota));
        let own = own.filter(|own| now < own.gone_at(quota));
        let mut bucket = match (&own, in_use) {
            (Some(own), _) => *own,
            (None, Some(slot)) => {
                let writer = self.writer(&slot, quota);
                slot.unpack::<B>(writer).inherit(writer, quota, now)
            }
            (None, None) => B::fresh(quota),
        };
        let inherits = own.is_none() && in_use.is_some();
        let purpose = visit.purpose();
        let mended = bucket.mend(quota, now);
        let (answer, change) = visit.visit(&mut bucket, quota, now);
        let is_stored = match purpose {
            Purpose::Look => false,
            Purpose::Charge => mended || inherits || change != Change::Nothing,
            // Nothing was paid under this quota that could be given back.
            Purpose::Refund => own.is_some(),
        };
        if is_stored {
            self.put_in_use(Slot::pack(id, &bucket, quota), in_use, now);
            self.quotas.note(quota, &self.table);
        }
        answer
    }

    /// The quota that wrote a state. It is noted; should it not be, the one in hand must do.
    fn writer<'a>(&'a self, slot: &Slot, quota: &'a Quota) -> &'a Quota {
        self.quotas.quotas.get(&slot.tag()).unwrap_or(quota)
    }

    /// True if a state means the same as none.
    fn is_gone<B: Inline>(&self, slot: &Slot, quota: &Quota, now: Timestamp) -> bool {
        let writer = self.writer(slot, quota);
        slot.unpack::<B>(writer).gone_at(writer) <= now
    }

    /// Puts a state in use, and lets the one that was wait.
    fn put_in_use(&mut self, slot: Slot, before: Option<Slot>, now: Timestamp) {
        let id = slot.identity();
        self.forget(id.parked(slot.tag()));
        match self.table.find(id) {
            Some(place) => *place = slot,
            None => self.insert(slot, now),
        }
        if let Some(before) = before.filter(|before| before.tag() != slot.tag()) {
            let parked = before.moved(id.parked(before.tag()));
            self.parked_until = self.parked_until.max(parked.gone_at());
            match self.table.find(parked.identity()) {
                Some(place) => *place = parked,
                None => self.insert(parked, now),
            }
        }
    }

    /// Forgets a key: the state in use, and those that wait.
    pub(super) fn forget_all(&mut self, id: Identity) {
        self.forget(id);
        let tags: Vec<u32> = self.quotas.quotas.keys().copied().collect();
        for tag in tags {
            self.forget(id.parked(tag));
        }
    }
}
