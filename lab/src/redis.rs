//! One redis-server.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::server_process::ServerProcess;
use crate::{Stream, output, resp, without_settings};

/// Log file, relative to the server's folder.
const LOG: &str = "redis.log";

/// A redis-server of its own, without persistence.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    /// Ends before its folder does.
    running: Option<ServerProcess>,
    folder: TempDir,
    options: Vec<String>,
    /// Its configuration file, if it has one.
    file: Option<String>,
}

impl Redis {
    /// A server with its defaults.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with more options, such as `--maxmemory`, `4mb`.
    pub fn start_with(options: &[&str]) -> Self {
        let options = options.iter().map(ToString::to_string).collect();
        Self::on_free_port(TempDir::new().expect("a temporary folder"), options, None)
    }

    fn on_free_port(folder: TempDir, options: Vec<String>, file: Option<String>) -> Self {
        let mut server = Self { port: 0, folder, options, file, running: None };
        let (port, running) = ServerProcess::on_free_port(|port| server.process(port));
        (server.port, server.running) = (port, Some(running));
        server.wait_until_it_answers();
        server
    }

    /// A Sentinel with this configuration.
    pub(crate) fn start_sentinel(configuration: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, configuration).expect("a file");
        let file = file.to_string_lossy().into_owned();
        Self::on_free_port(folder, vec!["--sentinel".to_owned()], Some(file))
    }

    /// True if it was started and not ended.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Its folder.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Replaces its options, from the next start on.
    pub fn set_options(&mut self, options: &[&str]) {
        self.options = options.iter().map(ToString::to_string).collect();
    }

    /// Starts the server, and waits until it answers.
    pub fn run(&mut self) {
        self.spawn();
        self.wait_until_it_answers();
    }

    fn wait_until_it_answers(&self) {
        self.running().wait_until("redis-server answers", || self.answers(&[b"+PONG", b"-NOAU"]));
    }

    /// Starts the server, and waits until it says that it is loading.
    pub fn run_loading(&mut self) {
        self.spawn();
        self.running().wait_until("redis-server is loading", || self.answers(&[b"-LOAD"]));
    }

    fn spawn(&mut self) {
        self.running = None; // frees the port of the previous process
        self.running = Some(self.process(self.port));
    }

    fn process(&self, port: u16) -> ServerProcess {
        let (port, socket) = (port.to_string(), self.socket());
        let mut command = Command::new("redis-server");
        command.args(&self.file);
        command.args(["--port", &port, "--bind", "127.0.0.1", "--logfile", LOG, "--dir"]);
        command.arg(self.folder.path());
        if self.file.is_none() {
            command.args(["--save", "", "--appendonly", "no", "--unixsocket"]).arg(socket);
            command.args(["--repl-diskless-sync-delay", "0"]); // a replica would wait five seconds for others
        }
        command.args(&self.options);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        ServerProcess::start(words, self.folder.path().join(LOG))
    }

    /// Ends the server as a crash would.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Stops the server where it is: connections stay, and nothing is answered.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        self.running().signal(signal);
    }

    fn running(&self) -> &ServerProcess {
        self.running.as_ref().expect("it runs")
    }

    /// CPU time of its main thread, in nanoseconds.
    pub fn cpu_nanos(&self) -> f64 {
        let pid = self.running().pid();
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", pid.as_raw_nonzero()));
        text.ok().and_then(|text| text.split(' ').next()?.parse().ok()).expect("its time on the processor")
    }

    /// Its clock, in microseconds.
    pub fn now(&self) -> u64 {
        let time = self.cli(&["TIME"]);
        let mut parts = time.lines().filter_map(|part| part.parse::<u64>().ok());
        let (secs, micros) = parts.next().zip(parts.next()).expect("seconds and microseconds");
        secs * 1_000_000 + micros
    }

    /// True if there are replicas, and all have acknowledged every write.
    pub fn is_replicated(&self) -> bool {
        let info = self.cli(&["INFO", "replication"]);
        let written = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
        let written: u64 = written.and_then(|offset| offset.trim().parse().ok()).expect("an offset");
        let replicas = info.lines().filter(|line| line.starts_with("slave") && line.contains("offset="));
        let offsets: Vec<u64> = replicas
            .filter_map(|line| line.split(',').find_map(|field| field.strip_prefix("offset="))?.parse().ok())
            .collect();
        !offsets.is_empty() && offsets.iter().all(|offset| *offset >= written)
    }

    /// What `redis-cli` would print for these arguments; empty if the server is down. `redis-cli` itself is started only if the first
    /// argument is an option.
    ///
    /// # Panics
    /// If the server does not reply within a minute.
    pub fn cli(&self, arguments: &[&str]) -> String {
        if arguments.first().is_some_and(|first| !first.starts_with('-')) {
            return match resp::command(self.port, arguments) {
                Ok(reply) => reply.trim_end().to_owned(),
                Err(error) => {
                    assert_ne!(error.kind(), ErrorKind::TimedOut, "{arguments:?}: {error}");
                    String::new()
                }
            };
        }
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string()]).args(arguments);
        let output = output(without_settings(&mut command));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// True if it answers a PING with one of these. Without its password it says -NOAUTH, which is an answer too.
    fn answers(&self, expected: &[&[u8; 5]]) -> bool {
        let ping = || {
            let stream = TcpStream::connect(("127.0.0.1", self.port))?;
            let mut stream = Stream::from(stream).lasting(Duration::from_secs(1));
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            Ok::<_, std::io::Error>(answer)
        };
        ping().is_ok_and(|answer| expected.contains(&&answer))
    }
}
