//! The packages: Debian package, tarball, image, and the man pages and completions in them. The scripts in `deploy/` build them from
//! the binary of the tests.

mod debian;
mod image;
mod manual;
mod tarball;
mod version;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ratewright_lab::{free_port, skip};

const BINARY: &str = env!("CARGO_BIN_EXE_ratewright");

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn text_of(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs a command that must succeed, and gives what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", output_of(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

/// True if a tool is installed; otherwise the test is skipped.
pub(crate) fn has(tool: &str) -> bool {
    let is_there =
        Command::new("sh").args(["-c", "command -v \"$0\"", tool]).output().unwrap().status.success();
    if !is_there {
        skip(&format!("{tool} is not installed; make deps installs it"));
    }
    is_there
}

/// A tool of target/venv, if it is there.
pub(crate) fn python_tool(name: &str) -> Option<Command> {
    let tool = root().join("target/venv/bin").join(name);
    if !tool.exists() {
        skip(&format!("{name} is not installed; make deps installs it"));
        return None;
    }
    let mut command = Command::new(tool);
    command.current_dir(root());
    Some(command)
}

/// True if the test may change roots and owners; otherwise it is skipped.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("this test needs root");
    }
    is_root
}

/// Replaces the usual ports in a policy file by free ones, and gives the admin listener's URL.
fn on_other_ports(file: &Path) -> String {
    let mut text = std::fs::read_to_string(file).unwrap();
    let admin = free_port();
    for (written, real) in [("8082", admin), ("8080", free_port()), ("8000", free_port())] {
        text = text.replace(&format!(".1:{written}"), &format!(".1:{real}"));
        text = text.replace(&format!("0.0.0.0:{written}"), &format!("127.0.0.1:{real}"));
    }
    std::fs::write(file, text).unwrap();
    format!("http://127.0.0.1:{admin}")
}
