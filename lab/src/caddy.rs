//! One Caddy, with the configuration that a test writes.

use std::path::Path;

use tempfile::TempDir;

use crate::server_process::ServerProcess;

/// A Caddy of its own, without its admin API.
#[derive(Debug)]
pub struct Caddy {
    port: u16,
    /// Ends before its folder does.
    _running: ServerProcess,
    _folder: TempDir,
}

impl Caddy {
    /// True if it is installed.
    pub fn is_installed() -> bool {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).any(|folder| folder.join("caddy").exists())
            || Path::new("/usr/bin/caddy").exists()
    }

    /// Starts one with this Caddyfile, which listens on this port of loopback.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn serve(caddyfile: &str, port: u16) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let [file, log] = ["Caddyfile", "caddy.log"].map(|name| folder.path().join(name));
        let own = folder.path().display();
        let global = format!("{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {own}\n}}\n");
        std::fs::write(&file, global + caddyfile).expect("a file");
        // Where it saves its last configuration, in place of the home folder.
        let saves = format!("XDG_CONFIG_HOME={own}");
        let command = ["env", &saves, "caddy", "run", "--adapter", "caddyfile", "--config"];
        let command = command.map(AsRef::as_ref).into_iter().chain([file.as_os_str()]);
        let running = ServerProcess::start(command, log);
        running.wait_for_port(port);
        Self { port, _running: running, _folder: folder }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}
