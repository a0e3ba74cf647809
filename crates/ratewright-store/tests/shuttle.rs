//! The memory store's kernel under a scheduler that tries other interleavings at each lock.
//!
//! Built with the feature `shuttle`, where the store's lock is one that the scheduler knows.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Act, BucketName, Charge, Key, Outcome, Standings};
use ratewright_core::{ManualClock, Micros, Quota, Store, Timestamp};
use ratewright_store::MemoryStore;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

const SCHEDULES: usize = 500;

/// Takes one unit from each client, all or nothing.
fn take(store: &MemoryStore<ManualClock>, quota: &Quota, name: &BucketName, clients: &[&str]) -> bool {
    let clients: Vec<_> =
        clients.iter().map(|client| [Attribute { name: AttributeName::Ip, value: client }]).collect();
    let charge = |client| Charge {
        limit: LimitId::default(),
        key: Key::new(name, client).unwrap(),
        quota,
        act: Act::Take(NonZeroU32::MIN),
        patience: Micros::ZERO,
        on_failure: OnFailure::Local,
    };
    let charges: Vec<_> = clients.iter().map(|client| charge(client)).collect();
    let mut standings = Standings::new();
    let answered = pin!(store.apply(&charges, &mut standings)).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(answered, Poll::Ready(Ok(())), "the memory store answers at once");
    standings.iter().all(|standing| matches!(standing.outcome, Outcome::Charged(_)))
}

/// Lets threads take from these sets of clients, two each, and checks that all that was admitted was spent.
fn check(n_keys_max: usize, sets: &'static [&'static [&'static str]], burst: u32) {
    let run = move || {
        let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
        let store = Arc::new(MemoryStore::new(clock, n_keys_max));
        let rate = format!("{burst}/h").parse().unwrap();
        let quota = Arc::new(Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate).unwrap());
        let name = Arc::new(BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]));
        let spent = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = sets
            .iter()
            .map(|set| {
                let (store, quota, name, spent) = (store.clone(), quota.clone(), name.clone(), spent.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        if take(&store, &quota, &name, set) {
                            spent.fetch_add(u32::try_from(set.len()).unwrap(), Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let clients: std::collections::BTreeSet<_> = sets.iter().flat_map(|set| set.iter()).collect();
        let mut left = 0;
        for client in &clients {
            left += (0..=burst).take_while(|_| take(&store, &quota, &name, &[client])).count();
        }
        let spent = usize::try_from(spent.load(Ordering::SeqCst)).unwrap();
        assert_eq!(spent + left, usize::try_from(burst).unwrap() * clients.len());
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
}

#[test]
fn one_key_admits_exactly_the_burst() {
    check(1_000, &[&["a"], &["a"], &["a"]], 4);
}

#[test]
fn keys_of_one_shard_admit_exactly_their_bursts() {
    check(60, &[&["a"], &["b"], &["a"], &["b"]], 3);
}

#[test]
fn charges_on_several_shards_are_all_or_nothing_and_do_not_deadlock() {
    check(100_000, &[&["a", "b"], &["b", "a"], &["b", "c", "a"], &["c", "a"]], 3);
}
