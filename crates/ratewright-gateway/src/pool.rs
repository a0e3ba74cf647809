//! Connections to servers, kept for the next request. Each worker has its own, so nobody else ever waits for one.
//!
//! ```text
//!   take ──► idle one, the one that was used last ──► request ──► answer's end ──► give back
//!        └─► none: connect
//! ```
//!
//! A server may close a connection at any time, also just when a request is on its way. Who can send it again does so; who
//! cannot is given only a connection that was used a moment ago ([`FRESH`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::h1::Http1;
use crate::h2::Http2s;
use crate::server::Server;
use crate::upstream::Protocol;

/// The most idle connections to one server that a worker keeps.
const IDLE_MAX: usize = 128;

/// Within this time after its last use a server has hardly closed a connection for being idle.
const FRESH: Duration = Duration::from_secs(1);

/// A worker's connections.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Mutex<Slots>,
    /// How long an idle connection is kept.
    kept_for: Duration,
}

#[derive(Debug, Default)]
struct Slots {
    numbers: HashMap<Kind, usize>,
    slots: Vec<Slot>,
}

/// Which connections can stand in for each other.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Kind {
    server: String,
    protocol: Protocol,
    /// Who must have signed the server's certificate, if that is somebody of one's own.
    ca: Option<Arc<[u8]>>,
}

/// The connections to one server.
#[derive(Debug, Default)]
struct Slot {
    idle: Vec<(Box<Http1>, Instant)>,
    shared: Arc<Http2s>,
}

/// A connection that goes back when its answer has ended.
#[derive(Debug)]
pub(crate) struct Borrowed {
    pool: Arc<Pool>,
    slot: usize,
    pub(crate) connection: Box<Http1>,
}

/// Which connections will do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Any: the request can be sent again.
    Any,
    /// One that is surely open still.
    Fresh,
}

impl Pool {
    pub(crate) fn new(kept_for: Duration) -> Self {
        Self { slots: Mutex::default(), kept_for }
    }

    /// The number under which a server's connections are kept.
    pub(crate) fn slot(&self, server: &Server, protocol: Protocol, ca: Option<&Arc<[u8]>>) -> usize {
        let mut slots = self.slots.lock();
        let Slots { numbers, slots } = &mut *slots;
        let kind = Kind { server: server.to_string(), protocol, ca: ca.cloned() };
        *numbers.entry(kind).or_insert_with(|| {
            slots.push(Slot::default());
            slots.len() - 1
        })
    }

    /// An idle connection of HTTP/1.1.
    pub(crate) fn take(&self, slot: usize, wanted: Wanted) -> Option<Box<Http1>> {
        let now = Instant::now();
        let mut slots = self.slots.lock();
        let slot = slots.slots.get_mut(slot)?;
        let kept_for = if wanted == Wanted::Any { self.kept_for } else { FRESH.min(self.kept_for) };
        while let Some((mut connection, used_at)) = slot.idle.pop() {
            if now.duration_since(used_at) > kept_for {
                // Those below it are older still. For others they may do.
                if wanted == Wanted::Any {
                    slot.idle.clear();
                } else {
                    slot.idle.push((connection, used_at));
                }
                return None;
            }
            if !connection.is_over() {
                return Some(connection);
            }
        }
        None
    }

    /// The connections of HTTP/2.
    pub(crate) fn shared(&self, slot: usize) -> Arc<Http2s> {
        self.slots.lock().slots.get(slot).map(|slot| Arc::clone(&slot.shared)).unwrap_or_default()
    }

    /// Closes what nobody has used for long.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for slot in &mut self.slots.lock().slots {
            slot.idle.retain_mut(|(connection, used_at)| {
                now.duration_since(*used_at) <= self.kept_for && !connection.is_over()
            });
            slot.shared.sweep(now, self.kept_for);
        }
    }
}

impl Borrowed {
    pub(crate) fn new(pool: Arc<Pool>, slot: usize, connection: Box<Http1>) -> Self {
        Self { pool, slot, connection }
    }

    /// Gives the connection back, for the next request, if it is fit for one. A request that was answered before all of it
    /// had come is sent to its end first; in between, `pause_max` is how long nothing of it may be taken.
    pub(crate) fn give_back(mut self, pause_max: Duration) {
        if self.connection.is_still_read() {
            tokio::spawn(async move {
                self.connection.finish(pause_max).await;
                self.put_back();
            });
        } else {
            self.put_back();
        }
    }

    fn put_back(self) {
        let Self { pool, slot, connection } = self;
        if !connection.is_reusable() {
            return;
        }
        let mut slots = pool.slots.lock();
        if let Some(slot) = slots.slots.get_mut(slot)
            && slot.idle.len() < IDLE_MAX
        {
            slot.idle.push((connection, Instant::now()));
        }
    }
}
