//! The memory store under floods and threads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::store::{Act, BucketName, Charge, Key, Outcome, Standings};
use ratewright_core::{Clock, ManualClock, Micros, Quota, Store, Timestamp};
use ratewright_lab::is_full_run;
use ratewright_store::{MemoryStore, SystemClock};

use crate::bounds::check_never_over;
use crate::world::{ready, take};

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::TokenBucket(Refill::Smooth),
    Algorithm::TokenBucket(Refill::Stepped),
    Algorithm::LeakyBucket(Leak::Queue),
    Algorithm::SlidingWindow,
    Algorithm::SlidingWindowCounter,
    Algorithm::FixedWindow(WindowStart::Epoch),
    Algorithm::FixedWindow(WindowStart::FirstHit),
];

/// A store that threads share, and one limit.
struct Shared {
    store: MemoryStore<ManualClock>,
    clock: ManualClock,
    quota: Quota,
    name: BucketName,
}

impl Shared {
    fn new(algorithm: Algorithm, rate: &str, n_keys_max: usize) -> Self {
        let clock = ManualClock::at(NOW);
        let quota = Quota::new(algorithm, rate.parse().unwrap()).unwrap();
        let name = BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]);
        Self { store: MemoryStore::new(clock.clone(), n_keys_max), clock, quota, name }
    }

    /// Takes one unit from each of these clients, all or nothing.
    fn take(&self, clients: &[&str]) -> bool {
        let standings = self.apply(clients, take(1));
        standings.iter().all(|standing| matches!(standing.outcome, Outcome::Charged(_)))
    }

    fn remaining(&self, client: &str) -> u32 {
        self.apply(&[client], Act::Look(0))[0].remaining
    }

    fn apply(&self, clients: &[&str], act: Act) -> Standings {
        let clients: Vec<_> =
            clients.iter().map(|client| [Attribute { name: AttributeName::Ip, value: client }]).collect();
        let charge = |client| Charge {
            limit: LimitId::default(),
            key: Key::new(&self.name, client).unwrap(),
            quota: &self.quota,
            act,
            patience: Micros::MAX,
            on_failure: OnFailure::Local,
        };
        let charges: Vec<_> = clients.iter().map(|client| charge(client)).collect();
        let mut standings = Standings::new();
        ready(self.store.apply(&charges, &mut standings)).unwrap();
        standings
    }
}

/// Runs the same on eight threads, and tells how often it was true.
fn on_eight_threads(times: u32, ask: impl Fn(u32) -> bool + Sync) -> u64 {
    let n_true = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (ask, n_true) = (&ask, &n_true);
            scope.spawn(move || {
                let n = (0..times).filter(|n| ask(thread * times + n)).count();
                n_true.fetch_add(n as u64, Ordering::Relaxed);
            });
        }
    });
    n_true.into_inner()
}

#[test]
fn a_flood_of_keys_meets_the_cap_and_offenders_stay_limited() {
    const CAP: usize = 100_000;
    let n_keys = if is_full_run() { 5_000_000 } else { 500_000 };
    let shared = Shared::new(Algorithm::TokenBucket(Refill::Smooth), "10/min", CAP);
    let offenders: Vec<String> = (0..1_000).map(|n| format!("offender-{n}")).collect();
    for offender in &offenders {
        (0..10).for_each(|_| assert!(shared.take(&[offender])));
        assert!(!shared.take(&[offender]));
    }
    let mut n_bytes = 0;
    for n in 0..n_keys {
        shared.take(&[&format!("flood-{n}")]);
        if n % 100_000 == 99_999 {
            let stats = shared.store.stats();
            assert!(stats.n_keys <= CAP && stats.n_keys_max == CAP, "{stats:?}");
            n_bytes = n_bytes.max(stats.n_bytes);
        }
    }
    assert!(n_bytes < CAP * 100, "{n_bytes} bytes for {CAP} keys");
    assert!(shared.store.stats().n_evicted > n_keys - 200_000);
    let limited = offenders.iter().filter(|offender| !shared.take(&[offender])).count();
    assert_eq!(limited, 1_000, "every offender is still over its limit");
}

/// A flood under a quota of one unit is spent as far as any offender, and later. Still it pushes out only its own keys.
#[test]
fn a_flood_under_one_limit_leaves_those_of_others_alone() {
    let flood_quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/h".parse().unwrap()).unwrap();
    let flood_name = BucketName::new("search", None, &flood_quota, vec![Part::one(AttributeName::Ip)]);
    for algorithm in ALGORITHMS {
        let login = Shared::new(algorithm, "5/min", 4_000);
        let offenders: Vec<String> = (0..100).map(|n| format!("offender-{n}")).collect();
        for offender in &offenders {
            (0..5).for_each(|_| assert!(login.take(&[offender]), "{algorithm:?}"));
        }
        login.clock.advance(Micros::from_secs(1));
        let flood = Shared { name: flood_name.clone(), quota: flood_quota.clone(), ..login };
        (0..40_000).for_each(|n| assert!(flood.take(&[&format!("flood-{n}")])));
        let quota = Quota::new(algorithm, "5/min".parse().unwrap()).unwrap();
        let name = BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]);
        let login = Shared { name, quota, ..flood };
        let limited = offenders.iter().filter(|offender| !login.take(&[offender])).count();
        assert_eq!(limited, 100, "{algorithm:?}");
    }
}

/// The same for each algorithm, in small: whoever has spent all stays limited.
#[test]
fn a_flood_pushes_out_itself_whatever_the_algorithm() {
    for algorithm in ALGORITHMS {
        let shared = Shared::new(algorithm, "8/h", 2_000);
        let offenders: Vec<String> = (0..20).map(|n| format!("offender-{n}")).collect();
        for offender in &offenders {
            (0..8).for_each(|_| assert!(shared.take(&[offender]), "{algorithm:?}"));
        }
        (0..20_000).for_each(|n| assert!(shared.take(&[&format!("flood-{n}")])));
        assert!(shared.store.stats().n_keys <= 2_000, "{algorithm:?}");
        for offender in &offenders {
            assert!(!shared.take(&[offender]), "{algorithm:?}: {offender} was let go");
        }
    }
}

/// A long window must not outlive an offender of a short one: fractions count, not times.
#[test]
fn a_long_window_cannot_push_out_an_offender() {
    let shared = Shared::new(Algorithm::TokenBucket(Refill::Smooth), "5/s", 1_000);
    let monthly = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1000/month".parse().unwrap()).unwrap();
    (0..5).for_each(|_| assert!(shared.take(&["offender"])));
    let flood = Shared {
        name: BucketName::new("m", None, &monthly, vec![Part::one(AttributeName::Ip)]),
        quota: monthly,
        ..shared
    };
    (0..10_000).for_each(|n| assert!(flood.take(&[&format!("flood-{n}")])));
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "5/s".parse().unwrap()).unwrap();
    let shared = Shared {
        name: BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]),
        quota,
        ..flood
    };
    assert!(!shared.take(&["offender"]));
}

#[test]
fn a_bucket_that_is_full_again_is_no_bucket() {
    for algorithm in ALGORITHMS {
        let shared = Shared::new(algorithm, "10/s", 1_000_000);
        for n in 0..100_000 {
            shared.take(&[&format!("c-{n}")]);
            shared.clock.advance(Micros::new(100));
        }
        // Ten thousand come in each second, and each means something for one or two.
        let stats = shared.store.stats();
        assert!(stats.n_keys < 50_000, "{algorithm:?}: {stats:?}");
        assert_eq!(stats.n_evicted, 0, "what was let go meant nothing: {algorithm:?}");
    }
}

#[test]
fn eight_threads_on_one_key_admit_exactly_the_burst() {
    for algorithm in ALGORITHMS {
        let shared = Shared::new(algorithm, "5000/h", 1_000);
        let admitted = on_eight_threads(2_000, |_| shared.take(&["hot"]));
        assert_eq!(admitted, 5_000, "{algorithm:?}");
    }
}

#[test]
fn eight_threads_on_keys_of_one_shard_admit_exactly_the_bursts() {
    // A store so small has one shard, so that all keys meet in it.
    let shared = Shared::new(Algorithm::TokenBucket(Refill::Smooth), "500/h", 60);
    let clients: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    let admitted = on_eight_threads(2_000, |n| shared.take(&[&clients[n as usize % 10]]));
    assert_eq!(admitted, 5_000);
}

#[test]
fn charges_on_several_shards_are_all_or_nothing_and_do_not_deadlock() {
    for algorithm in ALGORITHMS {
        let shared = Shared::new(algorithm, "1000/h", 100_000);
        // Threads take pairs and triples in every order, so that locks would cross if they could.
        let sets: [&[&str]; 6] =
            [&["a", "b"], &["b", "c"], &["c", "a"], &["b", "a"], &["c", "b", "a"], &["a", "c", "b"]];
        let spent = AtomicU64::new(0);
        on_eight_threads(1_500, |n| {
            let set = sets[n as usize % sets.len()];
            let paid = shared.take(set);
            spent.fetch_add(if paid { set.len() as u64 } else { 0 }, Ordering::Relaxed);
            paid
        });
        let left: u32 = ["a", "b", "c"].iter().map(|client| shared.remaining(client)).sum();
        assert_eq!(
            spent.into_inner() + u64::from(left),
            3_000,
            "{algorithm:?}: what is spent is what was admitted"
        );
        assert!(left < 3_000);
    }
}

#[test]
fn a_store_shown_shows_no_secret() {
    let shared = Shared::new(Algorithm::SlidingWindow, "1/h", 10);
    let shown = format!("{:?}", shared.store);
    assert!(
        shown.starts_with("MemoryStore { stats: MemoryStats { n_keys: 0,") && shown.ends_with(", .. }"),
        "{shown}"
    );
}

#[test]
fn a_store_for_one_key_holds_one_key() {
    let shared = Shared::new(Algorithm::SlidingWindow, "1/h", 0);
    assert!(shared.take(&["a"]) && !shared.take(&["a"]) && shared.take(&["b"]) && !shared.take(&["b"]));
    assert_eq!(shared.store.stats().n_keys, 1);
}

/// Each of these logs wants 16 KB or more; all of them would take a hundred times what they may.
#[test]
fn the_bytes_of_logs_are_bounded_and_offenders_stay_limited() {
    let shared = Shared::new(Algorithm::SlidingWindow, "1000/h", 10_000);
    let spend_all = |client: &str| {
        (0..1_000).for_each(|_| {
            shared.clock.advance(Micros::new(1));
            assert!(shared.take(&[client]));
        });
    };
    let offenders: Vec<String> = (0..64).map(|n| format!("offender-{n}")).collect();
    offenders.iter().for_each(|offender| spend_all(offender));
    for n in 0..200_000 {
        // Half spent each, by the time the next comes.
        shared.clock.advance(Micros::new(1));
        shared.take(&[&format!("c{}", n / 500)]);
    }
    let stats = shared.store.stats();
    assert!(stats.n_bytes < 70 << 20, "{stats:?}");
    for offender in &offenders {
        assert!(!shared.take(&[offender]), "{offender} was let go");
    }
    shared.clock.advance(Micros::from_secs(3_600));
    (0..100_000).for_each(|n| {
        shared.take(&[&format!("later-{n}")]);
    });
    let stats = shared.store.stats();
    assert!(stats.n_keys <= 10_000 && stats.n_bytes < 10 << 20, "what logs took is given back: {stats:?}");
}

/// A single log past the cap of its shard stays: it is in hand. Recording does not make it grow without end.
#[test]
fn a_log_that_is_recorded_to_for_ever_stays_within_two_limits() {
    let shared = Shared::new(Algorithm::SlidingWindow, "100/h", 10);
    for _ in 0..100_000 {
        shared.clock.advance(Micros::new(1));
        shared.apply(&["a"], Act::Record(1));
    }
    assert!(shared.store.stats().n_bytes < 10_000, "{:?}", shared.store.stats());
    assert!(!shared.take(&["a"]));
}

/// A full table that keeps exchanging keys stays as large as it is.
#[test]
fn churn_at_the_cap_does_not_grow_the_table() {
    let shared = Shared::new(Algorithm::TokenBucket(Refill::Smooth), "10/h", 200_000);
    (0..300_000).for_each(|n| assert!(shared.take(&[&format!("a{n}")])));
    let full = shared.store.stats();
    let n_exchanged = if is_full_run() { 800_000 } else { 300_000 };
    (0..n_exchanged).for_each(|n| assert!(shared.take(&[&format!("b{n}")])));
    assert_eq!(shared.store.stats().n_bytes, full.n_bytes);
    assert!(full.n_bytes < 200_000 * 50, "{full:?}");
}

/// The real clock and more threads than processors: some wait for the lock with their time slice gone, and none
/// may spend what time has not returned.
#[test]
fn threads_under_a_moving_clock_are_never_over() {
    for algorithm in ALGORITHMS {
        let clock = std::sync::Arc::new(SystemClock::new());
        let store = MemoryStore::new(std::sync::Arc::clone(&clock), 1_000);
        let quota = Quota::new(algorithm, "1/ms".parse().unwrap()).unwrap();
        let name = BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]);
        let client = [Attribute { name: AttributeName::Ip, value: "hot" }];
        let ends_at = clock.now() + Micros::from_millis(if is_full_run() { 300 } else { 100 });
        let latest = clock.now() + Micros::from_secs(60);
        // On a busy machine, longer: until enough have passed to be judged.
        let n_paid = AtomicUsize::new(0);
        let goes_on =
            || clock.now() < ends_at || (n_paid.load(Ordering::SeqCst) <= 10 && clock.now() < latest);
        let paid_by_one = || {
            let mut paid = Vec::new();
            while goes_on() {
                let key = Key::new(&name, &client).unwrap();
                let limit = LimitId::default();
                let charge = Charge {
                    limit,
                    key,
                    quota: &quota,
                    act: take(1),
                    patience: Micros::MAX,
                    on_failure: OnFailure::Local,
                };
                let mut standings = Standings::new();
                ready(store.apply(&[charge], &mut standings)).unwrap();
                if let Outcome::Charged(receipt) = &standings[0].outcome {
                    paid.push(receipt.paid_at.as_micros());
                    n_paid.fetch_add(1, Ordering::SeqCst);
                }
            }
            paid
        };
        let mut paid: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(paid_by_one)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        paid.sort_unstable();
        let paid: Vec<_> = paid.into_iter().map(|at| (at, 1)).collect();
        assert!(paid.len() > 10, "{algorithm:?}: some pass");
        check_never_over(&quota, &paid).unwrap();
    }
}
