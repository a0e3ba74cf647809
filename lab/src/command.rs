//! Commands that end, and that see nothing of the shell's settings.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{PATIENCE, join, wait_until};

/// Variables that change what a program or a client does: a password, a proxy, a socket of systemd.
const SETTINGS: [&str; 19] = [
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
    "REDISCLI_AUTH",
    "REDISCLI_HISTFILE",
    "REDISCLI_RCFILE",
    "CURL_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "NODE_OPTIONS",
    "NODE_USE_ENV_PROXY",
    "PYTHONPATH",
];

/// Prefixes of further names.
const PREFIXES: [&str; 2] = ["RATEWRIGHT_", "OTEL_"];

/// Removes the variables of the shell that change what programs do. Call it before variables are set for the command.
pub fn without_settings(command: &mut Command) -> &mut Command {
    let has_prefix = |name: &OsString| PREFIXES.iter().any(|p| name.as_bytes().starts_with(p.as_bytes()));
    let names = SETTINGS.iter().map(OsString::from);
    let more = std::env::vars_os().map(|(name, _)| name).filter(has_prefix);
    names.chain(more).fold(command, |command, name| command.env_remove(name))
}

/// Removes all variables of the shell, but for those by which a test run finds what it started.
pub fn without_environment(command: &mut Command) -> &mut Command {
    let marks = ["TEST_RUN", "TEST_PROGRAM"].map(|name| std::env::var_os(name).map(|value| (name, value)));
    command.env_clear().envs(marks.into_iter().flatten())
}

/// A program that is not ours: without the settings of the shell, and with the real clock, whichever one the tests have.
pub fn foreign(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    without_settings(&mut command).env_remove("LD_PRELOAD");
    command
}

/// Runs a command to its end, with no input.
///
/// # Panics
/// If it cannot be started, or takes longer than a minute. It is then killed, with its process group.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    output_within(PATIENCE, command)
}

/// The same with another limit.
///
/// # Panics
/// If it cannot be started, or takes longer.
#[track_caller]
pub fn output_within(limit: Duration, command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    output_of(child, limit)
}

/// The output of a process that was started with pipes.
///
/// # Panics
/// If it takes longer. It is then killed, with its process group if it leads one.
#[track_caller]
pub fn output_of(mut child: Child, limit: Duration) -> Output {
    drop(child.stdin.take());
    let [stdout, stderr] = [Pipe::read(child.stdout.take()), Pipe::read(child.stderr.take())];
    let start = Instant::now();
    let (mut status, mut pause) = (None, Duration::from_micros(250));
    while status.is_none() && start.elapsed() < limit {
        status = child.try_wait().expect("a child");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    let Some(status) = status else {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        let _leads_none = kill_process_group(group, Signal::KILL);
        let _gone_already = child.kill();
        panic!(
            "process killed: still running after {limit:?}; stdout {:?}, stderr {:?}",
            stdout.text(),
            stderr.text()
        );
    };
    Output { status, stdout: stdout.all(), stderr: stderr.all() }
}

/// Waits until a process has ended.
///
/// # Panics
/// If it has not within a minute.
#[track_caller]
pub fn wait(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the process ends", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    status.expect("the wait is over")
}

/// Kills a process, and waits until it is gone, but for no longer than a minute: for a `Drop`, which must not panic.
pub fn end(child: &mut Child) {
    let _gone_already = child.kill();
    let start = Instant::now();
    while child.try_wait().is_ok_and(|status| status.is_none()) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What comes out of a process, read in a thread of its own.
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl Pipe {
    fn read(from: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let reading = std::thread::spawn(move || {
            let Some(mut from) = from else { return };
            let mut buffer = vec![0; 65_536];
            while let Ok(n) = from.read(&mut buffer) {
                if n == 0 {
                    break;
                }
                kept.lock().expect("no thread panics").extend_from_slice(&buffer[..n]);
            }
        });
        Self { bytes, reading }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no thread panics")).into_owned()
    }

    /// Everything. A grandchild may hold the pipe open, but for no longer than a minute.
    #[track_caller]
    fn all(self) -> Vec<u8> {
        join(self.reading, "the output ends");
        std::mem::take(&mut *self.bytes.lock().expect("no thread panics"))
    }
}
