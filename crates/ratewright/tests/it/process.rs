//! A running program for tests: starts it on free ports, sends requests, edits its file, reads its log, stops it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ratewright_lab::{skip, wait_until};
use serde_json::Value;
use tempfile::TempDir;

/// Settings that put all listeners on free ports.
pub(crate) const FREE_PORTS: &str = "listen: {gateway: '127.0.0.1:0', api: '127.0.0.1:0', grpc: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstop_delay: 0s\n";

/// A running program. Ends with the test.
pub(crate) struct Ratewright {
    child: Child,
    pub(crate) banner: String,
    pub(crate) address: String,
    /// The address of its admin listener.
    pub(crate) admin: String,
    /// The address of its gateway, if it has routes.
    pub(crate) gateway: String,
    /// The address of its gRPC listener; empty without rules for Envoy.
    pub(crate) grpc: String,
    lines: Arc<Mutex<Vec<String>>>,
    reading: Option<JoinHandle<()>>,
    /// The folder of its file, if it is its own.
    folder: Option<TempDir>,
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

impl Ratewright {
    /// Starts it with a policy file, on free ports.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_ratewright")), config)
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
        let library = Command::new("faketime").args(asks).output().unwrap().stdout;
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratewright"));
        command.env("LD_PRELOAD", String::from_utf8(library).unwrap().trim());
        command.env("FAKETIME", format!("{seconds:+}s")).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Self::start_by(command, config)
    }

    /// Starts it with these arguments. Its files must say where it listens.
    pub(crate) fn serve<S: AsRef<OsStr>>(args: &[S]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratewright"));
        command.arg("serve").args(args);
        Self::spawn(command)
    }

    /// Starts it in a folder with a policy file of that folder, which says where it listens.
    pub(crate) fn serve_in(folder: &Path, file: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratewright"));
        command.args(["serve", file]).current_dir(folder);
        Self::spawn(command)
    }

    /// Starts it with a policy file, perhaps a profile over it, and variables.
    pub(crate) fn start_profile(
        config: &str,
        over: Option<(&str, &str)>,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratewright"));
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
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (stderr, kept) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&lines));
        let (begun, banner) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            let mut begun = Some(begun);
            for line in stderr.lines().map_while(Result::ok) {
                match begun.take_if(|_| line.starts_with("ratewright ")) {
                    Some(begun) => begun.send(line).unwrap_or_default(),
                    None => kept.lock().unwrap().push(line),
                }
            }
        });
        let Ok(banner) = banner.recv() else {
            reading.join().unwrap();
            panic!("it does not start: {:#?}", lines.lock().unwrap());
        };
        let address = |listener: &str| {
            let (_, rest) = banner.split_once(&format!("{listener} on http")).unwrap_or_default();
            let (_, rest) = rest.split_once("://").unwrap_or_default();
            rest.split([',', ';']).next().unwrap().to_owned()
        };
        let [gateway, grpc, address, admin] =
            ["gateway", "rate limits for Envoy", "decisions", "admin"].map(address);
        Self { child, address, admin, gateway, grpc, banner, lines, reading: Some(reading), folder: None }
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
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size() as u64
    }

    /// CPU time that its threads have used.
    pub(crate) fn cpu(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
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
        exchange(connect(&self.gateway), request)
    }

    /// Sends requests to the gateway, of which the last one closes the connection, and reads all answers.
    pub(crate) fn pass_all(&self, requests: &str) -> String {
        let mut stream = connect(&self.gateway);
        stream.write_all(requests.as_bytes()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        answers
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
        exchange(connect(&self.admin), request)
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
        exchange(self.connect(), request)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(&self.address)
    }

    /// Sends a signal, and waits for the end.
    pub(crate) fn stop(self, signal: &str) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// Waits until it has ended, and keeps its addresses.
    #[track_caller]
    pub(crate) fn wait_until_ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Waits until it has ended by itself, or by a signal that it was sent.
    #[track_caller]
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.wait_until_ended()
    }

    /// Stops it, and tells what it logged.
    pub(crate) fn log(mut self) -> Vec<String> {
        self.signal("TERM");
        wait_until("the program ends", || self.child.try_wait().unwrap().is_some());
        self.reading.take().unwrap().join().unwrap();
        self.logged()
    }

    /// What it writes to standard output: the access log.
    pub(crate) fn stdout(&mut self) -> impl BufRead + use<> {
        BufReader::new(self.child.stdout.take().unwrap())
    }

    /// What it has logged so far.
    pub(crate) fn logged(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
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
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Ratewright {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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

fn exchange(mut stream: TcpStream, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    Answer::parse(&text)
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes from one address of loopback to another, and reads one answer.
pub(crate) fn http_from(source: [u8; 4], address: &str, request: &str) -> Answer {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::from((source, 0))).unwrap();
    connect(&stream, &address.parse::<SocketAddr>().unwrap()).unwrap();
    let stream = TcpStream::from(stream);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    exchange(stream, request)
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
        skip("no network address other than loopback");
    }
    address
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs the program to its end, in a folder.
pub(crate) fn run_in(folder: &Path, args: &[&str]) -> Output {
    command(args).current_dir(folder).output().unwrap()
}

/// The program with these arguments, to be run.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratewright"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["CONFIG", "PROFILE", "ADMIN", "TOKEN", "CA"] {
        command.env_remove(format!("RATEWRIGHT_{name}"));
    }
    command
}

/// Sends bytes to an address, and reads one answer.
pub(crate) fn http(address: &str, request: &str) -> Answer {
    exchange(connect(address), request)
}
