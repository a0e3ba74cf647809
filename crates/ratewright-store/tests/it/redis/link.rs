//! The link to Redis: what waits for it, what is given up, what is found again, what is counted of it.

use std::io::Write;
use std::time::Duration;

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::Algorithm;
use ratewright_core::store::{Act, BucketName, Charge, Key, Standings};
use ratewright_core::{Micros, Store};
use ratewright_lab::{Redis, accept, join, wait_until};
use ratewright_store::redis::{FailureKind, Traffic};
use ratewright_store::{Peers, RedisStore, Servers, StoreError};

use super::{TOKEN, apply, connected, quota, reset, settings, store_on};
use crate::world::{RUNTIME, block_on, take};

/// What waits for a Redis that stands still is bounded: who comes too late is refused at once.
#[test]
fn no_more_wait_than_may() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "10/h");
    let name = BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]);
    let attributes = [Attribute { name: AttributeName::Ip, value: "c" }];
    server.pause();
    let n_refused = block_on(async {
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
                assert!(matches!(error, StoreError::QueueFull { .. }) && !error.may_have_spent(), "{error}");
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
    let hasty = settings("ratelimit").deadline(Duration::from_millis(20));
    let store = connected(Servers::single(&server.url()).unwrap(), hasty);
    let quotas: Vec<_> = (10..40).map(|n| quota(TOKEN, &format!("{n}/h"))).collect();
    for round in 0..10 {
        // On a busy machine the link may go down in between; then nothing was sent, and nothing comes late.
        wait_until("a call was sent and not answered", || {
            wait_until("the link is up", || store.status().is_up);
            server.pause();
            let error = apply(&store, &quotas[round], &format!("late-{round}"), take(1)).unwrap_err();
            server.resume();
            error.may_have_spent()
        });
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
    let hasty = settings("ratelimit").deadline(Duration::from_millis(5));
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
        +time +hget +hmget +hgetall +hset +hdel +del +set +pexpire +lrange +lindex +ltrim +rpush +lset +lrem +llen +zadd +zremrangebyscore +zcard \
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
    let announcing = || settings("ratelimit").announces(true);
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
    let store = connected(Servers::single(&server.url()).unwrap(), settings("ratelimit").deadline(deadline));
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

/// What pretends to be Redis could make us keep whatever it sends.
#[test]
fn an_endless_reply_ends_the_connection() {
    const ENOUGH: usize = 64 * 1024 * 1024;
    for (begin, goes_on) in
        [("$2147483647\r\n", "a"), ("+", "a"), ("*2147483647\r\n", ":1\r\n"), ("*1\r\n", "*1\r\n")]
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let lying = std::thread::spawn(move || {
            let mut client = accept(&listener);
            let (piece, mut n_sent) = (goes_on.repeat(65_536 / goes_on.len()), 0);
            client.write_all(begin.as_bytes()).unwrap();
            while n_sent < ENOUGH && client.write_all(piece.as_bytes()).is_ok() {
                n_sent += piece.len();
            }
            n_sent
        });
        let _in_it = RUNTIME.enter();
        let store = RedisStore::new(Servers::single(&format!("redis://{address}")).unwrap(), settings("p"));
        let n_sent = join(lying, "the connection ends");
        assert!(n_sent < ENOUGH, "{begin:?} … {goes_on:?}: {n_sent} bytes were taken");
        assert!(!store.status().is_up);
    }
}

/// A server that hangs answers nothing any more. Its connections must not stay open for ever.
#[test]
fn a_store_that_is_dropped_closes_its_connection_to_a_server_that_hangs() {
    let server = Redis::start();
    let store =
        connected(Servers::single(&server.url()).unwrap(), settings("p").deadline(Duration::from_millis(50)));
    server.pause();
    let quota = quota(TOKEN, "10/h");
    assert!(apply(&store, &quota, "c", take(1)).is_err(), "it hangs");
    assert!(n_connections_to(server.port()) > 0);
    drop(store);
    wait_until("its connections are closed", || n_connections_to(server.port()) == 0);
}

/// How many connections are established to this port of loopback.
fn n_connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let to = format!("0100007F:{port:04X}");
    let is_one = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(2) == Some(&to.as_str()) && words.get(3) == Some(&"01")
    };
    table.lines().filter(is_one).count()
}
