//! A server that ends with whoever started it, however that went.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Starts a server, says its number, and ends it when nobody holds its standard input any more.
const KEEPER: &str = r#""$@" & echo $!; cat >/dev/null; kill -KILL $! 2>/dev/null"#;

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

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }
}

impl Drop for Kept {
    /// Ends it as a crash would.
    fn drop(&mut self) {
        let _gone_already = kill_process(self.pid, Signal::KILL);
        drop(self.keeper.stdin.take());
        let _ended = self.keeper.wait();
    }
}
