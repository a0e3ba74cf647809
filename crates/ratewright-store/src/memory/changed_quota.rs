//! Buckets whose quota changes: by a reload, or because another share applies while Redis is unavailable.
//!
//! A state is valid only under the quota that wrote it. When another quota uses the same key, it starts with the same share spent and keeps
//! its own state; the first state is parked in case its quota is used again. So no quota refills what another granted.
//!
//! ```text
//!   key                     10/min: 5 spent
//!   100/s is used           100/s: 50 spent      parked: 10/min: 5 spent
//!   10/min is used again    10/min: 5 spent, less what it earned meanwhile      parked: 100/s
//! ```
//!
//! `redis/apply.lua` does the same.

use std::collections::HashMap;

use ratewright_core::{Quota, Timestamp};

use super::shard::{BucketChange, Shard, VisitPurpose};
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

/// Where the state that a quota continues with comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is the one in use.
    InUse,
    /// It waited while another quota's was in use.
    Parked,
    /// Another quota's was in use, and this one begins with the same share spent.
    Inherited,
    /// No state was found: the bucket is full.
    Fresh,
}

impl Shard {
    /// The state that a quota continues with, if the state in use is missing or belongs to another quota.
    #[inline(never)]
    pub(super) fn load_for_quota<B: Inline>(
        &self,
        id: Identity,
        quota: &Quota,
        now: Timestamp,
    ) -> (Slot, Origin) {
        let in_use = self.table.get(id);
        if in_use.is_none() && self.parked_until <= now.as_micros() {
            return (Slot::VACANT, Origin::Fresh);
        }
        let own = self.table.get(id.parked(quota.tag()));
        if let Some(own) = own.filter(|own| now < own.unpack::<B>(quota).gone_at(quota)) {
            return (*own, Origin::Parked);
        }
        let Some(in_use) = in_use.filter(|slot| !self.is_gone::<B>(slot, quota, now)) else {
            return (Slot::VACANT, Origin::Fresh);
        };
        let writer = self.writer(in_use, quota);
        let inherited = in_use.unpack::<B>(writer).inherit(writer, quota, now);
        (Slot::pack(id, &inherited, quota), Origin::Inherited)
    }

    /// Puts a state in use that was not, if what was done to it is to be kept.
    #[inline(never)]
    pub(super) fn store_for_quota(
        &mut self,
        slot: Slot,
        origin: Origin,
        purpose: VisitPurpose,
        change: BucketChange,
        quota: &Quota,
        now: Timestamp,
    ) {
        let is_kept = match (origin, purpose) {
            (_, VisitPurpose::Look) => false,
            (Origin::Fresh, _) => change == BucketChange::Spent,
            (Origin::Parked | Origin::InUse, _) => change != BucketChange::Nothing,
            (Origin::Inherited, VisitPurpose::Charge) => true,
            // Nothing was paid under this quota that could be given back.
            (Origin::Inherited, VisitPurpose::Refund) => false,
        };
        if is_kept {
            self.put_in_use(slot, now);
            self.quotas.note(quota, &self.table);
        }
    }

    /// The quota that wrote a state; the given quota if the writer is unknown.
    fn writer<'a>(&'a self, slot: &Slot, quota: &'a Quota) -> &'a Quota {
        self.quotas.quotas.get(&slot.tag()).unwrap_or(quota)
    }

    /// True if a state means the same as none.
    fn is_gone<B: Inline>(&self, slot: &Slot, quota: &Quota, now: Timestamp) -> bool {
        let writer = self.writer(slot, quota);
        slot.unpack::<B>(writer).gone_at(writer) <= now
    }

    /// Puts a state in use, and lets the one that was wait.
    fn put_in_use(&mut self, slot: Slot, now: Timestamp) {
        let id = slot.identity();
        if now.as_micros() < self.parked_until {
            self.forget(id.parked(slot.tag()));
        }
        let Some(place) = self.table.find(id) else { return self.insert(slot, now) };
        let before = std::mem::replace(place, slot);
        let parked = before.moved(id.parked(before.tag()));
        if before.tag() != slot.tag() && now.as_micros() < parked.gone_at() {
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
