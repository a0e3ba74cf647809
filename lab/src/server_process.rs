//! A server process that ends with the test that started it, even if that test crashes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{PATIENCE, receive, wait_until, without_settings};

/// The shell script that supervises a server. It starts the server in its own session and prints its process id. When
/// its standard input closes, at the latest when the test process ends, it kills the server with all its workers. Then
/// it waits for the server, because a killed process holds its port until it is gone. It ignores signals from the
/// terminal, to outlive the test. Debian installs servers in /usr/sbin, which is not in every PATH.
const SUPERVISOR: &str = r#"
    PATH=$PATH:/usr/sbin
    setsid "$@" >&2 & echo $!
    trap '' INT TERM HUP
    cat >/dev/null
    kill -KILL -$! 2>/dev/null || kill -KILL $! 2>/dev/null
    wait $!
"#;

/// A running server and its supervisor.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    supervisor: Child,
    pid: Pid,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a server: its name, then its arguments. Its output is appended to `log`.
    pub(crate) fn start<S: AsRef<OsStr>>(command: impl IntoIterator<Item = S>, log: PathBuf) -> Self {
        let errors = File::options().create(true).append(true).open(&log).expect("a log file");
        let mut supervisor = Command::new("sh");
        let mut command = command.into_iter().peekable();
        // The tests and their Redis may run under a made-up time; other servers and browsers keep the real one.
        if command.peek().is_none_or(|name| name.as_ref() != "redis-server") {
            supervisor.env_remove("LD_PRELOAD");
        }
        supervisor.args(["-c", SUPERVISOR, "supervisor"]).args(command);
        supervisor.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut supervisor = without_settings(&mut supervisor).spawn().expect("a shell");
        let stdout = supervisor.stdout.take().expect("it is piped");
        let (said, number) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut number = String::new();
            let _read = BufReader::new(stdout).read_line(&mut number);
            let _nobody_waits = said.send(number);
        });
        let number = receive(&number, "the server's process id");
        let pid = number.trim().parse().ok().and_then(Pid::from_raw).expect("the server's process id");
        Self { supervisor, pid, log }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until the server is ready, or has exited: true if it is ready.
    ///
    /// # Panics
    /// After a minute.
    #[track_caller]
    pub(crate) fn has_started(&self, mut is_ready: impl FnMut() -> bool) -> bool {
        let mut ready = false;
        wait_until("the server starts or exits", || {
            ready = is_ready();
            ready || self.has_exited()
        });
        ready
    }

    fn has_exited(&self) -> bool {
        ProcStat::read(&self.proc()).is_none_or(|stat| stat.is_zombie)
    }

    /// Waits until the server is ready.
    ///
    /// # Panics
    /// At once, with the server's log, if the server exits; or after a minute.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, mut is_ready: impl FnMut() -> bool) {
        wait_until(what, || {
            assert!(
                !self.has_exited(),
                "waiting until {what}: the server exited; its log:\n{}",
                self.logged()
            );
            is_ready()
        });
    }

    /// Waits until the server accepts connections on this loopback port. Panics like [`Self::wait_until`].
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

    pub(crate) fn logged(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// True if no worker is left. The supervisor waits for the server only; workers share its process group and
    /// sockets.
    fn workers_are_gone(&self) -> bool {
        let mut entries = std::fs::read_dir("/proc").expect("a proc folder").flatten();
        entries.all(|entry| {
            ProcStat::read(&entry.path()).is_none_or(|stat| stat.group != self.pid || stat.is_zombie)
        })
    }
}

impl Drop for ServerProcess {
    /// Kills the server, and waits up to a minute until it and its workers have released their ports.
    fn drop(&mut self) {
        let _gone_already = kill_process_group(self.pid, Signal::KILL);
        drop(self.supervisor.stdin.take());
        let start = Instant::now();
        while self.supervisor.try_wait().is_ok_and(|status| status.is_none()) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        while !self.workers_are_gone() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A process, from its `stat` file in /proc.
struct ProcStat {
    group: Pid,
    /// It has exited and released its sockets, but its parent has not reaped it.
    is_zombie: bool,
}

impl ProcStat {
    /// None if there is no such process.
    fn read(process: &Path) -> Option<Self> {
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        // The process name comes first and may contain parentheses.
        let mut fields = stat.rsplit(") ").next()?.split(' ');
        let (state, _parent, group) = (fields.next()?, fields.next()?, fields.next()?);
        // The first thread of several becomes a zombie while the others still hold the sockets.
        let n_threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
        // A process that is being reaped has the group -1.
        let group = group.parse().ok().filter(|group| *group > 0)?;
        Some(Self { group: Pid::from_raw(group)?, is_zombie: state == "Z" && n_threads < 2 })
    }
}
