//! The gateway beside nginx and HAProxy, in front of the same upstream.
//!
//! ```text
//!                 ┌ ours     a token bucket for each address ┐
//!   wrk ──────────┼ nginx    limit_req                       ┼────► an nginx with fixed answers
//!   (in turn)     └ haproxy  a stick table with request rates┘
//! ```
//!
//! Each has as many workers or threads as there are cores, keeps its connections on both sides, writes no access log,
//! knows its one client, and denies nothing. What is compared is CPU time per request, of all processes of a proxy.
//!
//! | line | what it is |
//! |---|---|
//! | `gateway-small-32` | 128 bytes on 32 connections, against nginx |
//! | `gateway-64k-256` | 64 kB on 256 connections, against nginx |
//! | `gateway-haproxy-…` | the same against HAProxy |
//!
//! Then a table: how long answers take at 70 % of what each can do itself.

use std::process::{Command, Stdio};
use std::time::Duration;

use ratewright_lab::{Client, Haproxy, Nginx, free_port, wait_until};

use crate::load::{Running, micros_per_request, ratewright};
use crate::openloop::{Http1, Pace, ask};
use crate::rounds::{in_turn, report};

/// What is asked for, and how long the answer is.
const ANSWERS: [(&str, usize); 2] = [("small", Nginx::SMALL), ("64k", Nginx::LARGE)];
const CONNECTIONS: [usize; 2] = [32, 256];

/// Short and many: a neighbour's load comes and goes.
const ROUNDS: usize = 7;
const LATENCY_ROUNDS: usize = 3;
const TOP: Duration = Duration::from_secs(1);
const LATENCY: Duration = Duration::from_secs(2);

/// Of what each can do itself.
const SHARE: f64 = 0.7;

/// One that stands between.
enum Proxy {
    Ours { running: Running, address: String },
    Nginx(Nginx),
    Haproxy(Haproxy),
}

/// Runs all of it; without ours, if only the peers are wanted.
pub(crate) fn run(only: Option<&str>) -> Result<(), String> {
    let upstream = Nginx::upstream();
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut proxies = vec![Proxy::nginx(&upstream, n_cores), Proxy::haproxy(&upstream, n_cores)];
    if only != Some("peers") {
        proxies.insert(0, Proxy::ours(&upstream)?);
    }
    proxies.iter().for_each(Proxy::verify);
    for (name, _) in ANSWERS {
        for n_connections in CONNECTIONS {
            compare_cpu(&proxies, name, n_connections);
        }
    }
    println!("answers over {} connections at {SHARE} of the top rate", CONNECTIONS[1]);
    println!("answer  proxy      top/s  rate/s   p50 µs   p99 µs");
    for (name, _) in ANSWERS {
        latencies(&proxies, name);
    }
    let warnings = upstream.warnings();
    assert!(warnings.is_empty(), "the upstream is content: {warnings}");
    Ok(())
}

fn compare_cpu(proxies: &[Proxy], name: &str, n_connections: usize) {
    let connections = format!("-c{n_connections}");
    let costs = in_turn(proxies, ROUNDS, |proxy| {
        let url = format!("http://{}/{name}", proxy.address());
        [micros_per_request(proxy.pid(), &["-t1", "-d1s", &connections, &url])]
    });
    if let [[ours], [nginx], [haproxy]] = costs[..] {
        report(&format!("gateway-{name}-{n_connections}"), ours, nginx);
        report(&format!("gateway-haproxy-{name}-{n_connections}"), ours, haproxy);
    } else {
        let told = proxies.iter().zip(costs).map(|(proxy, [cost])| format!(" {}={cost:.1}", proxy.name()));
        println!("peers gateway-{name}-{n_connections}{}", told.collect::<String>());
    }
}

/// One row for each proxy.
fn latencies(proxies: &[Proxy], name: &str) {
    let path = format!("/{name}");
    let load = |proxy: &Proxy, pace, span| {
        let address = proxy.address();
        ask((&address, || Http1::new(&address, &path)), CONNECTIONS[1], pace, span)
    };
    let tops = in_turn(proxies, LATENCY_ROUNDS, |proxy| [load(proxy, Pace::FlatOut, TOP).rate]);
    let paced: Vec<_> = proxies.iter().zip(tops).map(|(proxy, [top])| (proxy, top)).collect();
    let figures = in_turn(&paced, LATENCY_ROUNDS, |&(proxy, top)| {
        let answers = load(proxy, Pace::Rate(top * SHARE), LATENCY);
        [answers.rate, answers.permille(500), answers.permille(990)]
    });
    for ((proxy, top), [rate, p50, p99]) in paced.iter().zip(figures) {
        println!("{name:6}  {:7}  {top:7.0} {rate:7.0}  {p50:7.0}  {p99:7.0}", proxy.name());
    }
}

impl Proxy {
    /// The program beside this one, or why it is missing.
    fn ours(upstream: &Nginx) -> Result<Self, String> {
        let program = ratewright()?;
        let address = format!("127.0.0.1:{}", free_port());
        let file = upstream.folder().join("gateway.yaml");
        let text = format!(
            "listen: {{ gateway: '{address}', api: '127.0.0.1:0', admin: 'off' }}
policies:
  - {{ name: per-ip, by: ip, quota: {{ algorithm: token_bucket, rate: 1000000/s }} }}
routes:
  - {{ id: all, match: {{ path: /** }}, upstream: 'http://{}' }}
",
            upstream.address()
        );
        std::fs::write(&file, text).expect("the folder takes a file");
        let child = Command::new(program).arg("-c").arg(&file).stdout(Stdio::null()).spawn();
        let mut running = Running(child.expect("the program starts"));
        let mut ended = None;
        wait_until("the gateway listens", || {
            ended = running.0.try_wait().expect("a child of ours");
            ended.is_some() || std::net::TcpStream::connect(&address).is_ok()
        });
        match ended {
            Some(status) => Err(format!("the gateway does not start: {status}")),
            None => Ok(Self::Ours { running, address }),
        }
    }

    /// Buffers that hold the whole answer: by default half of 64 kB goes through a file when the client is slow.
    fn nginx(upstream: &Nginx, n_workers: usize) -> Self {
        let http = format!(
            "limit_req_zone $binary_remote_addr zone=clients:10m rate=1000000r/s;
             upstream up {{ server {}; keepalive 256; keepalive_requests 1000000000; }}",
            upstream.address()
        );
        let server = "limit_req zone=clients burst=1000000 nodelay;
             location / {
                 proxy_pass http://up;
                 proxy_http_version 1.1;
                 proxy_set_header Connection '';
                 proxy_buffers 16 8k;
             }";
        Self::Nginx(Nginx::start(n_workers, &http, server))
    }

    fn haproxy(upstream: &Nginx, n_threads: usize) -> Self {
        let frontend = "    stick-table type ip size 100k expire 1m store http_req_rate(10s)
    http-request track-sc0 src
    http-request deny deny_status 429 if { sc_http_req_rate(0) gt 1000000000 }";
        let backend = format!("    http-reuse always\n    server upstream {}", upstream.address());
        Self::Haproxy(Haproxy::start(n_threads, frontend, &backend))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Ours { .. } => "ours",
            Self::Nginx(_) => "nginx",
            Self::Haproxy(_) => "haproxy",
        }
    }

    fn address(&self) -> String {
        match self {
            Self::Ours { address, .. } => address.clone(),
            Self::Nginx(nginx) => nginx.address(),
            Self::Haproxy(haproxy) => haproxy.address(),
        }
    }

    fn pid(&self) -> u32 {
        match self {
            Self::Ours { running, .. } => running.0.id(),
            Self::Nginx(nginx) => nginx.pid().as_raw_nonzero().get().cast_unsigned(),
            Self::Haproxy(haproxy) => haproxy.pid().as_raw_nonzero().get().cast_unsigned(),
        }
    }

    /// It passes on what the upstream answers.
    fn verify(&self) {
        let mut client = Client::connect(&self.address());
        for (name, length) in ANSWERS {
            let (status, body) = client.get(&format!("/{name}")).expect("an answer");
            assert_eq!((status, body.len()), (200, length), "{} passes on /{name}", self.name());
        }
    }
}
