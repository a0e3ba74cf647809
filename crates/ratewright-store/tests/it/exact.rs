//! C9: any number of instances admit what one would. Four stores on one Redis, far more load than the limits allow.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Act, BucketName, Charge, Key, Outcome, Standings};
use ratewright_core::{Micros, Quota, Store};
use ratewright_lab::{Load, Redis, is_full_run, wait_until, within};
use ratewright_store::{RedisStore, Servers};

use crate::redis::settings;

/// What each client paid under each policy, and when by Redis' clock.
type Paid = HashMap<(usize, String), Vec<u64>>;

fn bucket(rate: &str, burst: u32) -> Quota {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate.parse().unwrap()).unwrap();
    quota.with_burst(NonZeroU32::new(burst).unwrap()).unwrap()
}

/// The fewest queries of each instance, however slow the machine is: more than three for each of five hundred clients.
const QUERIES_MIN: usize = 1_600;

/// How long it takes at least, in microseconds: half a second, three under `make test-all`, and longer under `make chaos`.
fn duration() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a test's own setting")]
    let seconds = std::env::var("CHAOS_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let usual = if is_full_run() { 3_000_000 } else { 500_000 };
    seconds.map_or(usual, |seconds| seconds * 1_000_000)
}

/// Plays four instances, four tasks each: `client` says who the n-th query is by. Tells what
/// was paid, and from when until when all were at work.
fn play(quotas: &[Quota], client: impl Fn(usize) -> String + Sync) -> (Paid, u64, u64) {
    let server = Redis::start();
    let names: Vec<_> = (0..quotas.len())
        .map(|n| BucketName::new(&format!("p{n}"), None, &quotas[n], vec![Part::one(AttributeName::Ip)]))
        .collect();
    let n_queries = [(); 4].map(|()| AtomicUsize::new(0));
    let instance = |instance: usize, goes_on: &dyn Fn() -> bool| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = RedisStore::new(Servers::single(&server.url()).unwrap(), settings("ratelimit"));
            let is_up = async {
                while !store.status().is_up {
                    tokio::task::yield_now().await;
                }
            };
            within("the link is up", is_up).await;
            let (store, names, client, n_queries) = (&store, &names, &client, &n_queries[instance]);
            let task = async |task: usize| {
                let mut paid = Vec::new();
                for n in 0.. {
                    if !goes_on() {
                        break;
                    }
                    n_queries.fetch_add(1, Ordering::Relaxed);
                    let client = client(n * 16 + instance * 4 + task);
                    let attributes = [Attribute { name: AttributeName::Ip, value: &client }];
                    let charges: Vec<_> = names
                        .iter()
                        .zip(quotas)
                        .map(|(name, quota)| Charge {
                            limit: LimitId::default(),
                            key: Key::new(name, &attributes).unwrap(),
                            quota,
                            act: Act::Take(NonZeroU32::MIN),
                            patience: Micros::ZERO,
                            on_failure: OnFailure::Closed,
                        })
                        .collect();
                    let mut standings = Standings::new();
                    within("the store answers", store.apply(&charges, &mut standings)).await.unwrap();
                    let all_paid =
                        standings.iter().all(|standing| matches!(standing.outcome, Outcome::Charged(_)));
                    let any_paid =
                        standings.iter().any(|standing| matches!(standing.outcome, Outcome::Charged(_)));
                    assert_eq!(all_paid, any_paid, "all or nothing");
                    for (policy, standing) in standings.into_iter().enumerate() {
                        if let Outcome::Charged(receipt) = standing.outcome {
                            paid.push(((policy, client.clone()), receipt.paid_at.as_micros()));
                        }
                    }
                }
                paid
            };
            futures_util::future::join_all((0..4).map(task)).await.concat()
        })
    };
    let (paid, from, until) = std::thread::scope(|scope| {
        let load = Load::default();
        let start = |n| {
            let (instance, goes_on) = (&instance, load.goes_on());
            scope.spawn(move || instance(n, &goes_on))
        };
        let instances: Vec<_> = (0..4).map(start).collect();
        wait_until("all are at work", || n_queries.iter().all(|n| n.load(Ordering::Relaxed) > 0));
        let from = server.now();
        let mut until = from;
        wait_until("the time is over, and all have asked often enough", || {
            until = server.now();
            until - from > duration() && n_queries.iter().all(|n| n.load(Ordering::Relaxed) >= QUERIES_MIN)
        });
        // What came back before that is asked for, even if the machine stood still at the end.
        let so_far: Vec<_> = n_queries.iter().map(|n| n.load(Ordering::Relaxed)).collect();
        wait_until("all is spent", || {
            n_queries.iter().zip(&so_far).all(|(n, before)| n.load(Ordering::Relaxed) >= before + 500)
        });
        load.end();
        let paid: Vec<_> = instances.into_iter().flat_map(|instance| instance.join().unwrap()).collect();
        (paid, from, until)
    });
    let mut by_key = Paid::new();
    for (key, at) in paid {
        by_key.entry(key).or_default().push(at);
    }
    (by_key, from, until)
}

/// No client is ever over, by Redis' clock.
fn check_never_over(paid: &Paid, quotas: &[Quota]) {
    for ((policy, client), times) in paid {
        let over = crate::chaos::excess(&quotas[*policy], times.clone());
        assert_eq!(over, 0, "{client} under policy {policy}, {} paid", times.len());
    }
}

/// A client that asked without pause got all that was there, to one per cent.
fn check_all_of_it(times: &[u64], quota: &Quota, from: u64, until: u64) {
    let most = u64::from(quota.capacity().get())
        + (until - from) * u64::from(quota.units()) / quota.window().as_micros();
    let n = times.len() as u64;
    assert!(n * 100 >= most * 99, "{n} paid of {most}");
}

#[test]
fn c9_one_hot_key() {
    // A burst of two seconds: who is kept from asking for less than that loses nothing.
    let quotas = [bucket("100/s", 200)];
    let (paid, from, until) = play(&quotas, |_| "hot".to_owned());
    check_never_over(&paid, &quotas);
    check_all_of_it(&paid[&(0, "hot".to_owned())], &quotas[0], from, until);
}

#[test]
fn c9_five_hundred_keys() {
    let quotas = [bucket("2/s", 3)];
    let (paid, from, until) = play(&quotas, |n| (n % 500).to_string());
    check_never_over(&paid, &quotas);
    assert_eq!(paid.len(), 500);
    assert!(paid.values().all(|times| times.len() >= 3), "each client had its burst");
    // Each must be asked for often enough to get the rest, which takes a machine with nothing else to do.
    if duration() > 5_000_000 {
        let n_paid: usize = paid.values().map(Vec::len).sum();
        let most = 500 * (3 + (until - from) * 2 / 1_000_000);
        assert!(n_paid as u64 * 100 >= most * 99, "{n_paid} paid of {most}");
    }
}

#[test]
fn c9_several_policies_in_one_query() {
    let quotas = [bucket("200/s", 300), bucket("50/s", 100), bucket("1000/s", 1_000)];
    let (paid, from, until) = play(&quotas, |_| "hot".to_owned());
    check_never_over(&paid, &quotas);
    // The narrowest decides for all three.
    let counts: Vec<_> = (0..3).map(|policy| paid[&(policy, "hot".to_owned())].len()).collect();
    assert!(counts.iter().all(|n| *n == counts[0]), "{counts:?}");
    check_all_of_it(&paid[&(1, "hot".to_owned())], &quotas[1], from, until);
}

#[test]
fn c9_skewed_load() {
    let quotas = [bucket("20/s", 40)];
    // Half of all queries are the first client's, half of the rest the second's, and so on.
    let (paid, from, until) = play(&quotas, |n| n.trailing_ones().to_string());
    check_never_over(&paid, &quotas);
    check_all_of_it(&paid[&(0, "0".to_owned())], &quotas[0], from, until);
}
