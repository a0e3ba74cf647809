//! HTTP/2 to a server, on connections that many requests share.
//!
//! ```text
//!   find ──► a place on the oldest connection that has room ──► request ──► both bodies have ended: the place is free
//!        ├─► none has room: one request dials, others wait for what comes of it
//!        └─► nor may there be another: a place on the least busy one, where the library lets it wait
//! ```
//!
//! How many streams a server takes at once is the first thing it says. Until then one request alone has a place, and the library
//! keeps it back; otherwise many could be on their way to a server that takes few, and would wait there for each other.
//!
//! The oldest first: when there is less to do, the newest have nothing to do, and are closed.
//!
//! # Laws
//! - Of one worker and one server, no two connections are dialled at the same time.
//! - A place is free exactly once, when the last of its request is dropped.

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

/// The most streams on one connection. Some servers take more, but all of them wait for one lost packet.
const STREAMS_MAX: usize = 100;

/// The most connections of one worker to one server.
const CONNECTIONS_MAX: usize = 16;

/// The longest head of an answer, in bytes, as in HTTP/1.1.
const HEAD_MAX: u32 = 64 * 1024;

/// How often a server that says nothing is asked whether it is there, and how long that may take. Servers of gRPC take more than
/// one in five minutes for an attack; whether the machine is there is found out by the operating system, and sooner.
const PING_EVERY: Duration = Duration::from_secs(330);
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// One server's connections, for one worker.
#[derive(Debug, Default)]
pub(crate) struct Http2s {
    list: Mutex<List>,
    /// Told when dialling is over, however it went.
    dialled: Arc<Notify>,
}

#[derive(Debug, Default)]
struct List {
    /// The oldest first.
    connections: Vec<Http2>,
    is_dialling: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    sender: SendRequest<Upload>,
    load: Arc<Load>,
    opened_at: Instant,
}

/// How much there is to do on a connection.
#[derive(Debug)]
struct Load {
    state: Mutex<LoadState>,
    /// Told when the server says how many streams it takes, or somebody else could find out.
    known: Arc<Notify>,
}

#[derive(Debug)]
struct LoadState {
    n_streams: usize,
    /// None: the server has not said yet.
    streams_max: Option<usize>,
    idle_since: Instant,
    /// When the head of an answer came last.
    answered_at: Instant,
}

/// A stream that a request may open.
#[derive(Debug)]
pub(crate) struct NewStream {
    pub(crate) sender: SendRequest<Upload>,
    pub(crate) place: Place,
    /// Whether the connection was there already.
    pub(crate) is_old: bool,
    /// Whether it had nothing else to do.
    pub(crate) was_idle: bool,
}

/// A stream's place on a connection. Clones are the same one; it is free when the last is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Place(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    load: Arc<Load>,
    since: Instant,
}

/// Where a request can go.
#[derive(Debug)]
pub(crate) enum Found {
    /// There.
    Place(NewStream),
    /// On a connection that it dials.
    Nowhere(Dialling),
    /// Look again when this is over.
    Soon(OwnedNotified),
}

/// A connection is being dialled. Dropped, it is not any more.
#[derive(Debug)]
pub(crate) struct Dialling(Arc<Http2s>);

impl Http2s {
    /// A place for a request; if `opened_since` is given, on a connection that is no older.
    pub(crate) fn find(self: &Arc<Self>, opened_since: Option<Instant>) -> Found {
        let mut list = self.list.lock();
        list.connections.retain(|connection| !connection.sender.is_closed());
        let will_do = |connection: &&Http2| opened_since.is_none_or(|since| since <= connection.opened_at);
        let mut least_busy: Option<&Http2> = None;
        for connection in list.connections.iter().filter(will_do) {
            if let Some(stream) = connection.place() {
                return Found::Place(stream);
            }
            if let Some(soon) = connection.will_be_known() {
                return Found::Soon(soon);
            }
            least_busy = least_busy.into_iter().chain([connection]).min_by_key(|c| c.n_streams());
        }
        if list.is_dialling {
            return Found::Soon(Arc::clone(&self.dialled).notified_owned());
        }
        match least_busy {
            Some(connection) if list.connections.len() >= CONNECTIONS_MAX => {
                Found::Place(connection.place_anyway())
            }
            _ => {
                list.is_dialling = true;
                Found::Nowhere(Dialling(Arc::clone(self)))
            }
        }
    }

    /// No answer came to a request. If none came to any other meanwhile, perhaps nobody is there any more: nobody else is given a
    /// place on that connection, and it ends with the last request on it.
    pub(crate) fn doubt(&self, place: &Place) {
        let Taken { load, since } = &*place.0;
        if load.state.lock().answered_at <= *since {
            self.list.lock().connections.retain(|connection| !Arc::ptr_eq(&connection.load, load));
        }
    }

    /// Closes connections that nobody has used for so long.
    pub(crate) fn sweep(&self, now: Instant, kept_for: Duration) {
        self.list.lock().connections.retain(|connection| {
            let load = connection.load.state.lock();
            !connection.sender.is_closed()
                && (load.n_streams > 0 || now.duration_since(load.idle_since) <= kept_for)
        });
    }
}

impl Dialling {
    /// Lets others use a connection too, and has the first place on it.
    pub(crate) fn share(self, connection: Http2) -> NewStream {
        let stream = NewStream { is_old: false, ..connection.place_anyway() };
        let mut list = self.0.list.lock();
        if list.connections.len() >= CONNECTIONS_MAX {
            list.connections.remove(0); // they are old, and let somebody down
        }
        list.connections.push(connection);
        drop(list);
        stream
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        self.0.list.lock().is_dialling = false;
        self.0.dialled.notify_waiters();
    }
}

impl Http2 {
    /// Speaks HTTP/2 on a stream.
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
            .initial_max_send_streams(0) // until the server has said
            .handshake(TokioIo::new(stream))
            .await?;
        let opened_at = Instant::now();
        let state =
            LoadState { n_streams: 0, streams_max: None, idle_since: opened_at, answered_at: opened_at };
        let load = Arc::new(Load { state: Mutex::new(state), known: Arc::default() });
        let told = Arc::clone(&load);
        tokio::spawn(async move {
            let ended = poll_fn(|context| {
                let polled = Pin::new(&mut connection).poll(context);
                told.allow(connection.current_max_send_streams());
                polled
            });
            drop(ended.await); // how it ends is told to whoever has a request on it
            told.known.notify_waiters();
        });
        Ok(Self { sender, load, opened_at })
    }

    /// A place, if there is room.
    fn place(&self) -> Option<NewStream> {
        let has_room = {
            let load = self.load.state.lock();
            load.n_streams < load.streams_max.unwrap_or(1)
        };
        has_room.then(|| self.place_anyway())
    }

    /// A place, room or not.
    fn place_anyway(&self) -> NewStream {
        let mut load = self.load.state.lock();
        let was_idle = load.n_streams == 0;
        load.n_streams += 1;
        drop(load);
        let place = Place(Arc::new(Taken { load: Arc::clone(&self.load), since: Instant::now() }));
        NewStream { sender: self.sender.clone(), place, is_old: true, was_idle }
    }

    /// Over when it is known how many streams the server takes. None, if it is.
    fn will_be_known(&self) -> Option<OwnedNotified> {
        let load = self.load.state.lock();
        load.streams_max.is_none().then(|| Arc::clone(&self.load.known).notified_owned())
    }

    fn n_streams(&self) -> usize {
        self.load.state.lock().n_streams
    }
}

impl Place {
    /// The head of an answer came.
    pub(crate) fn answered(&self) {
        self.0.load.state.lock().answered_at = Instant::now();
    }
}

impl Load {
    /// The server takes so many streams. Zero: it has not said so yet, or does not want any now.
    fn allow(&self, n_streams: usize) {
        let streams_max = (n_streams > 0).then_some(n_streams.min(STREAMS_MAX));
        let mut state = self.state.lock();
        if state.streams_max != streams_max {
            state.streams_max = streams_max;
            drop(state);
            self.known.notify_waiters();
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let load = &self.load;
        let mut state = load.state.lock();
        state.n_streams -= 1;
        state.idle_since = Instant::now();
        if state.streams_max.is_none() {
            drop(state);
            load.known.notify_waiters(); // the next one finds out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    /// A connection, and what the server has of it.
    async fn opened() -> (Http2, DuplexStream) {
        let (ours, theirs) = duplex(1024 * 1024);
        (Http2::open(ours).await.unwrap(), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_say_that_it_is_there_is_left() {
        let (connection, mut server) = opened().await;
        server.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap(); // settings, none
        let reading = tokio::spawn(async move { server.read_to_end(&mut Vec::new()).await });
        sleep(PING_EVERY).await;
        assert!(!connection.sender.is_closed());
        sleep(PONG_WITHIN + Duration::from_secs(1)).await;
        assert!(connection.sender.is_closed());
        reading.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_that_it_is_there_is_kept() {
        let (connection, server) = opened().await;
        tokio::spawn(async move { h2::server::handshake(server).await.unwrap().accept().await.is_some() });
        sleep(PING_EVERY * 10).await;
        assert!(!connection.sender.is_closed());
    }
}
