//! Idle upstream connections. Each worker has its own pool, so workers never wait for each other.
//!
//! ```text
//!   take ──► the most recently used idle connection ──► request ──► end of the response ──► release
//!        └─► none: dial
//! ```
//!
//! An upstream may close a connection at any time, even while a request is being sent. A repeatable request is then
//! sent again; any other request gets only a connection that was used a moment ago ([`FRESH_FOR`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::h1::Http1;
use crate::h2::Http2Pool;
use crate::upstream::Protocol;
use crate::upstream::UpstreamServer;

/// The most idle connections to one server in a pool.
const IDLE_MAX: usize = 128;

/// After so short a time, a server has hardly closed a connection for being idle.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// A worker's connections.
#[derive(Debug)]
pub(crate) struct Pool {
    slots: Mutex<Slots>,
    /// How long an idle connection is kept.
    idle_timeout: Duration,
}

#[derive(Debug, Default)]
struct Slots {
    indices: HashMap<ConnectionKey, usize>,
    slots: Vec<ServerConnections>,
}

/// Connections with the same key are interchangeable.
#[derive(PartialEq, Eq, Hash, Debug)]
struct ConnectionKey {
    server: String,
    protocol: Protocol,
    /// The custom CA, if there is one.
    ca: Option<Arc<[u8]>>,
}

/// The connections to one server.
#[derive(Debug, Default)]
struct ServerConnections {
    idle: Vec<(Box<Http1>, Instant)>,
    shared: Arc<Http2Pool>,
}

/// A connection that returns to the pool when its response has ended.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    pool: Arc<Pool>,
    slot: usize,
    pub(crate) connection: Box<Http1>,
}

/// Which connections a request may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// Any: the request is repeatable.
    Any,
    /// One that is almost certainly still open.
    Fresh,
}

impl Pool {
    pub(crate) fn new(idle_timeout: Duration) -> Self {
        Self { slots: Mutex::default(), idle_timeout }
    }

    /// How long an idle connection is kept.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    /// The index of a server's connections.
    pub(crate) fn slot(&self, server: &UpstreamServer, protocol: Protocol, ca: Option<&Arc<[u8]>>) -> usize {
        let mut slots = self.slots.lock();
        let Slots { indices, slots } = &mut *slots;
        let key = ConnectionKey { server: server.to_string(), protocol, ca: ca.cloned() };
        *indices.entry(key).or_insert_with(|| {
            slots.push(ServerConnections::default());
            slots.len() - 1
        })
    }

    /// Takes an idle HTTP/1.1 connection.
    pub(crate) fn take(&self, slot: usize, freshness: Freshness) -> Option<Box<Http1>> {
        let now = Instant::now();
        let mut slots = self.slots.lock();
        let slot = slots.slots.get_mut(slot)?;
        let idle_timeout =
            if freshness == Freshness::Any { self.idle_timeout } else { FRESH_FOR.min(self.idle_timeout) };
        while let Some((mut connection, used_at)) = slot.idle.pop() {
            if now.duration_since(used_at) > idle_timeout {
                // The others are even older, but may serve repeatable requests.
                if freshness == Freshness::Any {
                    slot.idle.clear();
                } else {
                    slot.idle.push((connection, used_at));
                }
                return None;
            }
            if !connection.is_unusable() {
                return Some(connection);
            }
        }
        None
    }

    /// The HTTP/2 connections.
    pub(crate) fn shared(&self, slot: usize) -> Arc<Http2Pool> {
        self.slots.lock().slots.get(slot).map(|slot| Arc::clone(&slot.shared)).unwrap_or_default()
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for slot in &mut self.slots.lock().slots {
            slot.idle.retain_mut(|(connection, used_at)| {
                now.duration_since(*used_at) <= self.idle_timeout && !connection.is_unusable()
            });
            slot.shared.sweep(now, self.idle_timeout);
        }
    }
}

impl PooledConnection {
    pub(crate) fn new(pool: Arc<Pool>, slot: usize, connection: Box<Http1>) -> Self {
        Self { pool, slot, connection }
    }

    /// Returns the connection to the pool if it is reusable. If the response came before the end of the request, the
    /// rest of the request is sent first; `idle_timeout` bounds each pause.
    pub(crate) fn release(mut self, idle_timeout: Duration) {
        if self.connection.is_still_read() {
            tokio::spawn(async move {
                self.connection.finish(idle_timeout).await;
                self.return_to_pool();
            });
        } else {
            self.return_to_pool();
        }
    }

    fn return_to_pool(self) {
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
