//! The Redis store on a real redis-server: keys, times to live, instances, and what may go wrong.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate_core::{
    Act, Algorithm, Ask, Attribute, AttributeName, Basis, BucketName, Charge, Charges, Condition, Key,
    LimitId, ManualClock, Micros, OnFailure, Outcome, Part, Pattern, Policies, Policy, Query, Quota, Refill,
    Select, Standing, Standings, Store, WindowStart,
};
use tollgate_lab::{Redis, wait_until};
use tollgate_store::{
    FailureKind, MemoryStore, Peers, RedisSettings, RedisStore, Servers, StoreError, Traffic,
};

use crate::world::{RUNTIME, take};

const TOKEN: Algorithm = Algorithm::TokenBucket(Refill::Smooth);

/// Long enough that only a server that does not answer misses it.
const PATIENT: Duration = Duration::from_secs(20);

pub(crate) fn settings(prefix: &str) -> RedisSettings {
    RedisSettings { prefix: prefix.to_owned(), deadline: PATIENT, ..RedisSettings::default() }
}

/// A store that is connected.
pub(crate) fn connected(servers: Servers, settings: RedisSettings) -> RedisStore {
    let _in_it = RUNTIME.enter();
    let store = RedisStore::new(servers, settings);
    wait_until("the link is up", || store.status().is_up);
    store
}

fn store_on(server: &Redis) -> RedisStore {
    connected(Servers::single(&server.url()).unwrap(), settings("ratelimit"))
}

pub(crate) fn quota(algorithm: Algorithm, rate: &str) -> Quota {
    Quota::new(algorithm, rate.parse().unwrap()).unwrap()
}

/// One charge of one client under a policy named `p`.
pub(crate) fn apply(
    store: &impl Store<Error = StoreError>,
    quota: &Quota,
    client: &str,
    act: Act,
) -> Result<Standing, StoreError> {
    let name = BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
    let attributes = [Attribute { name: AttributeName::Ip, value: client }];
    let key = Key::new(&name, &attributes).unwrap();
    let (limit, patience, on_failure) = (LimitId::default(), Micros::ZERO, OnFailure::Local);
    let mut standings = Standings::new();
    RUNTIME
        .block_on(store.apply(&[Charge { limit, key, quota, act, patience, on_failure }], &mut standings))?;
    Ok(standings.remove(0))
}

fn is_paid(standing: &Standing) -> bool {
    matches!(standing.outcome, Outcome::Paid(_))
}

fn reset(store: &RedisStore, quota: &Quota, client: &str) {
    let name = BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
    let attributes = [Attribute { name: AttributeName::Ip, value: client }];
    let basis = RUNTIME.block_on(store.reset(&[Key::new(&name, &attributes).unwrap()])).unwrap();
    assert_eq!(basis, Basis::Shared);
}

fn fields(server: &Redis, key: &str) -> HashMap<String, String> {
    let lines = server.cli(&["HGETALL", key]);
    let lines: Vec<_> = lines.lines().map(str::to_owned).collect();
    lines.chunks(2).filter_map(|pair| Some((pair.first()?.clone(), pair.get(1)?.clone()))).collect()
}

fn ttl(server: &Redis, key: &str) -> i64 {
    server.cli(&["PTTL", key]).parse().unwrap()
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
    let full_at: u64 = bucket["full_at"].parse().unwrap();
    assert_eq!(full_at / 1_000 - refilled, 3 * 360_000, "full in three times six minutes");
    assert_eq!(bucket.len(), 3);
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

#[test]
fn c5_a_key_lives_one_second_longer_than_it_means_something() {
    let server = Redis::start();
    let store = store_on(&server);
    let live = |algorithm, rate: &str| {
        let quota = quota(algorithm, rate);
        apply(&store, &quota, &format!("{algorithm:?}"), take(1)).unwrap();
        let keys = server.cli(&["KEYS", "*"]);
        let key = keys.lines().next().unwrap();
        let ttl = ttl(&server, key);
        server.cli(&["FLUSHALL"]);
        ttl
    };
    let about =
        |ttl: i64, expected: i64| assert!((expected - 5_000..=expected).contains(&ttl), "{ttl} {expected}");
    about(live(TOKEN, "10/h"), 360_000 + 1_000);
    about(live(Algorithm::SlidingWindow, "10/h"), 3_600_000 + 1_000);
    about(live(Algorithm::FixedWindow(WindowStart::FirstHit), "10/h"), 3_600_000 + 1_000);
    let counter = live(Algorithm::SlidingWindowCounter, "10/h");
    assert!((3_600_000..=7_201_000).contains(&counter), "until the next window is over: {counter}");
}

#[test]
fn a5_min_ttl_is_renewed_at_each_request_also_a_denied_one() {
    let server = Redis::start();
    let settings = RedisSettings { min_ttl: Micros::from_secs(120), ..settings("ratelimit") };
    let store = connected(Servers::single(&server.url()).unwrap(), settings);
    for (algorithm, rate) in [
        (TOKEN, "1/s"),
        (Algorithm::SlidingWindow, "1/10s"),
        (Algorithm::SlidingWindowCounter, "1/10s"),
        (Algorithm::FixedWindow(WindowStart::FirstHit), "1/10s"),
    ] {
        let quota = quota(algorithm, rate);
        assert!(is_paid(&apply(&store, &quota, "c", take(1)).unwrap()));
        let renewed = || (100_000..=120_000).contains(&ttl(&server, "ratelimit:p:c"));
        assert!(renewed(), "{algorithm:?}");
        server.cli(&["PEXPIRE", "ratelimit:p:c", "30000"]);
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
        &["SET", "ratelimit:p:c", "hello"],
        &["RPUSH", "ratelimit:p:c", "hello", "you"],
        &["ZADD", "ratelimit:p:c", "1", "hello"],
        &["HSET", "ratelimit:p:c", "hello", "you"],
        &["SADD", "ratelimit:p:c", "hello"],
    ];
    for algorithm in algorithms {
        let quota = quota(algorithm, "2/h");
        for planted in foreign {
            server.cli(&["FLUSHALL"]);
            server.cli(planted);
            let standing = apply(&store, &quota, "c", take(1)).unwrap();
            assert_eq!((is_paid(&standing), standing.remaining), (true, 1), "{algorithm:?} over {planted:?}");
            assert_eq!(
                apply(&store, &quota, "c", take(1)).unwrap().remaining,
                0,
                "{algorithm:?} over {planted:?}"
            );
            assert!(!server.cli(&["HGETALL", "ratelimit:p:c"]).contains("hello"));
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
                (TOKEN, &["full_at"][..]),
                (Algorithm::TokenBucket(Refill::Stepped), &["since", "spent"]),
                (Algorithm::SlidingWindowCounter, &["opened_at", "previous", "current"]),
                (Algorithm::FixedWindow(WindowStart::Epoch), &["opened_at", "count"]),
                (Algorithm::SlidingWindow, &[]),
            ][which];
            server.cli(&["FLUSHALL"]);
            if names.is_empty() {
                let entries: Vec<_> = values.iter().map(String::as_str).collect();
                server.cli(&[&["RPUSH", "ratelimit:p:c"][..], &entries].concat());
            } else {
                let window = "3600000000".to_owned();
                let fields = names.iter().zip(&values).flat_map(|(name, value)| [*name, value.as_str()]);
                let fields: Vec<_> = fields.chain(["window", &window]).collect();
                server.cli(&[&["HSET", "ratelimit:p:c"][..], &fields].concat());
            }
            let quota = quota(algorithm, "5/h");
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
            let clock = tollgate_core::ManualClock::at(start);
            let min_ttl = Micros::from_secs(min_ttl);
            let settings = RedisSettings { min_ttl, clock: Some(clock.clone()), ..settings("ratelimit") };
            let store = connected(Servers::single(&server.url()).unwrap(), settings);
            server.cli(&["FLUSHALL"]);
            // For a bucket, also one whose window is another: that keeps its state.
            let longer = tollgate_core::Rate::new(first.rate().units(), Micros::new(first.window().as_micros() * 50));
            let longer = longer.ok().and_then(|rate| Quota::new(first.algorithm(), rate).ok());
            let second = longer.filter(|_| first.algorithm().has_burst()).unwrap_or_else(|| first.clone());
            for (gap, share, act, changed) in visits {
                clock.advance(Micros::new(gap.micros(&first)));
                let now = tollgate_core::Clock::now(&clock).as_micros();
                if ![&first, &second].into_iter().all(|quota| crate::generate::lasts(quota, now)) { break }
                let quota = if changed { &second } else { &first };
                let cost = crate::generate::cost(share, quota);
                let act = if act == 0 { Act::Record(cost) } else { take(cost) };
                let before = server.now() / 1_000;
                if !is_paid(&apply(&store, quota, "c", act).unwrap()) {
                    continue; // nothing was written; under a slower quota than before the state may matter longer
                }
                // Before the look, which may renew it; as a time of day, so that a pause here does not matter.
                let until: u64 = server.cli(&["PEXPIRETIME", "ratelimit:p:c"]).parse().unwrap_or(0);
                let ttl = until.saturating_sub(before);
                let whole = apply(&store, quota, "c", Act::Look(quota.capacity().get())).unwrap();
                let Some(needed) = whole.retry_after().filter(|needed| !needed.is_zero()) else { continue };
                prop_assert!(needed.as_micros() <= ttl * 1_000, "needed for {needed:?}, lives {ttl} ms; {quota:?}");
            }
            Ok(())
        })?;
    }
}

/// A3: two instances, burst 1, at the same moment: exactly one passes, a thousand times over.
#[test]
fn a3_of_two_simultaneous_requests_exactly_one_passes() {
    let server = Redis::start();
    let stores = [store_on(&server), store_on(&server)];
    let quota = quota(TOKEN, "1/h");
    for round in 0..1_000 {
        let barrier = std::sync::Barrier::new(2);
        let client = format!("client-{round}");
        let n_paid: u32 = std::thread::scope(|scope| {
            let asks: Vec<_> = stores
                .iter()
                .map(|store| {
                    scope.spawn(|| {
                        barrier.wait();
                        u32::from(is_paid(&apply(store, &quota, &client, take(1)).unwrap()))
                    })
                })
                .collect();
            asks.into_iter().map(|ask| ask.join().unwrap()).sum()
        });
        assert_eq!(n_paid, 1, "round {round}");
    }
}

/// C12: another instance answers with the same state.
#[test]
fn c12_an_instance_that_dies_loses_no_limit() {
    let server = Redis::start();
    let quota = quota(TOKEN, "3/h");
    let first = store_on(&server);
    assert_eq!(apply(&first, &quota, "c", take(2)).unwrap().remaining, 1);
    drop(first);
    assert_eq!(apply(&store_on(&server), &quota, "c", take(1)).unwrap().remaining, 0);
}

#[test]
fn decisions_that_wait_together_travel_together_and_stay_apart() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "50/h");
    let name = BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    let n_paid = RUNTIME.block_on(async {
        let decide = async |client: usize| {
            let client = (client % 4).to_string();
            let attributes = [Attribute { name: AttributeName::Ip, value: &client }];
            let key = Key::new(&name, &attributes).unwrap();
            let (limit, patience, on_failure) = (LimitId::default(), Micros::ZERO, OnFailure::Local);
            let charge = Charge { limit, key, quota: &quota, act: take(1), patience, on_failure };
            let mut standings = Standings::new();
            store.apply(&[charge], &mut standings).await.unwrap();
            is_paid(&standings[0])
        };
        let paid = futures_util::future::join_all((0..400).map(decide)).await;
        paid.into_iter().filter(|paid| *paid).count()
    });
    assert_eq!(n_paid, 4 * 50, "each of four clients has its own fifty");
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    let calls: u32 = calls.split(',').next().unwrap().parse().unwrap();
    assert!(calls < 200, "400 decisions took {calls} calls");
}

/// What waits for a Redis that stands still is bounded: who comes too late is refused at once.
#[test]
fn no_more_wait_than_may() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "10/h");
    let name = BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]);
    let attributes = [Attribute { name: AttributeName::Ip, value: "c" }];
    server.pause();
    let n_refused = RUNTIME.block_on(async {
        let decide = async || {
            let key = Key::new(&name, &attributes).unwrap();
            let (limit, patience, on_failure) = (LimitId::default(), Micros::ZERO, OnFailure::Local);
            let charge = Charge { limit, key, quota: &quota, act: take(1), patience, on_failure };
            store.apply(&[charge], &mut Standings::new()).await
        };
        let mut waiting: Vec<_> = (0..6_000).map(|_| Box::pin(decide())).collect();
        let mut n_refused = 0;
        for decision in &mut waiting {
            if let std::task::Poll::Ready(result) = futures_util::poll!(decision) {
                let error = result.unwrap_err();
                assert!(matches!(error, StoreError::Crowded { .. }) && !error.may_have_spent(), "{error}");
                n_refused += 1;
            }
        }
        n_refused
    });
    server.resume();
    assert!((1_000..6_000).contains(&n_refused), "{n_refused} of 6000 refused");
}

#[test]
fn a_flushed_script_is_sent_again() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "10/h");
    for left in [9, 8, 7] {
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(apply(&store, &quota, "c", take(1)).unwrap().remaining, left);
    }
}

#[test]
fn redis_may_come_later() {
    let mut server = Redis::start();
    server.kill();
    let _in_it = RUNTIME.enter();
    let store = RedisStore::new(Servers::single(&server.url()).unwrap(), settings("ratelimit"));
    let quota = quota(TOKEN, "10/h");
    let error = apply(&store, &quota, "c", take(1)).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }) && !error.may_have_spent(), "{error}");
    server.run();
    wait_until("the link is up", || store.status().is_up);
    assert_eq!(apply(&store, &quota, "c", take(1)).unwrap().remaining, 9);
}

/// What was asked before a pause is not answered to who asks after it.
#[test]
fn a_late_reply_is_not_taken_for_another_call() {
    let server = Redis::start();
    let hasty = RedisSettings { deadline: Duration::from_millis(20), ..settings("ratelimit") };
    let store = connected(Servers::single(&server.url()).unwrap(), hasty);
    let quotas: Vec<_> = (10..40).map(|n| quota(TOKEN, &format!("{n}/h"))).collect();
    for round in 0..10 {
        wait_until("the link is up", || store.status().is_up);
        server.pause();
        let error = apply(&store, &quotas[round], &format!("late-{round}"), take(1)).unwrap_err();
        assert!(error.may_have_spent(), "{error}");
        server.resume();
        for (n, quota) in quotas.iter().enumerate() {
            // Each quota has its own capacity, so an answer to another would show.
            if let Ok(standing) = apply(&store, quota, &format!("{round}-{n}"), take(1)) {
                assert_eq!(standing.remaining, quota.capacity().get() - 1);
            }
        }
    }
}

#[test]
fn a_server_that_stands_still_is_given_up_and_found_again() {
    let server = Redis::start();
    let hasty = RedisSettings { deadline: Duration::from_millis(5), ..settings("ratelimit") };
    let store = connected(Servers::single(&server.url()).unwrap(), hasty);
    let quota = quota(TOKEN, "1000/h");
    server.pause();
    wait_until("the link is down", || {
        let _ = apply(&store, &quota, "c", take(1));
        !store.status().is_up
    });
    let error = apply(&store, &quota, "c", take(1)).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "nobody waits for it any more: {error}");
    server.resume();
    wait_until("the link is up", || store.status().is_up);
    wait_until("it answers", || apply(&store, &quota, "c", take(1)).is_ok());
}

#[test]
fn a_server_that_refuses_to_write_is_out_until_it_does() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "10/h");
    assert_eq!(apply(&store, &quota, "c", take(1)).unwrap().remaining, 9);
    let refusals: [(&[&str], &[&str], &str); 2] = [
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "OOM"),
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], "read only"),
    ];
    let mut left = 9;
    for (begin, end, word) in refusals {
        server.cli(begin);
        wait_until("the link is down", || {
            let _ = apply(&store, &quota, "other", Act::Look(0));
            !store.status().is_up
        });
        let error = apply(&store, &quota, "c", take(1)).unwrap_err();
        assert!(error.to_string().contains(word) && !error.may_have_spent(), "{error}");
        server.cli(end);
        wait_until("the link is up", || store.status().is_up);
        left -= 1;
        assert_eq!(
            apply(&store, &quota, "c", take(1)).unwrap().remaining,
            left,
            "nothing was spent meanwhile"
        );
    }
}

/// C13: a user of its own with the rights it needs, and no password in any error.
#[test]
fn c13_a_user_and_password_are_used_and_never_shown() {
    let rights = "--user limiter on >s3cret ~ratelimit:* +@connection +eval +evalsha +unlink \
        +time +hget +hmget +hset +del +pexpire +lrange +lindex +ltrim +rpush +lset +lrem +llen +zadd +zremrangebyscore +zcard \
        --user default off";
    let server = Redis::start_with(&rights.split_whitespace().collect::<Vec<_>>());
    let url = |password: &str| format!("redis://limiter:{password}@127.0.0.1:{}", server.port());
    let store = connected(Servers::single(&url("s3cret")).unwrap(), settings("ratelimit"));
    for algorithm in [TOKEN, Algorithm::SlidingWindow, Algorithm::SlidingWindowCounter] {
        assert_eq!(apply(&store, &quota(algorithm, "10/h"), "c", take(1)).unwrap().remaining, 9);
    }
    reset(&store, &quota(TOKEN, "10/h"), "c");
    let _in_it = RUNTIME.enter();
    let servers = Servers::single(&url("wr0ng")).unwrap();
    let shown = format!("{servers:?}");
    let store = RedisStore::new(servers, settings("ratelimit"));
    wait_until("the password is refused", || {
        let cause = store.status().cause.unwrap_or_default();
        cause.contains("WRONGPASS") || cause.contains("uthentication")
    });
    let error = apply(&store, &quota(TOKEN, "10/h"), "c", take(1)).unwrap_err();
    for text in [shown, error.to_string(), format!("{error:?}"), format!("{store:?}")] {
        assert!(!text.contains("wr0ng"), "{text}");
    }
    let misspelt = Servers::single("redis://limiter:s3cret@:port:").unwrap_err();
    assert!(!misspelt.to_string().contains("s3cret"), "{misspelt}");
}

#[test]
fn a_unix_socket_will_do() {
    let server = Redis::start();
    let url = format!("unix://{}", server.socket().display());
    let store = connected(Servers::single(&url).unwrap(), settings("ratelimit"));
    assert_eq!(apply(&store, &quota(TOKEN, "10/h"), "c", take(1)).unwrap().remaining, 9);
}

#[test]
fn instances_know_how_many_they_are() {
    let server = Redis::start();
    let announcing = || RedisSettings { announces: true, ..settings("ratelimit") };
    let first = connected(Servers::single(&server.url()).unwrap(), announcing());
    wait_until("there is one", || {
        first.n_instances() == Some(1) && server.cli(&["ZCARD", "ratelimit:@instances"]) == "1"
    });
    let second = connected(Servers::single(&server.url()).unwrap(), announcing());
    wait_until("there are two", || first.n_instances() == Some(2) && second.n_instances() == Some(2));
}

/// Questions that got no answer, by why.
fn failures(store: &RedisStore) -> Vec<(&'static str, u64)> {
    let failures = store.traffic().failures.into_iter().filter(|(_, n)| *n > 0);
    failures.map(|(kind, n)| (kind.name(), n)).collect()
}

#[test]
fn c9_calls_failures_and_outages_are_counted() {
    let mut server = Redis::start();
    let store = store_on(&server);
    let before = store.traffic();
    for _ in 0..3 {
        apply(&store, &quota(TOKEN, "5/h"), "c", take(1)).unwrap();
    }
    let Traffic { calls, n_outages, .. } = store.traffic();
    assert!(calls.n >= before.calls.n + 3 && calls.sum > before.calls.sum, "{calls:?}");
    assert_eq!((failures(&store), n_outages), (vec![], 0));
    server.kill();
    wait_until("the link is down", || !store.status().is_up);
    apply(&store, &quota(TOKEN, "5/h"), "c", take(1)).unwrap_err();
    assert_eq!((failures(&store), store.traffic().n_outages), (vec![("unreachable", 1)], 1));
}

#[test]
fn c9_a_call_that_is_not_answered_took_as_long_as_its_deadline() {
    let server = Redis::start();
    let deadline = Duration::from_millis(30);
    let store = connected(
        Servers::single(&server.url()).unwrap(),
        RedisSettings { deadline, ..settings("ratelimit") },
    );
    server.cli(&["CLIENT", "PAUSE", "5000"]);
    let error = apply(&store, &quota(TOKEN, "5/h"), "c", take(1)).unwrap_err();
    assert_eq!(error.kind(), FailureKind::TimedOut, "{error}");
    assert_eq!(failures(&store), [("timed_out", 1)]);
    wait_until("its call is over too", || {
        let slow = |(bound, n): (Option<Micros>, u64)| {
            n > 0 && bound.is_none_or(|bound| bound > Micros::from_millis(25))
        };
        store.traffic().calls.steps().any(slow)
    });
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
        let policy = policy.overridden(post, vec![(None, other)], None);
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
                    };
                    let mut charges = Charges::new();
                    policies.select(&query, &mut charges);
                    let mut standings = Standings::new();
                    applies(&charges, &mut standings);
                    is_paid(&standings[0])
                })
                .count()
        };
        let on_redis =
            n_admitted(&|charges, standings| RUNTIME.block_on(store.apply(charges, standings)).unwrap());
        let in_memory = n_admitted(&|charges, standings| {
            let Ok(()) = RUNTIME.block_on(memory.apply(charges, standings));
        });
        assert_eq!((on_redis, in_memory), (4, 4), "variant {n}");
    }
}
