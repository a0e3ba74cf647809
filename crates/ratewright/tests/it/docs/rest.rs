//! The programs of docs/guides/rest.md, run as a reader would run them: with Ratewright, without it, and with a server that
//! gives scripted responses.
//!
//! On a busy machine a decision may take longer than the timeout on the page, so a program that needs a response gets a
//! longer one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ratewright_lab::{PATIENCE, Stream, foreign, free_port, join, output, output_within, skip, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::markdown::blocks;
use super::transcript::is_alike;
use super::{files, page};
use crate::packages::{build_go, has_languages, program};
use crate::process::{Guarded, Ratewright, http};

const PAGE: &str = "guides/rest.md";

/// A program of the page.
struct Snippet {
    /// Its name on the page, after the language.
    file: &'static str,
    /// The timeout on the page, and a longer one.
    timeout: [&'static str; 2],
    /// The command that compiles it; empty if none is needed.
    build: &'static [&'static str],
    run: &'static [&'static str],
}

const PYTHON: Snippet = Snippet {
    file: "limits.py",
    timeout: ["TIMEOUT = 0.1 ", "TIMEOUT = 20 "],
    build: &[],
    run: &["python3", "limits.py"],
};

const NODE: Snippet = Snippet {
    file: "limits.mjs",
    timeout: ["timeout = 100;", "timeout = 20_000;"],
    build: &[],
    run: &["node", "limits.mjs"],
};

const JAVA: Snippet = Snippet {
    file: "Limits.java",
    timeout: ["ofMillis(100)", "ofSeconds(20)"],
    build: &[],
    run: &["java", "Limits.java"],
};

const KOTLIN: Snippet = Snippet {
    file: "Limits.kt",
    timeout: ["ofMillis(100)", "ofSeconds(20)"],
    build: &["kotlinc", "Limits.kt", "-include-runtime", "-d", "limits.jar"],
    run: &["java", "-jar", "limits.jar"],
};

const GO: Snippet = Snippet {
    file: "limits.go",
    timeout: ["100 * time.Millisecond", "20 * time.Second"],
    build: &["go"],
    run: &["./limits"],
};

impl Snippet {
    /// A folder with the program as the page has it.
    fn as_written(&self) -> TempDir {
        self.folder_with(&block(self.file))
    }

    /// A folder with the program and a longer timeout.
    fn patient(&self) -> TempDir {
        let [written, longer] = self.timeout;
        let text = block(self.file);
        assert_eq!(text.matches(written).count(), 1, "{}: {written}", self.file);
        self.folder_with(&text.replace(written, longer))
    }

    fn folder_with(&self, text: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join(self.file), text).unwrap();
        match self.build {
            [] => {}
            ["go"] => build_go(folder.path(), self.file, "limits"),
            [compiler, args @ ..] => {
                let build = output_within(5 * PATIENCE, foreign(compiler).args(args).current_dir(&folder));
                assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
            }
        }
        folder
    }

    /// Runs the program to its end, and gives what it prints.
    fn run(&self, folder: &TempDir, url: &str, token: Option<&str>) -> String {
        let mut command = foreign(program(self.run[0]));
        command.args(&self.run[1..]).current_dir(folder).env("RATEWRIGHT_URL", url);
        command.envs(token.map(|token| ("RATEWRIGHT_TOKEN", token)));
        let output = output(&mut command);
        assert!(output.status.success(), "{}: {output:?}", self.file);
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The text of a block with code on the page, by the file name after its language.
fn block(file: &str) -> String {
    let page = page(PAGE);
    let found = blocks(&page).into_iter().find(|block| block.language.ends_with(&format!(" {file}")));
    format!("{}\n", found.unwrap_or_else(|| panic!("docs/{PAGE} has no block {file}")).text)
}

/// The outputs on the page: with Ratewright, without it, and of a server that forwards its headers.
fn outputs() -> [String; 3] {
    let page = page(PAGE);
    let texts = blocks(&page).into_iter().filter(|block| block.language == "text");
    let texts: Vec<_> = texts.map(|block| format!("{}\n", block.text)).collect();
    texts.try_into().expect("three outputs")
}

fn is_installed(name: &str) -> bool {
    let is_there =
        foreign(program(name)).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        skip(&format!("{name} is not installed"));
    }
    is_there
}

/// Statuses that the clients must tell apart.
const SCRIPT: [u16; 4] = [401, 403, 429, 200];

/// What the programs print then.
const SCRIPTED: &str = "1 allowed (limiter error 401)\n2 denied\n3 denied\n4 allowed\n";

/// What a server does with a connection after a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Keep,
    /// Closes it without saying so before, as Ratewright does with an idle one.
    Close,
}

/// A server that gives the statuses of the script to requests for anna, and 200 to others.
struct ScriptedServer {
    address: String,
    is_ended: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    n_connections: usize,
    /// Requests for anna: the head in lower case, and the body.
    requests: Vec<(String, Value)>,
}

impl ScriptedServer {
    fn start(after: After) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (is_ended, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Seen>>::default());
        let (ended, shared) = (Arc::clone(&is_ended), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let seen = Arc::clone(&shared);
                seen.lock().unwrap().n_connections += 1;
                std::thread::spawn(move || serve(stream.into(), after, &seen));
            }
        });
        Self { address, is_ended, seen, thread }
    }

    /// Ends the server, and gives what it has seen.
    fn end(self) -> Seen {
        self.is_ended.store(true, Ordering::SeqCst);
        TcpStream::connect(&self.address).unwrap();
        join(self.thread, "the server ends");
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

/// Responds to the requests of a connection.
fn serve(mut stream: Stream, after: After, seen: &Mutex<Seen>) {
    while let Some((head, body)) = read_request(&mut stream) {
        let mut status = 200;
        if body["attributes"]["user"] == "anna" {
            let requests = &mut seen.lock().unwrap().requests;
            status = SCRIPT[requests.len().min(SCRIPT.len() - 1)];
            requests.push((head, body));
        }
        let fields = "WWW-Authenticate: Bearer\r\nContent-Type: application/json\r\nContent-Length: 2";
        write!(stream, "HTTP/1.1 {status} Scripted\r\n{fields}\r\n\r\n{{}}").unwrap();
        if after == After::Close {
            break;
        }
    }
}

/// The next request: its head in lower case, and its body. Nothing if the client has closed the connection.
fn read_request(stream: &mut Stream) -> Option<(String, Value)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    Some((head, serde_json::from_slice(&body).unwrap()))
}

/// Runs a program with the scripted server, and gives the number of connections.
fn run_scripted(snippet: &Snippet, folder: &TempDir, after: After) -> usize {
    let server = ScriptedServer::start(after);
    let printed = snippet.run(folder, &format!("http://{}", server.address), Some("a-token"));
    let seen = server.end();
    assert_eq!(printed, SCRIPTED, "{}", snippet.file);
    assert_eq!(seen.requests.len(), SCRIPT.len());
    for (head, body) in &seen.requests {
        assert!(head.starts_with("post /api/v1/decide http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nauthorization: bearer a-token\r\n"), "{head}");
        assert_eq!(*body, json!({"attributes": {"user": "anna", "path": "/reports"}}));
    }
    seen.n_connections
}

/// What the page promises of each program.
fn check(snippet: &Snippet) {
    let [decisions, unreachable, _] = outputs();
    let patient = snippet.patient();
    let ratewright = Ratewright::start(files(&page(PAGE))[0]);
    let printed = snippet.run(&patient, &format!("http://{}", ratewright.address), None);
    assert!(is_alike("", &decisions, &printed, 59), "{}: {printed}", snippet.file);
    // Node releases a connection only after its caller has the body, so a call right after that opens another.
    let n_connections = run_scripted(snippet, &patient, After::Keep);
    assert!(n_connections <= 2, "{} connects {n_connections} times", snippet.file);

    let written = snippet.as_written();
    let refusing = format!("http://127.0.0.1:{}", free_port());
    assert_eq!(snippet.run(&written, &refusing, None), unreachable, "{}: refused", snippet.file);
    // The system accepts connections to it, and nothing responds: only the timeout ends a call.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    assert_eq!(snippet.run(&written, &url, None), unreachable, "{}: no response", snippet.file);
}

#[test]
fn the_client_in_python_asks_and_fails_open() {
    if !is_installed("python3") {
        return;
    }
    check(&PYTHON);
    let n_connections = run_scripted(&PYTHON, &PYTHON.patient(), After::Close);
    assert_eq!(n_connections, SCRIPT.len(), "it connects again if an idle connection was closed");
}

#[test]
fn the_client_in_node_asks_and_fails_open() {
    if is_installed("node") {
        check(&NODE);
    }
}

#[test]
fn the_client_in_java_asks_and_fails_open() {
    if has_languages() {
        check(&JAVA);
    }
}

#[test]
fn the_client_in_kotlin_asks_and_fails_open() {
    if has_languages() {
        check(&KOTLIN);
    }
}

#[test]
fn the_client_in_go_asks_and_fails_open() {
    if has_languages() {
        check(&GO);
    }
}

/// Starts the server of the page beside its client.
fn start_server(folder: &Path, url: &str) -> (Guarded, String) {
    let port = free_port().to_string();
    let text = block("server.mjs");
    assert_eq!(text.matches("3001").count(), 1);
    std::fs::write(folder.join("server.mjs"), text.replace("3001", &port)).unwrap();
    let mut node = foreign(program("node"));
    node.arg("server.mjs").current_dir(folder).env("RATEWRIGHT_URL", url).stdin(Stdio::null());
    let mut server = Guarded(node.spawn().unwrap());
    let address = format!("127.0.0.1:{port}");
    wait_until("the server listens", || {
        assert!(server.0.try_wait().unwrap().is_none(), "the server exited");
        TcpStream::connect(&address).is_ok()
    });
    (server, address)
}

#[test]
fn the_server_in_node_forwards_the_headers() {
    if !is_installed("node") {
        return;
    }
    let (ratewright, folder) = (Ratewright::start(files(&page(PAGE))[0]), NODE.patient());
    let (_server, address) = start_server(folder.path(), &format!("http://{}", ratewright.address));
    let get = || http(&address, "GET /reports HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let [_, _, written] = outputs();
    let (status_line, fields) = written.split_once('\n').unwrap();
    let first = get();
    assert_eq!(status_line, format!("HTTP/1.1 {} OK", first.status));
    for (name, value) in fields.lines().map(|line| line.split_once(": ").unwrap()) {
        let name = name.to_lowercase();
        let sent = first.headers.get(&name).unwrap_or_else(|| panic!("no {name}: {first:?}"));
        assert!(is_alike("", &format!("{name}: {value}"), &format!("{name}: {sent}"), 59), "{first:?}");
    }
    let statuses = [(); 2].map(|()| get().status);
    let denied = get();
    assert_eq!((statuses, denied.status), ([200, 200], 429));
    let wait: u64 = denied.headers["retry-after"].parse().unwrap();
    assert!((1..=60).contains(&wait), "{denied:?}");
}
