//! Starts the program on a free port, asks it over a socket, stops it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

/// A running program. Ends with the test.
pub(crate) struct Tollgate {
    child: Child,
    pub(crate) banner: String,
    pub(crate) address: String,
    /// Where its admin door is.
    pub(crate) admin: String,
    _file: tempfile::NamedTempFile,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Tollgate {
    /// Starts it with a policy file, on a free port.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_tollgate")), config)
    }

    /// Starts it under a wall clock that is so many seconds off.
    pub(crate) fn start_off_by(seconds: i64, config: &str) -> Self {
        // `faketime` itself would stay between the program and who ends it; all it does is to set these.
        let asks = ["-f", "+0s", "printenv", "LD_PRELOAD"];
        let library = Command::new("faketime").args(asks).output().unwrap().stdout;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.env("LD_PRELOAD", String::from_utf8(library).unwrap().trim());
        command.env("FAKETIME", format!("{seconds:+}s")).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Self::start_by(command, config)
    }

    fn start_by(mut command: Command, config: &str) -> Self {
        let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        write!(file, "listen: {{api: '127.0.0.1:0', admin: '127.0.0.1:0'}}\n{config}").unwrap();
        command.args(["serve", "-c"]).arg(file.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut banner = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut banner).unwrap();
        let address = |n| {
            let rest = banner.split("http://").nth(n).expect("a banner with addresses");
            rest.split([',', ';']).next().unwrap().to_owned()
        };
        let (address, admin) = (address(1), address(2));
        Self { child, address, admin, banner, _file: file }
    }

    /// Asks, with a connection of its own.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Answer {
        self.ask_raw(&format!("{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", &format!("/api/v1/rate-limit/{path}"))
    }

    /// Asks the admin door.
    pub(crate) fn admin(&self, path: &str) -> Answer {
        let mut stream = connect(&self.admin);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::parse(&text)
    }

    /// Sends bytes, and reads one answer.
    pub(crate) fn ask_raw(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::parse(&text)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(&self.address)
    }

    /// Sends a signal, and waits for the end.
    pub(crate) fn stop(mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        self.child.wait().unwrap()
    }

    /// Stops it, and tells what it logged.
    pub(crate) fn log(mut self) -> Vec<String> {
        self.signal("TERM");
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Tollgate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs the program to its end, in a folder.
pub(crate) fn run_in(folder: &Path, args: &[&str]) -> Output {
    command(args).current_dir(folder).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("TOLLGATE_CONFIG").env_remove("TOLLGATE_PROFILE");
    command
}
