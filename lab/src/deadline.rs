//! Waits with a deadline. One deadline covers the whole wait, so an endless stream of small pieces is cut off too.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::panic::{Location, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Stream;

/// The deadline of every wait that names no other.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds.
///
/// # Panics
/// If it does not hold within a minute.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut pause = Duration::from_micros(250);
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?}, waiting until {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// The next message from another thread.
///
/// # Panics
/// If no message comes within a minute, or the other thread has ended.
#[track_caller]
pub fn receive<T>(channel: &Receiver<T>, what: &str) -> T {
    match channel.recv_timeout(PATIENCE) {
        Ok(message) => message,
        Err(RecvTimeoutError::Timeout) => panic!("timed out after {PATIENCE:?}, waiting for {what}"),
        Err(RecvTimeoutError::Disconnected) => panic!("the sender ended without a message: {what}"),
    }
}

/// The next connection.
///
/// # Panics
/// If no client connects within a minute.
#[track_caller]
pub fn accept(listener: &TcpListener) -> Stream {
    listener.set_nonblocking(true).expect("a listener");
    let mut accepted = None;
    wait_until("a connection arrives", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    listener.set_nonblocking(false).expect("a listener");
    let (stream, _) = accepted.expect("the wait is over");
    stream.set_nonblocking(false).expect("a connection");
    Stream::from(stream)
}

/// What a thread returns.
///
/// # Panics
/// If the thread panicked, or still runs after a minute.
#[track_caller]
pub fn join<T>(thread: JoinHandle<T>, what: &str) -> T {
    wait_until(what, || thread.is_finished());
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// The lines of a pipe, for [`receive`]. A thread of its own reads them, until the pipe ends.
pub fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (found, lines) = channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
        lines.all(|line| found.send(line).is_ok())
    });
    lines
}

/// All that comes out of a pipe until it ends.
///
/// # Panics
/// If the pipe does not end within a minute, or the text is not UTF-8.
#[track_caller]
pub fn all_of(mut pipe: impl Read + Send + 'static, what: &str) -> String {
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    });
    join(reading, what).expect("text in UTF-8")
}

/// What a future returns.
///
/// # Panics
/// If it takes longer than a minute, by tokio's clock: where that is paused, the minute passes as soon as nothing else can happen.
#[track_caller]
pub fn within<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = Location::caller(); // a panic inside a future does not name the line that awaits it
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("timed out after {PATIENCE:?}, waiting for {what}, awaited at {place}"),
        }
    }
}

/// A load in the background. It ends when this is dropped, also when an assertion beside it fails: create it inside the scope
/// that joins its threads.
#[derive(Debug, Default)]
pub struct Load {
    is_over: Arc<AtomicBool>,
}

impl Load {
    /// A function that its threads call: true until the load ends.
    pub fn goes_on(&self) -> impl Fn() -> bool + Clone + Send + Sync + 'static {
        let is_over = Arc::clone(&self.is_over);
        move || !is_over.load(Ordering::SeqCst)
    }

    /// Ends it before its scope ends.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}
