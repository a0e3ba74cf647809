//! One nginx: an upstream with fixed answers, or any server that is written down.

use std::path::Path;

use rustix::process::{Pid, Resource, geteuid, getrlimit};
use tempfile::TempDir;

use crate::server_process::ServerProcess;

/// An nginx of its own, with no access log.
#[derive(Debug)]
pub struct Nginx {
    port: u16,
    /// Ends before its folder does.
    running: Option<ServerProcess>,
    folder: TempDir,
}

/// Its own folder instead of those of the system, so that anybody may start it. A connection is never closed for
/// having had enough requests, as it would be after 1,000.
const FILE: &str = "\
USER
worker_rlimit_nofile FILES;
daemon off;
pid nginx.pid;
error_log stderr warn;
worker_processes WORKERS;
events { worker_connections CONNECTIONS; }
http {
    access_log off;
    default_type text/plain;
    keepalive_requests 1000000000;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
HTTP
    server {
        listen 127.0.0.1:PORT;
SERVER
    }
}
";

/// The most open files of a worker: two for each connection that it passes on.
const FILES_MAX: u64 = 4_096;

impl Nginx {
    /// The length of the answer to `/small`.
    pub const SMALL: usize = 128;

    /// The length of the answer to `/64k`.
    pub const LARGE: usize = 65_536;

    /// An upstream: `/small` answers 128 bytes and `/64k` 65,536, anything else 404. One worker.
    pub fn upstream() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::write(folder.path().join("64k"), "x".repeat(Self::LARGE)).expect("a file");
        let small = "x".repeat(Self::SMALL);
        let server = format!(
            "root {root}; sendfile on; tcp_nopush on; open_file_cache max=10;\n\
             location = /small {{ return 200 {small}; }}\n\
             location = /64k {{ }}\n\
             location / {{ return 404; }}\n",
            root = folder.path().display(),
        );
        Self::run_in(folder, 1, "", &server)
    }

    /// A server with so many workers: what its `http` block says beside it, such as an `upstream`, and what the
    /// `server` block says itself.
    pub fn start(n_workers: usize, http: &str, server: &str) -> Self {
        Self::run_in(TempDir::new().expect("a temporary folder"), n_workers, http, server)
    }

    fn run_in(folder: TempDir, n_workers: usize, http: &str, server: &str) -> Self {
        // Its workers would be somebody else, and the folder is not theirs to read.
        let user = if geteuid().is_root() { "user root;" } else { "" };
        // Only root may raise the limit beyond this.
        let n_files = getrlimit(Resource::Nofile).maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
        let mut nginx = Self { port: 0, running: None, folder };
        let (port, running) = ServerProcess::on_free_port(|port| {
            let text = FILE
                .replace("USER", user)
                .replace("FILES", &n_files.to_string())
                .replace("CONNECTIONS", &(n_files / 2).to_string())
                .replace("WORKERS", &n_workers.to_string())
                .replace("PORT", &port.to_string())
                .replace("HTTP", http)
                .replace("SERVER", server);
            std::fs::write(nginx.folder().join("nginx.conf"), text).expect("a file");
            nginx.spawn()
        });
        (nginx.port, nginx.running) = (port, Some(running));
        nginx
    }

    /// Starts it, again if it was ended, and waits until it listens.
    pub fn run(&mut self) {
        self.running = None; // frees the port of the previous process
        let running = self.spawn();
        running.wait_for_port(self.port);
        self.running = Some(running);
    }

    fn spawn(&self) -> ServerProcess {
        let folder = self.folder();
        let (prefix, file) = (folder.as_os_str(), folder.join("nginx.conf"));
        let command = ["nginx".as_ref(), "-p".as_ref(), prefix, "-e".as_ref(), "stderr".as_ref()];
        let command = command.into_iter().chain(["-c".as_ref(), file.as_os_str()]);
        ServerProcess::start(command, folder.join("error.log"))
    }

    /// Ends it and its workers as a crash would.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The process whose children are the workers.
    pub fn pid(&self) -> Pid {
        self.running.as_ref().expect("it runs").pid()
    }

    /// Its folder, with its `nginx.conf`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has warned of so far.
    pub fn warnings(&self) -> String {
        std::fs::read_to_string(self.folder().join("error.log")).unwrap_or_default()
    }
}
