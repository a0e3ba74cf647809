//! Load by wrk and h2load over loopback, and what it cost the server.

use std::path::PathBuf;
use std::process::{Child, Command};

/// A program in hand. Ends with the benchmark.
pub(crate) struct Running(pub(crate) Child);

/// What /proc tells of one process.
struct Process {
    id: u32,
    parent: u32,
    /// User and system time of all its threads.
    ticks: f64,
}

/// The program beside this one, or that it is missing.
pub(crate) fn ratewright() -> Result<PathBuf, String> {
    let program = std::env::current_exe().expect("the path of this program").with_file_name("ratewright");
    match program.exists() {
        true => Ok(program),
        false => Err(format!("{} is missing; build it with cargo build --release", program.display())),
    }
}

/// An empty folder for a benchmark's files.
pub(crate) fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ratewright-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder takes a folder");
    folder
}

/// CPU time of a server for one request, in microseconds, while wrk with these arguments asks it.
///
/// # Panics
/// If a request fails, or is answered with anything but 2xx or 3xx: then it was another request that was measured.
pub(crate) fn micros_per_request(server: u32, arguments: &[&str]) -> f64 {
    micros_per_request_of(&[server], arguments)
}

/// The same, of all these servers together.
pub(crate) fn micros_per_request_of(servers: &[u32], arguments: &[&str]) -> f64 {
    let cpu_seconds = || servers.iter().copied().map(cpu_seconds).sum::<f64>();
    let before = cpu_seconds();
    let output = Command::new("wrk").args(arguments).output().expect("wrk is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("Non-2xx"), "every request is allowed: {text}");
    assert!(!text.contains("Socket errors"), "every request is answered: {text}");
    let line = text.lines().find(|line| line.contains(" requests in ")).expect("wrk counts requests");
    let requests: f64 = line.trim().split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    (cpu_seconds() - before) * 1e6 / requests
}

/// CPU time of a server for one call, in microseconds, while h2load with these arguments asks it so many times.
///
/// # Panics
/// If a call fails.
pub(crate) fn micros_per_call(server: u32, n_calls: usize, arguments: &[&str]) -> f64 {
    let before = cpu_seconds(server);
    let output = Command::new("h2load").args(arguments).output().expect("h2load is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!(" {n_calls} succeeded, 0 failed")), "every call is answered: {text}");
    (cpu_seconds(server) - before) * 1e6 / n_calls as f64
}

/// User and system time so far, of a process and of all that it started and that still run.
fn cpu_seconds(root: u32) -> f64 {
    let ticks: f64 = family(root).iter().map(|process| process.ticks).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// A process and all that it started and that still run.
pub(crate) fn pids(root: u32) -> Vec<u32> {
    family(root).iter().map(|process| process.id).collect()
}

fn family(root: u32) -> Vec<Process> {
    let all: Vec<_> = std::fs::read_dir("/proc").expect("a proc folder").filter_map(Process::read).collect();
    let (mut family, mut others): (Vec<_>, Vec<_>) = all.into_iter().partition(|process| process.id == root);
    let mut next = 0;
    while let Some(parent) = family.get(next).map(|process| process.id) {
        family.extend(others.extract_if(.., |process| process.parent == parent));
        next += 1;
    }
    family
}

impl Process {
    fn read(entry: std::io::Result<std::fs::DirEntry>) -> Option<Self> {
        let entry = entry.ok()?;
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
        let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
        Some(Self { id, parent: fields.get(1)?.parse().ok()?, ticks: ticks(11)? + ticks(12)? })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
