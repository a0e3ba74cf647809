//! What is stored in Redis: its keys and fields, how long they live, and what is made of states that nobody wrote.

use std::collections::HashMap;

use proptest::prelude::*;
use ratewright_core::policy::{Condition, Part, Pattern};
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::store::{
    Act, Basis, BucketName, Charge, Charges, Key, Outcome, Receipt, Refund, Standings,
};
use ratewright_core::{ManualClock, Micros, Policies, Policy, Query, Quota, Store, Timestamp};
use ratewright_lab::Redis;
use ratewright_store::{MemoryStore, RedisStore, Servers};

use super::{TOKEN, apply, connected, is_paid, quota, reset, settings, store_on};
use crate::world::{block_on, take};

fn fields(server: &Redis, key: &str) -> HashMap<String, String> {
    let lines = server.cli(&["HGETALL", key]);
    let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
    lines.chunks(2).filter_map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone()))).collect()
}

fn ttl(server: &Redis, key: &str) -> i64 {
    server.cli(&["PTTL", key]).parse().unwrap()
}

/// Where the bucket of a client lies.
pub(super) fn key_of(quota: &Quota, client: &str) -> String {
    let kind = if quota.algorithm() == TOKEN { String::new() } else { format!("~{}", quota.kind()) };
    format!("ratelimit:p{kind}:{client}")
}

#[test]
fn a5_a_bucket_is_a_hash_that_a_person_can_read() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "10/h");
    apply(&store, &quota, "10.0.0.1", take(3)).unwrap();
    let bucket = fields(&server, "ratelimit:p:10.0.0.1");
    assert_eq!(bucket["tokens"], "7.000");
    let now: u64 = server.cli(&["TIME"]).lines().next().unwrap().parse().unwrap();
    let refilled: u64 = bucket["lastRefill"].parse().unwrap();
    assert!((now - 20..=now).contains(&(refilled / 1_000)), "milliseconds: {refilled}");
    // Ten units, full after an hour.
    let full_at: u64 = bucket["full_at of 10 3600000000"].parse().unwrap();
    assert_eq!(full_at / 1_000 - refilled, 3 * 360_000, "full in three times six minutes");
    assert_eq!(bucket.len(), 3);
}

/// During an upgrade, instances of an older version keep their count in other fields of the same hash.
#[test]
fn fields_of_an_older_version_stay() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "2/min");
    let key = "ratelimit:p:c";
    server.cli(&["HSET", key, "full_at", "9007199254740991", "tokens", "0.000"]);
    server.cli(&["PEXPIRE", key, "7200000"]);
    assert!(is_paid(&apply(&store, &quota, "c", take(2)).unwrap()), "each version has its own count");
    assert!(!is_paid(&apply(&store, &quota, "c", take(1)).unwrap()));
    assert_eq!(fields(&server, key)["full_at"], "9007199254740991");
    assert!(ttl(&server, key) > 7_000_000, "the older version's time to live is not shortened");
}

#[test]
fn a5_deleting_the_key_resets_the_client() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "1/h");
    assert!(is_paid(&apply(&store, &quota, "c", take(1)).unwrap()));
    assert!(!is_paid(&apply(&store, &quota, "c", take(1)).unwrap()));
    assert_eq!(server.cli(&["DEL", "ratelimit:p:c"]), "1");
    assert!(is_paid(&apply(&store, &quota, "c", take(1)).unwrap()));
}

/// When the bucket is back in its initial state, in microseconds of Redis' clock, computed from its stored fields.
fn initial_again_at(server: &Redis, key: &str, algorithm: Algorithm, window: u64) -> u64 {
    let fields = || fields(server, key);
    let field = |name: &str| fields()[name].parse::<u64>().unwrap();
    match algorithm {
        Algorithm::TokenBucket(Refill::Smooth) | Algorithm::LeakyBucket(_) => {
            field("full_at of 10 3600000000")
        }
        // Each whole window returns all ten units; the test never spends more.
        Algorithm::TokenBucket(Refill::Stepped) => {
            let text = fields()["spent of 10 10/3600000000"].clone();
            text.split_once(" since ").unwrap().1.parse::<u64>().unwrap() + window
        }
        Algorithm::SlidingWindow => {
            let newest = server.cli(&["LRANGE", key, "-1", "-1"]);
            newest.split(' ').next().unwrap().parse::<u64>().unwrap() + window
        }
        Algorithm::SlidingWindowCounter => field("opened_at") + 2 * window,
        Algorithm::FixedWindow(_) => field("opened_at") + window,
    }
}

/// C5: a key expires one second after its bucket is back in its initial state, and not two. A later charge that
/// moves that moment by less than half a second need not renew the key, so at least half a second always remains.
#[test]
fn c5_a_key_expires_one_second_after_its_bucket_is_back_in_its_initial_state() {
    let server = Redis::start();
    let store = store_on(&server);
    for algorithm in [
        TOKEN,
        Algorithm::TokenBucket(Refill::Stepped),
        Algorithm::LeakyBucket(Leak::Meter),
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::FixedWindow(WindowStart::FirstHit),
        Algorithm::FixedWindow(WindowStart::Epoch),
    ] {
        let quota = quota(algorithm, "10/h");
        for n in 1..=3 {
            assert!(is_paid(&apply(&store, &quota, "c", take(1)).unwrap()));
            let keys = server.cli(&["KEYS", "*"]);
            let [key] = keys.lines().collect::<Vec<_>>()[..] else { panic!("one key: {keys}") };
            let expires_at: u64 = server.cli(&["PEXPIRETIME", key]).parse().unwrap();
            let initial_again_at = initial_again_at(&server, key, algorithm, quota.window().as_micros());
            let margin = expires_at * 1_000 - initial_again_at;
            // Redis counts in whole milliseconds, and its clock may go on between the script's time and PEXPIRE.
            let margin_min = if n == 1 { 998_000 } else { 498_000 };
            assert!((margin_min..=1_500_000).contains(&margin), "{algorithm:?}, charge {n}: {margin} µs");
        }
        server.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a5_min_ttl_is_renewed_at_each_request_also_a_denied_one() {
    let server = Redis::start();
    let settings = settings("ratelimit").min_ttl(Micros::from_secs(120));
    let store = connected(Servers::single(&server.url()).unwrap(), settings);
    for (algorithm, rate) in [
        (TOKEN, "1/s"),
        (Algorithm::SlidingWindow, "1/10s"),
        (Algorithm::SlidingWindowCounter, "1/10s"),
        (Algorithm::FixedWindow(WindowStart::FirstHit), "1/10s"),
    ] {
        let quota = quota(algorithm, rate);
        assert!(is_paid(&apply(&store, &quota, "c", take(1)).unwrap()));
        let key = key_of(&quota, "c");
        let renewed = || (100_000..=120_000).contains(&ttl(&server, &key));
        assert!(renewed(), "{algorithm:?}");
        server.cli(&["PEXPIRE", &key, "30000"]);
        apply(&store, &quota, "c", take(1)).unwrap();
        assert!(renewed(), "{algorithm:?}");
        server.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a4_hostile_clients_are_stored_apart_listed_right_and_reset_right() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "2/h");
    let long = "x".repeat(8_192);
    let longer = "x".repeat(8_193);
    let clients = [
        "24 bytes of a client nam",
        &long,
        &longer,
        "a:b",
        "a%3Ab",
        "a|b",
        "{a}",
        "a",
        "}{",
        "a\nb",
        "a\r\nb",
        "a\0",
        "a\0b",
        "é",
        "e\u{301}",
        "日本",
        "",
        " ",
        "*",
        "[a]",
        "ratelimit:p:a",
        "../a",
        "%00",
        "\u{7f}",
    ];
    for client in clients {
        assert_eq!(
            apply(&store, &quota, client, take(1)).unwrap().remaining,
            1,
            "{client:?} meets a bucket of its own"
        );
    }
    assert_eq!(server.cli(&["DBSIZE"]), clients.len().to_string());
    for (n, client) in clients.iter().enumerate() {
        reset(&store, &quota, client);
        assert_eq!(server.cli(&["DBSIZE"]), (clients.len() - n - 1).to_string(), "{client:?} and no other");
    }
}

#[test]
fn a_state_of_another_kind_reads_as_never_seen() {
    let server = Redis::start();
    let store = store_on(&server);
    let algorithms = [
        TOKEN,
        Algorithm::TokenBucket(Refill::Stepped),
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::FixedWindow(WindowStart::Epoch),
    ];
    let foreign: [&[&str]; 5] = [
        &["SET", "hello"],
        &["RPUSH", "hello", "you"],
        &["ZADD", "1", "hello"],
        &["HSET", "hello", "you"],
        &["SADD", "hello"],
    ];
    for algorithm in algorithms {
        let quota = quota(algorithm, "2/h");
        let key = key_of(&quota, "c");
        for planted in foreign {
            server.cli(&["FLUSHALL"]);
            let command: Vec<&str> =
                [planted[0], &key].into_iter().chain(planted[1..].iter().copied()).collect();
            server.cli(&command);
            let standing = apply(&store, &quota, "c", take(1)).unwrap();
            assert_eq!((is_paid(&standing), standing.remaining), (true, 1), "{algorithm:?} over {planted:?}");
            assert_eq!(
                apply(&store, &quota, "c", take(1)).unwrap().remaining,
                0,
                "{algorithm:?} over {planted:?}"
            );
        }
        for other in algorithms.into_iter().filter(|other| *other != algorithm) {
            server.cli(&["FLUSHALL"]);
            apply(&store, &self::quota(other, "2/h"), "c", take(2)).unwrap();
            assert_eq!(
                apply(&store, &quota, "c", take(1)).unwrap().remaining,
                1,
                "{algorithm:?} over {other:?}"
            );
        }
    }
}

#[test]
fn a_counters_other_window_reads_as_never_seen() {
    let server = Redis::start();
    let store = store_on(&server);
    for algorithm in [Algorithm::SlidingWindowCounter, Algorithm::FixedWindow(WindowStart::FirstHit)] {
        apply(&store, &quota(algorithm, "2/h"), "c", take(2)).unwrap();
        assert_eq!(
            apply(&store, &quota(algorithm, "2/d"), "c", take(1)).unwrap().remaining,
            1,
            "{algorithm:?}"
        );
        server.cli(&["FLUSHALL"]);
    }
}

/// Field values that no script writes.
fn tampered() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("nan".to_owned()),
        Just("-nan".to_owned()),
        Just("inf".to_owned()),
        Just("-inf".to_owned()),
        Just("1e400".to_owned()),
        Just("-1".to_owned()),
        Just("1.5".to_owned()),
        Just("0x7fffffffffffffff".to_owned()),
        Just("9007199254740993".to_owned()),
        Just("1700000000000000 5/3".to_owned()),
        Just("1700000000000000 1/0".to_owned()),
        Just("99999999999999999999 1/3".to_owned()),
        Just("1 4294967296/4294967297".to_owned()),
        Just(String::new()),
        Just("9223372036854775808".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        "[ -~]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever somebody wrote into a bucket, there is an answer, and never more than the quota.
    #[test]
    fn what_somebody_tampered_with_is_no_error(values in prop::collection::vec(tampered(), 5), which in 0usize..5) {
        thread_local! {
            static LAB: (Redis, RedisStore) = { let server = Redis::start(); let store = store_on(&server); (server, store) };
        }
        LAB.with(|(server, store)| {
            let (algorithm, names): (_, &[&str]) = [
                (TOKEN, &["full_at of 5 3600000000", "state of 5 3600000000", "full_at of 9 1000"][..]),
                (Algorithm::TokenBucket(Refill::Stepped), &["spent of 5 5/3600000000", "state of 5 5/3600000000"]),
                (Algorithm::SlidingWindowCounter, &["opened_at", "previous", "current"]),
                (Algorithm::FixedWindow(WindowStart::Epoch), &["opened_at", "count"]),
                (Algorithm::SlidingWindow, &[]),
            ][which];
            let quota = quota(algorithm, "5/h");
            let key = key_of(&quota, "c");
            server.cli(&["FLUSHALL"]);
            if names.is_empty() {
                let entries: Vec<_> = values.iter().map(String::as_str).collect();
                server.cli(&[&["RPUSH", &key][..], &entries].concat());
            } else {
                let window = "3600000000".to_owned();
                let fields = names.iter().zip(&values).flat_map(|(name, value)| [*name, value.as_str()]);
                let fields: Vec<_> = fields.chain(["window", &window]).collect();
                server.cli(&[&["HSET", &key][..], &fields].concat());
            }
            let mut n_paid = 0;
            for _ in 0..7 {
                let standing = apply(store, &quota, "c", take(1));
                prop_assert!(standing.is_ok(), "{:?} over {:?}", standing, values);
                n_paid += u32::from(is_paid(&standing.unwrap()));
            }
            prop_assert!(n_paid <= 5, "{n_paid} paid over {values:?}");
            Ok(())
        })?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// After a charge, as long as its key could not spend its whole capacity, its state is there.
    #[test]
    fn a_key_lives_as_long_as_it_means_something(
        first in crate::generate::quotas(),
        start in crate::generate::starts(),
        min_ttl in 0u64..3,
        visits in prop::collection::vec((crate::generate::gaps(), 0u32..2_500, 0u8..4, any::<bool>()), 1..25),
    ) {
        thread_local! {
            static LAB: Redis = Redis::start();
        }
        LAB.with(|server| {
            let clock = ratewright_core::ManualClock::at(start);
            let min_ttl = Micros::from_secs(min_ttl);
            let settings = settings("ratelimit").min_ttl(min_ttl).clock(Some(clock.clone()));
            let store = connected(Servers::single(&server.url()).unwrap(), settings);
            server.cli(&["FLUSHALL"]);
            // For a bucket, also one whose window is another: that keeps its state.
            let longer = ratewright_core::quota::Rate::new(first.rate().units(), Micros::new(first.window().as_micros() * 50));
            let longer = longer.ok().and_then(|rate| Quota::new(first.algorithm(), rate).ok());
            let second = longer.filter(|_| first.algorithm().has_burst()).unwrap_or_else(|| first.clone());
            for (gap, share, act, changed) in visits {
                clock.advance(Micros::new(gap.micros(&first)));
                let now = ratewright_core::Clock::now(&clock).as_micros();
                if ![&first, &second].into_iter().all(|quota| crate::generate::lasts(quota, now)) { break }
                let quota = if changed { &second } else { &first };
                let cost = crate::generate::cost(share, quota);
                let act = if act == 0 { Act::Record(cost) } else { take(cost) };
                let before = server.now() / 1_000;
                if !is_paid(&apply(&store, quota, "c", act).unwrap()) {
                    continue; // nothing was written; under a slower quota than before the state may matter longer
                }
                // Before the look, which may renew it; as a time of day, so that a pause here does not matter.
                let until: u64 = server.cli(&["PEXPIRETIME", &key_of(quota, "c")]).parse().unwrap_or(0);
                let ttl = until.saturating_sub(before);
                let whole = apply(&store, quota, "c", Act::Look(quota.capacity().get())).unwrap();
                let Some(needed) = whole.retry_after().filter(|needed| !needed.is_zero()) else { continue };
                prop_assert!(needed.as_micros() <= ttl * 1_000, "needed for {needed:?}, lives {ttl} ms; {quota:?}");
            }
            Ok(())
        })?;
    }
}

/// An override with another kind of quota has a bucket of its own: alternating between both gives neither back.
#[test]
fn an_override_of_another_kind_does_not_wipe_the_policys_bucket() {
    let server = Redis::start();
    let store = store_on(&server);
    let variants = [
        (quota(TOKEN, "2/d"), quota(Algorithm::SlidingWindow, "2/d")),
        (quota(TOKEN, "2/d"), quota(Algorithm::TokenBucket(Refill::Stepped), "2/d")),
        (quota(Algorithm::SlidingWindowCounter, "2/d"), quota(Algorithm::SlidingWindowCounter, "2/100d")),
        (
            quota(Algorithm::FixedWindow(WindowStart::Epoch), "2/100d"),
            quota(Algorithm::FixedWindow(WindowStart::FirstHit), "2/100d"),
        ),
        (quota(Algorithm::SlidingWindow, "2/d"), quota(Algorithm::SlidingWindow, "2/100d")),
    ];
    for (n, (own, other)) in variants.into_iter().enumerate() {
        let post =
            Condition::default().and_fits(AttributeName::Method, vec![Pattern::new("POST", None).unwrap()]);
        let policy = Policy::new(&format!("p{n}"), own).unwrap().by(&[AttributeName::Ip]);
        let policy = policy.with_override(None, post, vec![(None, other)], None);
        let policies = Policies::new(vec![policy]).unwrap();
        let memory = MemoryStore::new(ManualClock::default(), 100);
        let n_admitted = |applies: &dyn Fn(&[Charge<'_>], &mut Standings)| {
            let methods = ["GET", "POST"].into_iter().cycle().take(20);
            methods
                .filter(|method| {
                    let attributes = [(AttributeName::Ip, "c"), (AttributeName::Method, *method)]
                        .map(|(name, value)| Attribute { name, value });
                    let query = Query {
                        select: Select::Covering(&[]),
                        attributes: &attributes,
                        address: None,
                        ask: Ask::Spend(std::num::NonZeroU32::MIN),
                        patience: Micros::ZERO,
                        id: None,
                        entrypoint: Entrypoint::Tower,
                    };
                    let mut charges = Charges::new();
                    policies.select(&query, &mut charges);
                    let mut standings = Standings::new();
                    applies(&charges, &mut standings);
                    is_paid(&standings[0])
                })
                .count()
        };
        let on_redis = n_admitted(&|charges, standings| block_on(store.apply(charges, standings)).unwrap());
        let in_memory = n_admitted(&|charges, standings| {
            let Ok(()) = block_on(memory.apply(charges, standings));
        });
        assert_eq!((on_redis, in_memory), (4, 4), "variant {n}");
    }
}

/// How long a call takes is bounded by what the script reads: of a log, one chunk of at most 64 charges and the sums of
/// half the others. Refunds leave no chunks behind that are nearly empty.
#[test]
fn a_log_is_kept_in_few_chunks_of_few_charges() {
    let server = Redis::start();
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let settings = settings("ratelimit").clock(Some(clock.clone())).min_ttl(Micros::from_secs(600));
    let store = connected(Servers::single(&server.url()).unwrap(), settings);
    let quota = quota(Algorithm::SlidingWindow, "1500/h");
    let mut receipts = Vec::new();
    for _ in 0..3_000 {
        clock.advance(Micros::from_millis(1));
        let Outcome::Charged(receipt) = apply(&store, &quota, "c", Act::Record(1)).unwrap().outcome else {
            panic!()
        };
        receipts.push(receipt);
    }
    let key = key_of(&quota, "c");
    let chunks = || server.cli(&["LRANGE", &key, "1", "-1"]).lines().map(charges_of).collect::<Vec<_>>();
    assert_eq!(chunks().iter().sum::<usize>(), 3_000, "twice the units are kept");
    assert!(chunks().iter().all(|n| *n <= 64) && chunks().len() <= 47, "{:?}", chunks());

    server.cli(&["CONFIG", "RESETSTAT"]);
    assert!(!is_paid(&apply(&store, &quota, "c", take(1)).unwrap()), "half of it has to leave");
    let stats = server.cli(&["INFO", "commandstats"]);
    let reads = stats.lines().find_map(|line| line.strip_prefix("cmdstat_lrange:calls=")).unwrap();
    let reads: usize = reads.split(',').next().unwrap().parse().unwrap();
    assert!(reads <= 5, "the newest, the oldest, and the sums of 23 chunks in pages of 16: {reads} reads");

    // Refunds are due when no more is spent than the limit; then give back all but every tenth.
    clock.advance(Micros::new(quota.window().as_micros() - 1_500_000));
    let left = receipts.split_off(1_500);
    for (_, receipt) in left.into_iter().enumerate().filter(|(n, _)| n % 10 > 0) {
        refund(&store, &quota, "c", receipt);
    }
    assert_eq!(chunks().iter().sum::<usize>(), 150);
    assert!(chunks().len() <= 2 * 150 / 64 + 3, "{:?}", chunks());
}

/// How many charges a chunk of a log has: it says so, and they are there.
fn charges_of(chunk: &str) -> usize {
    let (head, charges) = chunk.split_once(':').unwrap();
    let n = head.split(' ').nth(2).unwrap().parse().unwrap();
    assert_eq!(charges.split_whitespace().count(), n);
    n
}

fn refund(store: &RedisStore, quota: &Quota, client: &str, receipt: Receipt) {
    let name = BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
    let attributes = [Attribute { name: AttributeName::Ip, value: client }];
    let key = Key::new(&name, &attributes).unwrap();
    block_on(store.refund(&[Refund { key, quota, receipt, basis: Basis::Shared, share: None, id: None }]))
        .unwrap();
}
