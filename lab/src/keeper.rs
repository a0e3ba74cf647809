//! A server that ends with whoever started it, however that went.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait_until;

/// Starts a server in a session of its own, says its number, and ends it with all its workers when nobody holds the
/// keeper's standard input any more. An interrupt at the terminal ends whoever holds it, and must not end the keeper
/// first. Debian keeps servers in /usr/sbin, which not everybody's path names.
const KEEPER: &str = r#"
    PATH=$PATH:/usr/sbin
    setsid "$@" & echo $!
    trap '' INT TERM HUP
    cat >/dev/null
    kill -KILL -$! 2>/dev/null || kill -KILL $! 2>/dev/null
"#;

/// A running server, and the shell that keeps it.
#[derive(Debug)]
pub(crate) struct Kept {
    keeper: Child,
    pid: Pid,
}

impl Kept {
    /// Starts a server: its name, then its arguments. What it says on standard error goes to `errors`.
    pub(crate) fn start<S: AsRef<OsStr>>(command: impl IntoIterator<Item = S>, errors: Stdio) -> Self {
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper"]).args(command);
        keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut keeper = keeper.spawn().expect("a shell");
        let mut number = String::new();
        let stdout = keeper.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut number).expect("the server's number");
        let pid = number.trim().parse().ok().and_then(Pid::from_raw).expect("the server's number");
        Self { keeper, pid }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// True until it has ended. The keeper does not wait for it, so what is left then is a zombie.
    fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Waits until it takes connections on this port of loopback.
    ///
    /// # Panics
    /// If it ends instead; `log` is then told.
    pub(crate) fn wait_for_port(&self, port: u16, log: &Path) {
        wait_until("a server listens", || {
            let told = || std::fs::read_to_string(log).unwrap_or_default();
            assert!(self.is_running(), "the server ended: {}", told());
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }
}

impl Drop for Kept {
    /// Ends it as a crash would.
    fn drop(&mut self) {
        let _gone_already = kill_process_group(self.pid, Signal::KILL);
        drop(self.keeper.stdin.take());
        let _ended = self.keeper.wait();
    }
}
