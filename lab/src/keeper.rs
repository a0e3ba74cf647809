//! A server process that ends with the test that started it, even if that test crashes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{PATIENCE, wait_until};

/// Starts a server in a session of its own, prints its process id, and kills it with all its workers when the
/// keeper's standard input is closed, which happens at the latest when the test process ends. The keeper ignores an
/// interrupt at the terminal, so that it outlives the test. At last it waits for the server: a killed process holds
/// its port until it is gone. Debian keeps servers in /usr/sbin, which is not in everybody's PATH.
const KEEPER: &str = r#"
    PATH=$PATH:/usr/sbin
    setsid "$@" & echo $!
    trap '' INT TERM HUP
    cat >/dev/null
    kill -KILL -$! 2>/dev/null || kill -KILL $! 2>/dev/null
    wait $!
"#;

/// A running server, and the shell that keeps it.
#[derive(Debug)]
pub(crate) struct Kept {
    keeper: Child,
    pid: Pid,
    log: PathBuf,
}

impl Kept {
    /// Starts a server: its name, then its arguments. Its standard error is appended to `log`.
    pub(crate) fn start<S: AsRef<OsStr>>(command: impl IntoIterator<Item = S>, log: PathBuf) -> Self {
        let errors = File::options().create(true).append(true).open(&log).expect("a log file");
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).args(command);
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut keeper = keeper.spawn().expect("a shell");
        let mut number = String::new();
        let stdout = keeper.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut number).expect("the server's process id");
        let pid = number.trim().parse().ok().and_then(Pid::from_raw).expect("the server's process id");
        Self { keeper, pid, log }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until the server is ready.
    ///
    /// # Panics
    /// If the server exits instead, at once and with its log; or if it is not ready within twenty seconds.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, mut is_ready: impl FnMut() -> bool) {
        wait_until(what, || {
            let has_exited = Stat::read(&self.proc()).is_none_or(|stat| stat.is_zombie);
            assert!(!has_exited, "waiting until {what}: the server exited; its log:\n{}", self.logged());
            is_ready()
        });
    }

    /// Waits until it takes connections on this port of loopback. Panics as [`Self::wait_until`] does.
    #[track_caller]
    pub(crate) fn wait_for_port(&self, port: u16) {
        self.wait_until("a server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }

    fn proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.pid.as_raw_nonzero()))
    }

    fn logged(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// True if none of its workers is left. The keeper waits for the server alone; its workers are in its process
    /// group, and hold its sockets too.
    fn has_no_workers(&self) -> bool {
        let mut entries = std::fs::read_dir("/proc").expect("a proc folder").flatten();
        entries.all(|entry| {
            Stat::read(&entry.path()).is_none_or(|stat| stat.group != self.pid || stat.is_zombie)
        })
    }
}

impl Drop for Kept {
    /// Kills it as a crash would, and returns when it and all its workers are gone, and with them their ports.
    fn drop(&mut self) {
        let _gone_already = kill_process_group(self.pid, Signal::KILL);
        drop(self.keeper.stdin.take());
        let _ended = self.keeper.wait();
        let start = Instant::now();
        while !self.has_no_workers() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What /proc says of a process.
struct Stat {
    group: Pid,
    /// It has exited and given back what it held, and its parent has not looked yet.
    is_zombie: bool,
}

impl Stat {
    /// None if there is no such process.
    fn read(process: &Path) -> Option<Self> {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        // The name before may contain anything, parentheses too.
        let mut fields = stat.rsplit(") ").next()?.split(' ');
        let (state, _parent, group) = (fields.next()?, fields.next()?, fields.next()?);
        // The first thread of several becomes a zombie while the others still hold the sockets.
        let n_threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
        Some(Self { group: Pid::from_raw(group.parse().ok()?)?, is_zombie: state == "Z" && n_threads < 2 })
    }
}
