//! A server process that ends with the test that started it, even if that test crashes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{PATIENCE, free_port, receive, wait_until, without_settings};

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

    /// Starts a server, and waits until it listens on its port. If another process has taken the port in the meantime, the server gets
    /// another port.
    ///
    /// # Panics
    /// Like [`Self::wait_until`].
    #[track_caller]
    pub(crate) fn on_free_port(start: impl Fn(u16) -> Self) -> (u16, Self) {
        for n_left in (0..4).rev() {
            let port = free_port();
            let server = start(port);
            wait_until("the server listens or exits", || server.listens_on(port) || server.has_exited());
            let log = server.logged().to_lowercase(); // programs in Go begin the message with a small letter
            if n_left == 0 || !(server.has_exited() && log.contains("address already in use")) {
                server.wait_for_port(port);
                return (port, server);
            }
        }
        unreachable!("the last try returns or panics");
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
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

    /// Waits until the server accepts connections on this port. Panics like [`Self::wait_until`].
    #[track_caller]
    pub(crate) fn wait_for_port(&self, port: u16) {
        self.wait_until("the server listens", || self.listens_on(port));
    }

    /// True if the server itself listens there: a connection may reach another process that had the port before.
    fn listens_on(&self, port: u16) -> bool {
        let descriptors = std::fs::read_dir(self.proc().join("fd")).into_iter().flatten().flatten();
        let own: BTreeSet<_> =
            descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok()).collect();
        let end = format!(":{port:04X}");
        let is_listener = |line: &str| {
            let mut fields = line.split_whitespace();
            let (address, state) = (fields.nth(1)?, fields.nth(1)?);
            let socket = format!("socket:[{}]", fields.nth(5)?);
            Some(address.ends_with(&end) && state == "0A" && own.contains(Path::new(&socket)))
        };
        ["net/tcp", "net/tcp6"].iter().any(|table| {
            let table = std::fs::read_to_string(self.proc().join(table)).unwrap_or_default();
            table.lines().any(|line| is_listener(line).unwrap_or(false))
        })
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

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;
    use std::net::TcpListener;

    use tempfile::TempDir;

    use super::*;

    /// A connection to the first port succeeds, but it is not the server that accepts it.
    #[test]
    fn a_server_whose_port_is_taken_before_it_starts_gets_another_one() {
        let (folder, taken) = (TempDir::new().unwrap(), OnceCell::new());
        let (port, server) = ServerProcess::on_free_port(|port| {
            taken.get_or_init(|| TcpListener::bind(("127.0.0.1", port)).unwrap());
            let command = ["redis-server", "--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()];
            ServerProcess::start(command, folder.path().join("redis.log"))
        });
        assert_ne!(port, taken.get().unwrap().local_addr().unwrap().port());
        assert!(server.listens_on(port));
    }
}
