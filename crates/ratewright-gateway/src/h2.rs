//! HTTP/2 connections to an upstream, shared by many requests.
//!
//! ```text
//!   acquire ──► oldest connection with a free slot ──► stream ──► both bodies ended: slot released
//!           ├─► no free slot: one request dials, the others wait
//!           └─► CONNECTIONS_MAX reached: least loaded connection, where hyper queues the stream
//! ```
//!
//! The upstream's first frame says how many concurrent streams it allows. Until then only one request gets a slot, and
//! hyper holds it back; otherwise many requests could queue at an upstream that allows few.
//!
//! Older connections are preferred, so that under less load the newest become idle and are closed.
//!
//! # Laws
//! - A worker never dials two connections to one server at the same time.
//! - A slot is released exactly once, when the last part of its request is dropped.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use crate::body::Upload;

/// The most streams on one connection. Some upstreams allow more, but one lost packet delays all of them.
const STREAMS_MAX: usize = 100;

/// The most connections of one worker to one server.
const CONNECTIONS_MAX: usize = 16;

/// The longest response head, in bytes, as in HTTP/1.1.
const HEAD_MAX: u32 = 64 * 1024;

/// The ping interval, and the time for its acknowledgement. gRPC servers close a connection with more than one ping in
/// five minutes. TCP keep-alive finds dead hosts sooner.
const PING_EVERY: Duration = Duration::from_secs(330);
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// The connections of one worker to one server.
#[derive(Debug, Default)]
pub(crate) struct Http2Pool {
    list: Mutex<List>,
    /// Notified when dialing ends, with or without success.
    dialed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct List {
    /// Oldest first.
    connections: Vec<Http2>,
    is_dialling: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    sender: SendRequest<Upload>,
    load: Arc<Load>,
    opened_at: Instant,
}

/// The streams of a connection.
#[derive(Debug)]
struct Load {
    state: Mutex<LoadState>,
    /// Notified when the upstream announces its stream limit, or another request may wait for it.
    limit_changed: Arc<Notify>,
}

#[derive(Debug)]
struct LoadState {
    n_streams: usize,
    /// None: not announced yet.
    streams_max: Option<usize>,
    idle_since: Instant,
    /// When the last response head arrived.
    responded_at: Instant,
}

/// A stream that a request may open.
#[derive(Debug)]
pub(crate) struct NewStream {
    pub(crate) sender: SendRequest<Upload>,
    pub(crate) slot: StreamSlot,
    /// True if the connection was open before.
    pub(crate) is_old: bool,
    /// True if the connection had no other stream.
    pub(crate) was_idle: bool,
}

/// A slot for a stream. Clones share it; it is released when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct StreamSlot(Arc<SlotState>);

#[derive(Debug)]
struct SlotState {
    load: Arc<Load>,
    since: Instant,
}

/// How a request gets a stream.
#[derive(Debug)]
pub(crate) enum Acquisition {
    /// On an open connection.
    Stream(NewStream),
    /// By dialing a connection.
    Dial(DialGuard),
    /// By trying again after this.
    Wait(OwnedNotified),
}

/// Marks that a connection is being dialed, until dropped.
#[derive(Debug)]
pub(crate) struct DialGuard(Arc<Http2Pool>);

impl Http2Pool {
    /// A stream for a request, on a connection opened at or after `opened_since`.
    pub(crate) fn acquire(self: &Arc<Self>, opened_since: Option<Instant>) -> Acquisition {
        let mut list = self.list.lock();
        list.connections.retain(|connection| !connection.sender.is_closed());
        let will_do = |connection: &&Http2| opened_since.is_none_or(|since| since <= connection.opened_at);
        let mut least_busy: Option<&Http2> = None;
        for connection in list.connections.iter().filter(will_do) {
            if let Some(stream) = connection.try_open() {
                return Acquisition::Stream(stream);
            }
            if let Some(soon) = connection.limit_announcement() {
                return Acquisition::Wait(soon);
            }
            least_busy = least_busy.into_iter().chain([connection]).min_by_key(|c| c.n_streams());
        }
        if list.is_dialling {
            return Acquisition::Wait(Arc::clone(&self.dialed).notified_owned());
        }
        match least_busy {
            Some(connection) if list.connections.len() >= CONNECTIONS_MAX => {
                Acquisition::Stream(connection.open_anyway())
            }
            _ => {
                list.is_dialling = true;
                Acquisition::Dial(DialGuard(Arc::clone(self)))
            }
        }
    }

    /// Called if a request timed out. If the connection gave no other response since, the peer may be dead: the
    /// connection gets no more requests, and closes after its last one.
    pub(crate) fn retire_if_silent(&self, slot: &StreamSlot) {
        let SlotState { load, since } = &*slot.0;
        if load.state.lock().responded_at <= *since {
            self.list.lock().connections.retain(|connection| !Arc::ptr_eq(&connection.load, load));
        }
    }

    /// Closes connections that have been idle for longer than the timeout.
    pub(crate) fn sweep(&self, now: Instant, idle_timeout: Duration) {
        self.list.lock().connections.retain(|connection| {
            let load = connection.load.state.lock();
            !connection.sender.is_closed()
                && (load.n_streams > 0 || now.duration_since(load.idle_since) <= idle_timeout)
        });
    }
}

impl DialGuard {
    /// Adds the connection to the pool, and opens its first stream.
    pub(crate) fn share(self, connection: Http2) -> NewStream {
        let stream = NewStream { is_old: false, ..connection.open_anyway() };
        let mut list = self.0.list.lock();
        if list.connections.len() >= CONNECTIONS_MAX {
            list.connections.remove(0); // all of them failed this request
        }
        list.connections.push(connection);
        drop(list);
        stream
    }
}

impl Drop for DialGuard {
    fn drop(&mut self) {
        self.0.list.lock().is_dialling = false;
        self.0.dialed.notify_waiters();
    }
}

impl Http2 {
    /// Starts HTTP/2 on a byte stream.
    pub(crate) async fn open<I>(stream: I) -> Result<Self, hyper::Error>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_WITHIN)
            .keep_alive_while_idle(true)
            .max_header_list_size(HEAD_MAX)
            .initial_max_send_streams(0) // until the upstream announces its limit
            .handshake(TokioIo::new(stream))
            .await?;
        let opened_at = Instant::now();
        let state =
            LoadState { n_streams: 0, streams_max: None, idle_since: opened_at, responded_at: opened_at };
        let load = Arc::new(Load { state: Mutex::new(state), limit_changed: Arc::default() });
        let driven_load = Arc::clone(&load);
        tokio::spawn(async move {
            let ended = poll_fn(|context| {
                let polled = Pin::new(&mut connection).poll(context);
                driven_load.allow(connection.current_max_send_streams());
                polled
            });
            drop(ended.await); // its requests get the error
            driven_load.limit_changed.notify_waiters();
        });
        Ok(Self { sender, load, opened_at })
    }

    /// A stream, if a slot is free.
    fn try_open(&self) -> Option<NewStream> {
        let has_room = {
            let load = self.load.state.lock();
            load.n_streams < load.streams_max.unwrap_or(1)
        };
        has_room.then(|| self.open_anyway())
    }

    /// A stream, even if no slot is free.
    fn open_anyway(&self) -> NewStream {
        let mut load = self.load.state.lock();
        let was_idle = load.n_streams == 0;
        load.n_streams += 1;
        drop(load);
        let slot = StreamSlot(Arc::new(SlotState { load: Arc::clone(&self.load), since: Instant::now() }));
        NewStream { sender: self.sender.clone(), slot, is_old: true, was_idle }
    }

    /// Ready when the stream limit is announced. None: it is known.
    fn limit_announcement(&self) -> Option<OwnedNotified> {
        let load = self.load.state.lock();
        load.streams_max.is_none().then(|| Arc::clone(&self.load.limit_changed).notified_owned())
    }

    fn n_streams(&self) -> usize {
        self.load.state.lock().n_streams
    }
}

impl StreamSlot {
    /// A response head arrived.
    pub(crate) fn responded(&self) {
        self.0.load.state.lock().responded_at = Instant::now();
    }
}

impl Load {
    /// Sets the stream limit. 0: not announced yet, or no streams allowed now.
    fn allow(&self, n_streams: usize) {
        let streams_max = (n_streams > 0).then_some(n_streams.min(STREAMS_MAX));
        let mut state = self.state.lock();
        if state.streams_max != streams_max {
            state.streams_max = streams_max;
            drop(state);
            self.limit_changed.notify_waiters();
        }
    }
}

impl Drop for SlotState {
    fn drop(&mut self) {
        let load = &self.load;
        let mut state = load.state.lock();
        state.n_streams -= 1;
        state.idle_since = Instant::now();
        if state.streams_max.is_none() {
            drop(state);
            load.limit_changed.notify_waiters(); // the next request waits for the limit
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    /// A connection, and the upstream's end.
    async fn opened() -> (Http2, DuplexStream) {
        let (ours, theirs) = duplex(1024 * 1024);
        (Http2::open(ours).await.unwrap(), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_ping_ack_is_closed() {
        let (connection, mut server) = opened().await;
        server.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap(); // empty SETTINGS
        let reading = tokio::spawn(async move { server.read_to_end(&mut Vec::new()).await });
        sleep(PING_EVERY).await;
        assert!(!connection.sender.is_closed());
        sleep(PONG_WITHIN + Duration::from_secs(1)).await;
        assert!(connection.sender.is_closed());
        reading.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_ping_acks_is_kept() {
        let (connection, server) = opened().await;
        tokio::spawn(async move { h2::server::handshake(server).await.unwrap().accept().await.is_some() });
        sleep(PING_EVERY * 10).await;
        assert!(!connection.sender.is_closed());
    }
}
