//! The access log: one line of JSON on standard output for each request to the gateway.
//!
//! ```text
//!   workers ── record: one line, if there is room ──► lines ──► writer's thread ──► standard output
//!                      └─ no room: counted as dropped
//! ```
//!
//! A slow reader of standard output must not delay requests. Workers only append to a bounded buffer in memory; one thread takes
//! the whole buffer and writes it. The thread waits a moment to collect lines, because a system call for each line would cost more
//! than the request itself.
//!
//! # Laws
//! - A line is written whole or not at all, and each line that is not written is counted.
//! - Whatever a client sends, an entry is one line of ASCII, shorter than 8,000 bytes.
//! - Lines recorded before [`AccessLogWriter::finish`] are written, if standard output accepts them in time.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Version;
use parking_lot::{Condvar, Mutex};
use ratewright_gateway::access_log::{AccessLog, AccessLogEntry};
use ratewright_telemetry::ascii_json;
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use tokio::sync::oneshot;
use tracing::warn;

/// The largest buffer, in bytes: about 10,000 lines.
const PENDING_MAX: usize = 4 * 1024 * 1024;

/// A buffer of this many bytes is written at once.
const FLUSH_THRESHOLD: usize = 64 * 1024;

/// How long the writer collects lines.
const FLUSH_DELAY: Duration = Duration::from_millis(10);

/// The longest texts from clients, in bytes.
const METHOD_MAX: usize = 32;
const HOST_MAX: usize = 256;
const PATH_MAX: usize = 2_048;
const AGENT_MAX: usize = 256;

/// The lines that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct AccessLogBuffer {
    pending: Mutex<PendingLines>,
    changed: Condvar,
    n_dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct PendingLines {
    text: Vec<u8>,
    n_lines: u64,
    is_finished: bool,
}

/// A handle on the thread that writes.
#[derive(Debug)]
pub(crate) struct AccessLogWriter {
    lines: Arc<AccessLogBuffer>,
    is_done: oneshot::Receiver<()>,
}

/// One line of the log.
#[derive(Serialize)]
struct AccessLogLine<'a> {
    time: String,
    client: std::net::IpAddr,
    method: Cow<'a, str>,
    host: Option<Cow<'a, str>>,
    path: Cow<'a, str>,
    route: Option<&'a str>,
    policy: Option<&'a str>,
    denied: bool,
    status: Option<u16>,
    #[serde(serialize_with = "millis")]
    duration_ms: u64,
    request_id: &'a str,
    user_agent: Option<Cow<'a, str>>,
    http: &'static str,
}

/// JSON in ASCII: escapes control characters and all non-ASCII text, such as right-to-left marks.
struct AsciiFormatter;

impl AccessLogBuffer {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// If the operating system refuses a thread.
    pub(crate) fn write_to(
        self: &Arc<Self>,
        out: impl Write + Send + 'static,
    ) -> io::Result<AccessLogWriter> {
        self.pending.lock().is_finished = false;
        let (done, is_done) = oneshot::channel();
        let lines = Arc::clone(self);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            lines.write(out);
            let _ = done.send(());
        })?;
        Ok(AccessLogWriter { lines: Arc::clone(self), is_done })
    }

    /// Lines that were dropped, because the buffer was full or a write failed.
    pub(crate) fn n_dropped(&self) -> u64 {
        self.n_dropped.load(Ordering::Relaxed)
    }

    /// Appends a line, or counts it as dropped if the buffer is full.
    fn add(&self, line: &[u8]) {
        let mut pending = self.pending.lock();
        let before = pending.text.len();
        if before + line.len() > PENDING_MAX {
            self.n_dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        pending.text.extend_from_slice(line);
        pending.n_lines += 1;
        let is_above_threshold = before < FLUSH_THRESHOLD && pending.text.len() >= FLUSH_THRESHOLD;
        drop(pending);
        if before == 0 || is_above_threshold {
            self.changed.notify_one();
        }
    }

    /// Writes until the buffer is finished and empty.
    fn write(&self, mut out: impl Write) {
        let mut text = Vec::new();
        let mut is_failing = false;
        while let Some(n_lines) = self.take(&mut text) {
            let written =
                whole_lines(&text).try_for_each(|lines| out.write_all(lines)).and_then(|()| out.flush());
            if let Err(error) = &written {
                self.n_dropped.fetch_add(n_lines, Ordering::Relaxed);
                if !is_failing {
                    warn!(%error, "access log write failed; dropping lines until it succeeds");
                }
            }
            is_failing = written.is_err();
            text.clear();
        }
    }

    /// Waits for lines, and takes all of them. `None` if the buffer is finished and empty.
    fn take(&self, text: &mut Vec<u8>) -> Option<u64> {
        let mut pending = self.pending.lock();
        while pending.text.is_empty() {
            if pending.is_finished {
                return None;
            }
            self.changed.wait(&mut pending);
        }
        if !pending.is_finished && pending.text.len() < FLUSH_THRESHOLD {
            self.changed.wait_for(&mut pending, FLUSH_DELAY);
        }
        std::mem::swap(&mut pending.text, text);
        Some(std::mem::take(&mut pending.n_lines))
    }
}

impl AccessLogWriter {
    /// Writes the remaining lines, and ends the thread. Gives up after `within`, if standard output is blocked.
    pub(crate) async fn finish(self, within: Duration) {
        self.lines.pending.lock().is_finished = true;
        self.lines.changed.notify_one();
        if tokio::time::timeout(within, self.is_done).await.is_err() {
            let lines = self.lines.pending.lock().n_lines;
            warn!(lines, "access log lines lost: standard output is blocked");
        }
    }
}

impl AccessLog for AccessLogBuffer {
    fn record(&self, entry: &AccessLogEntry<'_>) {
        let line = AccessLogLine {
            time: ratewright_http::problem::iso(entry.at),
            client: entry.client,
            method: cut(entry.method.as_str().as_bytes(), METHOD_MAX),
            host: entry.host.map(|host| cut(host.as_bytes(), HOST_MAX)),
            path: cut(entry.path.as_bytes(), PATH_MAX),
            route: entry.route,
            policy: entry.policy,
            denied: entry.is_denied,
            status: entry.status.map(|status| status.as_u16()),
            duration_ms: entry.duration.as_micros(),
            request_id: entry.id,
            user_agent: entry.user_agent.map(|agent| cut(agent, AGENT_MAX)),
            http: version(entry.version),
        };
        let mut text = Vec::with_capacity(512);
        if line.serialize(&mut serde_json::Serializer::with_formatter(&mut text, AsciiFormatter)).is_ok() {
            text.push(b'\n');
            self.add(&text);
        }
    }
}

impl Formatter for AsciiFormatter {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        writer.write_all(ascii_json(text).as_bytes())
    }
}

/// Splits lines into portions that the kernel writes to a pipe in one piece (PIPE_BUF): after an upgrade, the old process and the new one
/// write to the same pipe, and must not write into each other's lines.
fn whole_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    const PORTION: usize = 4_096;
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = match rest.get(..PORTION) {
            None => rest.len(),
            Some(portion) => match portion.iter().rposition(|byte| *byte == b'\n') {
                Some(last) => last + 1,
                None => rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1),
            },
        };
        let (lines, after) = rest.split_at_checked(end).filter(|(lines, _)| !lines.is_empty())?;
        rest = after;
        Some(lines)
    })
}

/// A client's text, cut to at most `max` bytes. A text that was cut ends with `…`.
fn cut(bytes: &[u8], max: usize) -> Cow<'_, str> {
    match bytes.get(..max) {
        Some(beginning) if bytes.len() > max => {
            Cow::Owned(format!("{}…", String::from_utf8_lossy(beginning).trim_end_matches('\u{fffd}')))
        }
        _ => String::from_utf8_lossy(bytes),
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// Microseconds as milliseconds.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn millis<S: Serializer>(micros: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*micros as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use http::{Method, StatusCode};
    use ratewright_core::{Micros, Timestamp};
    use ratewright_lab::join;
    use std::sync::mpsc;

    #[test]
    fn portions_are_whole_lines_and_short_enough_for_a_pipe() {
        let line = |n: usize| [vec![b'x'; n - 1], vec![b'\n']].concat();
        let sizes = |text: &[u8]| whole_lines(text).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(b""), [0; 0]);
        assert_eq!(sizes(&line(4_096)), [4_096]);
        assert_eq!(sizes(&[line(3_000), line(1_096), line(1)].concat()), [4_096, 1]);
        assert_eq!(sizes(&[line(3_000), line(1_097)].concat()), [3_000, 1_097]);
        assert_eq!(sizes(&[line(9_000), line(5)].concat()), [9_000, 5], "a longer line stays whole");
        let text = (1..200).flat_map(line).collect::<Vec<_>>();
        assert_eq!(whole_lines(&text).collect::<Vec<_>>().concat(), text);
    }

    /// Sends each write to a channel, and blocks while the channel is full.
    struct Pipe(mpsc::SyncSender<String>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8(bytes.to_owned()).expect("lines are ASCII");
            self.0.send(text).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const LIMIT: Duration = Duration::from_secs(20);

    fn entry<'a>(path: &'a str, agent: &'a [u8]) -> AccessLogEntry<'a> {
        AccessLogEntry {
            at: Timestamp::from_micros(1_794_744_000_123_999),
            client: [192, 0, 2, 7].into(),
            method: &Method::GET,
            host: Some("a"),
            path,
            route: Some("all"),
            policy: None,
            is_denied: false,
            status: Some(StatusCode::OK),
            duration: Micros::new(1_234),
            id: "r-1",
            user_agent: Some(agent),
            version: Version::HTTP_11,
        }
    }

    fn check(entry: &AccessLogEntry<'_>, expected: Expect) {
        let lines = AccessLogBuffer::default();
        lines.record(entry);
        let text = String::from_utf8(lines.pending.into_inner().text).unwrap();
        expected.assert_eq(text.strip_suffix('\n').unwrap());
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }

    #[test]
    fn a_request_is_one_line_whatever_a_client_sends() {
        check(
            &entry("/a", b"curl/8"),
            expect![[
                r#"{"time":"2026-11-15T12:00:00.123Z","client":"192.0.2.7","method":"GET","host":"a","path":"/a","route":"all","policy":null,"denied":false,"status":200,"duration_ms":1.234,"request_id":"r-1","user_agent":"curl/8","http":"1.1"}"#
            ]],
        );
        let hostile = "\"}\r\n{\"x\":\"\x1b[2J\u{9b}2J\u{202e}\u{1f600}\\\t".as_bytes();
        check(
            &AccessLogEntry {
                host: None,
                route: None,
                status: None,
                duration: Micros::new(0),
                version: Version::HTTP_2,
                ..entry("/\"\u{7f}", &[hostile, b"\xff"].concat())
            },
            expect![[
                r#"{"time":"2026-11-15T12:00:00.123Z","client":"192.0.2.7","method":"GET","host":null,"path":"/\"\u007f","route":null,"policy":null,"denied":false,"status":null,"duration_ms":0.0,"request_id":"r-1","user_agent":"\"}\r\n{\"x\":\"\u001b[2J\u009b2J\u202e\ud83d\ude00\\\t\ufffd","http":"2"}"#
            ]],
        );
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut(b"abc", 3), "abc");
        assert_eq!(cut(b"abcd", 3), "abc…");
        assert_eq!(cut("abä".as_bytes(), 3), "ab…");
        let lines = AccessLogBuffer::default();
        lines.record(&entry(&format!("/{}", "\"".repeat(60_000)), &[0xff; 30_000]));
        assert!(lines.pending.into_inner().text.len() < 8_000);
    }

    #[tokio::test]
    async fn nothing_is_lost_at_the_end() {
        let (to, from) = mpsc::sync_channel(0);
        let lines = Arc::new(AccessLogBuffer::default());
        let writing = lines.write_to(Pipe(to)).unwrap();
        let reading = std::thread::spawn(move || from.iter().collect::<String>());
        for n in 0..5_000 {
            lines.record(&entry(&format!("/{n}"), b""));
        }
        writing.finish(LIMIT).await;
        let text = join(reading, "the log is closed");
        assert_eq!((text.lines().count(), lines.n_dropped()), (5_000, 0));
        assert!(text.ends_with('\n') && text.contains("\"/4999\""));
    }

    #[tokio::test]
    async fn a_blocked_reader_delays_no_request_and_dropped_lines_are_counted() {
        let (to, from) = mpsc::sync_channel(0);
        let lines = Arc::new(AccessLogBuffer::default());
        let writing = lines.write_to(Pipe(to)).unwrap();
        let path = format!("/{}", "x".repeat(2_000));
        for _ in 0..5_000 {
            lines.record(&entry(&path, b""));
        }
        let n_dropped = lines.n_dropped();
        assert!(n_dropped > 1_000, "{n_dropped}");
        writing.finish(Duration::from_millis(1)).await;
        let reading = std::thread::spawn(move || from.iter().collect::<String>());
        let text = join(reading, "the log is closed");
        assert_eq!(text.lines().count() as u64 + n_dropped, 5_000, "whole lines");
    }

    #[tokio::test]
    async fn lines_that_cannot_be_written_are_counted() {
        let (to, from) = mpsc::sync_channel(0);
        drop(from);
        let lines = Arc::new(AccessLogBuffer::default());
        let writing = lines.write_to(Pipe(to)).unwrap();
        for _ in 0..10 {
            lines.record(&entry("/", b""));
        }
        writing.finish(LIMIT).await;
        assert_eq!(lines.n_dropped(), 10);
    }
}
