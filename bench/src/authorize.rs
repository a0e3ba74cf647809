//! Forward authentication: what a call costs, and what it adds to nginx.
//!
//! ```text
//!   wrk ──► /api/v1/authorize                       against a bare axum handler, with the same request
//!   wrk ──► nginx ──► an nginx with fixed answers   with and without a call for each request
//!             └─────► /api/v1/authorize
//! ```
//!
//! | line | what it is |
//! |---|---|
//! | `authorize` | CPU of a call, against a bare axum handler |
//! | `authorize-nginx` | CPU of a request through nginx and Ratewright together, against nginx without Ratewright |
//!
//! Then a table: how long answers take at a rate that both manage.

use std::process::Command;
use std::time::Duration;

use ratewright_lab::Nginx;

use crate::api::Server;
use crate::load::{folder, micros_per_request_of, ratewright};
use crate::openloop::{Http1, Pace, ask};
use crate::rounds::{in_turn, report};

/// Short and many: a neighbour's load comes and goes.
const ROUNDS: usize = 15;
const LATENCY_ROUNDS: usize = 3;
const N_CONNECTIONS: usize = 32;
const RATE: f64 = 5_000.0;
const LATENCY: Duration = Duration::from_secs(2);

const POLICIES: &str = "listen: {api: '127.0.0.1:0', admin: 'off'}
clients: {trusted_proxies: [127.0.0.1]}
policies:
- {name: per-client, by: ip, quota: {rate: 1000000/s, burst: 1000000}}
";

/// What wrk sends, as Caddy does.
const CALL: &str = r#"wrk.headers["X-Forwarded-Method"] = "GET"
wrk.headers["X-Forwarded-Uri"] = "/api/orders/17?page=2"
wrk.headers["X-Forwarded-Host"] = "api.example.com"
wrk.headers["X-Forwarded-For"] = "192.0.2.7"
wrk.headers["X-Forwarded-Proto"] = "https"
"#;

/// An nginx, and the program that it asks, if it asks one.
struct Front {
    name: &'static str,
    nginx: Nginx,
    asked: Option<Server>,
}

/// Runs all of it.
pub(crate) fn run() -> Result<(), String> {
    let folder = folder();
    let program = ratewright()?;
    let start = |protocol: &str| {
        let file = folder.join(protocol);
        std::fs::write(&file, format!("{POLICIES}api: {{authorize: {protocol}}}\n"))
            .expect("the folder takes a file");
        Server::start(Command::new(&program).arg("-c").arg(&file))
    };
    let script = folder.join("call.lua");
    std::fs::write(&script, CALL).expect("the folder takes a file");
    let script = script.to_string_lossy();
    let this = std::env::current_exe().expect("the path of this program");
    let sides = [start("forward-auth"), Server::start(Command::new(this).arg("constant"))];
    let medians =
        in_turn(&sides, ROUNDS, |server| [server.micros_per_request("/api/v1/authorize", Some(&script))]);
    if let [[ours], [bare]] = medians[..] {
        report("authorize", ours, bare);
    }
    drop(sides);

    let upstream = Nginx::upstream();
    let fronts = [Front::asking(&upstream, start("auth-request")), Front::alone(&upstream)];
    let medians = in_turn(&fronts, ROUNDS, |front| [front.micros_per_request()]);
    if let [[with], [without]] = medians[..] {
        report("authorize-nginx", with, without);
    }
    let paced = in_turn(&fronts, LATENCY_ROUNDS, |front| {
        let address = front.nginx.address();
        let answers =
            ask((&address, || Http1::new(&address, "/small")), N_CONNECTIONS, Pace::Rate(RATE), LATENCY);
        [answers.permille(500), answers.permille(990)]
    });
    println!("{RATE} requests a second over {N_CONNECTIONS} connections\n                   p50 µs   p99 µs");
    for (front, [p50, p99]) in fronts.iter().zip(paced) {
        println!("{:16}  {p50:7.0}  {p99:7.0}", front.name);
    }
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

impl Front {
    fn alone(upstream: &Nginx) -> Self {
        Self { name: "nginx", nginx: Self::start(upstream, "", "", ""), asked: None }
    }

    /// With the recipe of docs/guides/proxies.md.
    fn asking(upstream: &Nginx, server: Server) -> Self {
        let http = format!("upstream ratewright {{ server {}; keepalive 32; }}", server.address);
        let lines = "auth_request /ratewright;
             auth_request_set $ratewright_limit $upstream_http_ratelimit;
             add_header RateLimit $ratewright_limit always;";
        let location = "location = /ratewright {
                 internal;
                 auth_request off;
                 proxy_pass http://ratewright/api/v1/authorize?status=403;
                 proxy_http_version 1.1;
                 proxy_pass_request_body off;
                 proxy_set_header Connection '';
                 proxy_set_header Content-Length '';
                 proxy_set_header X-Original-Method $request_method;
                 proxy_set_header X-Original-URL $scheme://$host$request_uri;
                 proxy_set_header X-Forwarded-For $remote_addr;
                 proxy_set_header X-Ratewright-Token '';
             }";
        let nginx = Self::start(upstream, &http, lines, location);
        Self { name: "nginx that asks", nginx, asked: Some(server) }
    }

    fn start(upstream: &Nginx, http: &str, lines: &str, location: &str) -> Nginx {
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let http = format!(
            "{http} upstream up {{ server {}; keepalive 256; keepalive_requests 1000000000; }}",
            upstream.address()
        );
        let server = format!(
            "{lines} {location}
             location / {{ proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ''; }}"
        );
        Nginx::start(n_cores, &http, &server)
    }

    fn micros_per_request(&self) -> f64 {
        let url = format!("http://{}/small", self.nginx.address());
        let nginx = self.nginx.pid().as_raw_nonzero().get().cast_unsigned();
        let servers: Vec<u32> = [nginx].into_iter().chain(self.asked.as_ref().map(Server::pid)).collect();
        let connections = format!("-c{N_CONNECTIONS}");
        micros_per_request_of(&servers, &["-t1", "-d1s", &connections, &url])
    }
}
