//! Several logs as one stream of requests, in time order.
//!
//! ```text
//!   log ─► decompress ─► lines ─► parser ┐
//!   log ─► …                             ├─ the earliest ─► reorder buffer ─► replay
//!   log ─► …                             ┘
//! ```
//!
//! A log is opened once at the start, to find its format and its first request; of many logs, it is then closed until
//! its time has come. The order in which logs are given does not matter: they are ranked by their first request, and
//! requests of the same time are released in the order of their logs, then of their lines.

use std::io::{self, Read};

use ratewright_core::Timestamp;
use ratewright_core::query::AttributeName;

use crate::decompress::decompress;
use crate::format::{Format, Line, Parser};
use crate::lines::{LINE_MAX, Lines, RawLine};
use crate::record::Record;
use crate::reorder_buffer::{DueRecord, ReorderBuffer, SortKey};
use crate::report::{LogReport, UnreadableLine};
use crate::stored_record::NeededAttributes;

/// If there are more logs than this, each is closed until its time has come.
const OPEN_MAX: usize = 32;

/// The beginning of a log that ranks it among logs which begin at the same time, in bytes.
const TIE_BYTES: usize = LINE_MAX;

/// Lines between two progress calls.
const PROGRESS_EVERY: u64 = 8_192;

/// Unreadable lines that are shown.
const SHOWN_MAX: usize = 5;

/// The beginning of an unreadable line that is shown, in bytes.
const SHOWN_BYTES: usize = 80;

/// A log to replay.
#[non_exhaustive]
pub struct Log {
    /// Its name in the report.
    pub name: String,
    /// Its format. `None`: it is recognised by its first lines.
    pub format: Option<Format>,
    /// True if `open` can be called twice. Standard input and pipes can be read only once.
    pub is_reopenable: bool,
    open: Open,
}

/// Opens a log.
type Open = Box<dyn FnMut() -> io::Result<Box<dyn Read>>>;

impl Log {
    /// A log that can be opened twice, such as a file.
    pub fn new(
        name: impl Into<String>,
        format: Option<Format>,
        open: impl FnMut() -> io::Result<Box<dyn Read>> + 'static,
    ) -> Self {
        Self { name: name.into(), format, is_reopenable: true, open: Box::new(open) }
    }

    /// A log that can be read only once, such as standard input.
    pub fn once(name: impl Into<String>, format: Option<Format>, log: impl Read + 'static) -> Self {
        let mut log: Option<Box<dyn Read>> = Some(Box::new(log));
        let open = move || log.take().ok_or_else(|| io::Error::other("cannot be read twice"));
        Self { name: name.into(), format, is_reopenable: false, open: Box::new(open) }
    }
}

/// Why logs cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A log cannot be opened or read.
    #[error("{log}: {error}")]
    Read {
        /// The log.
        log: String,
        /// Why.
        error: io::Error,
    },
    /// The header line of a log in CSV lacks columns of the field map.
    #[error("{log}: no column {missing} in the header line; it has {columns}")]
    Columns {
        /// The log.
        log: String,
        /// The columns that it lacks.
        missing: String,
        /// The columns that it has.
        columns: String,
    },
    /// The format is not given, and was not recognised.
    #[error(
        "format not recognised: {log}; set --format ({names}); json and csv also need --fields",
        names = Format::NAMES.join(", ")
    )]
    UnknownFormat {
        /// The log.
        log: String,
    },
}

/// All logs, as one stream.
pub(crate) struct Logs {
    logs: Vec<LogCursor>,
    reorder: ReorderBuffer,
    counts: LineCounts,
    n_bytes_max: u64,
}

/// How many lines were read, and how many of them were not replayed.
#[derive(Debug, Default)]
pub(crate) struct LineCounts {
    pub(crate) n_lines: u64,
    pub(crate) n_unreadable: u64,
    pub(crate) n_without_request: u64,
    pub(crate) n_out_of_order: u64,
}

/// A format, and the attributes that requests in the first lines of its logs have.
#[derive(Debug)]
pub(crate) struct RecordedFormat {
    pub(crate) format: Format,
    pub(crate) seen: Vec<AttributeName<String>>,
}

/// A log, and how far it has been read.
struct LogCursor {
    log: Log,
    format: Format,
    state: LogState,
    report: LogReport,
    /// The attributes that requests in its first lines have.
    seen: Vec<AttributeName<String>>,
    /// Its first unreadable lines.
    unreadable: Vec<UnreadableLine>,
}

enum LogState {
    /// Not opened yet: its first request is then.
    Closed(Timestamp),
    /// Open, with its next request in a slot.
    Open(Lines, Parser, NextRequest),
    /// At its end.
    Ended,
}

/// The next request of a log.
#[derive(Clone, Copy)]
struct NextRequest {
    at: Timestamp,
    line: u64,
    slot: usize,
}

/// What the report says about the logs.
#[derive(Debug, Default)]
pub(crate) struct LogsReport {
    pub(crate) logs: Vec<LogReport>,
    pub(crate) counts: LineCounts,
    pub(crate) unreadable: Vec<UnreadableLine>,
}

impl Logs {
    /// Opens all logs, finds their formats, and ranks them by their first request.
    pub(crate) fn open(logs: Vec<Log>, reorder: ReorderBuffer, n_bytes_max: u64) -> Result<Self, LogError> {
        let close_after_first = logs.len() > OPEN_MAX;
        let mut all = Self {
            logs: Vec::with_capacity(logs.len()),
            reorder,
            counts: LineCounts::default(),
            n_bytes_max,
        };
        let mut starts: Vec<(Timestamp, Vec<u8>)> = Vec::new();
        for log in logs {
            let (cursor, start) = all.first(log, close_after_first)?;
            starts.push((cursor.starts_at(), start));
            all.logs.push(cursor);
        }
        let mut ranked: Vec<_> = starts.into_iter().zip(std::mem::take(&mut all.logs)).collect();
        ranked.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.logs = ranked.into_iter().map(|(_, log)| log).collect();
        Ok(all)
    }

    /// The formats of all logs, with the attributes that their first lines have. Logs without a request in these lines do not count,
    /// unless there are no others.
    pub(crate) fn formats(&self) -> Vec<RecordedFormat> {
        let is_empty = |log: &&LogCursor| matches!(log.state, LogState::Ended);
        let all_empty = self.logs.iter().all(|log| is_empty(&log));
        let logs = self.logs.iter().filter(|log| all_empty || !is_empty(log));
        logs.map(|log| RecordedFormat { format: log.format.clone(), seen: log.seen.clone() }).collect()
    }

    /// True if requests were so frequent that lines could not be sorted within a whole minute.
    pub(crate) fn was_full(&self) -> bool {
        self.reorder.was_full()
    }

    /// Opens a log and reads up to its first request. The beginning of the log is returned, too.
    fn first(&mut self, mut log: Log, close_after_first: bool) -> Result<(LogCursor, Vec<u8>), LogError> {
        let name = log.name.clone();
        let failed = |error| LogError::Read { log: name.clone(), error };
        let mut lines =
            (log.open)().and_then(decompress).map(|log| Lines::new(log, self.n_bytes_max)).map_err(failed)?;
        let start = lines.peek().map_err(failed)?.to_vec();
        let is_empty = start.iter().all(u8::is_ascii_whitespace);
        let format = match &log.format {
            Some(format) => format.clone(),
            None if is_empty => Format::Combined,
            None => Format::detect(&start).ok_or_else(|| LogError::UnknownFormat { log: name.clone() })?,
        };
        let report =
            LogReport { log: name.clone(), format: format.name().to_owned(), ..LogReport::default() };
        let parser = format.parser();
        let mut header = format.parser();
        if let Some(line) = start
            .split(|byte| *byte == b'\n')
            .find(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"))
            && header.parse(line).is_err()
            && let Some((missing, columns)) = header.missing_columns()
        {
            return Err(LogError::Columns { log: name, missing: missing.join(", "), columns });
        }
        let close_after_first = close_after_first && log.is_reopenable;
        let seen = seen_in(&format, &start, self.reorder.needed());
        let mut cursor =
            LogCursor { log, format, state: LogState::Ended, report, seen, unreadable: Vec::new() };
        let mut counts = LineCounts::default();
        let next = cursor.advance(lines, parser, &mut self.reorder, &mut counts);
        match next {
            Some(next) if close_after_first => {
                self.reorder.free(next.slot);
                cursor.report = LogReport { lines: 0, unreadable: 0, ..cursor.report };
                cursor.unreadable.clear();
                cursor.state = LogState::Closed(next.at);
            }
            _ => self.counts.add(counts),
        }
        let tie = start.get(..TIE_BYTES).unwrap_or(&start).to_vec();
        Ok((cursor, tie))
    }

    /// Calls `each` with every request, in time order, and the time at which it is replayed. Calls `progress` with the
    /// number of lines so far, every 8,192 lines.
    pub(crate) fn each<E>(
        &mut self,
        progress: &mut dyn FnMut(u64),
        mut each: impl FnMut(Timestamp, &Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next_progress = PROGRESS_EVERY;
        loop {
            let n_lines = self.counts.n_lines;
            if n_lines >= next_progress {
                progress(n_lines);
                next_progress = n_lines + PROGRESS_EVERY;
            }
            let Some((due, record)) = self.next() else { break };
            each(due.at, &record)?;
        }
        progress(self.counts.n_lines);
        Ok(())
    }

    /// The next request in time order. It is there until the next call.
    #[inline]
    fn next(&mut self) -> Option<(DueRecord, Record<'_>)> {
        loop {
            if let Some(due) = self.reorder.pop(false) {
                return Some((due, self.reorder.record(due)));
            }
            if !self.take_earliest() {
                let due = self.reorder.pop(true)?;
                return Some((due, self.reorder.record(due)));
            }
        }
    }

    /// Moves the earliest request into the reorder buffer. False if all logs have ended.
    fn take_earliest(&mut self) -> bool {
        let earliest = match self.logs.as_mut_slice() {
            [only] if matches!(only.state, LogState::Open(..)) => Some((0, only)),
            logs => {
                let open = (0u32..).zip(logs).filter(|(_, log)| !matches!(log.state, LogState::Ended));
                open.min_by_key(|(rank, log)| (log.starts_at(), *rank))
            }
        };
        let Some((rank, log)) = earliest else { return false };
        match std::mem::replace(&mut log.state, LogState::Ended) {
            LogState::Ended => {}
            LogState::Closed(_) => {
                let opened = (log.log.open)().and_then(decompress);
                match opened {
                    Ok(opened) => {
                        let lines = Lines::new(opened, self.n_bytes_max);
                        let parser = log.format.parser();
                        log.advance(lines, parser, &mut self.reorder, &mut self.counts);
                    }
                    Err(error) => log.report.error = Some(error.to_string()),
                }
            }
            LogState::Open(lines, parser, next) => {
                let key = SortKey { at: next.at, log: rank, line: next.line };
                self.counts.n_out_of_order += u64::from(!self.reorder.push(key, next.slot));
                log.advance(lines, parser, &mut self.reorder, &mut self.counts);
            }
        }
        true
    }

    /// The counts of the lines.
    pub(crate) fn report(self) -> LogsReport {
        let mut report = LogsReport { counts: self.counts, ..LogsReport::default() };
        for log in self.logs {
            report.logs.push(log.report);
            report.unreadable.extend(log.unreadable);
        }
        report.unreadable.truncate(SHOWN_MAX);
        report
    }
}

/// The needed attributes that requests in the first lines of a log have.
fn seen_in(format: &Format, start: &[u8], needed: &NeededAttributes) -> Vec<AttributeName<String>> {
    let mut parser = format.parser();
    let mut seen: Vec<AttributeName<String>> = Vec::new();
    for line in start.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        if let Ok(Line::Request(record)) = parser.parse(line) {
            let new = needed.found_in(&record).filter(|name| !seen.contains(name)).cloned();
            let new: Vec<_> = new.collect();
            seen.extend(new);
        }
    }
    seen
}

impl LogCursor {
    /// The time of its next request; of a log at its end, the end of time.
    fn starts_at(&self) -> Timestamp {
        match &self.state {
            LogState::Closed(at) | LogState::Open(_, _, NextRequest { at, .. }) => *at,
            LogState::Ended => Timestamp::from_micros(u64::MAX),
        }
    }

    /// Reads up to the next request, and keeps it in its state.
    #[inline]
    fn advance(
        &mut self,
        mut lines: Lines,
        mut parser: Parser,
        reorder: &mut ReorderBuffer,
        counts: &mut LineCounts,
    ) -> Option<NextRequest> {
        let next = loop {
            let raw = match lines.next() {
                Ok(Some(raw)) => raw,
                Ok(None) => break None,
                Err(error) => {
                    self.report.error = Some(error.to_string());
                    break None;
                }
            };
            counts.n_lines += 1;
            self.report.lines += 1;
            if raw.is_too_long {
                counts.n_unreadable += 1;
                unreadable(&mut self.report, &mut self.unreadable, &raw, "the line is longer than 64 KiB");
                continue;
            }
            match parser.parse(raw.bytes) {
                Ok(Line::Request(record)) => {
                    let (at, line) = (record.at, raw.number);
                    break Some(NextRequest { at, line, slot: reorder.store(&record) });
                }
                Ok(Line::NotRequest) => counts.n_without_request += 1,
                Err(error) => {
                    counts.n_unreadable += 1;
                    unreadable(&mut self.report, &mut self.unreadable, &raw, error.0);
                }
            }
        };
        self.state = next.map_or(LogState::Ended, |next| LogState::Open(lines, parser, next));
        next
    }
}

impl LineCounts {
    fn add(&mut self, other: Self) {
        self.n_lines += other.n_lines;
        self.n_unreadable += other.n_unreadable;
        self.n_without_request += other.n_without_request;
        self.n_out_of_order += other.n_out_of_order;
    }
}

#[cold]
fn unreadable(log: &mut LogReport, shown: &mut Vec<UnreadableLine>, line: &RawLine<'_>, reason: &str) {
    log.unreadable += 1;
    if shown.len() < SHOWN_MAX {
        let beginning = line.bytes.get(..SHOWN_BYTES).unwrap_or(line.bytes);
        shown.push(UnreadableLine {
            log: log.log.clone(),
            line: line.number,
            reason: reason.to_owned(),
            text: String::from_utf8_lossy(beginning).trim_end().to_owned(),
        });
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("name", &self.name).field("format", &self.format).finish_non_exhaustive()
    }
}
