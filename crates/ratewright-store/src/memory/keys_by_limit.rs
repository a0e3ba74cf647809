//! Fair eviction between limits: a flood of keys under one limit evicts keys of that limit, not those of others.
//!
//! ```text
//!   full shard       flood ████████████████████████████████   login ██        share of each: half
//!   room is needed   taken from the flood, which exceeds its share, although its buckets are as spent as login's
//! ```
//!
//! One byte of a digest identifies a limit. Limits with the same byte count as one.

use super::slot::Identity;

/// How many keys each limit has in a shard.
#[derive(Debug)]
pub(super) struct KeysByLimit {
    n_keys: Box<[u32; 256]>,
    n_limits: usize,
}

impl Default for KeysByLimit {
    fn default() -> Self {
        Self { n_keys: Box::new([0; 256]), n_limits: 0 }
    }
}

impl KeysByLimit {
    /// Counts a key that comes.
    pub(super) fn add(&mut self, id: Identity) {
        let n_keys = &mut self.n_keys[usize::from(id.limit())];
        self.n_limits += usize::from(*n_keys == 0);
        *n_keys += 1;
    }

    /// Counts a key that goes.
    pub(super) fn remove(&mut self, id: Identity) {
        let n_keys = &mut self.n_keys[usize::from(id.limit())];
        *n_keys -= 1;
        self.n_limits -= usize::from(*n_keys == 0);
    }

    /// True if the limit of a key has no more keys than its share of `n_max`.
    pub(super) fn is_within_share(&self, id: Identity, n_max: usize) -> bool {
        self.n_keys[usize::from(id.limit())] as usize * self.n_limits <= n_max
    }

    /// Bytes on the heap.
    pub(super) fn n_bytes(&self) -> usize {
        size_of_val(&*self.n_keys)
    }
}
