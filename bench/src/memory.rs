//! Decisions in memory, against governor's keyed limiter: same keys, same quota, warm.
//!
//! Ours goes the way of any caller: a query, one policy, `Limiter::decide`, the system clock. The peer
//! is `RateLimiter::keyed` with its defaults. Keys are client addresses as text.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use governor::{DefaultKeyedRateLimiter, RateLimiter};
use ratewright_core::policy::Selector;
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Rate, Refill};
use ratewright_core::{Decision, Limiter, Micros, Policies, Policy, Query, Quota, Verdict};
use ratewright_store::{KeyedLimiter, MemoryStore, SystemClock};

use crate::rounds::{compare, report, thread_cpu_nanos};

/// Questions in a batch, and batches in a round.
const BATCH: usize = 2_048;
const BATCHES: usize = 200;

/// More than any key is asked for, so that nothing is denied; and what is spent stays spent for hours, so that
/// no bucket is full again while it is measured, and all keys stay in the table.
const BURST: NonZeroU32 = NonZeroU32::new(100_000_000).expect("not zero");

/// Keys whose bytes are counted.
const BYTES_KEYS: usize = 1_000_000;

pub(crate) const ONE: NonZeroU32 = NonZeroU32::MIN;

const TOKEN: Algorithm = Algorithm::TokenBucket(Refill::Smooth);

type Ours = Limiter<MemoryStore<SystemClock>>;
type Peer = DefaultKeyedRateLimiter<String>;

/// Runs all of it.
pub(crate) fn run() {
    for (size, n_keys) in [("hot", 1), ("1k", 1_000), ("1m", 1_000_000)] {
        let (ours, peer) = (limiter(BURST), governor(BURST));
        (0..n_keys).for_each(|n| {
            black_box(decide(&ours, &address(n)));
            black_box(peer.check_key(&address(n)).is_ok());
        });
        for threads in [1, 2] {
            let ours = || play(n_keys, threads, |key| decide(&ours, key).verdict() == Verdict::Allow);
            compare(&format!("memory-{size}-{threads}t"), ours, || {
                play(n_keys, threads, |key| peer.check_key(key).is_ok())
            });
        }
    }
    let (ours, peer) = (limiter(ONE), governor(ONE));
    let ours = || play(1_000, 1, |key| decide(&ours, key).verdict() == Verdict::Allow);
    compare("memory-denied-1t", ours, || play(1_000, 1, |key| peer.check_key(key).is_ok()));
    keyed();
    flat();
    report("memory-bytes", bytes_of("ours"), bytes_of("peer"));
}

/// The limiter for one quota, without policies: what a program uses in governor's place.
fn keyed() {
    let keyed = |quota: Quota| KeyedLimiter::new(quota, SystemClock::new(), 2_000_000);
    let many = || Quota::per_hour(1_000).burst(BURST.get());
    for (size, n_keys, threads) in [("hot", 1, 1), ("hot", 1, 2), ("1m", 1_000_000, 1)] {
        let (ours, peer) = (keyed(many()), governor(BURST));
        (0..n_keys).for_each(|n| {
            black_box(ours.check(address(n).as_str()).is_ok());
            black_box(peer.check_key(&address(n)).is_ok());
        });
        let ours = || play(n_keys, threads, |key| ours.check(key).is_ok());
        let peer = || play(n_keys, threads, |key| peer.check_key(key).is_ok());
        compare(&format!("keyed-{size}-{threads}t"), ours, peer);
    }
    let (ours, peer) = (keyed(Quota::per_hour(1_000).burst(1)), governor(ONE));
    let ours = || play(1_000, 1, |key| ours.check(key).is_ok());
    compare("keyed-denied-1t", ours, || play(1_000, 1, |key| peer.check_key(key).is_ok()));
}

/// Costs that must stay flat: the other policies in the rule set, and the other algorithms. Here the peer is
/// ours too, with one policy and the token bucket.
fn flat() {
    let alone = limiter(BURST);
    let plain = || play(1_000, 1, |key| decide(&alone, key).verdict() == Verdict::Allow);
    let others = (0..10_000).map(|n| policy(&format!("other-{n}"), TOKEN).with_selector(Selector::Named));
    let crowd = limiter_of(others.chain([policy("per-client", TOKEN)]).collect());
    compare(
        "memory-flat-policies",
        || play(1_000, 1, |key| decide(&crowd, key).verdict() == Verdict::Allow),
        plain,
    );
    for name in Algorithm::NAMES.into_iter().filter(|name| *name != "sliding_window") {
        let one = limiter_of(vec![policy("per-client", Algorithm::named(name).expect("an algorithm"))]);
        let ours = || play(1_000, 1, |key| decide(&one, key).verdict() == Verdict::Allow);
        compare(&format!("memory-flat-{name}"), ours, plain);
    }
}

/// Prints the resident bytes that so many keys take, of one side. A process of its own, so that nothing is
/// left over from before.
pub(crate) fn bytes(side: &str) {
    let before = resident();
    let (ours, peer) = (limiter(BURST), governor(BURST));
    for n in 0..BYTES_KEYS {
        match side {
            "ours" => drop(black_box(decide(&ours, &address(n)))),
            _ => drop(black_box(peer.check_key(&address(n)))),
        }
    }
    println!("{}", (resident() - before) / BYTES_KEYS as f64);
}

fn bytes_of(side: &str) -> f64 {
    let program = std::env::current_exe().expect("the path of this program");
    let output = std::process::Command::new(program).args(["memory-bytes", side]).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as f64
}

fn limiter(burst: NonZeroU32) -> Ours {
    let quota = Quota::new(TOKEN, rate("1000/h")).and_then(|quota| quota.with_burst(burst)).expect("a quota");
    limiter_of(vec![Policy::new("per-client", quota).expect("a policy").by(&[AttributeName::Ip])])
}

fn limiter_of(policies: Vec<Policy>) -> Ours {
    let store = MemoryStore::new(SystemClock::new(), 2_000_000);
    Limiter::new(Policies::new(policies).expect("a rule set"), store)
}

/// A policy that no client exhausts.
fn policy(name: &str, algorithm: Algorithm) -> Policy {
    let quota = Quota::new(algorithm, rate("100000000/h")).expect("a quota");
    Policy::new(name, quota).expect("a policy").by(&[AttributeName::Ip])
}

fn rate(text: &str) -> Rate {
    text.parse().expect("a rate")
}

fn governor(burst: NonZeroU32) -> Peer {
    let rate = NonZeroU32::new(1_000).expect("not zero");
    RateLimiter::keyed(governor::Quota::per_hour(rate).allow_burst(burst))
}

fn decide(limiter: &Ours, key: &str) -> Decision {
    let attributes = [Attribute { name: AttributeName::Ip, value: key }];
    let query = Query {
        select: Select::Covering(&[]),
        attributes: &attributes,
        address: None,
        ask: Ask::Spend(ONE),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    };
    ready(limiter.decide(&query))
}

/// What a future comes to that never waits.
#[inline(always)]
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}

/// Asks on each thread, and tells the CPU time of one question in nanoseconds. Questions come in batches
/// whose keys lie ready in the cache, as a request's do that was just read, in an order that nobody can guess.
fn play(n_keys: usize, threads: u64, ask: impl Fn(&String) -> bool + Sync) -> f64 {
    let worker = |thread: u64| {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread + 1);
        let mut nanos = 0.0;
        for _ in 0..BATCHES {
            let random = |_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                address((((x >> 32) * n_keys as u64) >> 32) as usize)
            };
            let keys: Vec<String> = (0..BATCH).map(random).collect();
            let before = thread_cpu_nanos();
            let allowed = keys.iter().filter(|key| ask(key)).count();
            nanos += thread_cpu_nanos() - before;
            black_box(allowed);
        }
        nanos / (BATCHES * BATCH) as f64
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || worker(thread))).collect();
        let nanos = workers.into_iter().map(|worker| worker.join().expect("no worker panics"));
        nanos.sum::<f64>() / threads as f64
    })
}

fn address(n: usize) -> String {
    format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255)
}
