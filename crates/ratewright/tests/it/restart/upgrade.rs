//! `ratewright upgrade`: a new process takes over the sockets.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ratewright_lab::{Stream, accept, free_port, join, output, skip_here, wait_until, without_settings};
use tempfile::TempDir;

use super::load::{Behind, Load};
use super::n_restarts;
use crate::process::{Ratewright, listen, on_free_ports, program};

/// A program with a control socket, and those that replaced it.
struct Replaceable {
    ratewright: Ratewright,
    folder: TempDir,
    /// The process that serves now, if it is not the first one.
    pid: Option<String>,
}

impl Replaceable {
    fn start(config: impl FnOnce(&Path) -> String) -> Self {
        Self::start_in(TempDir::new().unwrap(), &[], config)
    }

    /// Starts it in a folder, with some listeners.
    fn start_in(folder: TempDir, listeners: &[(&str, &str)], config: impl FnOnce(&Path) -> String) -> Self {
        let file = folder.path().join("ratewright.yaml");
        let control = format!("'{}'", control_of(&folder).display());
        let listen = listen(&[listeners, &[("control", &control)]].concat());
        std::fs::write(&file, listen + &config(folder.path())).unwrap();
        let program = Self { ratewright: Ratewright::serve(&[&file]), folder, pid: None };
        wait_until("it has a control socket", || program.control().exists());
        program
    }

    fn control(&self) -> PathBuf {
        control_of(&self.folder)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ratewright.yaml")
    }

    fn upgrade(&self) -> Output {
        self.upgrade_by(&mut program())
    }

    fn upgrade_by(&self, command: &mut Command) -> Output {
        output(command.args(["upgrade", "--control"]).arg(self.control()))
    }

    /// Upgrades it, and waits until the process before has ended.
    #[track_caller]
    fn replace(&mut self) {
        let output = self.upgrade();
        let printed = String::from_utf8(output.stdout).unwrap();
        let pid = printed.strip_prefix("process ").and_then(|rest| rest.split(' ').next());
        let stderr = String::from_utf8_lossy(&output.stderr);
        let pid = pid.unwrap_or_else(|| panic!("{stderr} {:#?}", self.ratewright.logged()));
        let before = self.pid.replace(pid.to_owned());
        match before {
            Some(before) => wait_until("the old process ends", || !is_running(&before)),
            None => drop(self.ratewright.wait_until_ended()),
        }
    }

    /// An upgrade that fails, and leaves everything as it is.
    #[track_caller]
    fn cannot_upgrade(&self, output: &Output, why: &str) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("upgrade failed, the old process keeps serving") && stderr.contains(why),
            "{stderr}"
        );
        assert_eq!(self.ratewright.admin("/ready").status, 200);
        assert!(self.ratewright.is_running());
    }
}

impl Drop for Replaceable {
    fn drop(&mut self) {
        if let Some(pid) = &self.pid {
            let _ = Command::new("kill").args(["-KILL", pid]).status();
        }
    }
}

fn control_of(folder: &TempDir) -> PathBuf {
    folder.path().join("control.sock")
}

fn is_running(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Consecutive upgrades under load: no request fails.
#[test]
fn upgrades_in_a_row_lose_no_request() {
    let behind = Behind::start();
    let mut program = Replaceable::start(|folder| behind.config(folder));
    let load = Load::start(&program.ratewright.gateway, &program.ratewright.grpc);
    for _ in 0..n_restarts() {
        program.replace();
        load.wait_for_more(5);
    }
    load.stop();
}

/// The old process keeps idle connections: a client may use one late, and its response then closes it.
#[test]
fn an_idle_connection_outlives_an_upgrade_until_its_next_response() {
    let application = ratewright_lab::Nginx::start(1, "", "location / { return 200 'app'; }\n");
    let address = application.address();
    let mut program = Replaceable::start(|_| {
        format!("stop_delay: 0s\nroutes: [{{id: app, match: {{path: /**}}, upstream: 'http://{address}'}}]\n")
    });
    let mut idle = [&program.ratewright.gateway, &program.ratewright.address].map(Stream::connect);
    let mut probing = Stream::connect(&program.ratewright.admin);
    assert_eq!(super::ask(&mut probing, b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n";
    for stream in &mut idle {
        assert_eq!(super::ask(stream, request).headers.get("connection"), None);
    }
    let output = program.upgrade();
    program.pid = String::from_utf8(output.stdout).unwrap().split(' ').nth(1).map(str::to_owned);
    program.ratewright.wait_for_line(&["replaced by a new process"]);
    let probed = super::ask(&mut probing, b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        probed.status, 200,
        "a load balancer must not take out an address that the new process serves"
    );
    for stream in &mut idle {
        let answer = super::ask(stream, request);
        assert_eq!((answer.status, answer.headers["connection"].as_str()), (200, "close"));
    }
    program.ratewright.wait_until_ended();
}

/// With an invalid file, or an address in use, the old process keeps serving with its own file.
#[test]
fn a_new_process_that_cannot_start_changes_nothing() {
    let program = Replaceable::start(|_| "stop_delay: 0s\npolicies: []\n".to_owned());
    let before = std::fs::read_to_string(program.file()).unwrap();
    std::fs::write(program.file(), format!("{before}nonsense: 1\n")).unwrap();
    program.cannot_upgrade(&program.upgrade(), "invalid policy file: ");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    std::fs::write(program.file(), before.replace("api: '127.0.0.1:0'", &format!("api: '{taken}'"))).unwrap();
    program.cannot_upgrade(&program.upgrade(), &format!("cannot listen on {taken}"));
    // The old process itself uses the same port, on one address.
    let (old, port) = (&program.ratewright.address, program.ratewright.address.rsplit(':').next().unwrap());
    let widened = before.replace("api: '127.0.0.1:0'", &format!("api: '0.0.0.0:{port}'"))
        + "\napi: {tokens: [0123456789abcdef]}\n";
    std::fs::write(program.file(), widened).unwrap();
    let why = format!("cannot listen on 0.0.0.0:{port} while the old process listens on {old}; restart it");
    program.cannot_upgrade(&program.upgrade(), &why);
    std::fs::write(program.file(), before).unwrap();
    let mut program = program;
    program.replace();
}

/// Programs that do not exist, exit at once, or never become ready.
#[test]
fn a_new_process_that_does_not_become_ready_changes_nothing() {
    let program = Replaceable::start(|_| "stop_delay: 0s\npolicies: []\n".to_owned());
    let ask = |path: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(program.control()).unwrap();
        let path = path.to_owned();
        let asking = std::thread::spawn(move || {
            let _ = writeln!(stream, "{path}"); // the process may have closed the connection
            let mut said = String::new();
            let _ = BufReader::new(stream).read_line(&mut said);
            said
        });
        join(asking, "it is answered")
    };
    assert!(ask("upgrade /nowhere/ratewright").starts_with("failed cannot start /nowhere/ratewright"));
    assert!(ask("upgrade /bin/false").starts_with("failed the new process ended before it was ready"));
    assert!(ask("dance").starts_with("failed unknown command"));
    assert_eq!(ask("take over"), "", "who was not started gets no sockets");
    assert_eq!(ask(&"x".repeat(100_000)), "", "nor does who talks for ever");
    let script = program.folder.path().join("sleeps");
    let sleeps = format!("sleep 600.{}", std::process::id());
    // Not written by this process: while one of its threads starts another program, that has the script open for writing.
    let write = format!("printf '#!/bin/sh\\nexec {sleeps}\\n' >'{0}'; chmod 755 '{0}'", script.display());
    assert!(output(Command::new("sh").args(["-c", &write])).status.success());
    let is_asleep = || output(Command::new("pgrep").args(["-f", &format!("^{sleeps}$")])).status.success();
    std::thread::scope(|threads| {
        let first = threads.spawn(|| ask(&format!("upgrade {}", script.display())));
        wait_until("the new process runs", is_asleep);
        assert!(ask("upgrade /bin/false").starts_with("failed another upgrade is in progress"));
        // A process that is stopped during an upgrade ends the new process too.
        program.ratewright.signal("TERM");
        assert_eq!(first.join().unwrap(), "");
        wait_until("it ends with the old one", || !is_asleep());
    });
}

/// Until the new process is ready, the old one serves all clients; stopping the new one changes nothing.
#[test]
fn a_new_process_accepts_no_connection_before_it_is_ready() {
    let program = Replaceable::start(|_| "stop_delay: 0s\npolicies: []\n".to_owned());
    let closed = free_port();
    let before = std::fs::read_to_string(program.file()).unwrap();
    let store = format!("store: {{redis: {{url: 'redis://127.0.0.1:{closed}'}}, on_failure: closed}}\n");
    std::fs::write(program.file(), before + &store).unwrap();
    let new = || {
        let old = program.ratewright.id().to_string();
        let found = output(Command::new("pgrep").args(["-P", &old])).stdout;
        String::from_utf8(found).unwrap().trim().to_owned()
    };
    std::thread::scope(|threads| {
        let upgrade = threads.spawn(|| program.upgrade());
        wait_until("the new process has said where it listens", || {
            program.ratewright.logged().iter().any(|line| line.starts_with("ratewright "))
        });
        for _ in 0..50 {
            assert_eq!(program.ratewright.admin("/ready").status, 200);
            assert_eq!(program.ratewright.get("check?key=k").status, 200);
        }
        assert!(output(Command::new("kill").arg(new())).status.success());
        program.cannot_upgrade(&upgrade.join().unwrap(), "stopped before it was ready");
    });
}

/// A file at the new path of the control socket is not overwritten.
#[test]
fn an_upgrade_overwrites_no_file_at_a_new_path() {
    let program = Replaceable::start(|_| "stop_delay: 0s\npolicies: []\n".to_owned());
    let precious = program.folder.path().join("precious");
    std::fs::write(&precious, "a letter").unwrap();
    let text = std::fs::read_to_string(program.file()).unwrap();
    let control = program.control().display().to_string();
    std::fs::write(program.file(), text.replace(&control, &precious.display().to_string())).unwrap();
    program.cannot_upgrade(&program.upgrade(), "is not a socket");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "a letter");
}

/// A process that was replaced and still drains can be ended.
#[test]
fn a_replaced_process_ends_at_ctrl_c() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = silent.local_addr().unwrap();
    let mut program = Replaceable::start(|_| {
        format!(
            "stop_delay: 1h\ndrain_timeout: 1h\nroutes: [{{id: app, match: {{path: /**}}, upstream: 'http://{upstream}'}}]\n"
        )
    });
    let mut stream = Stream::connect(&program.ratewright.gateway);
    stream.write_all(super::REQUEST).unwrap();
    let _in_flight = accept(&silent);
    let output = program.upgrade();
    let printed = String::from_utf8(output.stdout).unwrap();
    program.pid = printed.split(' ').nth(1).map(str::to_owned);
    program.ratewright.wait_for_line(&["replaced by a new process"]);
    wait_until("it ends", || {
        if program.ratewright.is_running() {
            program.ratewright.signal("INT"); // the first ends the delay, the second the drain
        }
        !program.ratewright.is_running()
    });
}

/// The same in the second half of the drain, when idle connections are closed.
#[test]
fn a_replaced_process_ends_at_ctrl_c_at_any_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = silent.local_addr().unwrap();
    let route = format!("routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{upstream}'}}]\n");
    let mut program = Replaceable::start(|_| format!("stop_delay: 0s\ndrain_timeout: 4s\n{route}"));
    let mut stream = Stream::connect(&program.ratewright.gateway);
    stream.write_all(super::REQUEST).unwrap();
    let _in_flight = accept(&silent);
    let mut idle = Stream::connect(&program.ratewright.address);
    assert_eq!(super::ask(&mut idle, super::REQUEST).headers.get("connection"), None);
    let output = program.upgrade();
    program.pid = String::from_utf8(output.stdout).unwrap().split(' ').nth(1).map(str::to_owned);
    program.ratewright.wait_for_line(&["replaced by a new process"]);
    assert_eq!(idle.read_some(), b"", "idle connections are closed");
    wait_until("it ends", || {
        if program.ratewright.is_running() {
            program.ratewright.signal("INT");
        }
        !program.ratewright.is_running()
    });
    let status = program.ratewright.wait_until_ended();
    assert_eq!(status.code(), Some(130), "interrupted, not drained");
}

/// A user without a process on this machine, and a copy of the program for this user: the checkout may be in a folder
/// that only its owner can enter. Each test has its own, because the system counts a user's processes in all checkouts.
struct OtherUser {
    id: String,
    folder: TempDir,
}

impl OtherUser {
    /// None if this user cannot become another one.
    fn new() -> Option<Self> {
        let id = unused_id().to_string();
        if !output(as_user(&id).arg("true")).status.success() {
            skip_here("only root can become somebody else");
            return None;
        }
        let place = |place: PathBuf| {
            let folder = TempDir::new_in(place).ok()?;
            set_mode(folder.path(), 0o755);
            let user = Self { id: id.clone(), folder };
            // Not by this process: while one of its threads starts another program, that has the copy open for writing.
            let copy = [Path::new(env!("CARGO_BIN_EXE_ratewright")), &user.program()];
            assert!(output(Command::new("install").args(["-m", "755"]).args(copy)).status.success());
            output(user.command(&[]).arg("--version")).status.success().then_some(user)
        };
        let user = [std::env::temp_dir(), "/tmp".into(), "/dev/shm".into()].into_iter().find_map(place);
        Some(user.expect("a folder with programs that other users can run"))
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("ratewright")
    }

    /// The program as this user runs it, by other commands such as `prlimit`.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = as_user(&self.id);
        command.args(words).arg(self.program());
        command
    }
}

/// Any of 40,000 user ids that no process has. A container may have no higher ones than 65,535.
fn unused_id() -> u64 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let used: BTreeSet<_> =
        processes.filter_map(|process| Some(u64::from(process.metadata().ok()?.uid()))).collect();
    let random = RandomState::new().build_hasher().finish() % 40_000;
    (random..).map(|n| 20_000 + n % 40_000).find(|id| !used.contains(id)).unwrap()
}

fn as_user(id: &str) -> Command {
    let mut command = Command::new("setpriv");
    without_settings(&mut command);
    command.args([&format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups"]);
    command
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Whatever threads the system refuses, a program that says that it is ready serves its gateway.
#[test]
fn a_program_without_threads_for_its_gateway_is_never_ready() {
    let Some(user) = OtherUser::new() else { return };
    let file = user.folder.path().join("ratewright.yaml");
    let route = "routes: [{id: app, match: {path: /**}, upstream: 'http://127.0.0.1:1'}]\n";
    std::fs::write(&file, on_free_ports(route)).unwrap();
    set_mode(&file, 0o644);
    // The program may end while it is asked.
    let get = |address: &str, path: &str| {
        let (mut stream, mut head) = (Stream::from(TcpStream::connect(address).ok()?), [0; 12]);
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).ok()?;
        stream.read_exact(&mut head).ok()?;
        String::from_utf8_lossy(&head[9..]).parse::<u16>().ok()
    };
    let (mut n_refused, mut n_served) = (0, 0);
    // With fewer, tokio itself cannot start.
    let n_cores = std::thread::available_parallelism().unwrap().get();
    for n_threads in n_cores + 2..=2 * n_cores + 8 {
        let mut command = user.command(&["prlimit", &format!("--nproc={n_threads}")]);
        command.arg("serve").arg(&file);
        let status = match Ratewright::try_spawn(command) {
            Ok(mut program) => {
                let mut is_ready = false;
                wait_until("it is ready, or ends", || {
                    is_ready = get(&program.admin, "/ready") == Some(200);
                    is_ready || !program.is_running()
                });
                if is_ready {
                    assert_eq!(get(&program.gateway, "/"), Some(502), "with {n_threads} threads");
                    n_served += 1;
                    continue;
                }
                program.wait_until_ended()
            }
            Err((status, _)) => status,
        };
        assert_ne!(status.code(), Some(0), "with {n_threads} threads");
        n_refused += 1;
    }
    assert!(n_refused > 0 && n_served > 0, "{n_refused} refused, {n_served} served");
}

/// A control socket whose owner never accepts holds up neither a start nor an upgrade.
#[test]
fn a_control_socket_with_a_full_queue_is_reported() {
    let folder = TempDir::new().unwrap();
    let control = control_of(&folder);
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&control).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let _filling = std::os::unix::net::UnixStream::connect(&control).unwrap();
    let file = folder.path().join("ratewright.yaml");
    let listen = listen(&[("control", &format!("'{}'", control.display()))]);
    std::fs::write(&file, format!("{listen}policies: []\n")).unwrap();
    let run = |args: &[&str], path: &Path| {
        let output = output(program().args(args).arg(path));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, stderr) = run(&["serve"], &file);
    assert!(
        code == Some(1) && stderr.contains("another process has its control socket"),
        "{code:?} {stderr}"
    );
    let (code, stderr) = run(&["upgrade", "--control"], &control);
    assert!(code == Some(3) && stderr.contains("cannot connect to control socket"), "{code:?} {stderr}");
}

/// The socket is its owner's. One that was opened to all by mistake still serves nobody else.
#[test]
fn other_users_cannot_use_the_control_socket() {
    let user = OtherUser::new();
    let folder = user.as_ref().map_or_else(TempDir::new, |user| TempDir::new_in(&user.folder)).unwrap();
    let program = Replaceable::start_in(folder, &[], |_| "stop_delay: 0s\npolicies: []\n".to_owned());
    let control = program.control();
    assert_eq!(std::fs::metadata(&control).unwrap().permissions().mode() & 0o777, 0o600);
    let Some(user) = user else { return };
    set_mode(program.folder.path(), 0o755);
    let as_nobody = || program.upgrade_by(&mut user.command(&[]));
    let refused = as_nobody();
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"), "{refused:?}");
    set_mode(&control, 0o666);
    let refused = as_nobody();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    program.ratewright.wait_for_line(&["control connection rejected"]);
}

/// Listeners that the new file adds are opened, those that it drops are closed, and one that moves moves.
#[test]
fn an_upgrade_follows_the_listeners_of_the_new_file() {
    // Nothing else takes the old ports at once, as it could with ephemeral ones.
    let addresses = [(); 3].map(|()| format!("127.0.0.1:{}", free_port()));
    let [old_api, old_admin, new_api] = addresses.each_ref().map(|address| format!("'{address}'"));
    let listeners = [("api", old_api.as_str()), ("admin", &old_admin)];
    let folder = TempDir::new().unwrap();
    let mut program =
        Replaceable::start_in(folder, &listeners, |_| "stop_delay: 0s\npolicies: []\n".to_owned());
    let before = std::fs::read_to_string(program.file()).unwrap();
    let moved = before.replace(&old_api, &new_api).replace(&old_admin, "off");
    std::fs::write(program.file(), moved).unwrap();
    program.replace();
    let connects = addresses.map(|address| TcpStream::connect(address).is_ok());
    assert_eq!(connects, [false, false, true]);
}

#[test]
fn without_a_running_process_it_says_what_to_look_at() {
    let output = output(program().args(["upgrade", "--control", "/nowhere/control.sock"]));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr.contains("cannot connect to control socket /nowhere/control.sock"), "{stderr}");
    assert!(stderr.contains("listen.control"), "{stderr}");
}
