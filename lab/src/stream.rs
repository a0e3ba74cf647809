//! A connection with a deadline for all that is read from it.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// A connection that can be read and written for a minute. A timeout for each read would never stop a stream that sends a line
/// every second.
#[derive(Debug)]
pub struct Stream {
    stream: TcpStream,
    deadline: Instant,
}

impl Stream {
    /// Connects.
    ///
    /// # Panics
    /// If nothing listens there.
    #[track_caller]
    pub fn connect(address: impl ToSocketAddrs) -> Self {
        let address = address.to_socket_addrs().expect("an address").next().expect("an address");
        Self::from(TcpStream::connect_timeout(&address, PATIENCE).expect("it listens"))
    }

    /// The same connection, which can now be used for `time`.
    #[must_use]
    pub fn lasting(self, time: Duration) -> Self {
        Self { deadline: Instant::now() + time, ..self }
    }

    /// Sets the deadline to one minute from now: for a kept-alive connection, before its next request.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + PATIENCE;
    }

    /// The same connection once more, with the same deadline.
    ///
    /// # Panics
    /// If the process has no descriptor left.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { stream: self.stream.try_clone().expect("a descriptor"), deadline: self.deadline }
    }

    /// What comes next: at least a byte, or none at the end. A machine that was suspended interrupts a single `read`.
    ///
    /// # Panics
    /// If nothing comes in time.
    #[track_caller]
    pub fn read_some(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 4_096];
        loop {
            match self.read(&mut buffer) {
                Ok(n_read) => {
                    buffer.truncate(n_read);
                    return buffer;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sends a request, and reads until the other side closes the connection.
    ///
    /// # Panics
    /// If the response is not over in time, or is not UTF-8.
    #[track_caller]
    pub fn exchange(mut self, request: &str) -> String {
        self.write_all(request.as_bytes()).expect("it can be sent");
        let mut response = String::new();
        match self.read_to_string(&mut response) {
            Ok(_) => response,
            Err(error) => panic!("{error}; the response so far: {response:?}"),
        }
    }

    fn left(&self) -> Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(is_over());
        }
        Ok(left)
    }
}

fn is_over() -> Error {
    Error::new(ErrorKind::TimedOut, "connection deadline passed")
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self { stream, deadline: Instant::now() + PATIENCE }
    }
}

impl Deref for Stream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        match self.stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(is_over()),
            result => result,
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}
