//! Decisions in memory, against governor's keyed limiter: same keys, same quota, warm.
//!
//! Ours goes the way of any caller: a query, one policy, `Limiter::decide`, the system clock. The peer
//! is `RateLimiter::keyed` with its defaults. Keys are client addresses as text.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use governor::{DefaultKeyedRateLimiter, RateLimiter};
use tollgate_core::{Algorithm, Ask, Attribute, Decision, Limiter, Micros, Policies, Policy, Query, Quota, Refill, Verdict};
use tollgate_store::{MemoryStore, SystemClock};

use crate::rounds::{compare, report};

const ONE: NonZeroU32 = NonZeroU32::MIN;

type Ours = Limiter<std::sync::Arc<MemoryStore<SystemClock>>>;
type Peer = DefaultKeyedRateLimiter<String>;

/// Runs all of it.
pub(crate) fn run() {
    for (size, n_keys, n_ops) in [("hot", 1, 2_000_000), ("1k", 1_000, 2_000_000), ("1m", 1_000_000, 1_000_000)] {
        let keys = addresses(n_keys);
        let (ours, peer) = (limiter(4_000_000_000), governor(4_000_000_000));
        play_ours(&ours, &keys, n_keys as u64 * 4, 1, false);
        play_peer(&peer, &keys, n_keys as u64 * 4, 1, false);
        for threads in [1, 2] {
            let name = format!("memory-{size}-{threads}t");
            let all = n_ops * threads;
            compare(&name, all, || play_ours(&ours, &keys, n_ops, threads, true), || {
                play_peer(&peer, &keys, n_ops, threads, true);
            });
        }
    }
    let keys = addresses(1_000);
    let (ours, peer) = (limiter(1), governor(1));
    compare("memory-denied-1t", 2_000_000, || play_ours(&ours, &keys, 2_000_000, 1, true), || {
        play_peer(&peer, &keys, 2_000_000, 1, true);
    });
    bytes(1_000_000);
}

/// Resident bytes for each of so many keys, ours and the peer's.
fn bytes(n_keys: usize) {
    let keys = addresses(n_keys);
    let per_key = |fill: &dyn Fn() -> Box<dyn std::any::Any>| {
        let before = resident();
        let held = fill();
        let bytes = resident() - before;
        drop(held);
        bytes / n_keys as f64
    };
    let ours = per_key(&|| {
        let limiter = limiter(100);
        keys.iter().for_each(|key| drop(black_box(decide(&limiter, key))));
        Box::new(limiter)
    });
    let peer = per_key(&|| {
        let limiter = governor(100);
        keys.iter().for_each(|key| drop(black_box(limiter.check_key(key))));
        Box::new(limiter)
    });
    report("memory-bytes", ours, peer);
}

fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as f64
}

fn limiter(per_second: u32) -> Ours {
    let rate = format!("{per_second}/s").parse().expect("a rate");
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate).expect("a quota");
    let policy = Policy::new("per-client", quota).expect("a policy").by(&["client"]);
    let store = MemoryStore::new(SystemClock::new(), 2_000_000);
    Limiter::new(Policies::new(vec![policy]).expect("a rule set"), store.into())
}

fn governor(per_second: u32) -> Peer {
    RateLimiter::keyed(governor::Quota::per_second(NonZeroU32::new(per_second).expect("not zero")))
}

fn decide(limiter: &Ours, key: &str) -> Decision {
    let attributes = [Attribute { name: "client", value: key }];
    let query = Query { policies: &[], attributes: &attributes, ask: Ask::Spend(ONE), patience: Micros::ZERO };
    let decision = pin!(limiter.decide(&query));
    match decision.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision,
        Poll::Pending => unreachable!("the memory store answers at once"),
    }
}

fn play_ours(limiter: &Ours, keys: &[String], n: u64, threads: u64, random: bool) {
    play(keys, n, threads, random, |key| decide(limiter, key).verdict() == Verdict::Allow);
}

fn play_peer(limiter: &Peer, keys: &[String], n: u64, threads: u64, random: bool) {
    play(keys, n, threads, random, |key| limiter.check_key(key).is_ok());
}

/// Asks `n` times on each thread, in an order that caches cannot guess, or in turn.
fn play(keys: &[String], n: u64, threads: u64, random: bool, ask: impl Fn(&String) -> bool + Sync) {
    let worker = |thread: u64| {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread + 1);
        let mut allowed = 0u64;
        for i in 0..n {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let index = if random { (x >> 32) * keys.len() as u64 >> 32 } else { i % keys.len() as u64 };
            allowed += u64::from(ask(&keys[index as usize]));
        }
        black_box(allowed);
    };
    if threads == 1 {
        return worker(0);
    }
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || worker(thread));
        }
    });
}

fn addresses(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("10.{}.{}.{}", i >> 16 & 255, i >> 8 & 255, i & 255)).collect()
}
