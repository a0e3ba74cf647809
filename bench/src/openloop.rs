//! Requests that are sent when they are due, whether or not earlier ones were answered.
//!
//! wrk sends a request when the one before was answered: a server that stops for a second is then asked less in that
//! second, and the stop counts once. Here request n is due at n ÷ rate. It goes out on the connection that has been idle for
//! longest, and if none is, it waits for one; either way its time runs from when it was due.
//!
//! One thread with an epoll, because timers of tokio tick in milliseconds and answers take a tenth of that.

mod grpc;
mod http1;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::rounds::now;
pub(crate) use grpc::Grpc;
pub(crate) use http1::Http1;

/// The language of a connection that has at most one request under way.
pub(crate) trait Talk {
    /// What is said before the first request.
    fn begin(&self) -> Vec<u8>;

    /// What is said for the next request.
    fn request(&mut self) -> Vec<u8>;

    /// Hears a piece of the answer. True if it is complete.
    ///
    /// # Panics
    /// If the response is not an allowed decision.
    fn hear(&mut self, bytes: &[u8]) -> bool;
}

/// How often a request is due.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Whenever a connection is idle.
    FlatOut,
    /// So many times a second.
    Rate(f64),
}

/// What came back.
pub(crate) struct Answers {
    /// Answers a second.
    pub(crate) rate: f64,
    /// From when each was due until its last byte, shortest first.
    took: Vec<Duration>,
}

/// All connections, and what is under way on them.
struct Asking<T> {
    connections: Vec<Connection<T>>,
    /// Longest idle first.
    idle: VecDeque<usize>,
    /// Tells which connections have something to read.
    ready: OwnedFd,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
}

/// A connection that is kept.
struct Connection<T> {
    stream: TcpStream,
    /// When its request was due, from the start.
    due: Duration,
    talk: T,
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for so long, on so many connections, and waits for the last answer.
///
/// # Panics
/// If a response is not an allowed decision, or is missing.
pub(crate) fn ask<T: Talk>(
    (address, talk): (&str, impl Fn() -> T),
    n_connections: usize,
    pace: Pace,
    span: Duration,
) -> Answers {
    let connections = (0..n_connections).map(|_| Connection::open(address, talk()));
    let mut asking = Asking::new(connections.collect());
    let (start, mut n_sent, mut took) = (now(), 0, Vec::new());
    let due = |n_sent: u32| match pace {
        Pace::FlatOut => start.elapsed(),
        Pace::Rate(rate) => Duration::from_secs_f64(f64::from(n_sent) / rate),
    };
    loop {
        let mut next = due(n_sent);
        while next < span && next <= start.elapsed() && asking.send(next) {
            n_sent += 1;
            next = due(n_sent);
        }
        let is_over = next >= span;
        if is_over && asking.idle.len() == n_connections {
            break;
        }
        let can_send = !is_over && !asking.idle.is_empty();
        asking.wait(can_send.then(|| next.saturating_sub(start.elapsed())));
        asking.receive(|due| took.push(start.elapsed().saturating_sub(due)));
    }
    took.sort_unstable();
    Answers { rate: f64::from(n_sent) / start.elapsed().as_secs_f64(), took }
}

impl Answers {
    /// The time in microseconds that so many of a thousand answers stay below.
    pub(crate) fn permille(&self, permille: usize) -> f64 {
        self.took[self.took.len() * permille / 1_000].as_secs_f64() * 1e6
    }
}

impl<T: Talk> Asking<T> {
    fn new(connections: Vec<Connection<T>>) -> Self {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
        for (n, connection) in (0..).zip(&connections) {
            let data = epoll::EventData::new_u64(n);
            epoll::add(&ready, &connection.stream, data, epoll::EventFlags::IN).expect("room for a socket");
        }
        Self {
            idle: (0..connections.len()).collect(),
            ready,
            events: Vec::with_capacity(connections.len()),
            connections,
            buffer: vec![0; 1 << 18],
        }
    }

    /// Sends the request that was due then. False if no connection is idle.
    fn send(&mut self, due: Duration) -> bool {
        let Some(n) = self.idle.pop_front() else { return false };
        self.connections[n].send(due);
        true
    }

    /// Waits until something can be read, or for so long. The epoll itself could wait for whole milliseconds only.
    fn wait(&self, at_most: Option<Duration>) {
        let timeout = at_most.unwrap_or(PATIENCE).try_into().expect("less than years");
        let n_ready = poll(&mut [PollFd::new(&self.ready, PollFlags::IN)], Some(&timeout)).expect("a poll");
        assert!(n_ready > 0 || at_most.is_some(), "an answer comes within {PATIENCE:?}");
    }

    /// Reads what is there, and tells of each answer that is complete when it was due.
    fn receive(&mut self, mut complete: impl FnMut(Duration)) {
        self.events.clear();
        let events = spare_capacity(&mut self.events);
        epoll::wait(&self.ready, events, Some(&Timespec::default())).expect("events");
        for event in &self.events {
            let n = usize::try_from(event.data.u64()).expect("a number of ours");
            if self.connections[n].receive(&mut self.buffer) {
                complete(self.connections[n].due);
                self.idle.push_back(n);
            }
        }
    }
}

impl<T: Talk> Connection<T> {
    fn open(address: &str, talk: T) -> Self {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("an option");
        stream.set_nonblocking(true).expect("an option");
        stream.write_all(&talk.begin()).expect("a new connection takes a few bytes");
        Self { stream, due: Duration::ZERO, talk }
    }

    fn send(&mut self, due: Duration) {
        self.due = due;
        self.stream.write_all(&self.talk.request()).expect("an idle connection takes a request");
    }

    /// Reads what is there. True if the answer is complete.
    fn receive(&mut self, buffer: &mut [u8]) -> bool {
        let n = match self.stream.read(buffer) {
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("an answer breaks off: {error}"),
        };
        assert!(n > 0, "the connection is kept");
        self.talk.hear(&buffer[..n])
    }
}
