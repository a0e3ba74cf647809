//! One HAProxy, with one frontend and one backend.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Pid;
use tempfile::TempDir;

use crate::all_of;
use crate::server_process::ServerProcess;

/// A HAProxy of its own, which logs no requests.
#[derive(Debug)]
pub struct Haproxy {
    port: u16,
    /// Ends before its folder does.
    running: ServerProcess,
    folder: TempDir,
}

/// Where it takes commands, in its folder.
const SOCKET: &str = "admin.sock";

const FILE: &str = "\
global
    nbthread THREADS
    maxconn 2000
    stats socket SOCKET level admin
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:PORT
    default_backend back
FRONTEND
backend back
BACKEND
";

impl Haproxy {
    /// One process with so many threads, and what its frontend and its backend say.
    pub fn start(n_threads: usize, frontend: &str, backend: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let (port, running) = ServerProcess::on_free_port(|port| {
            let text = FILE
                .replace("THREADS", &n_threads.to_string())
                .replace("PORT", &port.to_string())
                .replace("SOCKET", &folder.path().join(SOCKET).display().to_string())
                .replace("FRONTEND", frontend)
                .replace("BACKEND", backend);
            run_in(folder.path(), &text)
        });
        Self { port, running, folder }
    }

    /// Starts one with this configuration, which listens on this port of loopback.
    pub fn serve(text: &str, port: u16) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let running = run_in(folder.path(), text);
        running.wait_for_port(port);
        Self { port, running, folder }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Gives a command of its runtime API, such as `set server back/s1 state drain`, and returns the response.
    pub fn command(&self, command: &str) -> String {
        let mut socket = UnixStream::connect(self.folder.path().join(SOCKET)).expect("its socket");
        socket.write_all(format!("{command}\n").as_bytes()).expect("a command");
        all_of(socket, "HAProxy's response")
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.running.pid()
    }
}

fn run_in(folder: &Path, text: &str) -> ServerProcess {
    let [file, log] = ["haproxy.cfg", "haproxy.log"].map(|name| folder.join(name));
    std::fs::write(&file, text).expect("a file");
    ServerProcess::start(["haproxy".as_ref(), "-db".as_ref(), "-f".as_ref(), file.as_os_str()], log)
}
