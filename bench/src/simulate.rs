//! `ratewright simulate` against goaccess: CPU for one line of the same combined log, and the memory of both.
//!
//! Both read the whole log once and report on it: goaccess visitors, paths, agents and more; ours the decisions of two policies, with
//! clients, timelines and near misses. The log is made here, the same in every run: a day of requests by 200,000 clients, a few of which
//! send most of them, for 5,000 paths, with 300 agents.
//!
//! | line | what it is |
//! |---|---|
//! | `simulate` | nanoseconds of CPU for a line of a 1 GB log |
//! | `simulate-memory` | the most resident MiB while doing so |
//! | `simulate-memory-growth` | resident MiB with the whole log, against the first half of it: ours and ours |
//! | `simulate-10m-clients` | resident MiB with 10 million clients, against 1 GB |

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::rounds::{median, report};

/// The size of the log in bytes.
const SIZE: u64 = 1_000_000_000;

const N_CLIENTS: u64 = 200_000;
const N_PATHS: u64 = 5_000;
const N_AGENTS: u64 = 300;
const N_MANY_CLIENTS: u64 = 10_000_000;

/// Rounds of ours. The peer takes minutes, and has one.
const ROUNDS: usize = 3;

const POLICIES: &str = "policies:
  - { name: per-ip, by: ip, quota: { rate: 60/min, burst: 60 } }
  - { name: api, by: ip, when: { path: '/api/**' }, quota: { rate: 5/s, burst: 20 } }
";

/// No bucket is full again within the log, so all are kept.
const LONG_QUOTA: &str = "policies: [{ name: per-ip, by: ip, quota: { rate: 10/d } }]\n";

/// What a process took.
struct Usage {
    cpu_nanos: f64,
    resident_mib: f64,
}

/// Compares the two.
pub(crate) fn run() -> Result<(), String> {
    let folder = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    measure(&folder).map_err(|error| format!("cannot run the benchmark: {error}"))
}

fn measure(folder: &Path) -> io::Result<()> {
    let (log, half) = (folder.join("bench-access.log"), folder.join("bench-half.log"));
    let n_lines = write_log(&log, SIZE)? as f64;
    write_log(&half, SIZE / 2)?;
    let ours = |log: &Path, policies: &str| {
        let file = folder.join("bench-simulate.yaml");
        std::fs::write(&file, policies)?;
        let program = folder.join("release/ratewright");
        usage(Command::new(program).args(["simulate", "--json", "-c"]).arg(file).arg(log))
    };
    let peer = || {
        let output = folder.join("bench-goaccess.json");
        let options = ["--log-format=COMBINED", "--no-global-config", "--no-progress", "-o"];
        usage(Command::new("goaccess").arg(&log).args(options).arg(output))
    };
    let rounds = (0..ROUNDS).map(|_| ours(&log, POLICIES)).collect::<io::Result<Vec<_>>>()?;
    let whole = rounds.iter().map(|usage| usage.resident_mib).fold(0.0, f64::max);
    report("simulate-memory-growth", whole, ours(&half, POLICIES)?.resident_mib);
    let many = folder.join("bench-many-clients.log");
    write_many_clients(&many)?;
    report("simulate-10m-clients", ours(&many, LONG_QUOTA)?.resident_mib, 1e9 / 1024.0 / 1024.0);
    eprintln!("goaccess reads the log once: some minutes");
    let peer = peer()?;
    [&log, &half, &many].into_iter().try_for_each(std::fs::remove_file)?;
    report("simulate-memory", whole, peer.resident_mib);
    let cpu = median(rounds.iter().map(|usage| usage.cpu_nanos).collect());
    report("simulate", cpu / n_lines, peer.cpu_nanos / n_lines);
    Ok(())
}

/// Runs a process to its end.
#[expect(clippy::disallowed_methods, reason = "the memory of the process is looked at from time to time")]
fn usage(command: &mut Command) -> io::Result<Usage> {
    let before = children_cpu_nanos()?;
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut resident_mib: f64 = 0.0;
    let exit = loop {
        if let Some(exit) = child.try_wait()? {
            break exit;
        }
        let peak = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let kib = peak.and_then(|peak| peak.trim().parse::<f64>().ok());
        resident_mib = resident_mib.max(kib.unwrap_or(0.0) / 1024.0);
        std::thread::sleep(Duration::from_millis(20));
    };
    if !exit.success() {
        return Err(io::Error::other(format!("{command:?}: {exit}")));
    }
    Ok(Usage { cpu_nanos: children_cpu_nanos()? - before, resident_mib })
}

/// CPU time of all processes that were waited for, in nanoseconds.
fn children_cpu_nanos() -> io::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    let ticks = |n: usize| fields.split_whitespace().nth(n).and_then(|ticks| ticks.parse::<f64>().ok());
    let ticks = ticks(13).unwrap_or(0.0) + ticks(14).unwrap_or(0.0);
    Ok(ticks * 1e9 / rustix::param::clock_ticks_per_second() as f64)
}

/// Numbers that look random, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// A small number much more often than a large one.
    fn skewed(&mut self, n: u64) -> u64 {
        let limit = 1 + self.below(n);
        let limit = 1 + self.below(limit);
        self.below(limit)
    }
}

/// Writes a day of requests. Returns the number of its lines.
fn write_log(path: &Path, size: u64) -> io::Result<u64> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let n_lines_expected = SIZE / 230;
    let (mut n_bytes, mut n_lines, mut line) = (0, 0, String::new());
    while n_bytes < size {
        let second = n_lines * 86_400 / n_lines_expected;
        let (hour, minute, second) = (second / 3_600 % 24, second / 60 % 60, second % 60);
        let client = random.skewed(N_CLIENTS) * 7_919 + 16_777_216;
        let path_number = random.skewed(N_PATHS);
        let path = match path_number % 5 {
            0 => format!("/api/orders/{path_number}?page={}", random.below(9)),
            1 => format!("/products/{path_number}"),
            2 => format!("/static/js/chunk.{path_number:x}.js"),
            3 => format!("/images/photo-{path_number}.webp?w=640"),
            _ => format!("/blog/2026/11/post-{path_number}/"),
        };
        let agent = random.skewed(N_AGENTS);
        line.clear();
        let _ = writeln!(
            line,
            "{}.{}.{}.{} - - [18/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" {} {} \"https://www.example.com/{}\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.{agent}.0 Safari/537.36\"",
            client >> 24 & 255,
            client >> 16 & 255,
            client >> 8 & 255,
            client & 255,
            [200, 200, 200, 304, 404][usize::try_from(random.below(5)).unwrap_or(0)],
            200 + random.below(90_000),
            if random.below(2) == 0 { "" } else { "search" },
            100 + agent % 40,
        );
        out.write_all(line.as_bytes())?;
        n_bytes += line.len() as u64;
        n_lines += 1;
    }
    out.flush()?;
    Ok(n_lines)
}

/// A log in which each of ten million clients comes once.
fn write_many_clients(path: &Path) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for client in 0..N_MANY_CLIENTS {
        let second = client * 80_000 / N_MANY_CLIENTS;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let address = client + 16_777_216;
        writeln!(
            out,
            "{}.{}.{}.{} - - [18/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 5",
            address >> 24 & 255,
            address >> 16 & 255,
            address >> 8 & 255,
            address & 255
        )?;
    }
    out.flush()
}
