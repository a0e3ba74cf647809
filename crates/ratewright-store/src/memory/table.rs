//! Slots by identity: open addressing with linear probing, and nothing but slots.
//!
//! ```text
//!   home                     a key is in its home slot, or in the first slot after it that was vacant
//!    ▼
//!   │A│B│·│C│A│·│·│D│        a look-up ends at its key or at a vacant slot
//! ```
//!
//! Removing a key moves later keys of its chain forward into the gap, so that it leaves no marker behind. A full table
//! that keeps exchanging keys, as under a flood, therefore keeps its size; `hashbrown::HashTable`, which leaves markers
//! behind, doubled there (43 bytes a key, then 87). Identities are random bits in the slot itself: two slots share a
//! cache line, and most look-ups touch one.

use super::slot::{Identity, Slot};

/// Slots in the smallest table that is not empty.
const SLOTS_MIN: usize = 8;

/// Slots by identity.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// None, or a power of two, at least a quarter of them vacant.
    slots: Vec<Slot>,
    n_keys: usize,
}

impl Table {
    /// Keys in the table.
    pub(super) fn n_keys(&self) -> usize {
        self.n_keys
    }

    /// Places in the table, taken or not.
    pub(super) fn n_places(&self) -> usize {
        self.slots.len()
    }

    /// Bytes on the heap.
    pub(super) fn n_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    /// The slot of a key.
    #[inline(always)]
    pub(super) fn find(&mut self, id: Identity) -> Option<&mut Slot> {
        let place = self.place_of(id)?;
        self.slots.get_mut(place)
    }

    /// The slot of a key, to be read.
    pub(super) fn get(&self, id: Identity) -> Option<&Slot> {
        self.slots.get(self.place_of(id)?)
    }

    /// Where a key lies.
    #[inline(always)]
    pub(super) fn place_of(&self, id: Identity) -> Option<usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut place = id.home() & mask;
        loop {
            let slot = self.slots.get(place)?; // nothing, if there are no slots
            if slot.is_vacant() {
                return None;
            }
            if slot.identity() == id {
                return Some(place);
            }
            place = (place + 1) & mask;
        }
    }

    /// The slot at a place, if one is taken there.
    pub(super) fn at(&self, place: usize) -> Option<&Slot> {
        self.slots.get(place).filter(|slot| !slot.is_vacant())
    }

    /// All slots that are taken.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.is_vacant())
    }

    /// Puts a key in that is not there.
    pub(super) fn insert(&mut self, slot: Slot) {
        if self.slots.len() * 3 < (self.n_keys + 1) * 4 {
            self.grow();
        }
        self.put(slot);
        self.n_keys += 1;
    }

    /// Takes the key at a place out.
    pub(super) fn remove(&mut self, place: usize) -> Option<Slot> {
        let removed = *self.at(place)?;
        let mask = self.slots.len() - 1;
        let mut gap = place;
        let mut next = (place + 1) & mask;
        while let Some(slot) = self.at(next).copied() {
            // It may lie in the gap if that is not before its home.
            let from_home = next.wrapping_sub(slot.identity().home()) & mask;
            if (next.wrapping_sub(gap) & mask) <= from_home {
                self.slots[gap] = slot;
                gap = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[gap] = Slot::VACANT;
        self.n_keys -= 1;
        Some(removed)
    }

    #[cold]
    fn grow(&mut self) {
        let n_places = (self.slots.len() * 2).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, vec![Slot::VACANT; n_places]);
        old.into_iter().filter(|slot| !slot.is_vacant()).for_each(|slot| self.put(slot));
    }

    /// Puts a slot into the first vacant place from its home on.
    fn put(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut place = slot.identity().home() & mask;
        while !self.slots[place].is_vacant() {
            place = (place + 1) & mask;
        }
        self.slots[place] = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ratewright_core::algorithm::fixed_window::FixedWindow;
    use ratewright_core::quota::{Algorithm, WindowStart};
    use ratewright_core::{Quota, Timestamp};
    use std::collections::BTreeMap;

    /// Keys whose homes crowd, also around the end of the table.
    fn id(n: u8) -> Identity {
        Identity::new(u64::from(n % 5).wrapping_sub(2), u64::from(n) << 40, n)
    }

    fn slot(n: u8, count: u32) -> Slot {
        let quota = Quota::new(Algorithm::FixedWindow(WindowStart::Epoch), "9/s".parse().unwrap()).unwrap();
        Slot::pack(id(n), &FixedWindow { opened_at: Timestamp::default(), count }, &quota)
    }

    proptest! {
        /// Whatever is put in and taken out, it holds what a map holds.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), 0u8..60), 1..400)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (count, (puts, n)) in (1u32..).zip(steps) {
                match table.place_of(id(n)) {
                    Some(place) if !puts => {
                        prop_assert!(table.remove(place).is_some());
                        map.remove(&n);
                    }
                    None if puts => {
                        table.insert(slot(n, count));
                        map.insert(n, count);
                    }
                    found => prop_assert_eq!(found.is_some(), map.contains_key(&n)),
                }
                prop_assert_eq!(table.n_keys(), map.len());
                prop_assert!(map.len() * 4 <= table.n_places() * 3);
                for (n, count) in &map {
                    let found = table.find(id(*n)).map(|slot| format!("{slot:?}"));
                    prop_assert_eq!(found, Some(format!("{:?}", slot(*n, *count))));
                }
            }
        }
    }
}
