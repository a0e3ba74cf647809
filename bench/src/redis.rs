//! Decisions in Redis: what they cost Redis and Ratewright, against a plain script and against limitador.
//!
//! Redis runs on the same machine. The plain script is sent by redis-benchmark, pipelined; ours goes the way of any
//! caller, `Store::apply`, with so many tasks waiting. Nothing is denied, so that every decision writes.

use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Act, BucketName, Charge, Key, Standings};
use ratewright_core::{Micros, Quota, Store};
use ratewright_lab::Redis;
use ratewright_store::{RedisSettings, RedisStore, Servers};
use tokio::runtime::Runtime;

use crate::rounds::{median, now, report};

const ROUNDS: usize = 5;
const KEYS: usize = 500;
const DECISIONS: usize = 60_000;

/// Microseconds of CPU for one decision.
#[derive(Clone, Copy)]
struct Cost {
    redis: f64,
    ratewright: f64,
    wall: f64,
}

/// Decisions a second of each of two instances, and how long all but one in a hundred may take (C9).
const RATE: usize = 10_000;
const P99_MAX: Duration = Duration::from_millis(10);

/// Runs all of it; against limitador, if its program is given.
pub(crate) fn run(peer: Option<&str>) -> Result<(), String> {
    let server = Redis::start();
    // One worker, as on one core; it keeps the link while the peer is measured.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let store = runtime.block_on(async { store_with(&server, true) });
    wait(&runtime, &store);
    let sha = server.cli(&["SCRIPT", "LOAD", include_str!("plain.lua")]);
    for n_charges in [1, 3] {
        let mut costs = Vec::new();
        let mut plains = Vec::new();
        for _ in 0..ROUNDS {
            plains.push(plain(&server, &sha));
            costs.push(ours(&runtime, &server, &store, n_charges, 128));
        }
        let redis = median(costs.iter().map(|cost| cost.redis).collect());
        report(&format!("redis-cpu-{n_charges}"), redis, median(plains));
    }
    if let Some(peer) = peer {
        against_limitador(peer, &runtime, &server, &store);
    }
    println!("tasks  Redis µs  Ratewright µs  wall µs, for each decision with one charge");
    for n_tasks in [1, 16, 128] {
        let cost = ours(&runtime, &server, &store, 1, n_tasks);
        println!("{n_tasks:5}  {:8.2}  {:13.2}  {:7.2}", cost.redis, cost.ratewright, cost.wall);
    }
    let terse = runtime.block_on(async { store_with(&server, false) });
    wait(&runtime, &terse);
    let costs = (0..ROUNDS).map(|_| ours(&runtime, &server, &terse, 1, 128).redis).collect();
    println!("128 tasks with `readable: false`: Redis {:.2} µs", median(costs));
    let worst = crate::worst::run(&runtime, &server);
    let p99 = p99_of_two_instances(&server);
    println!("two instances with {RATE} decisions a second each: p99 {:.2} ms", p99.as_secs_f64() * 1e3);
    verdict([worst, judge(p99)])
}

fn judge(p99: Duration) -> Result<(), String> {
    if p99 < P99_MAX { Ok(()) } else { Err(format!("the p99 has to be below {P99_MAX:?}")) }
}

/// All that is wrong, or that nothing is.
fn verdict<const N: usize>(judgements: [Result<(), String>; N]) -> Result<(), String> {
    let wrong: Vec<_> = judgements.into_iter().filter_map(Result::err).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Only the longest calls.
pub(crate) fn worst() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    crate::worst::run(&runtime.expect("a runtime"), &Redis::start())
}

/// The time that all but one in a hundred decisions stay below, from when each was due. Nobody waits for the one
/// before.
fn p99_of_two_instances(server: &Redis) -> Duration {
    let instance = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let store = store_with(server, true);
            while !store.status().is_up {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut tick = tokio::time::interval(Duration::from_millis(1));
            let mut waiting = Vec::new();
            for n in 0..5_000 {
                let due = tick.tick().await.into_std();
                waiting.extend((0..RATE / 1_000).map(|task| {
                    let store = store.clone();
                    tokio::spawn(async move {
                        decide(store, 1, n * 100 + task, 1).await;
                        due.elapsed()
                    })
                }));
            }
            let mut took = Vec::new();
            for decision in waiting {
                took.push(decision.await.expect("no task panics"));
            }
            took
        })
    };
    let mut took: Vec<_> = std::thread::scope(|scope| {
        let instances = [scope.spawn(instance), scope.spawn(instance)];
        instances.into_iter().flat_map(|instance| instance.join().expect("no instance panics")).collect()
    });
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

/// Wall time of a decision, ours and limitador's, with 128 tasks.
fn against_limitador(peer: &str, runtime: &Runtime, server: &Redis, store: &Arc<RedisStore>) {
    let (mut walls, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        walls.push(ours(runtime, server, store, 1, 128).wall);
        let numbers = [128, DECISIONS / 4, KEYS].map(|number| number.to_string());
        let output = Command::new(peer).arg(server.url()).args(numbers).output().expect("the peer runs");
        let micros = String::from_utf8_lossy(&output.stdout).trim().parse().expect("microseconds");
        peers.push(micros);
    }
    report("redis-limitador", median(walls), median(peers));
}

/// The clients that a task asks for: addresses in an order that nobody can guess.
fn clients(task: usize, n: usize) -> impl Iterator<Item = String> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(task as u64 + 1);
    (0..n).map(move |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        format!("10.0.{:08}", (x >> 32) as usize % KEYS)
    })
}

fn wait(runtime: &Runtime, store: &RedisStore) {
    runtime.block_on(async {
        while !store.status().is_up {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

fn store_with(server: &Redis, readable: bool) -> Arc<RedisStore> {
    let settings = RedisSettings::default().deadline(Duration::from_secs(10)).readable(readable);
    Arc::new(RedisStore::new(Servers::single(&server.url()).expect("an address"), settings))
}

/// Redis' CPU for one plain decision.
fn plain(server: &Redis, sha: &str) -> f64 {
    let before = server.cpu_nanos();
    let n = (DECISIONS * 2).to_string();
    let output = Command::new("redis-benchmark")
        .args([
            "-p",
            &server.port().to_string(),
            "-c",
            "4",
            "-P",
            "32",
            "-n",
            &n,
            "-r",
            &KEYS.to_string(),
            "-q",
        ])
        .args([
            "EVALSHA",
            sha,
            "1",
            "plain:per-client:__rand_int__",
            "1000",
            "100000000",
            "1763200000000",
            "60",
        ])
        .output()
        .expect("redis-benchmark runs");
    assert!(output.status.success());
    (server.cpu_nanos() - before) / 1e3 / (DECISIONS * 2) as f64
}

/// What decisions cost with so many tasks.
fn ours(
    runtime: &Runtime,
    server: &Redis,
    store: &Arc<RedisStore>,
    n_charges: usize,
    n_tasks: usize,
) -> Cost {
    let n_decisions = if n_tasks == 1 { DECISIONS / 6 } else { DECISIONS };
    let (redis, own, start) = (server.cpu_nanos(), process_cpu_nanos(), now());
    runtime.block_on(async {
        let tasks: Vec<_> = (0..n_tasks)
            .map(|task| tokio::spawn(decide(store.clone(), n_charges, task, n_decisions / n_tasks)))
            .collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
    });
    let n = (n_decisions / n_tasks * n_tasks) as f64 * 1e3;
    Cost {
        redis: (server.cpu_nanos() - redis) / n,
        ratewright: (process_cpu_nanos() - own) / n,
        wall: start.elapsed().as_nanos() as f64 / n,
    }
}

/// One task's decisions, one after the other.
async fn decide(store: Arc<RedisStore>, n_charges: usize, task: usize, n: usize) {
    let rate = "1000/s".parse().expect("a rate");
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate).expect("a quota");
    let names: Vec<_> = ["per-client", "per-route", "per-user"][..n_charges]
        .iter()
        .map(|name| BucketName::new(name, None, &quota, vec![Part::one(AttributeName::Ip)]))
        .collect();
    for client in clients(task, n) {
        let attributes = [Attribute { name: AttributeName::Ip, value: &client }];
        let charges: Vec<_> = names
            .iter()
            .map(|name| Charge {
                limit: LimitId::default(),
                key: Key::new(name, &attributes).expect("the attribute is there"),
                quota: &quota,
                act: Act::Take(NonZeroU32::MIN),
                patience: Micros::ZERO,
                on_failure: OnFailure::Local,
            })
            .collect();
        let mut standings = Standings::new();
        store.apply(&charges, &mut standings).await.expect("Redis answers");
    }
}

fn process_cpu_nanos() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmark_fails_for_either_figure_and_tells_both() {
        let (slow_call, slow_decisions) = (|| Err("a call".to_owned()), || judge(Duration::from_millis(10)));
        let p99 = "the p99 has to be below 10ms";
        assert_eq!(verdict([Ok(()), judge(Duration::from_micros(9_999))]), Ok(()));
        assert_eq!(verdict([slow_call(), Ok(())]), slow_call());
        assert_eq!(verdict([Ok(()), slow_decisions()]), Err(p99.to_owned()));
        assert_eq!(verdict([slow_call(), slow_decisions()]), Err(format!("a call; {p99}")));
    }
}
