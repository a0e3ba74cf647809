//! Scaling with real processes: gateways and applications come and go behind HAProxy, on one Redis, under a load above the limits.
//!
//! ```text
//!   clients ──► HAProxy (TCP) ──► 2, 3, 5, 3, 2 gateways ──► HAProxy (TCP) ──► as many applications (nginx)
//!                  │ GET /ready         │
//!                  └────────────────────┴──► Redis
//! ```
//!
//! The load of a stage is that of as many clients for each instance, so the CPU that the gateways use follows it. That curve is measured, and replayed
//! by a model of Kubernetes' autoscaler.
//!
//! `SCALING_SECONDS` is how long each stage lasts; `make scaling` sets it, prints the table of docs/guides/kubernetes.md and fails above 300 ms. Without
//! it there are three short stages, 2, 3 and 2, and neither times nor CPU are judged.
#![expect(clippy::disallowed_methods, reason = "a load takes real time, and make says how much")]
#![expect(clippy::print_stdout, reason = "make prints the table")]

mod hpa;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratewright_lab::{Haproxy, Nginx, Redis, Stream, is_full_run, output, wait_until};

use crate::process::Ratewright;
use hpa::{E2, Hpa};

/// Each key may send so many at once, and so many in each second.
const BURST: u32 = 20;
const RATE: u32 = 20;
/// Clients, each with a key of its own, for each instance: the load rises and falls with the stages.
const KEYS_EACH: usize = 2;
const KEYS: usize = KEYS_EACH * INSTANCES_MAX;
/// What each client tries to send in a second: twice what it may.
const TRIED: u32 = 2 * RATE;
/// Connections of each client, and requests on each before another is opened: so its requests meet all instances.
const CONNECTIONS: u32 = 3;
const REQUESTS_MAX: u32 = 10;

/// How many instances there are, stage by stage.
const STAGES: [usize; 5] = [2, 3, 5, 3, 2];
/// The same in a short test: one comes and goes.
const SHORT_STAGES: [usize; 3] = [2, 3, 2];
const INSTANCES_MAX: usize = 5;

/// A request that was answered.
#[derive(Clone, Copy)]
struct Answered {
    sent: Duration,
    done: Duration,
    key: usize,
    is_allowed: bool,
}

/// What clients saw.
#[derive(Default)]
struct Seen {
    answered: Vec<Answered>,
    /// Why requests failed: no answer, another status than 200 and 429, or a 429 without Retry-After.
    failed: Vec<String>,
}

/// A balancer of TCP connections whose servers are named while it runs, by numbers from 1.
struct Balancer(Haproxy);

impl Balancer {
    /// With checks, servers get connections as long as their `/ready` says so.
    fn start(checks: &str) -> Self {
        let backend = format!(
            "    mode tcp\n    timeout check 10s\n{checks}    server-template s 1-{INSTANCES_MAX} 127.0.0.1:9 disabled check inter 100ms fall 1 rise 1\n"
        );
        Self(Haproxy::start(1, "    mode tcp", &backend))
    }

    fn add(&self, n: usize, address: &str, check: &str) {
        let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
        let (server, check) = (format!("back/s{}", n + 1), port(check));
        self.0.command(&format!("set server {server} addr 127.0.0.1 port {}", port(address)));
        self.0.command(&format!("set server {server} check-port {check}"));
        self.0.command(&format!("set server {server} state ready"));
        self.0.command(&format!("enable health {server}"));
        wait_until("the balancer sees it", || self.is_up(n));
    }

    /// True if it gets connections.
    fn is_up(&self, n: usize) -> bool {
        let stat = self.0.command("show stat");
        let name = format!("back,s{},", n + 1);
        stat.lines().any(|line| line.starts_with(&name) && line.contains(",UP,"))
    }

    /// Takes it out for good. Connections that it has go on.
    fn remove(&self, n: usize) {
        self.0.command(&format!("set server back/s{} state drain", n + 1));
    }

    fn forget(&self, n: usize) {
        self.0.command(&format!("disable server back/s{}", n + 1));
    }
}

/// One connection of a client, and those that follow it.
struct Caller<'a> {
    address: &'a str,
    key: usize,
    stream: Option<BufReader<Stream>>,
    n_sent: u32,
}

impl Caller<'_> {
    /// Status, and whether there is a Retry-After.
    fn ask(&mut self) -> std::io::Result<(u16, bool)> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                BufReader::new(Stream::from(stream))
            }
        };
        stream.get_mut().renew();
        let key = self.key;
        stream
            .get_mut()
            .write_all(format!("GET /orders HTTP/1.1\r\nHost: a\r\nX-Client: c{key}\r\n\r\n").as_bytes())?;
        let (mut line, mut length, mut has_retry_after, mut is_last) = (String::new(), 0, false, false);
        stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other(format!("no response: {line:?}")))?;
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let field = line.trim_end().to_ascii_lowercase();
            match field.split_once(": ") {
                _ if field.is_empty() => break,
                Some(("content-length", value)) => length = value.parse().map_err(std::io::Error::other)?,
                Some(("retry-after", _)) => has_retry_after = true,
                Some(("connection", "close")) => is_last = true,
                _ => {}
            }
        }
        stream.read_exact(&mut vec![0; length])?;
        self.n_sent += 1;
        self.stream = (!is_last && !self.n_sent.is_multiple_of(REQUESTS_MAX)).then_some(stream);
        Ok((status, has_retry_after))
    }
}

/// The load, and what its clients have seen.
struct Load {
    begun: Instant,
    /// So many keys send. No keys at all: it is over.
    n_keys: AtomicUsize,
    seen: Mutex<Seen>,
}

/// Ends the load, also when a step of the test beside it fails.
struct EndsWithTest<'a>(&'a Load);

impl Drop for EndsWithTest<'_> {
    fn drop(&mut self) {
        self.0.n_keys.store(0, Ordering::Relaxed);
    }
}

impl Load {
    fn start() -> Self {
        let n_keys = AtomicUsize::new(KEYS_EACH * STAGES[0]);
        Self { begun: Instant::now(), n_keys, seen: Mutex::default() }
    }

    /// True if a request that was sent since then was allowed, or denied.
    fn has_seen(&self, is_allowed: bool, since: Duration) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.answered.iter().rev().any(|it| it.is_allowed == is_allowed && it.sent >= since)
    }

    /// Sends at an even pace while its key is among those that send.
    fn call(&self, address: &str, key: usize) {
        let mut caller = Caller { address, key, stream: None, n_sent: 0 };
        let pace = Duration::from_secs(1) * CONNECTIONS / TRIED;
        let mut next = Instant::now();
        loop {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            next = next.max(Instant::now() - pace) + pace; // a late client does not catch up in a rush
            match self.n_keys.load(Ordering::Relaxed) {
                0 => return,
                n if key >= n => continue,
                _ => {}
            }
            let sent = self.begun.elapsed();
            let answer = caller.ask();
            let done = self.begun.elapsed();
            let mut seen = self.seen.lock().unwrap();
            match answer {
                Ok((200, _)) => seen.answered.push(Answered { sent, done, key, is_allowed: true }),
                Ok((429, true)) => seen.answered.push(Answered { sent, done, key, is_allowed: false }),
                other => seen.failed.push(format!("{other:?} at {done:?}")),
            }
        }
    }
}

/// By how much a key exceeds burst + rate × time, in the worst stretch of time, as a part of what it may send then.
fn over_the_limit(answered: &[Answered]) -> f64 {
    let mut worst = 0.0_f64;
    for key in 0..KEYS {
        let mut allowed: Vec<_> = answered.iter().filter(|it| it.key == key && it.is_allowed).collect();
        allowed.sort_by_key(|it| it.done);
        for start in &allowed {
            // Requests that were surely decided in between: sent after the start, and answered by the end.
            let within = allowed.iter().filter(|it| it.sent >= start.sent);
            for (n, end) in within.enumerate() {
                let time = end.done.saturating_sub(start.sent).as_secs_f64();
                let may = f64::from(BURST) + f64::from(RATE) * time;
                worst = worst.max(((n + 1) as f64 - may.floor()) / may);
            }
        }
    }
    worst
}

/// One gateway, and one application.
struct Instance {
    ratewright: Ratewright,
    application: Nginx,
}

struct Site {
    redis: Redis,
    clients: Balancer,
    applications: Balancer,
    instances: Vec<Instance>,
}

/// One stage, as it was.
struct Stage {
    n_instances: usize,
    /// While instances come and go, and then the load of the stage.
    time: Range<Duration>,
    /// CPU seconds that all gateways used in each second of its load.
    cpu: f64,
}

impl Site {
    fn start() -> Self {
        let ready = "    option httpchk GET /ready\n    http-check expect status 200\n";
        let (clients, applications) = (Balancer::start(ready), Balancer::start(""));
        Self { redis: Redis::start(), clients, applications, instances: Vec::new() }
    }

    /// CPU time of all gateways until now.
    fn cpu(&self) -> Duration {
        self.instances.iter().map(|instance| instance.ratewright.cpu()).sum()
    }

    /// Brings the instances and the load of a stage, and measures for so long, or until a key has reached its limit.
    fn stage(&mut self, n_instances: usize, length: Duration, load: &Load) -> Stage {
        let start = load.begun.elapsed();
        self.scale_to(n_instances);
        load.n_keys.store(KEYS_EACH * n_instances, Ordering::Relaxed);
        let (loaded, cpu) = (Instant::now(), self.cpu());
        std::thread::sleep(length); // the stage's length is what is measured, not a wait for something
        wait_until("some are allowed and some are denied", || {
            [true, false].iter().all(|is_allowed| load.has_seen(*is_allowed, start))
        });
        let cpu = self.cpu().saturating_sub(cpu).as_secs_f64() / loaded.elapsed().as_secs_f64();
        Stage { n_instances, time: start..load.begun.elapsed(), cpu }
    }

    fn scale_to(&mut self, n_wanted: usize) {
        while self.instances.len() < n_wanted {
            self.add();
        }
        while self.instances.len() > n_wanted {
            self.remove();
        }
    }

    fn add(&mut self) {
        let n = self.instances.len();
        let application = Nginx::start(1, "", "location / { return 200 'hello'; }\n");
        self.applications.add(n, &application.address(), &application.address());
        let (redis, upstream) = (self.redis.url(), self.applications.0.address());
        // A busy machine must not be taken for an outage: local decisions would give each instance a share of its own.
        let ratewright = Ratewright::start_stopping_after(
            "2s",
            &format!(
                "store: {{redis: {{url: '{redis}', deadline: 10s}}, on_failure: closed}}\n\
                 policies: [{{name: per-client, by: 'header:X-Client', quota: {{rate: {RATE}/s, burst: {BURST}}}}}]\n\
                 routes: [{{id: app, match: {{path: /**}}, upstream: 'http://{upstream}'}}]\n"
            ),
        );
        ratewright.wait_for_redis();
        self.clients.add(n, &ratewright.gateway, &ratewright.admin);
        self.instances.push(Instance { ratewright, application });
    }

    /// As Kubernetes does it: SIGTERM, and the balancer notices by itself that the instance is not ready any more. Its application goes after that.
    fn remove(&mut self) {
        let Some(Instance { ratewright, application }) = self.instances.pop() else { return };
        let n = self.instances.len();
        ratewright.signal("TERM");
        wait_until("the balancer leaves it alone", || !self.clients.is_up(n));
        assert!(ratewright.wait().success());
        self.clients.forget(n);
        self.applications.remove(n);
        // nginx finishes what it has, and closes connections that are idle.
        let pid = application.pid().as_raw_nonzero().to_string();
        assert!(output(Command::new("kill").args(["-s", "QUIT", &pid])).status.success());
        self.applications.forget(n);
    }
}

/// E2: limits hold over all instances while they come and go, every 429 tells when to come back, and no request fails. The autoscaler's formula,
/// replayed over the CPU that the gateways used, starts the third replica.
#[test]
fn e2_limits_hold_and_nothing_fails_while_instances_come_and_go() {
    let seconds = std::env::var("SCALING_SECONDS").ok().map(|seconds| seconds.parse::<u64>().unwrap());
    let planned = if seconds.is_some() || is_full_run() { &STAGES[..] } else { &SHORT_STAGES };
    let stage_length = Duration::from_secs(seconds.unwrap_or(1));
    let mut site = Site::start();
    site.scale_to(STAGES[0]);
    let (address, load) = (site.clients.0.address(), Load::start());
    let stages: Vec<Stage> = std::thread::scope(|threads| {
        let _load_ends = EndsWithTest(&load);
        for key in (0..KEYS).flat_map(|key| (0..CONNECTIONS).map(move |_| key)) {
            let (address, load) = (&address, &load);
            threads.spawn(move || load.call(address, key));
        }
        planned.iter().map(|n_instances| site.stage(*n_instances, stage_length, &load)).collect()
    });
    let Seen { mut answered, failed } = load.seen.into_inner().unwrap();
    answered.sort_by_key(|it| it.done);
    for stage in &stages {
        let p95 = print_row(stage, &answered, failed.len());
        if seconds.is_some() {
            assert!(p95 <= Duration::from_millis(300), "P95 is {p95:?} with {}", stage.n_instances);
        }
    }
    assert!(failed.is_empty(), "{} requests failed, for example {:?}", failed.len(), failed.first());
    let over = over_the_limit(&answered);
    assert!(over < 0.01, "a key got {:.2} % more than it may", over * 100.0);
    // In a second, what a machine does besides decides the CPU as much as the load.
    if seconds.is_some() {
        replay(&stages);
    }
}

/// Prints a row of the table, and returns the stage's P95.
fn print_row(stage: &Stage, answered: &[Answered], n_failed: usize) -> Duration {
    let Stage { n_instances, time, cpu } = stage;
    let answered: Vec<_> = answered.iter().filter(|it| time.contains(&it.done)).copied().collect();
    let n_allowed = answered.iter().filter(|it| it.is_allowed).count();
    let n_denied = answered.len() - n_allowed;
    assert!(n_allowed > 0 && n_denied > 0, "the load is above the limits with {n_instances}");
    let mut times: Vec<_> = answered.iter().map(|it| it.done - it.sent).collect();
    times.sort();
    let p95 = times.get(times.len() * 95 / 100).copied().unwrap_or_default();
    let load = answered.len() as f64 / (time.end - time.start).as_secs_f64();
    let over = over_the_limit(&answered).max(0.0) * 100.0;
    let (p95_ms, cpu_ms) = (p95.as_secs_f64() * 1e3, cpu * 1e3);
    println!(
        "| {n_instances} | {load:.0} | {n_allowed} | {n_denied} | {over:.2} % | {p95_ms:.1} | {n_failed} | {cpu_ms:.0} |"
    );
    p95
}

/// The measured CPU as the load of a cluster whose replicas request what keeps the first stage at 68 %, each stage a quarter of an hour long.
fn replay(stages: &[Stage]) {
    let request = stages[0].cpu / STAGES[0] as f64 / 0.68;
    let load = |now: u32| {
        let stage = usize::try_from(now / QUARTER).unwrap().min(stages.len() - 1);
        stages[stage].cpu / request
    };
    let scaled = Hpa { tolerance: 0.05, ..E2 }.play(5 * QUARTER, load);
    println!("autoscaler over the measured CPU, in s and replicas: {scaled:?}");
    let third = scaled.iter().find(|it| it.replicas >= 3);
    let third = third.unwrap_or_else(|| panic!("the third replica never starts: {scaled:?}"));
    // Not before the load rises and has lasted 2 minutes; at the latest in the stage with the highest load.
    assert!((QUARTER - 15 + 120..=2 * QUARTER + 120).contains(&third.at), "{scaled:?}");
}

/// How long a stage lasts for the autoscaler, in seconds.
const QUARTER: u32 = 900;

/// E2: the stages of the test above with a CPU load in exact proportion, so that all figures are known: each stage keeps its replicas at 68 %.
#[test]
fn e2_the_autoscaler_follows_the_stages_of_the_scaling_test() {
    let load = |now: u32| {
        let stage = usize::try_from(now / QUARTER).unwrap().min(STAGES.len() - 1);
        0.68 * STAGES[stage] as f64
    };
    let scaled = Hpa { tolerance: 0.05, ..E2 }.play(5 * QUARTER, load);
    let replicas: Vec<_> = scaled.iter().map(|it| it.replicas).collect();
    assert_eq!(replicas, [3, 5, 3, 2], "{scaled:?}");
    // The last look before the load rises is at 885 s, and counts for 120 s.
    assert_eq!(scaled[0].at, 885 + 120);
    // With the default tolerance, 75 % of two replicas start none.
    assert_eq!(E2.play(3_600, |now| if now < QUARTER { 1.0 } else { 1.5 }), []);
}
