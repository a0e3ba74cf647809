//! Clients, and how often each was denied. Exact, in little memory: 13 bytes for a client, 21 more for one that was
//! denied (in tables that are at least half full).
//!
//! A client is known by a 64-bit hash of its name. Names are kept only for those that were denied most: whenever a
//! client could become one of them, its name is at hand, because it is being denied.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use ratewright_core::Timestamp;

use crate::report::DeniedClient;

/// Hashes names of clients. Its key is random, so nobody can make two names collide.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientHasher(RandomState);

/// The hash of a client's name, in two halves: tables of them need no padding.
pub(crate) type ClientId = (u32, u32);

impl ClientHasher {
    #[inline]
    pub(crate) fn id(&self, name: &[u8]) -> ClientId {
        let mut hasher = self.0.build_hasher();
        hasher.write(name);
        halves(hasher.finish())
    }
}

/// A number in two halves.
fn halves(number: u64) -> (u32, u32) {
    let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    (u32::try_from(number >> 32).unwrap_or(u32::MAX), low)
}

fn whole((high, low): (u32, u32)) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A hasher for client ids, which are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[inline]
    fn write_u32(&mut self, half: u32) {
        self.0 = self.0 << 32 | u64::from(half);
    }
}

/// A set of clients.
pub(crate) type ClientSet = HashSet<ClientId, BuildHasherDefault<IdentityHasher>>;

type ClientMap<T> = HashMap<ClientId, T, BuildHasherDefault<IdentityHasher>>;

/// How often each client came, and how often it was denied.
#[derive(Debug)]
pub(crate) struct ClientCounts {
    requests: ClientMap<u32>,
    denials: ClientMap<Denials>,
    top: Vec<TopClient>,
    n_top: usize,
}

/// The denials of one client.
#[derive(Clone, Copy, Debug)]
struct Denials {
    n: u32,
    /// The time of the first one, in two halves.
    first: (u32, u32),
}

/// One of those that were denied most.
#[derive(Debug)]
struct TopClient {
    id: ClientId,
    n_denied: u32,
    name: String,
    last: Timestamp,
}

impl ClientCounts {
    /// Keeps the names of the `n_top` clients that are denied most.
    pub(crate) fn new(n_top: usize) -> Self {
        Self { requests: ClientMap::default(), denials: ClientMap::default(), top: Vec::new(), n_top }
    }

    /// Counts a request.
    #[inline]
    pub(crate) fn count(&mut self, id: ClientId) {
        let n = self.requests.entry(id).or_insert(0);
        *n = n.saturating_add(1);
    }

    /// Counts a denial of a request that was counted.
    pub(crate) fn deny(&mut self, id: ClientId, at: Timestamp, name: impl FnOnce() -> String) {
        let denials = self.denials.entry(id).or_insert(Denials { n: 0, first: halves(at.as_micros()) });
        denials.n = denials.n.saturating_add(1);
        let n_denied = denials.n;
        let index = match self.top.iter().position(|top| top.id == id) {
            Some(index) => {
                (self.top[index].n_denied, self.top[index].last) = (n_denied, at);
                index
            }
            None => {
                let is_full = self.top.len() >= self.n_top;
                if is_full && self.top.last().is_none_or(|least| n_denied <= least.n_denied) {
                    return;
                }
                if is_full {
                    self.top.pop();
                }
                self.top.push(TopClient { id, n_denied, name: name(), last: at });
                self.top.len() - 1
            }
        };
        // Keeps the list sorted; on a tie, the earlier client stays first.
        let mut index = index;
        while index > 0 && self.top[index - 1].n_denied < n_denied {
            self.top.swap(index - 1, index);
            index -= 1;
        }
    }

    /// How many clients there are.
    pub(crate) fn n_clients(&self) -> u64 {
        self.requests.len() as u64
    }

    /// How many of them were denied at least once.
    pub(crate) fn n_denied(&self) -> u64 {
        self.denials.len() as u64
    }

    /// Those that were denied most, the most denied first.
    pub(crate) fn most_denied(&self) -> Vec<DeniedClient> {
        let of = |top: &TopClient| DeniedClient {
            client: top.name.clone(),
            requests: self.requests.get(&top.id).map_or(0, |n| u64::from(*n)),
            denied: u64::from(top.n_denied),
            first_denied_at: self
                .denials
                .get(&top.id)
                .map_or(top.last, |denials| Timestamp::from_micros(whole(denials.first))),
            last_denied_at: top.last,
        };
        self.top.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The clients that were denied most, by a plain count of everything.
        #[test]
        fn the_most_denied_are_exact(
            history in prop::collection::vec((0u64..12, any::<bool>()), 0..300),
            n_top in 0usize..6,
        ) {
            let hasher = ClientHasher::default();
            let mut counts = ClientCounts::new(n_top);
            let mut plain: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
            for (at, (client, is_denied)) in (1_700_000_000_000_000u64..).zip(&history) {
                let id = hasher.id(client.to_string().as_bytes());
                counts.count(id);
                let entry = plain.entry(*client).or_default();
                entry.0 += 1;
                if *is_denied {
                    counts.deny(id, Timestamp::from_micros(at), || client.to_string());
                    entry.1.push(at);
                }
            }
            let n_denied = plain.values().filter(|(_, denials)| !denials.is_empty()).count();
            prop_assert_eq!(counts.n_clients(), plain.len() as u64);
            prop_assert_eq!(counts.n_denied(), n_denied as u64);
            let most = counts.most_denied();
            prop_assert_eq!(most.len(), n_top.min(n_denied));
            let mut all: Vec<u64> = plain.values().map(|(_, denials)| denials.len() as u64).collect();
            all.sort_by(|a, b| b.cmp(a));
            let shown: Vec<u64> = most.iter().map(|client| client.denied).collect();
            prop_assert_eq!(&shown[..], &all[..most.len()]);
            for client in most {
                let (requests, denials) = &plain[&client.client.parse::<u64>().unwrap()];
                prop_assert_eq!((client.requests, client.denied), (*requests, denials.len() as u64));
                prop_assert_eq!(client.first_denied_at.as_micros(), denials[0]);
                prop_assert_eq!(client.last_denied_at.as_micros(), denials[denials.len() - 1]);
            }
        }
    }
}
