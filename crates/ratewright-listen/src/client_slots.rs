//! Slots that are counted for each client: its connections, or its requests in flight.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// How many slots each client has taken. Clones share the counts. Only clients with slots take memory.
#[derive(Clone, Debug, Default)]
pub struct ClientSlots(Arc<Mutex<HashMap<IpAddr, u32>>>);

/// A client, and how many slots it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimit {
    /// Its address, or the first of its network.
    pub client: IpAddr,
    /// The most slots of this client.
    pub max: u32,
}

/// A slot that is released when dropped.
#[derive(Debug)]
pub struct ClientSlot {
    slots: ClientSlots,
    client: IpAddr,
}

impl ClientSlots {
    /// Takes a slot. None: the client has no free one.
    pub fn take(&self, ClientLimit { client, max }: ClientLimit) -> Option<ClientSlot> {
        let mut by_client = self.0.lock();
        let n = by_client.entry(client).or_insert(0);
        if *n >= max {
            if *n == 0 {
                by_client.remove(&client);
            }
            return None;
        }
        *n += 1;
        Some(ClientSlot { slots: self.clone(), client })
    }

    /// How many clients have slots.
    pub fn n_clients(&self) -> usize {
        self.0.lock().len()
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut by_client = self.slots.0.lock();
        if let Some(n) = by_client.get_mut(&self.client) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_at_most_its_slots_and_leaves_nothing_behind() {
        let slots = ClientSlots::default();
        let limit = |client: [u8; 4], max| ClientLimit { client: client.into(), max };
        let taken = [(); 3].map(|()| slots.take(limit([192, 0, 2, 1], 2)));
        assert_eq!(taken.each_ref().map(Option::is_some), [true, true, false]);
        assert!(slots.take(limit([192, 0, 2, 2], 0)).is_none());
        assert!(slots.take(limit([192, 0, 2, 3], 1)).is_some());
        assert_eq!(slots.n_clients(), 1);
        drop(taken);
        assert_eq!(slots.n_clients(), 0);
    }
}
