//! The short loops of docs/guides/clients.md, run as a reader would run them, against a server that limits.
//!
//! Times are bounded from below only: on a busy machine a loop may be late, but it must never be early.

#![expect(clippy::disallowed_methods, reason = "the loops are other programs, and wait in real time")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ratewright_core::{Micros, Timestamp};
use ratewright_http::problem::iso;
use ratewright_lab::{Stream, foreign, join, output, skip};
use tempfile::TempDir;

use crate::packages::{build_go, has_languages};

/// A response of the server: the status, and its `Retry-After`.
type Scripted = (u16, Option<&'static str>);

/// A server that gives scripted responses, one after another, and the last one to whatever comes then.
struct LimitingServer {
    address: String,
    is_ended: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Exchange>>,
}

/// A request that the server has seen.
struct Exchange {
    arrived: Instant,
    /// When the first byte of the response left, at the earliest.
    responded: Instant,
}

/// What came of a loop.
struct Outcome {
    is_success: bool,
    stdout: String,
    stderr: String,
    exchanges: Vec<Exchange>,
    started_at: Timestamp,
}

impl LimitingServer {
    fn start(script: &'static [Scripted]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_ended);
        let thread = std::thread::spawn(move || {
            let mut exchanges = Vec::new();
            for stream in listener.incoming().map(Result::unwrap) {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                exchanges.push(respond(stream.into(), script[exchanges.len().min(script.len() - 1)]));
            }
            exchanges
        });
        Self { address, is_ended, thread }
    }

    /// Ends the server, and gives what it has seen.
    fn end(self) -> Vec<Exchange> {
        self.is_ended.store(true, Ordering::SeqCst);
        TcpStream::connect(&self.address).unwrap();
        join(self.thread, "the server ends")
    }
}

/// Reads the head of a `GET`, and responds.
fn respond(mut stream: Stream, (status, retry_after): Scripted) -> Exchange {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let arrived = Instant::now();
    let wait = retry_after.map(|wait| format!("Retry-After: {wait}\r\n")).unwrap_or_default();
    let response =
        format!("HTTP/1.1 {status} Scripted\r\nContent-Length: 6\r\nConnection: close\r\n{wait}\r\nhello\n");
    let responded = Instant::now();
    stream.write_all(response.as_bytes()).unwrap();
    Exchange { arrived, responded }
}

/// The text of a code block on the page, by the file name after its language.
fn block(file: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/clients.md");
    let page = std::fs::read_to_string(page).unwrap();
    let is_start = |line: &&str| line.starts_with("```") && line.ends_with(&format!(" {file}"));
    let lines = page.lines().skip_while(|line| !is_start(line)).skip(1);
    let block: String = lines.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
    assert!(!block.is_empty(), "docs/guides/clients.md has no block {file}");
    block
}

/// A folder with a block of the page in it.
fn folder_with(file: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join(file), block(file)).unwrap();
    folder
}

/// True if these programs are there; otherwise the test is skipped.
fn has(programs: &[&str]) -> bool {
    let is_there = |program: &&&str| {
        foreign(program).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let missing = programs.iter().find(|program| !is_there(program));
    missing.iter().for_each(|program| skip(&format!("{program} is not installed")));
    missing.is_none()
}

/// The time for programs of others; a test may have a made-up one.
fn now() -> Timestamp {
    let seconds = String::from_utf8(output(foreign("date").arg("+%s")).stdout).unwrap();
    Timestamp::from_micros(seconds.trim().parse::<u64>().unwrap() * 1_000_000)
}

/// Runs a loop to its end. Its times are in UTC.
fn run(folder: &Path, command: &[&str], script: &'static [Scripted]) -> Outcome {
    let server = LimitingServer::start(script);
    let started_at = now();
    let mut program = foreign(command[0]);
    program.args(&command[1..]).arg(format!("http://{}/", server.address));
    program.env("HOME", folder).env_remove("XDG_CONFIG_HOME"); // without the user's .curlrc
    let output = output(program.current_dir(folder).env("TZ", "UTC"));
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Outcome { is_success: output.status.success(), stdout, stderr, exchanges: server.end(), started_at }
}

impl Outcome {
    /// Fails unless there were this many pauses, none shorter than this, from a response to the next request.
    #[track_caller]
    fn assert_pauses(&self, at_least: &[Duration]) {
        let pairs = self.exchanges.windows(2);
        let pauses: Vec<_> = pairs.map(|pair| pair[1].arrived - pair[0].responded).collect();
        assert_eq!(pauses.len(), at_least.len(), "{pauses:?}: {}", self.stderr);
        assert!(pauses.iter().zip(at_least).all(|(pause, least)| pause >= least), "early: {pauses:?}");
    }

    /// The time to try again that it shows, as `2026-11-15T12:00:00`.
    #[track_caller]
    fn retry_at(&self) -> &str {
        let (_, rest) = self.stderr.split_once(": retry at ").unwrap_or_else(|| panic!("{}", self.stderr));
        to_seconds(rest)
    }
}

/// A time without its fraction and zone.
fn to_seconds(time: &str) -> &str {
    time.get(.."2026-11-15T12:00:00".len()).unwrap_or_else(|| panic!("{time} is not a time"))
}

/// Rules 1 to 5 of the page.
fn check(folder: &Path, command: &[&str]) {
    let hour = Micros::from_secs(3_600);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let outcome = run(folder, command, &[(429, Some("1")), (200, None)]);
            outcome.assert_pauses(&[Duration::from_secs(1)]);
            assert!(outcome.is_success, "{}", outcome.stderr);
            assert_eq!(outcome.stdout.trim_end(), "hello");
        });
        scope.spawn(|| {
            let outcome = run(folder, command, &[(429, Some("3600"))]);
            outcome.assert_pauses(&[]);
            assert!(!outcome.is_success);
            let earliest = iso(outcome.started_at + hour);
            assert!(outcome.retry_at() >= to_seconds(&earliest), "{} < {earliest}", outcome.retry_at());
        });
        scope.spawn(|| {
            let outcome = run(folder, command, &[(503, Some("99999999999999999999"))]);
            outcome.assert_pauses(&[]);
            assert!(!outcome.is_success);
            assert!(outcome.retry_at() > "2050", "{}", outcome.retry_at());
        });
        scope.spawn(|| {
            let script = &[(503, None), (429, Some("0")), (503, Some("soon")), (429, None)];
            let outcome = run(folder, command, script);
            outcome.assert_pauses(&[100, 200, 400].map(Duration::from_millis));
            assert!(!outcome.is_success);
            assert!(outcome.stderr.contains("HTTP 429: retry at 2"), "{}", outcome.stderr);
        });
    });
}

/// E5: what customers copy from the page waits as it says.
#[test]
fn e5_the_loop_for_curl_follows_the_rules() {
    if has(&["bash", "curl"]) {
        check(folder_with("retry.sh").path(), &["bash", "retry.sh"]);
    }
}

/// E5
#[test]
fn e5_the_loop_in_python_follows_the_rules() {
    if has(&["python3"]) {
        check(folder_with("retry.py").path(), &["python3", "retry.py"]);
    }
}

/// E5
#[test]
fn e5_the_loop_in_java_follows_the_rules() {
    if has_languages() {
        check(folder_with("Retry.java").path(), &["java", "Retry.java"]);
    }
}

/// E5
#[test]
fn e5_the_loop_in_go_follows_the_rules() {
    if has_languages() {
        let folder = folder_with("retry.go");
        build_go(folder.path(), "retry.go", "retry");
        check(folder.path(), &["./retry"]);
    }
}

/// The snippet that runs the vectors, with the implementation that writes them.
#[test]
fn the_snippet_runs_the_vectors() {
    if !has(&["python3"]) {
        return;
    }
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("clients/vectors");
    let folder = folder_with("vectors.py");
    let client = "from make import *\n\
        DEFAULTS = {'policy': POLICY, 'request': REQUEST, 'state': STATE, 'seen': {}, 'now': NOW}\n";
    std::fs::write(folder.path().join("my_client.py"), client).unwrap();
    let mut python = foreign("python3");
    python.arg("vectors.py").arg(&vectors).env("PYTHONPATH", &vectors).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = output(python.current_dir(&folder));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let is_vectors = |name: &str| name.ends_with(".json") && name != "gate.json";
    let names = std::fs::read_dir(vectors).unwrap().map(|entry| entry.unwrap().file_name());
    let n_files = names.filter(|name| name.to_str().is_some_and(is_vectors)).count();
    assert_eq!(printed.lines().filter(|line| line.ends_with(" cases passed")).count(), n_files, "{printed}");
}
