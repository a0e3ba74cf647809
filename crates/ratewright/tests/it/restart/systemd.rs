//! Under systemd: socket activation and notifications. Systemd itself cannot run in a test; a small program behaves as systemd.exec and
//! sd_listen_fds specify.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use ratewright_lab::{PATIENCE, Printed, output, wait, wait_until, without_settings};
use tempfile::TempDir;

use super::load::{Behind, Load};
use super::n_restarts;
use crate::gateway::python;
use crate::process::{Guarded, listen, on_free_ports, program};

/// Listens on some sockets, prints their addresses, and starts and stops the program on command.
const MANAGER: &str = r#"
import ctypes, os, signal, socket, sys

sockets = []
for _ in range(int(sys.argv[1])):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    sockets.append(listener)
print(*("127.0.0.1:%d" % s.getsockname()[1] for s in sockets), flush=True)

for line in sys.stdin:
    if line.startswith("start "):
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with this process
            fds = [os.dup(s.fileno()) for s in sockets]  # all above those that they are put on
            for n, fd in enumerate(fds):
                os.dup2(fd, 3 + n)
            os.environ.update(LISTEN_FDS=str(len(fds)), LISTEN_PID=str(os.getpid()))
            os.dup2(os.open("/dev/null", os.O_RDWR), 1)
            os.execv(sys.argv[2], [sys.argv[2], "serve", line.split()[1]])
    else:
        if line == "stop\n":
            os.kill(pid, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"#;

struct Manager {
    _process: Guarded,
    said: BufReader<Printed<ChildStdout>>,
    command_pipe: ChildStdin,
    addresses: Vec<String>,
}

impl Manager {
    fn listen_on(n_sockets: usize) -> Self {
        let mut command = Command::new(python());
        without_settings(&mut command);
        command.args(["-c", MANAGER, &n_sockets.to_string(), env!("CARGO_BIN_EXE_ratewright")]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (said, command_pipe) = (process.stdout.take().unwrap(), process.stdin.take().unwrap());
        let mut manager = Self {
            _process: Guarded(process),
            said: BufReader::new(Printed::by(said)),
            command_pipe,
            addresses: Vec::new(),
        };
        manager.addresses = manager.line().split(' ').map(str::to_owned).collect();
        manager
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.get_mut().renew();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn start(&mut self, file: &Path) {
        writeln!(self.command_pipe, "start {}", file.display()).unwrap();
    }

    /// Waits until the program has ended. Its exit status.
    fn wait(&mut self) -> String {
        writeln!(self.command_pipe, "wait").unwrap();
        self.line()
    }

    /// Stops the program. Its exit status.
    fn stop(&mut self) -> String {
        writeln!(self.command_pipe, "stop").unwrap();
        self.line()
    }
}

/// The sockets stay while no process runs, so connections wait and are never refused.
#[test]
fn restarts_under_socket_activation_lose_no_request() {
    let (behind, folder) = (Behind::start(), TempDir::new().unwrap());
    let mut manager = Manager::listen_on(4);
    let [gateway, api, grpc, admin] = manager.addresses.clone().try_into().unwrap();
    let quoted = [&gateway, &api, &grpc, &admin].map(|address| format!("'{address}'"));
    let names = ["gateway", "api", "grpc", "admin"];
    let listeners: Vec<_> = names.into_iter().zip(quoted.iter().map(String::as_str)).collect();
    let listen = listen(&listeners);
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, listen + &behind.config(folder.path())).unwrap();
    manager.start(&file);
    let load = Load::start(&gateway, &grpc);
    for _ in 0..n_restarts() {
        assert_eq!(manager.stop(), "0");
        manager.start(&file);
        load.wait_for_more(5);
    }
    load.stop();
    assert_eq!(manager.stop(), "0");
}

/// A socket without a listener would queue connections for ever; and a socket that other machines reach must not replace one that they
/// do not.
#[test]
fn a_systemd_socket_without_a_listener_is_an_error() {
    let folder = TempDir::new().unwrap();
    let mut manager = Manager::listen_on(1);
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, listen(&[("admin", "off")])).unwrap();
    manager.start(&file);
    assert_eq!(manager.wait(), "1");
    let listen = listen(&[("api", &format!("'{}'", manager.addresses[0])), ("admin", "off")]);
    std::fs::write(&file, format!("{listen}stop_delay: 0s\n")).unwrap();
    manager.start(&file);
    let api = manager.addresses[0].clone();
    assert_eq!(
        crate::process::http(&api, "GET /openapi.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .status,
        200
    );
    assert_eq!(manager.stop(), "0");
}

/// A process that another one has started, by its id. It ends with the test, even if the test fails.
struct Successor(String);

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            let _ = Command::new("kill").args(["-KILL", &self.0]).stderr(Stdio::null()).status();
        }
    }
}

/// The notification socket.
fn notified(folder: &TempDir) -> (UnixDatagram, std::path::PathBuf) {
    let path = folder.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (socket, path)
}

fn heard(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1_024];
    let n = socket.recv(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..n]).into_owned()
}

#[test]
fn systemd_is_notified_of_start_reload_upgrade_and_stop() {
    let folder = TempDir::new().unwrap();
    let (socket, path) = notified(&folder);
    let (file, control) = (folder.path().join("ratewright.yaml"), folder.path().join("control.sock"));
    let listen = listen(&[("control", &format!("'{}'", control.display()))]);
    std::fs::write(&file, format!("{listen}stop_delay: 0s\npolicies: []\n")).unwrap();
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path).arg("serve").arg(&file);
    // The runner would wait for a process that is left behind with the test's own output.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let first = Guarded(command.spawn().unwrap());
    let signal = |pid: &str, signal: &str| {
        assert!(output(Command::new("kill").args(["-s", signal, pid])).status.success());
    };
    assert_eq!(heard(&socket), "READY=1\n");
    signal(&first.0.id().to_string(), "HUP");
    let reloading = heard(&socket);
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(heard(&socket), "READY=1\n");
    let upgrade = output(program().args(["upgrade", "--control"]).arg(&control));
    assert!(upgrade.status.success(), "{upgrade:?}");
    let mut main = Successor(String::new());
    wait_until("the service has another main process", || {
        let said = heard(&socket);
        main.0 = said.lines().find_map(|line| line.strip_prefix("MAINPID=")).unwrap_or_default().to_owned();
        !main.0.is_empty()
    });
    assert_ne!(main.0, first.0.id().to_string());
    signal(&main.0, "TERM");
    wait_until("it says that it stops", || heard(&socket) == "STOPPING=1\n");
}

/// A hung process says nothing, so that systemd kills it: `WatchdogSec` in the unit.
#[test]
fn systemd_hears_again_and_again_that_the_process_works() {
    let folder = TempDir::new().unwrap();
    let (socket, path) = notified(&folder);
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, format!("{}policies: []\n", listen(&[]))).unwrap();
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").arg("serve").arg(&file);
    let running = Guarded(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    assert_eq!(heard(&socket), "READY=1\n");
    for _ in 0..3 {
        assert_eq!(heard(&socket), "WATCHDOG=1\n");
    }
    drop(running);
}

/// A service manager that reads no notifications delays neither the start nor the stop.
#[test]
fn a_full_notification_queue_does_not_delay_a_stop() {
    let folder = TempDir::new().unwrap();
    let (_unread, path) = notified(&folder);
    let filling = UnixDatagram::unbound().unwrap();
    filling.set_nonblocking(true).unwrap();
    filling.connect(&path).unwrap();
    assert!((0..100_000).any(|_| filling.send(b"X=1").is_err()), "the queue gets full");
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, on_free_ports("policies: []\n")).unwrap();
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path).arg("serve").arg(&file).stderr(Stdio::piped());
    let mut program = Guarded(command.spawn().unwrap());
    let log = Printed::by(program.0.stderr.take().unwrap());
    let mut log = BufReader::new(log).lines().map(Result::unwrap);
    assert!(log.any(|line| line.contains("NOTIFY_SOCKET accepts no message")), "the start is not held up");
    assert!(output(Command::new("kill").arg(program.0.id().to_string())).status.success());
    let rest: Vec<String> = log.collect(); // until the program ends
    assert!(rest.iter().any(|line| line.contains("stopping")), "{rest:?}");
    assert_eq!(wait(&mut program.0).code(), Some(0));
}

#[test]
fn an_impossible_number_of_sockets_is_rejected() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    std::fs::write(&file, on_free_ports("policies: []\n")).unwrap();
    let output = output(program().env("LISTEN_FDS", "2000000000").arg("serve").arg(file));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("invalid LISTEN_FDS=2000000000: at most 1024"), "{error}");
}
