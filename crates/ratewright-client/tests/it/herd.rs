//! A thousand clients that are denied at the same moment, in simulated time: the table and the plot of docs/guides/clients.md.
//!
//! Ours is the shipped code on tokio's stopped clock. The others are the rules that common clients follow. Everything is
//! seeded, so the figures are the same in every run. `UPDATE_DOCS=1 cargo test -p ratewright-client herd` writes them.

mod plot;
mod server;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use ratewright_client::call::RequestInfo;
use ratewright_client::retry_decision::BodyKind;
use ratewright_client::{Retry, RetryPolicy};
use ratewright_lab::is_long_run;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use server::{Limit, Server};

const CLIENTS: usize = 1_000;
const SEEDS: u64 = 3;

/// How clients retry.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rule {
    /// Every 100 ms.
    Naive,
    /// 100 ms, doubled up to 20 s.
    Exponential,
    /// After exactly the server's wait.
    Exact,
    /// After the server's wait times 1 to 1.5.
    Envoy,
    /// Ours, in so many processes.
    Ours(usize),
}

const RULES: [(&str, Rule); 7] = [
    ("every 100 ms", Rule::Naive),
    ("exponential, no jitter", Rule::Exponential),
    ("exactly Retry-After", Rule::Exact),
    ("Retry-After × 1 to 1.5 (Envoy)", Rule::Envoy),
    ("**ours**, 1,000 processes", Rule::Ours(1_000)),
    ("**ours**, 10 processes", Rule::Ours(10)),
    ("**ours**, 1 process", Rule::Ours(1)),
];

const LIMITS: [(&str, Limit); 4] = [
    ("100/s, burst 10", Limit::Bucket { rate: 100, burst: 10 }),
    ("100/s, burst 100", Limit::Bucket { rate: 100, burst: 100 }),
    ("window of 100 per 10 s", Limit::Window { units: 100, seconds: 10 }),
    ("20/s, burst 40 (not used to choose our defaults)", Limit::Bucket { rate: 20, burst: 40 }),
];

/// What came of a herd.
#[derive(Clone, Debug)]
struct Outcome {
    /// When each client was served.
    served: Vec<Duration>,
    /// Calls in each tenth of a second.
    tenths: Vec<usize>,
}

impl Outcome {
    fn last(&self) -> f64 {
        self.served.iter().max().map_or(0.0, Duration::as_secs_f64)
    }

    fn calls(&self) -> usize {
        self.tenths.iter().sum()
    }

    /// The most calls within a tenth of a second, other than the first, in which all clients call.
    fn peak(&self) -> usize {
        self.tenths.iter().copied().skip(1).max().unwrap_or(0)
    }
}

/// Plays a herd to its end.
fn play(rule: Rule, limit: Limit, seed: u64) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let server = Rc::new(Server::new(limit, seed));
        let n_processes = if let Rule::Ours(n) = rule { n } else { 0 };
        let processes: Vec<Retry> = (0..n_processes).map(|n| retry(seed * 10_007 + n as u64)).collect();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let server = server.clone();
                let retry = (n_processes > 0).then(|| processes[n % n_processes].clone());
                tasks.spawn_local(async move {
                    let start = Instant::now();
                    match retry {
                        Some(retry) => cooperate(&retry, &server).await,
                        None => persist(rule, &server, seed * 7_919 + n as u64).await,
                    }
                    start.elapsed()
                })
            })
            .collect();
        let mut served = Vec::new();
        for client in clients {
            served.push(client.await.unwrap());
        }
        Outcome { served, tenths: server.calls_by_tenth() }
    })
}

/// Our client, patient enough to see the end.
fn retry(seed: u64) -> Retry {
    let hour = Duration::from_secs(3_600);
    let policy = RetryPolicy::default().attempts(10_000).deadline(hour).server_wait_max(hour);
    let random = parking_lot::Mutex::new(fastrand::Rng::with_seed(seed));
    Retry::builder().policy(policy).random(move || random.lock().f64()).build()
}

async fn cooperate(retry: &Retry, server: &Server) {
    let uri = "https://api.example.com/items".parse().unwrap();
    let request = RequestInfo::new(&http::Method::GET, &uri, &http::HeaderMap::new(), BodyKind::None);
    let send = |_| async { Ok::<_, std::io::Error>(server.call().await) };
    assert_eq!(retry.send(request, send).await.unwrap().status(), StatusCode::OK);
}

/// The other rules.
async fn persist(rule: Rule, server: &Server, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for attempt in 0.. {
        let response = server.call().await;
        if response.status() == StatusCode::OK {
            return;
        }
        let hint: f64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        let wait = match rule {
            Rule::Naive => 0.1,
            Rule::Exponential => (0.1 * 2_f64.powi(attempt)).min(20.0),
            Rule::Exact => hint,
            Rule::Envoy => hint * (1.0 + 0.5 * random.f64()),
            Rule::Ours(_) => unreachable!("ours cooperate"),
        };
        sleep(Duration::from_secs_f64(wait)).await;
    }
}

/// Calls, seconds until the last client is served, and the most calls within 100 ms.
type Means = (usize, f64, usize);

/// Means over all seeds: calls, seconds until the last client is served, most calls within 100 ms after the first.
fn mean(rule: Rule, limit: Limit) -> Means {
    let outcomes: Vec<Outcome> = (0..SEEDS).map(|seed| play(rule, limit, seed)).collect();
    let n = outcomes.len();
    let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>() / n;
    let last = outcomes.iter().map(Outcome::last).sum::<f64>() / f64::from(u32::try_from(n).unwrap());
    (sum(Outcome::calls), last, sum(Outcome::peak))
}

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides").join(file)
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

fn is_update() -> bool {
    std::env::vars().any(|(name, _)| name == "UPDATE_DOCS")
}

/// E3, E5: the table of docs/guides/clients.md, and what it claims.
#[test]
fn e3_a_herd_needs_few_calls_and_ends_in_time() {
    let page = std::fs::read_to_string(docs("clients.md")).unwrap();
    let (before, rest) =
        page.split_once("<!-- herd -->\n").expect("docs/guides/clients.md marks the table's beginning");
    let (old, after) =
        rest.split_once("<!-- end of herd -->").expect("docs/guides/clients.md marks the table's end");
    let mut table = String::from("| clients retry | ");
    table += &LIMITS.map(|(name, _)| name).join(" | ");
    table += " |\n|---|---|---|---|---|\n";
    let mut rows = Vec::new();
    for (name, rule) in RULES {
        let row = LIMITS.map(|(_, limit)| (!takes_long(rule, limit)).then(|| mean(rule, limit)));
        let line = old.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap_or_default();
        let cells =
            row.iter().zip(line.split(" | ").skip(1).chain(std::iter::repeat(""))).map(|(means, old)| {
                means.map_or_else(
                    || old.trim_end_matches(" |").to_owned(),
                    |(calls, last, peak)| format!("{} · {last:.1} s · {}", thousands(calls), thousands(peak)),
                )
            });
        table += &format!("| {name} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
        rows.push((rule, row.map(Option::unwrap_or_default)));
    }
    check_claims(&rows);
    if is_update() {
        let page = format!("{before}<!-- herd -->\n{table}<!-- end of herd -->{after}");
        std::fs::write(docs("clients.md"), page).unwrap();
    } else {
        assert_eq!(
            old, table,
            "docs/guides/clients.md is old: UPDATE_DOCS=1 cargo test -p ratewright-client herd"
        );
    }
}

/// Hundreds of thousands of calls by a rule that is not ours: played under `make test-all`, where the page is compared with all.
fn takes_long(rule: Rule, limit: Limit) -> bool {
    let is_slow = matches!(limit, Limit::Window { .. } | Limit::Bucket { rate: 20, .. });
    rule == Rule::Naive && is_slow && !is_update() && !is_long_run()
}

fn check_claims(rows: &[(Rule, [Means; 4])]) {
    let of = |rule: Rule| rows.iter().find(|(row, _)| *row == rule).unwrap().1;
    let (naive, exponential, exact) = (of(Rule::Naive), of(Rule::Exponential), of(Rule::Exact));
    let (alone, ten, one) = (of(Rule::Ours(1_000)), of(Rule::Ours(10)), of(Rule::Ours(1)));
    // A small burst: waking up together wastes nearly every call.
    assert!(alone[0].0 <= 4_200 && alone[0].0 * 5 <= exact[0].0 && alone[0].0 * 5 <= exponential[0].0);
    assert!(alone[0].0 * 8 <= naive[0].0);
    assert!(alone[0].1 <= 18.0 && alone[0].1 * 3.0 <= exact[0].1);
    assert!(alone[0].2 <= 150 && exact[0].2 >= 900, "the others come back together, ours do not");
    // A burst of one second: few calls too. Exactly Retry-After ends sooner there, and the page says so.
    assert!(alone[1].0 <= 3_400 && alone[1].1 <= 15.0);
    // With a gate, nearly every call after the first burst is served.
    for (name, row) in [("ten", ten), ("one", one)] {
        for (limit, (calls, ..)) in row.into_iter().enumerate() {
            assert!(
                calls <= 2_100,
                "{name}, limit {limit}: {calls} calls, of which 2,000 at the most are needed"
            );
        }
    }
    assert!(one[0].1 <= 25.0 && ten[0].1 <= 25.0, "{one:?} {ten:?}");
}

/// The plot of docs/guides/clients.md.
#[test]
fn the_plot_shows_the_herd() {
    let limit = LIMITS[0].1;
    let run = |rule: Rule| {
        let outcome = play(rule, limit, 0);
        plot::Run::new(outcome.calls(), outcome.served, outcome.tenths)
    };
    let runs = plot::Runs {
        exponential: run(Rule::Exponential),
        exact: run(Rule::Exact),
        envoy: run(Rule::Envoy),
        ours: run(Rule::Ours(1_000)),
        ours_in_one_process: run(Rule::Ours(1)),
    };
    let svg = plot::svg(&runs);
    if is_update() {
        std::fs::write(docs("clients-herd.svg"), svg).unwrap();
    } else {
        let old = std::fs::read_to_string(docs("clients-herd.svg")).unwrap();
        assert!(
            old == svg,
            "docs/guides/clients-herd.svg is old: UPDATE_DOCS=1 cargo test -p ratewright-client herd"
        );
    }
}
