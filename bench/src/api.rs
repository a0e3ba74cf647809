//! Decisions over HTTP, against a bare axum handler that answers a constant of the same size.
//!
//! Each is a process of its own, asked by wrk over loopback, in turn. What is compared is the servers' CPU
//! time per request, not wrk's wall time.
//!
//! | line | what is asked |
//! |---|---|
//! | `api` | a check under a policy of the file, with the fields that everybody has: X-RateLimit-… |
//! | `api-fields` | the same with the full header set, both families |
//! | `api-decide` | `POST /api/v1/decide` with five attributes, under two policies, with the full header set |

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use axum::Router;
use axum::http::header;
use axum::routing::{get, post};

use crate::load::{Running, folder, micros_per_request, ratewright};
use crate::rounds::{median, report};

/// Short and many: a neighbour's load comes and goes.
const ROUNDS: usize = 15;
const CHECK: &str = "/api/v1/rate-limit/check?policy=per-client&key=10.0.0.1";
const DECIDE: &str = "/api/v1/decide";

/// As long as ours with these limits.
const CONSTANT: &str = r#"{"allowed":true,"key":"10.0.0.1","algorithm":"TOKEN_BUCKET","policy":"per-client","remaining":999999,"resetAfterSeconds":1,"retryAfterSeconds":0,"message":"Request allowed","basis":"local"}"#;

/// What wrk sends to `decide`.
const POST: &str = r#"wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"attributes": {"ip": "10.0.0.1", "method": "GET", "path": "/api/orders/17", "host": "api.example.com", "headers": {"X-Api-Key": "k-123"}}, "cost": 1}'
"#;

/// The policy file, but for the header families.
const FILE: &str = "listen: {api: '127.0.0.1:0', admin: 'off'}
policies:
- {name: per-client, by: ip, quota: {rate: 1000000/s, burst: 1000000}}
";
const SECOND: &str = "- {name: per-key, by: 'header:X-Api-Key', when: {path: /api/orders/**}, quota: {rate: 1000000/s, burst: 1000000}}
";

/// A server in hand. Ends with the benchmark.
pub(crate) struct Server {
    running: Running,
    pub(crate) address: String,
}

/// Runs all of it.
pub(crate) fn run() -> Result<(), String> {
    let this = std::env::current_exe().expect("the path of this program");
    let ratewright = ratewright()?;
    let folder = folder();
    let start = |name: &str, text: String| {
        let file = folder.join(name);
        std::fs::write(&file, text).expect("the folder takes a file");
        Server::start(Command::new(&ratewright).arg("-c").arg(&file))
    };
    let plain = start("plain.yaml", format!("{FILE}headers: {{families: [x-ratelimit]}}\n"));
    let full = start("full.yaml", FILE.to_owned());
    let two = start("two.yaml", format!("{FILE}{SECOND}"));
    let peer = Server::start(Command::new(this).arg("constant"));
    let script = folder.join("post.lua");
    std::fs::write(&script, POST).expect("the folder takes a file");
    let script = script.to_string_lossy();

    for (name, ours, path, script) in [
        ("api", &plain, CHECK, None),
        ("api-fields", &full, CHECK, None),
        ("api-decide", &two, DECIDE, Some(&*script)),
    ] {
        let ask = |server: &Server| server.micros_per_request(path, script);
        let _warm = (ask(ours), ask(&peer));
        let (of_ours, of_peer) = (0..ROUNDS).map(|_| (ask(ours), ask(&peer))).unzip();
        report(name, median(of_ours), median(of_peer));
    }
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

/// The peer: the least that an axum program can do.
pub(crate) fn serve_constant() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(async {
        let answer = || async { ([(header::CONTENT_TYPE, "application/json")], CONSTANT) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        eprintln!("constant on http://{}, for comparison", listener.local_addr().expect("an address"));
        let routes = Router::new().route("/api/v1/rate-limit/check", get(answer)).route(DECIDE, post(answer));
        let routes = routes.route("/api/v1/authorize", get(answer));
        let _ = axum::serve(listener, routes).await;
    });
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the server starts");
        let mut banner = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("its output is ours"));
        stderr.read_line(&mut banner).expect("it says where it listens");
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let address = banner.split("http://").nth(1).and_then(|rest| rest.split(',').next());
        Self { address: address.expect("an address").to_owned(), running: Running(child) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.0.id()
    }

    /// CPU time of one request, in microseconds, over some seconds of load.
    pub(crate) fn micros_per_request(&self, path: &str, script: Option<&str>) -> f64 {
        let url = format!("http://{}{path}", self.address);
        let script = script.iter().flat_map(|script| ["-s", script]);
        let arguments: Vec<&str> = ["-t1", "-c32", "-d1s"].into_iter().chain(script).chain([&*url]).collect();
        micros_per_request(self.running.0.id(), &arguments)
    }
}
