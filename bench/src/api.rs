//! A check over HTTP, against a bare axum handler that answers a constant of the same size.
//!
//! Both are processes of their own, asked by wrk over loopback, in turn. What is compared is the servers' CPU
//! time per request, not wrk's wall time.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};

use axum::Router;
use axum::http::header;
use axum::routing::get;

use crate::rounds::{median, report};

const ROUNDS: usize = 5;
const PATH: &str = "/api/v1/rate-limit/check?algorithm=TOKEN_BUCKET&key=user:123";

/// As long as ours with these limits.
const CONSTANT: &str = r#"{"allowed":true,"key":"user:123","algorithm":"TOKEN_BUCKET","remaining":999999,"resetAfterSeconds":1,"retryAfterSeconds":0,"message":"Request allowed","basis":"local"}"#;

/// A server in hand. Ends with the benchmark.
struct Server {
    child: Child,
    address: String,
}

/// Runs all of it.
pub(crate) fn run() -> ExitCode {
    let this = std::env::current_exe().expect("the path of this program");
    let tollgate = this.with_file_name("tollgate");
    if !tollgate.exists() {
        println!("error: {} is missing; build it with cargo build --release", tollgate.display());
        return ExitCode::from(2);
    }
    let config = std::env::temp_dir().join(format!("tollgate-bench-{}.yaml", std::process::id()));
    let text = "listen: {api: '127.0.0.1:0', admin: '127.0.0.1:0'}\napi: {defaults: {token_bucket: {rate: 1000000/s, burst: 1000000}}}\n";
    std::fs::write(&config, text).expect("the temporary folder takes a file");
    let ours = Server::start(Command::new(tollgate).arg("-c").arg(&config));
    let peer = Server::start(Command::new(this).arg("constant"));

    let (mut of_ours, mut of_peer) = (Vec::new(), Vec::new());
    ours.micros_per_request();
    peer.micros_per_request();
    for _ in 0..ROUNDS {
        of_ours.push(ours.micros_per_request());
        of_peer.push(peer.micros_per_request());
    }
    let _ = std::fs::remove_file(config);
    report("api", median(of_ours), median(of_peer));
    ExitCode::SUCCESS
}

/// The peer: the least that an axum program can do.
pub(crate) fn serve_constant() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(async {
        let answer = || async { ([(header::CONTENT_TYPE, "application/json")], CONSTANT) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        println!("constant on http://{}, for comparison", listener.local_addr().expect("an address"));
        let routes = Router::new().route("/api/v1/rate-limit/check", get(answer));
        let _ = axum::serve(listener, routes).await;
    });
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut banner = String::new();
        let stdout = child.stdout.as_mut().expect("its output is ours");
        BufReader::new(stdout).read_line(&mut banner).expect("it says where it listens");
        let address = banner.split("http://").nth(1).and_then(|rest| rest.split(',').next());
        Self { address: address.expect("an address").to_owned(), child }
    }

    /// CPU time of one request, in microseconds, over some seconds of load.
    fn micros_per_request(&self) -> f64 {
        let before = self.cpu_seconds();
        let url = format!("http://{}{PATH}", self.address);
        let output =
            Command::new("wrk").args(["-t1", "-c32", "-d3s", &url]).output().expect("wrk is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("Non-2xx"), "every request is allowed: {text}");
        let line = text.lines().find(|line| line.contains(" requests in ")).expect("wrk counts requests");
        let requests: f64 = line.trim().split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        (self.cpu_seconds() - before) * 1e6 / requests
    }

    /// User and system time so far, of all threads.
    fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |field: usize| fields.get(field).and_then(|n| n.parse::<f64>().ok()).unwrap_or_default();
        (ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
