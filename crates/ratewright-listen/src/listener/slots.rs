//! Connection slots: how many connections a listener has, in total and per client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::client_slots::{ClientLimit, ClientSlot, ClientSlots};

/// The number of connections of a listener. Only its acceptor takes slots.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots {
    n: AtomicUsize,
    by_client: ClientSlots,
    released: Notify,
}

/// A slot that is released when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    /// None: not known yet, or not counted.
    client: Option<ClientSlot>,
    /// None: the listener has no queues.
    n_queue_connections: Option<Arc<AtomicUsize>>,
}

impl ConnectionSlots {
    /// Waits until fewer than `max` slots are taken.
    pub(super) async fn any_free(&self, max: impl Fn() -> usize) {
        while self.n.load(Ordering::Acquire) >= max() {
            self.released.notified().await; // at once if a slot was released since the last wait
        }
    }

    /// Takes one of `max` slots. None: all are taken.
    pub(super) fn take(
        self: &Arc<Self>,
        max: usize,
        n_queue_connections: Option<&Arc<AtomicUsize>>,
    ) -> Option<ConnectionSlot> {
        if self.n.load(Ordering::Relaxed) >= max {
            return None;
        }
        self.n.fetch_add(1, Ordering::Relaxed);
        let n_queue_connections = n_queue_connections.cloned();
        if let Some(n) = &n_queue_connections {
            n.fetch_add(1, Ordering::Relaxed);
        }
        Some(ConnectionSlot { slots: Arc::clone(self), client: None, n_queue_connections })
    }
}

impl ConnectionSlot {
    /// Counts the connection for its client. False: the client has no free slot.
    pub(super) fn take_for(&mut self, limit: Option<ClientLimit>) -> bool {
        let Some(limit) = limit else { return true };
        self.client = self.slots.by_client.take(limit);
        self.client.is_some()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.client = None;
        if let Some(n) = &self.n_queue_connections {
            n.fetch_sub(1, Ordering::Relaxed);
        }
        self.slots.n.fetch_sub(1, Ordering::Release);
        self.slots.released.notify_one();
    }
}
