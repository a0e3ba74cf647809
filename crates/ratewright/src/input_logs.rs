//! Opens access logs, and shows how far they have been read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ratewright_sim::{Format, Log};

use crate::cli::LogArgs;

/// The name of standard input among the logs.
const STDIN: &str = "-";

/// How often the progress is shown anew.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The logs of a command, and their progress.
pub(crate) struct LogFiles {
    pub(crate) logs: Vec<Log>,
    pub(crate) progress: Progress,
}

/// The progress on a terminal: one line on standard error, drawn over and over.
pub(crate) struct Progress {
    n_read: Arc<AtomicU64>,
    /// All bytes; `None` if a log has no size, such as standard input.
    n_total: Option<u64>,
    terminal: Option<Terminal>,
}

struct Terminal {
    began_at: Instant,
    shown_at: Instant,
    width: usize,
}

impl LogFiles {
    /// Checks the arguments and that each log exists. Logs are opened when they are read.
    pub(crate) fn new(args: &LogArgs) -> anyhow::Result<Self> {
        let format = match &args.format {
            Some(name) => Some(Format::named(name, args.fields.clone())?),
            None if args.fields.is_some() => {
                bail!("--fields needs --format json or --format csv")
            }
            None => None,
        };
        let n_read = Arc::new(AtomicU64::new(0));
        let mut seen = BTreeSet::new();
        let mut logs = Vec::new();
        let mut n_total = Some(0);
        for path in &args.logs {
            let identity = path.canonicalize().unwrap_or_else(|_| path.clone());
            ensure!(
                seen.insert(identity),
                "log given twice: {}; its requests would be counted twice",
                path.display()
            );
            let (log, size) = open(path, format.clone(), &n_read)?;
            logs.push(log);
            n_total = n_total.zip(size).map(|(all, size)| all + size);
        }
        Ok(Self { logs, progress: Progress::new(n_read, n_total) })
    }
}

/// A log, and its size if it has one.
fn open(path: &Path, format: Option<Format>, n_read: &Arc<AtomicU64>) -> anyhow::Result<(Log, Option<u64>)> {
    let counted = |log| CountedRead { log, n_read: Arc::clone(n_read) };
    if path == Path::new(STDIN) {
        if io::stdin().is_terminal() {
            eprintln!("reading a log from standard input; end it with Ctrl-D, or name a log");
        }
        return Ok((Log::once("standard input", format, counted(io::stdin())), None));
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot open {name}"))?;
    ensure!(!metadata.is_dir(), "{name} is a folder; list its log files: {name}/*.log");
    if !metadata.is_file() {
        return Ok((Log::once(name, format, CountedRead { log: file, n_read: Arc::clone(n_read) }), None));
    }
    let (path, n_read, n_own) = (path.to_owned(), Arc::clone(n_read), Arc::new(AtomicU64::new(0)));
    let open = move || -> io::Result<Box<dyn Read>> {
        // Opened again, it is read from its beginning.
        n_read.fetch_sub(n_own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        let log = CountedRead { log: File::open(&path)?, n_read: Arc::clone(&n_own) };
        Ok(Box::new(CountedRead { log, n_read: Arc::clone(&n_read) }))
    };
    Ok((Log::new(name, format, open), Some(metadata.len())))
}

/// Counts the bytes that are read.
struct CountedRead<R> {
    log: R,
    n_read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountedRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.log.read(buffer)?;
        self.n_read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl Progress {
    fn new(n_read: Arc<AtomicU64>, n_total: Option<u64>) -> Self {
        let now = now();
        let terminal =
            io::stderr().is_terminal().then_some(Terminal { began_at: now, shown_at: now, width: 0 });
        Self { n_read, n_total, terminal }
    }

    /// Shows how far the logs have been read.
    pub(crate) fn show(&mut self, n_lines: u64) {
        let Some(terminal) = &mut self.terminal else { return };
        let now = now();
        if now.duration_since(terminal.shown_at) < REDRAW_INTERVAL {
            return;
        }
        terminal.shown_at = now;
        let text = line(n_lines, self.n_read.load(Ordering::Relaxed), self.n_total, now - terminal.began_at);
        terminal.draw(&text);
    }

    /// Removes the line from the terminal.
    pub(crate) fn finish(&mut self) {
        if let Some(terminal) = &mut self.terminal
            && terminal.width > 0
        {
            terminal.draw("");
        }
    }
}

impl Terminal {
    fn draw(&mut self, text: &str) {
        let width = text.chars().count();
        let blank = " ".repeat(self.width.saturating_sub(width));
        let end = if text.is_empty() { "\r" } else { "" };
        // If standard error cannot be written, there is nobody to show it to.
        let _ = write!(io::stderr(), "\r{text}{blank}{end}");
        self.width = width;
    }
}

#[expect(clippy::disallowed_methods, reason = "the rate of the progress is by the real clock")]
fn now() -> Instant {
    Instant::now()
}

/// A bar, the share, the rate and the time left: `[######------] 52 %  1.2 M lines  950 k lines/s  4 s left`.
fn line(n_lines: u64, n_read: u64, n_total: Option<u64>, elapsed: Duration) -> String {
    const WIDTH: u64 = 24;
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let per_second = n_lines.saturating_mul(1_000) / millis;
    let counts = format!("{} lines  {} lines/s", abbreviated(n_lines), abbreviated(per_second));
    let Some(n_total) = n_total.filter(|n_total| *n_total > 0) else {
        return format!("{}  {} MB", counts, n_read / 1_000_000);
    };
    let n_read = n_read.min(n_total);
    let n_full = usize::try_from(n_read * WIDTH / n_total).unwrap_or(0);
    let bar = format!("{}{}", "#".repeat(n_full), "-".repeat(usize::try_from(WIDTH).unwrap_or(0) - n_full));
    let left =
        if n_read == 0 { 0 } else { u128::from(millis) * u128::from(n_total - n_read) / u128::from(n_read) };
    format!("[{bar}] {:3} %  {counts}  {} s left", n_read * 100 / n_total, left.div_ceil(1_000))
}

/// A number with its first digits: `950`, `12 k`, `1.2 M`.
fn abbreviated(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{} k", number / 1_000),
        _ => format!("{}.{} M", number / 1_000_000, number / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_has_share_rate_and_time_left() {
        let show = |n_read, n_total| line(1_234_567, n_read, n_total, Duration::from_secs(2));
        assert_eq!(
            show(250, Some(1_000)),
            "[######------------------]  25 %  1.2 M lines  617 k lines/s  6 s left"
        );
        assert_eq!(
            show(2_000, Some(1_000)),
            "[########################] 100 %  1.2 M lines  617 k lines/s  0 s left"
        );
        assert_eq!(show(5_000_000, None), "1.2 M lines  617 k lines/s  5 MB");
        assert_eq!(line(9, 0, Some(0), Duration::ZERO), "9 lines  9000 lines/s  0 MB");
    }
}
