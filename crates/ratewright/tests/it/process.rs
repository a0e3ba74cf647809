//! A running program for tests: starts it on free ports, sends requests, edits its file, reads its log, stops it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ratewright_lab::{
    PATIENCE, Printed, Stream, end, foreign, join, output, output_of, skip_here, wait, wait_until,
    without_settings,
};
use serde_json::Value;
use tempfile::TempDir;

/// Settings that put all listeners on free ports: [`listen`] without anything else.
pub(crate) const FREE_PORTS: &str = "listen: {gateway: '127.0.0.1:0', api: '127.0.0.1:0', grpc: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstop_delay: 0s\n";

/// A running program. Ends with the test.
pub(crate) struct Ratewright {
    child: Guarded,
    pub(crate) banner: String,
    pub(crate) address: String,
    /// The address of its admin listener.
    pub(crate) admin: String,
    /// The address of its gateway, if it has routes.
    pub(crate) gateway: String,
    /// The address of its gRPC listener; empty without rules for Envoy.
    pub(crate) grpc: String,
    log: Log,
    /// The folder of its file, if it is its own.
    folder: Option<TempDir>,
}

/// What a program writes to standard error, read in a thread of its own.
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    reading: JoinHandle<()>,
}

/// A process that ends with the test, even if the test fails.
pub(crate) struct Guarded(pub(crate) Child);

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// A policy file's text, with listeners on free ports.
pub(crate) fn on_free_ports(config: &str) -> String {
    format!("{FREE_PORTS}{config}")
}

/// The `listen` section of a policy file. Listeners that are not given are on free ports; other settings may be given too.
/// It names all four, so that none opens its default port when the file gets a route or rules for Envoy.
pub(crate) fn listen(settings: &[(&str, &str)]) -> String {
    let names = ["gateway", "api", "grpc", "admin"];
    let given = |name: &str| settings.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
    let listeners = names.map(|name| (name, given(name).unwrap_or("'127.0.0.1:0'")));
    let others = settings.iter().filter(|(name, _)| !names.contains(name));
    let all: Vec<_> =
        listeners.iter().chain(others).map(|(name, value)| format!("{name}: {value}")).collect();
    format!("listen: {{{}}}\n", all.join(", "))
}

/// The program, without the shell's settings. A test sets its own variables afterwards.
pub(crate) fn program() -> Command {
    program_by(&[])
}

/// The program as another command starts it: `prlimit`, `setpriv`.
pub(crate) fn program_by(words: &[&str]) -> Command {
    let program = [env!("CARGO_BIN_EXE_ratewright")];
    let mut words = words.iter().chain(&program);
    let mut command = Command::new(words.next().unwrap());
    without_settings(&mut command).args(words);
    command
}

impl Ratewright {
    /// Starts it with a policy file, on free ports.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_by(program(), config)
    }

    /// Starts it with a policy file, on free ports, and another `stop_delay`.
    pub(crate) fn start_stopping_after(delay: &str, config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = file_in(folder.path());
        let text = on_free_ports(config).replace("stop_delay: 0s", &format!("stop_delay: {delay}"));
        std::fs::write(&file, text).unwrap();
        let mut ratewright = Self::serve(&[file]);
        ratewright.folder = Some(folder);
        ratewright
    }

    /// Starts it under a wall clock that is so many seconds off.
    pub(crate) fn start_off_by(seconds: i64, config: &str) -> Self {
        // Not the command `faketime`, which would stay the parent of the program: it only sets these variables.
        let asks = ["-f", "+0s", "printenv", "LD_PRELOAD"];
        let library = output(foreign("faketime").args(asks)).stdout;
        let mut command = program();
        command.env("LD_PRELOAD", String::from_utf8(library).unwrap().trim());
        command.env("FAKETIME", format!("{seconds:+}s")).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Self::start_by(command, config)
    }

    /// Starts it with these arguments. Its files must say where it listens.
    pub(crate) fn serve<S: AsRef<OsStr>>(args: &[S]) -> Self {
        let mut command = program();
        command.arg("serve").args(args);
        Self::spawn(command)
    }

    /// Starts it in a folder with a policy file of that folder, which says where it listens.
    pub(crate) fn serve_in(folder: &Path, file: &str) -> Self {
        let mut command = program();
        command.args(["serve", file]).current_dir(folder);
        Self::spawn(command)
    }

    /// Starts it with a policy file, perhaps a profile over it, and variables.
    pub(crate) fn start_profile(
        config: &str,
        over: Option<(&str, &str)>,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = program();
        command.envs(variables.iter().copied());
        let profiles = TempDir::new().unwrap();
        if let Some((profile, text)) = over {
            // A profile of a file stands beside it.
            command.args(["serve", "--profile", profile, "-c"]).arg(file_in(profiles.path()));
            std::fs::write(file_in(profiles.path()), on_free_ports(config)).unwrap();
            std::fs::write(file_in(profiles.path()).with_extension(format!("{profile}.yaml")), text).unwrap();
            let mut ratewright = Self::spawn(command);
            ratewright.folder = Some(profiles);
            return ratewright;
        }
        Self::start_by(command, config)
    }

    fn start_by(mut command: Command, config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = file_in(folder.path());
        std::fs::write(&file, on_free_ports(config)).unwrap();
        command.args(["serve", "-c"]).arg(file);
        let mut ratewright = Self::spawn(command);
        ratewright.folder = Some(folder);
        ratewright
    }

    /// Starts it by a command.
    ///
    /// # Panics
    /// If it ends, or says nothing for a minute.
    #[track_caller]
    pub(crate) fn spawn(command: Command) -> Self {
        Self::try_spawn(command).unwrap_or_else(|(_, log)| panic!("it does not start: {log:#?}"))
    }

    /// Starts it by a command. If it ends before it says where it listens: its status, and what it logged.
    #[track_caller]
    pub(crate) fn try_spawn(mut command: Command) -> Result<Self, (ExitStatus, Vec<String>)> {
        let mut child = Guarded(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let (log, banner) = Log::of(child.0.stderr.take().unwrap());
        let banner = match banner.recv_timeout(PATIENCE) {
            Ok(banner) => banner,
            Err(RecvTimeoutError::Disconnected) => return Err((wait(&mut child.0), log.all())),
            Err(RecvTimeoutError::Timeout) => {
                panic!("neither started nor ended within {PATIENCE:?}: {:#?}", log.so_far())
            }
        };
        let address = |listener: &str| {
            let (_, rest) = banner.split_once(&format!("{listener} on http")).unwrap_or_default();
            let (_, rest) = rest.split_once("://").unwrap_or_default();
            rest.split([',', ';']).next().unwrap().to_owned()
        };
        let addresses = ["gateway", "rate limits for Envoy", "decisions", "admin"].map(address);
        for port in [":8000", ":8080", ":8081", ":8082"] {
            let is_default = addresses.iter().any(|address| address.ends_with(port));
            assert!(!is_default, "a test must not use a default port: {banner}");
        }
        let [gateway, grpc, address, admin] = addresses;
        Ok(Self { child, address, admin, gateway, grpc, banner, log, folder: None })
    }

    /// Puts another policy file in the old one's place.
    pub(crate) fn rewrite(&self, config: &str) {
        let new = self.file().with_extension("new");
        std::fs::write(&new, on_free_ports(config)).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    /// Puts another policy file in the old one's place, and waits until it is in force.
    #[track_caller]
    pub(crate) fn reload(&self, config: &str) {
        let before = self.metric("ratewright_reloads_total");
        self.rewrite(config);
        wait_until("it is in force", || self.metric("ratewright_reloads_total") > before);
    }

    /// Waits until it is connected to Redis, by its metric. A decision made earlier would be local, and logged as an
    /// outage.
    #[track_caller]
    pub(crate) fn wait_for_redis(&self) {
        wait_until("it is connected to Redis", || self.metric("ratewright_store_up") == 1.0);
    }

    /// Memory that it has, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.0.id())).unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size() as u64
    }

    /// CPU time that its threads have used.
    pub(crate) fn cpu(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.0.id())).unwrap();
        // Nanoseconds on a CPU are the first figure. A thread may end meanwhile.
        let of = |thread: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
        };
        threads.filter_map(of).sum()
    }

    /// Its policy file.
    pub(crate) fn file(&self) -> PathBuf {
        file_in(self.folder.as_ref().unwrap().path())
    }

    /// The value of a series, as `/metrics` writes it.
    #[track_caller]
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let page = self.admin("/metrics").body;
        let value = |line: &str| {
            let rest = line.strip_prefix(series)?;
            rest.strip_prefix("{}").unwrap_or(rest).strip_prefix(' ')?.parse().ok()
        };
        page.lines().find_map(value).unwrap_or_else(|| panic!("there is no {series}"))
    }

    /// Asks the gateway for a path, with these header fields.
    pub(crate) fn pass(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.pass_raw(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"))
    }

    /// Sends bytes to the gateway, and reads one answer.
    pub(crate) fn pass_raw(&self, request: &str) -> Answer {
        http(&self.gateway, request)
    }

    /// Sends requests to the gateway, of which the last one closes the connection, and reads all answers.
    #[track_caller]
    pub(crate) fn pass_all(&self, requests: &str) -> String {
        Stream::connect(&self.gateway).exchange(requests)
    }

    /// Asks, with a connection of its own.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Answer {
        self.ask_raw(&format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", &format!("/api/v1/rate-limit/{path}"))
    }

    /// Posts a body, with more header fields.
    pub(crate) fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        self.ask_raw(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
        ))
    }

    /// Asks for a decision about a request with these attributes.
    pub(crate) fn decide(&self, attributes: &Value) -> Answer {
        let body = serde_json::json!({ "attributes": attributes });
        self.post("/api/v1/decide", &[], &body.to_string())
    }

    /// Sends a request to the admin listener with another method than GET.
    pub(crate) fn ask_admin(&self, method: &str, path: &str) -> Answer {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        self.ask_admin_raw(&request)
    }

    /// Sends a body to the admin listener.
    pub(crate) fn post_admin(&self, path: &str, body: &str) -> Answer {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.ask_admin_raw(&request)
    }

    /// Sends bytes to the admin listener, and reads one response.
    pub(crate) fn ask_admin_raw(&self, request: &str) -> Answer {
        http(&self.admin, request)
    }

    /// Sends a GET to the admin listener.
    pub(crate) fn admin(&self, path: &str) -> Answer {
        self.ask_admin("GET", path)
    }

    /// Sends a GET to the admin listener, with a token.
    pub(crate) fn admin_with(&self, path: &str, token: &str) -> Answer {
        let token = format!("Authorization: Bearer {token}\r\n");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n");
        self.ask_admin_raw(&request)
    }

    /// Sends bytes, and reads one answer.
    pub(crate) fn ask_raw(&self, request: &str) -> Answer {
        http(&self.address, request)
    }

    pub(crate) fn connect(&self) -> Stream {
        Stream::connect(&self.address)
    }

    /// Sends a signal, and waits for the end.
    pub(crate) fn stop(self, signal: &str) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    pub(crate) fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.0.id()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Waits until it has ended, and keeps its addresses.
    #[track_caller]
    pub(crate) fn wait_until_ended(&mut self) -> ExitStatus {
        wait(&mut self.child.0)
    }

    /// Waits until it has ended by itself, or by a signal that it was sent.
    #[track_caller]
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.wait_until_ended()
    }

    /// Stops it, and tells what it logged.
    #[track_caller]
    pub(crate) fn log(mut self) -> Vec<String> {
        self.signal("TERM");
        self.wait_until_ended();
        self.log.all()
    }

    /// What it writes to standard output: the access log.
    pub(crate) fn stdout(&mut self) -> impl BufRead + use<> {
        BufReader::new(Printed::by(self.stdout_pipe()))
    }

    /// The same without a deadline, for a thread that the test waits for.
    pub(crate) fn stdout_pipe(&mut self) -> ChildStdout {
        self.child.0.stdout.take().unwrap()
    }

    /// What it has logged so far.
    pub(crate) fn logged(&self) -> Vec<String> {
        self.log.so_far()
    }

    /// Waits for a line that has all these parts, and gives it.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, parts: &[&str]) -> String {
        let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
        let mut found = None;
        wait_until(&format!("a line with {parts:?}"), || {
            found = self.logged().iter().find(has_all).cloned();
            found.is_some()
        });
        found.unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.0.id().to_string();
        assert!(output(Command::new("kill").args(["-s", signal, &pid])).status.success());
    }
}

impl Log {
    /// Reads the log, and passes on the line that says where the program listens.
    fn of(stderr: ChildStderr) -> (Self, Receiver<String>) {
        fn read(stderr: ChildStderr, lines: &Mutex<Vec<String>>, banner: Sender<String>) {
            let mut banner = Some(banner);
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                match banner.take_if(|_| line.starts_with("ratewright ")) {
                    Some(banner) => banner.send(line).unwrap_or_default(),
                    None => lines.lock().unwrap().push(line),
                }
            }
        }
        let (begun, banner) = channel();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let reading = std::thread::spawn(move || read(stderr, &kept, begun));
        (Self { lines, reading }, banner)
    }

    fn so_far(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// All lines of a program that has ended.
    #[track_caller]
    fn all(self) -> Vec<String> {
        join(self.reading, "the log ends");
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

impl Answer {
    pub(crate) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole answer");
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let field =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        Self { status, headers: lines.filter_map(field).collect(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What a limit has left, by its policy's name. Nothing, if it does not apply.
    pub(crate) fn remaining(&self, policy: &str) -> Option<u64> {
        let body = self.json();
        let limits = body["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["policy"] == policy)?["remaining"].as_u64()
    }
}

fn file_in(folder: &Path) -> PathBuf {
    folder.join("ratewright.yaml")
}

/// Sends bytes from one address of loopback to another, and reads one answer.
#[track_caller]
pub(crate) fn http_from(source: [u8; 4], address: &str, request: &str) -> Answer {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::from((source, 0))).unwrap();
    connect(&stream, &address.parse::<SocketAddr>().unwrap()).unwrap();
    Answer::parse(&Stream::from(TcpStream::from(stream)).exchange(request))
}

/// An address of this machine that is not loopback: a client that connects from there is not local. Nothing is sent.
/// Without such an address the test is skipped.
pub(crate) fn own_address() -> Option<IpAddr> {
    let routed = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let address = routed.ok().map(|address| address.ip());
    let address = address.filter(|address| !address.is_loopback() && !address.is_unspecified());
    if address.is_none() {
        skip_here("no network address other than loopback");
    }
    address
}

/// Runs the program to its end.
#[track_caller]
pub(crate) fn run(args: &[&str]) -> Output {
    output(&mut command(args))
}

/// Runs the program to its end, in a folder.
#[track_caller]
pub(crate) fn run_in(folder: &Path, args: &[&str]) -> Output {
    output(command(args).current_dir(folder))
}

/// The program with these arguments, to be run.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = program();
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end, with this input.
#[track_caller]
pub(crate) fn output_for(command: &mut Command, input: impl Into<Vec<u8>>, limit: Duration) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.into());
    // In a thread: a command that prints while it reads would otherwise wait for its reader. It may end without reading all.
    std::thread::spawn(move || stdin.write_all(&input));
    output_of(child, limit)
}

/// Sends bytes to an address, and reads one answer.
#[track_caller]
pub(crate) fn http(address: &str, request: &str) -> Answer {
    Answer::parse(&Stream::connect(address).exchange(request))
}
