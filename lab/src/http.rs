//! The least that talks HTTP: one connection, one request after the other.

use std::io::{BufRead, BufReader, Read, Write};

use crate::Stream;

/// A connection that is kept.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Stream>,
}

impl Client {
    /// Connects.
    pub fn connect(address: &str) -> Self {
        let stream = Stream::connect(address);
        stream.set_nodelay(true).expect("an option");
        Self { stream: BufReader::new(stream) }
    }

    /// Asks, and reads the answer: its status and body.
    ///
    /// # Errors
    /// If the connection breaks, or the response is invalid.
    pub fn get(&mut self, path: &str) -> std::io::Result<(u16, String)> {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Posts a body, and reads the answer: its status and body.
    ///
    /// # Errors
    /// If the connection breaks, or the response is invalid.
    pub fn post(&mut self, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        let length = body.len();
        self.exchange(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    fn exchange(&mut self, request: &str) -> std::io::Result<(u16, String)> {
        self.stream.get_mut().renew();
        self.stream.get_mut().write_all(request.as_bytes())?;
        let bad = || std::io::Error::other("no answer");
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(bad)?;
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            if line.trim_end().is_empty() {
                break;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(|_| bad())?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, String::from_utf8(body).map_err(|_| bad())?))
    }
}
