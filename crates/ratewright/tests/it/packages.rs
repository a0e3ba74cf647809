//! The packages: Debian package, tarball, image, and the man pages and completions in them. The scripts in `deploy/` build them from
//! the binary of the tests.

mod debian;
mod image;
mod manual;
mod tarball;
mod version;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ratewright_lab::{
    PATIENCE, foreign, free_port, is_full_run, output, output_within, skip, skip_here, without_settings,
};

const BINARY: &str = env!("CARGO_BIN_EXE_ratewright");

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn text_of(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs a command that must succeed, and gives what it printed. It sees none of the shell's settings, but those that it was given.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let given = command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let given: Vec<_> = given.collect();
    let output = output(without_settings(command).envs(given));
    assert!(output.status.success(), "{command:?}: {}", output_of(&output));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

/// True if a tool is installed; otherwise the test is skipped.
pub(crate) fn has(tool: &str) -> bool {
    let is_there = output(Command::new("sh").args(["-c", "command -v \"$0\"", tool])).status.success();
    if !is_there {
        skip(&format!("{tool} is not installed; make deps installs it"));
    }
    is_there
}

/// What a hook of git sets for the programs that it runs.
const GIT_VARIABLES: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"];

/// git, whatever the user and the one who owns the checkout have set.
pub(crate) fn git() -> Command {
    let mut git = Command::new("git");
    GIT_VARIABLES.iter().for_each(|name| _ = git.env_remove(name));
    git.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")]);
    git.args(["-c", "safe.directory=*"]); // another user may own it
    git
}

/// True if git is installed; otherwise the test is skipped. Sources can be built and tested without it.
fn has_git() -> bool {
    let is_there = git().arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        skip_here("git is not installed");
    }
    is_there
}

/// The files that git tracks, by their path from the root. Without a checkout there are none, and the test is skipped.
pub(crate) fn tracked() -> Option<Vec<String>> {
    if !root().join(".git").exists() {
        skip_here("not a git checkout");
        return None;
    }
    if !has_git() {
        return None;
    }
    let names = run(git().args(["ls-files", "-z"]).current_dir(root()));
    Some(names.split_terminator('\0').map(str::to_owned).collect())
}

/// The files in a folder of the repository and in its folders, without what npm and cargo put there.
pub(crate) fn files_in(folder: &str) -> BTreeSet<PathBuf> {
    let (mut files, mut folders) = (BTreeSet::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let is_ours = !["node_modules", "target", "dist"].iter().any(|name| entry.file_name() == **name);
            match entry.file_type().unwrap().is_dir() {
                true if is_ours => folders.push(entry.path()),
                true => {}
                false => drop(files.insert(entry.path())),
            }
        }
    }
    files
}

/// A tool of target/venv, if it is there.
pub(crate) fn python_tool(name: &str) -> Option<Command> {
    let tool = root().join("target/venv/bin").join(name);
    if !tool.exists() {
        skip(&format!("{name} is not installed; make deps installs it"));
        return None;
    }
    let mut command = foreign(tool);
    command.current_dir(root());
    Some(command)
}

/// A program that target/venv may have; otherwise the one in the path.
pub(crate) fn program(name: &str) -> PathBuf {
    let tool = root().join("target/venv/bin").join(name);
    if tool.exists() { tool } else { name.into() }
}

/// True in `make test-all`, which installs Java, Kotlin and Go; otherwise their tests are skipped.
pub(crate) fn has_languages() -> bool {
    if !is_full_run() {
        skip_here("Java, Kotlin and Go run in make test-all");
    }
    is_full_run()
}

/// Compiles a program in Go, by the folder that it is in. The first build of a machine takes long.
pub(crate) fn build_go(folder: &Path, file: &str, to: &str) {
    let mut go = foreign(program("go"));
    go.args(["build", "-o", to, file]).current_dir(folder);
    go.env("GOCACHE", root().join("target/go-build")).env("CGO_ENABLED", "0");
    go.envs([("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("GO111MODULE", "")]);
    let built = output_within(10 * PATIENCE, &mut go);
    assert!(built.status.success(), "{}", output_of(&built));
}

/// True if the test may change roots and owners; otherwise it is skipped.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip_here("this test needs root");
    }
    is_root
}

/// Puts every listener of a policy file on a free port of loopback, and gives the admin listener's URL. A listener that the file leaves
/// out would take its usual port, so it gets one too.
fn on_other_ports(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let (before, settings) = text.split_once("\nlisten:\n").expect("the file says where it listens");
    let ports = ["gateway", "api", "grpc", "admin"].map(|listener| (listener, free_port()));
    let is_listener = |line: &str| ports.iter().any(|(name, _)| line.starts_with(&format!("  {name}: ")));
    let others: String = settings.split_inclusive('\n').filter(|line| !is_listener(line)).collect();
    let listeners = ports.map(|(name, port)| format!("  {name}: 127.0.0.1:{port}\n"));
    std::fs::write(file, format!("{before}\nlisten:\n{}{others}", listeners.concat())).unwrap();
    format!("http://127.0.0.1:{}", ports[3].1)
}
