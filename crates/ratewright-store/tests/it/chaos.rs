//! Faults while under load, on real servers: what the client saw, and whether the limit held.
//!
//! Two instances are asked without pause for one hot key and for others, and something happens to Redis. Each fault
//! makes one row. It begins when the limit is reached, ends when each instance has reached its own share, and the load
//! goes on until the limit is reached again. `make chaos` takes longer (`CHAOS_SECONDS`), prints the rows, and looks at
//! the times.

use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Refill, Share};
use ratewright_core::store::{Basis, BucketName, Charge, Key, Outcome, Standing, Standings};
use ratewright_core::{Micros, Quota, Store};
use ratewright_lab::{Cluster, Fault, Load, Proxy, Redis, Sentinel, wait_until, within};
use ratewright_store::{
    Failover, FailoverSettings, LocalShare, RedisSettings, RedisStore, Servers, SystemClock,
};

use crate::world::take;

type Instance = Failover<RedisStore, Arc<SystemClock>>;

/// How long a decision may wait for Redis.
const DEADLINE: Duration = Duration::from_millis(5);

/// A fault: its name in the table, and how it is played.
type Played = (&'static str, fn(&'static str));

const FAULTS: [Played; 15] = [
    ("kill -9, restarted empty", killed_and_restarted_empty),
    ("SIGSTOP", stopped),
    ("SCRIPT FLUSH", script_flushed),
    ("maxmemory reached", memory_full),
    ("made a replica (READONLY)", made_a_replica),
    ("restarted, LOADING", loading),
    ("50 ms latency", slow_by_50_ms),
    ("black hole", black_hole),
    ("connections reset", connections_reset),
    ("half-open connections", half_open),
    ("trickling answers", trickling),
    ("absent at start", absent_at_start),
    ("Sentinel failover", sentinel_fails_over),
    ("Cluster master killed", cluster_master_killed),
    ("Cluster slot moved (MOVED, ASK)", cluster_slot_moved),
];

/// Which limit an instance has reached on the hot key: a unit was denied.
#[derive(Default)]
struct Denials {
    by_redis: AtomicBool,
    local: AtomicBool,
}

/// What was decided.
struct Decided {
    basis: Basis,
    is_hot: bool,
    /// Of the hot key, when it was paid.
    paid_at: Option<u64>,
    took: Duration,
    at: Instant,
}

/// What a fault did.
struct Row {
    name: &'static str,
    decided: Vec<Vec<Decided>>,
    over_end: Instant,
}

/// The fault's seconds, and whether times are looked at.
fn seconds() -> (Duration, bool) {
    #[expect(clippy::disallowed_methods, reason = "a test's own setting")]
    let seconds = std::env::var("CHAOS_SECONDS").ok().and_then(|text| text.parse().ok());
    (seconds.map_or(Duration::from_millis(700), Duration::from_secs), seconds.is_some())
}

fn quota() -> Quota {
    Quota::new(Algorithm::TokenBucket(Refill::Smooth), "200/s".parse().unwrap()).unwrap()
}

fn half() -> Share {
    let LocalShare::Fixed(share) = FailoverSettings::default().share else { panic!("a fixed share") };
    share
}

/// How a fault goes.
#[derive(Clone, Copy)]
struct Plan {
    /// Redis is there before it begins.
    is_there: bool,
    /// It lasts a while; otherwise it is over as soon as `end` returns.
    lasts: bool,
    /// Some decisions must be made without Redis.
    is_out: bool,
    /// Redis loses its state, or what was not replicated: a burst at most.
    may_lose: bool,
}

const OUTAGE: Plan = Plan { is_there: true, lasts: true, is_out: true, may_lose: false };

/// Plays a fault: two instances under load, `begin` and, after a while, `end`.
#[expect(clippy::disallowed_methods, reason = "faults happen in real time")]
fn play(name: &'static str, servers: Servers, plan: Plan, begin: impl FnOnce(), end: impl FnOnce()) {
    let (lasts, _) = seconds();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let instances: Vec<Arc<Instance>> = (0..2)
        .map(|_| {
            let _in_it = runtime.enter();
            let settings = RedisSettings::default().deadline(DEADLINE);
            let shared = RedisStore::new(servers.clone(), settings);
            Arc::new(Failover::new(shared, Arc::new(SystemClock::new()), FailoverSettings::default()))
        })
        .collect();
    let is_shared = || instances.iter().all(|instance| instance.shared().status().is_up);
    if plan.is_there {
        wait_until("the links are up", is_shared);
    }
    let (load, denials) = (Load::default(), [(); 2].map(|()| Arc::<Denials>::default()));
    let tasks: Vec<Vec<_>> = instances
        .iter()
        .zip(&denials)
        .map(|(instance, denials)| {
            let ask = |task| ask(instance.clone(), task, load.goes_on(), denials.clone());
            (0..8).map(|task| runtime.spawn(ask(task))).collect()
        })
        .collect();
    let until_reached_again = |what, limit: fn(&Denials) -> &AtomicBool| {
        denials.iter().for_each(|denials| limit(denials).store(false, Ordering::SeqCst));
        wait_until(what, || denials.iter().all(|denials| limit(denials).load(Ordering::SeqCst)));
    };
    if plan.is_there {
        until_reached_again("the limit is reached", |denials| &denials.by_redis);
    }
    begin();
    if plan.lasts {
        std::thread::sleep(lasts);
        if plan.is_out {
            until_reached_again("both shares are used up", |denials| &denials.local);
        }
    }
    end();
    let over_end = Instant::now();
    wait_until("the links are up again", is_shared);
    until_reached_again("the limit is reached again", |denials| &denials.by_redis);
    load.end();
    let join = |tasks: Vec<tokio::task::JoinHandle<Vec<Decided>>>| {
        tasks.into_iter().flat_map(|task| runtime.block_on(within("the load ends", task)).unwrap()).collect()
    };
    let decided = tasks.into_iter().map(join).collect();
    Row { name, decided, over_end }.check(plan);
}

/// Asks without pause, every other time for the hot key.
#[expect(clippy::disallowed_methods, reason = "faults happen in real time")]
async fn ask(
    instance: Arc<Instance>,
    task: usize,
    goes_on: impl Fn() -> bool,
    denials: Arc<Denials>,
) -> Vec<Decided> {
    let quota = quota();
    let name = BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]);
    let mut all = Vec::new();
    while goes_on() {
        let is_hot = all.len() % 2 == 0;
        let client = if is_hot { "hot".to_owned() } else { format!("{task}-{}", all.len() % 100) };
        let attributes = [Attribute { name: AttributeName::Ip, value: &client }];
        let key = Key::new(&name, &attributes).unwrap();
        let (limit, patience, on_failure) = (LimitId::default(), Micros::ZERO, OnFailure::Local);
        let charge = Charge { limit, key, quota: &quota, act: take(1), patience, on_failure };
        let mut standings = Standings::new();
        let start = Instant::now();
        let Ok(()) = instance.apply(&[charge], &mut standings).await;
        let took = start.elapsed();
        let Standing { outcome, basis, .. } = standings.remove(0);
        let receipt = if let Outcome::Charged(receipt) = outcome { Some(receipt) } else { None };
        if is_hot && receipt.is_none() {
            let denied = if basis == Basis::Shared { &denials.by_redis } else { &denials.local };
            denied.store(true, Ordering::SeqCst);
        }
        let paid_at = receipt.filter(|_| is_hot).map(|receipt| receipt.paid_at.as_micros());
        all.push(Decided { basis, is_hot, paid_at, took, at: start });
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    all
}

/// Units admitted beyond the burst and the refill, in the worst stretch of time.
pub(crate) fn excess(quota: &Quota, mut paid: Vec<u64>) -> u64 {
    paid.sort_unstable();
    let (units, window) = (u128::from(quota.units()), u128::from(quota.window().as_micros()));
    let burst = u128::from(quota.capacity().get()) * window;
    let (mut depth, mut worst, mut last) = (0u128, 0u128, 0u64);
    for at in paid {
        depth = depth.saturating_sub(u128::from(at - last) * units) + window;
        last = at;
        worst = worst.max(depth.saturating_sub(burst));
    }
    u64::try_from(worst.div_ceil(window)).unwrap()
}

impl Row {
    #[expect(clippy::print_stdout, reason = "the rows are the output of `make chaos`")]
    /// Prints the row, and checks what must hold.
    fn check(self, plan: Plan) {
        let (lasts, looks_at_times) = seconds();
        let all = || self.decided.iter().flatten();
        let of = |basis: Basis| all().filter(|decided| decided.basis == basis).count();
        let paid = |decided: &[Decided], basis: Basis| -> Vec<u64> {
            decided
                .iter()
                .filter(|decided| decided.basis == basis)
                .filter_map(|decided| decided.paid_at)
                .collect()
        };
        let quota = quota();
        let shared: Vec<u64> = self.decided.iter().flat_map(|decided| paid(decided, Basis::Shared)).collect();
        let over_shared = excess(&quota, shared);
        let local = quota.share(half());
        let over_local =
            self.decided.iter().map(|decided| excess(&local, paid(decided, Basis::Local))).max().unwrap();
        let mut took: Vec<_> = all().map(|decided| decided.took).collect();
        took.sort_unstable();
        let p99 = took[took.len() * 99 / 100];
        let slowest = took[took.len() - 1];
        // From the end of the fault until each instance decided on the hot key with Redis.
        let back = self
            .decided
            .iter()
            .map(|decided| {
                let after = decided.iter().filter(|decided| decided.at >= self.over_end && decided.is_hot);
                let first =
                    after.filter(|decided| decided.basis == Basis::Shared).map(|decided| decided.at).min();
                first.map_or(Duration::MAX, |first| first - self.over_end)
            })
            .max()
            .unwrap();
        println!(
            "| {} | {} | {} | {} | {:.1} | {:.1} | {over_shared} | {over_local} | {:.2} |",
            self.name,
            took.len(),
            of(Basis::Shared),
            of(Basis::Local),
            p99.as_secs_f64() * 1e3,
            slowest.as_secs_f64() * 1e3,
            back.as_secs_f64(),
        );
        assert!(took.len() > 100, "it was under load");
        assert_eq!(of(Basis::Shared) + of(Basis::Local), took.len(), "{}: each has its ground", self.name);
        assert!(!plan.is_out || of(Basis::Local) > 0, "{}: Redis was out", self.name);
        let may_be = if plan.may_lose { u64::from(quota.capacity().get()) } else { 0 };
        assert!(over_shared <= may_be, "{}: {over_shared} units over while shared", self.name);
        assert_eq!(over_local, 0, "{}: units over while local", self.name);
        assert!(of(Basis::Shared) > 0, "{}: Redis decided before or after", self.name);
        if looks_at_times {
            assert!(lasts < Duration::from_secs(60));
            assert!(p99 <= DEADLINE * 2, "{}: p99 {p99:?}", self.name);
            assert!(slowest <= Duration::from_millis(100), "{}: slowest {slowest:?}", self.name);
            assert!(back <= Duration::from_secs(2), "{}: back after {back:?}", self.name);
        }
    }
}

/// One test for all: faults follow each other, and with a test for each, the other threads of the tests would only wait.
#[test]
fn faults_under_load_exceed_no_limit() {
    for (name, play) in FAULTS {
        if let Err(panic) = catch_unwind(|| play(name)) {
            eprintln!("the fault was: {name}");
            resume_unwind(panic);
        }
    }
}

/// A fault of one server that is set and unset by commands.
fn by_commands(name: &'static str, plan: Plan, begin: &[&str], end: &[&str]) {
    let server = Redis::start();
    let servers = Servers::single(&server.url()).unwrap();
    play(name, servers, plan, || drop(server.cli(begin)), || drop(server.cli(end)));
}

/// A fault of the network.
fn by_network(name: &'static str, fault: Fault) {
    let server = Redis::start();
    let proxy = Proxy::start(server.port());
    let servers = Servers::single(&proxy.url()).unwrap();
    play(name, servers, OUTAGE, || proxy.set(fault), || proxy.set(Fault::None));
}

fn killed_and_restarted_empty(name: &'static str) {
    let server = std::cell::RefCell::new(Redis::start());
    let servers = Servers::single(&server.borrow().url()).unwrap();
    let (kill, run) = (|| server.borrow_mut().kill(), || server.borrow_mut().run());
    play(name, servers, Plan { may_lose: true, ..OUTAGE }, kill, run);
}

fn stopped(name: &'static str) {
    let server = Redis::start();
    let servers = Servers::single(&server.url()).unwrap();
    play(name, servers, OUTAGE, || server.pause(), || server.resume());
}

fn script_flushed(name: &'static str) {
    by_commands(name, Plan { is_out: false, ..OUTAGE }, &["SCRIPT", "FLUSH"], &["SCRIPT", "FLUSH"]);
}

fn memory_full(name: &'static str) {
    by_commands(name, OUTAGE, &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]);
}

fn made_a_replica(name: &'static str) {
    by_commands(name, OUTAGE, &["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]);
}

fn loading(name: &'static str) {
    let (lasts, _) = seconds();
    let server = std::cell::RefCell::new(Redis::start_with(&["--enable-debug-command", "yes"]));
    assert_eq!(server.borrow().cli(&["DEBUG", "POPULATE", "10000"]), "OK");
    assert_eq!(server.borrow().cli(&["SAVE"]), "OK");
    // So many microseconds for each key that it is still loading for a while.
    let delay = (lasts.as_micros() / 10_000).to_string();
    server.borrow_mut().set_options(&[
        "--key-load-delay",
        &delay,
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let servers = Servers::single(&server.borrow().url()).unwrap();
    let begin = || {
        server.borrow_mut().kill();
        server.borrow_mut().run_loading();
    };
    let end = || wait_until("it is loaded", || !server.borrow().cli(&["PING"]).contains("LOADING"));
    play(name, servers, Plan { lasts: false, may_lose: true, ..OUTAGE }, begin, end);
}

fn slow_by_50_ms(name: &'static str) {
    by_network(name, Fault::Delay(Duration::from_millis(25)));
}

fn black_hole(name: &'static str) {
    by_network(name, Fault::BlackHole);
}

fn connections_reset(name: &'static str) {
    by_network(name, Fault::Reset);
}

fn half_open(name: &'static str) {
    by_network(name, Fault::HalfOpen);
}

fn trickling(name: &'static str) {
    by_network(name, Fault::Trickle);
}

fn absent_at_start(name: &'static str) {
    let server = std::cell::RefCell::new(Redis::start());
    server.borrow_mut().kill();
    let servers = Servers::single(&server.borrow().url()).unwrap();
    play(name, servers, Plan { is_there: false, ..OUTAGE }, || {}, || server.borrow_mut().run());
}

fn sentinel_fails_over(name: &'static str) {
    let group = std::cell::RefCell::new(Sentinel::start());
    let servers = Servers::sentinel(Sentinel::MASTER, &[group.borrow().sentinel.url()], None).unwrap();
    let soon = ["SENTINEL", "SET", Sentinel::MASTER, "down-after-milliseconds", "1000"];
    assert_eq!(group.borrow().sentinel.cli(&soon), "OK");
    let kill = || group.borrow_mut().servers[0].kill();
    // Over when the Sentinel has named another.
    let promoted = || wait_until("the replica is the master", || group.borrow().master() == 1);
    play(name, servers, Plan { lasts: false, may_lose: true, ..OUTAGE }, kill, promoted);
}

fn cluster_master_killed(name: &'static str) {
    let cluster = std::cell::RefCell::new(Cluster::start());
    let servers = Servers::cluster(&cluster.borrow().urls()).unwrap();
    let master = cluster.borrow().master_of("ratelimit:p:{hot}").unwrap();
    for node in &cluster.borrow().nodes {
        assert_eq!(node.cli(&["CONFIG", "SET", "cluster-node-timeout", "1500"]), "OK");
    }
    let kill = || cluster.borrow_mut().nodes[master].kill();
    // Over when its replica serves in its place.
    let promoted = || {
        wait_until("its replica serves", || {
            let cluster = cluster.borrow();
            cluster.is_whole() && cluster.master_of("ratelimit:p:{hot}").is_some_and(|other| other != master)
        })
    };
    play(name, servers, Plan { lasts: false, may_lose: true, ..OUTAGE }, kill, promoted);
}

fn cluster_slot_moved(name: &'static str) {
    let cluster = Cluster::start();
    let servers = Servers::cluster(&cluster.urls()).unwrap();
    let key = "ratelimit:p:{hot}";
    let from = cluster.master_of(key).unwrap();
    let to = (0..6)
        .find(|&node| node != from && cluster.nodes[node].cli(&["ROLE"]).starts_with("master"))
        .unwrap();
    let (slot, from_id) = cluster.slot_and_id(key, from);
    let (_, to_id) = cluster.slot_and_id(key, to);
    let begin = || {
        cluster.nodes[to].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        cluster.nodes[from].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let port = cluster.nodes[to].port().to_string();
        cluster.nodes[from].cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    };
    let end = || {
        for node in &cluster.nodes {
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
    };
    play(name, servers, Plan { is_out: false, ..OUTAGE }, begin, end);
}
