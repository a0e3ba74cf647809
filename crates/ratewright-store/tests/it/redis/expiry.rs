//! How long keys live: those in which several quotas keep states, as two policy files do that share a Redis, and the marks of
//! receipts that were used.

use std::num::NonZeroU32;

use proptest::prelude::*;
use ratewright_core::policy::Part;
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::store::{Act, Basis, BucketName, Key, Outcome, Receipt, Refund};
use ratewright_core::{Clock, ManualClock, Micros, Quota, Store, Timestamp};
use ratewright_lab::Redis;
use ratewright_store::{RedisStore, Servers};

use super::stored::key_of;
use super::{TOKEN, apply, connected, is_paid, quota, settings};
use crate::generate::{cost, gaps, lasts, quotas_on_one_key, starts};
use crate::world::{block_on, take};

/// The algorithms whose states belong to a quota.
const ALGORITHMS: [Algorithm; 4] = [
    TOKEN,
    Algorithm::TokenBucket(Refill::Stepped),
    Algorithm::LeakyBucket(Leak::Meter),
    Algorithm::LeakyBucket(Leak::Queue),
];

fn store_with(server: &Redis, min_ttl: Micros) -> RedisStore {
    connected(Servers::single(&server.url()).unwrap(), settings("ratelimit").min_ttl(min_ttl))
}

/// When a key expires, in microseconds of Redis' clock. 0 if it is not there.
fn expires_at(server: &Redis, key: &str) -> u64 {
    server.cli(&["PEXPIRETIME", key]).parse::<u64>().map_or(0, |millis| millis * 1_000)
}

/// How long it takes until the whole quota can be spent, with what its own state says.
fn needed(store: &RedisStore, quota: &Quota) -> u64 {
    let whole = apply(store, quota, "c", Act::Look(quota.capacity().get())).unwrap();
    whole.retry_after().map_or(0, Micros::as_micros)
}

fn give_back(store: &RedisStore, quota: &Quota, receipt: Receipt) {
    bring_back(store, quota, receipt, None);
}

/// Gives a charge back; once only, if the receipt has an id.
fn bring_back(store: &RedisStore, quota: &Quota, receipt: Receipt, id: Option<u64>) {
    let name = BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
    let attributes = [Attribute { name: AttributeName::Ip, value: "c" }];
    let key = Key::new(&name, &attributes).unwrap();
    let refund = Refund { key, quota, receipt, basis: Basis::Shared, share: None, id };
    block_on(store.refund(&[refund])).unwrap();
}

/// What a client does under one of two quotas.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Spends half of the quota that lasts for a day.
    Long,
    /// Spends all of the quota that lasts for a minute.
    Short,
    /// Is denied under it.
    Denied,
    /// Asks how it stands.
    Look,
    /// Gives back what it was charged last under it.
    Refund,
}

/// A day's state is kept for as long as it says something, whatever happens under a quota of a minute.
#[test]
fn a_key_outlives_the_longest_lived_state_in_it() {
    use Step::{Denied, Long, Look, Refund, Short};
    let server = Redis::start();
    for min_ttl in [Micros::ZERO, Micros::from_secs(120)] {
        let store = store_with(&server, min_ttl);
        for algorithm in ALGORITHMS {
            let (long, short) = (quota(algorithm, "10/d"), quota(algorithm, "10/min"));
            for steps in [
                &[Long, Short][..],
                &[Short, Long],
                &[Long, Short, Denied],
                &[Short, Long, Denied],
                &[Short, Long, Look],
                &[Long, Short, Refund],
                &[Short, Long, Refund],
                &[Short, Long, Refund, Short, Denied, Refund],
            ] {
                server.cli(&["FLUSHALL"]);
                let (mut needed_until, mut receipt) = (0, None);
                for step in steps {
                    match step {
                        Long => {
                            assert!(is_paid(&apply(&store, &long, "c", Act::Record(5)).unwrap()));
                            let now = server.now();
                            needed_until = now + needed(&store, &long) - 1_000_000;
                        }
                        Short => match apply(&store, &short, "c", Act::Record(10)).unwrap().outcome {
                            Outcome::Charged(paid) => receipt = Some(paid),
                            Outcome::WouldPass
                            | Outcome::Denied { .. }
                            | Outcome::Never
                            | Outcome::Unknown => {
                                panic!("a record is paid")
                            }
                        },
                        Denied => assert!(!is_paid(&apply(&store, &short, "c", take(10)).unwrap())),
                        Look => drop(apply(&store, &short, "c", Act::Look(1)).unwrap()),
                        Refund => give_back(&store, &short, receipt.take().unwrap()),
                    }
                }
                let expires_at = expires_at(&server, &key_of(&long, "c"));
                assert!(expires_at > needed_until, "{algorithm:?}, {min_ttl:?}: {steps:?}");
                assert!(needed_until > server.now() + 3_600_000_000, "it lasts for hours");
            }
        }
    }
}

/// A5: also where another file's quota has a state in the key, whichever of them was in use last.
#[test]
fn a5_min_ttl_is_renewed_at_a_denied_request_beside_another_quota() {
    let server = Redis::start();
    let store = store_with(&server, Micros::from_secs(7_200));
    for algorithm in ALGORITHMS {
        let (denying, other) = (quota(algorithm, "1/30min"), quota(algorithm, "10/40min"));
        let key = key_of(&denying, "c");
        for order in [[&denying, &other], [&other, &denying]] {
            server.cli(&["FLUSHALL"]);
            for quota in order {
                assert!(is_paid(&apply(&store, quota, "c", Act::Record(1)).unwrap()));
            }
            server.cli(&["PEXPIRE", &key, "3600000"]);
            assert!(!is_paid(&apply(&store, &denying, "c", take(1)).unwrap()), "{algorithm:?}");
            let lives_for = expires_at(&server, &key).saturating_sub(server.now());
            assert!(lives_for > 7_000_000_000, "{algorithm:?}, {order:?}: {lives_for} µs");
        }
    }
}

/// The mark of a used receipt expires, and not before the receipt has become worthless: when it is gone, the receipt gives
/// nothing back, whatever was spent meanwhile.
#[test]
fn the_mark_of_a_used_receipt_lives_until_the_receipt_is_worth_nothing() {
    const ID: u64 = 0xabc;
    let server = Redis::start();
    let windows = [
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::FixedWindow(WindowStart::Epoch),
        Algorithm::FixedWindow(WindowStart::FirstHit),
    ];
    for algorithm in ALGORITHMS.into_iter().chain(windows) {
        let quota = quota(algorithm, "10/h");
        // A bucket whose burst takes five hours to refill.
        let deep = quota.clone().with_burst(NonZeroU32::new(50).unwrap()).ok();
        for quota in [Some(quota), deep].into_iter().flatten() {
            server.cli(&["FLUSHALL"]);
            let clock = ManualClock::at(Timestamp::from_micros(server.now()));
            let settings = settings("ratelimit").clock(Some(clock.clone()));
            let store = connected(Servers::single(&server.url()).unwrap(), settings);
            let (capacity, key) = (quota.capacity().get(), key_of(&quota, "c"));
            let Outcome::Charged(receipt) = apply(&store, &quota, "c", take(capacity)).unwrap().outcome
            else {
                panic!("it is paid")
            };
            let again = || Receipt { ..receipt };
            let left = || apply(&store, &quota, "c", Act::Look(0)).unwrap().remaining;
            bring_back(&store, &quota, again(), Some(ID));
            assert_eq!(left(), capacity, "{quota:?}");

            let mark = format!("ratelimit:@used:{{{key}}}:{ID:016x}");
            let lives_for = server.cli(&["PTTL", &mark]).parse::<i64>().unwrap();
            assert!(lives_for > 0, "{quota:?}: the mark expires: {lives_for}");
            let most = 2 * u64::from(capacity.div_ceil(quota.units())) * quota.window().as_micros() / 1_000;
            let lives_for = u64::try_from(lives_for).unwrap();
            assert!(lives_for <= most + 1_000, "{quota:?}: {lives_for} of at most {most} ms");

            // Until then it gives nothing, and then it has nothing to give, though there is something to be had.
            for (after, is_marked) in [(Micros::ZERO, true), (Micros::from_millis(lives_for), false)] {
                clock.advance(after);
                assert!(is_paid(&apply(&store, &quota, "c", take(capacity)).unwrap()), "{quota:?}");
                if !is_marked {
                    assert_eq!(server.cli(&["DEL", &mark]), "1", "as if it had expired");
                }
                bring_back(&store, &quota, again(), Some(ID));
                assert_eq!(left(), 0, "{quota:?}, marked: {is_marked}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Two files alternate on one key: as long as one of the states says something, the key is there.
    #[test]
    fn a_key_lives_as_long_as_any_of_its_states_means_something(
        (first, second) in prop::sample::select(ALGORITHMS.as_slice()).prop_flat_map(quotas_on_one_key),
        start in starts(),
        min_ttl in 0u64..3,
        visits in prop::collection::vec((gaps(), any::<bool>(), 0u32..1_500, 0u8..8), 1..25),
    ) {
        thread_local! {
            static LAB: Redis = Redis::start();
        }
        LAB.with(|server| {
            let clock = ManualClock::at(start);
            let min_ttl = Micros::from_secs(min_ttl);
            let settings = settings("ratelimit").min_ttl(min_ttl).clock(Some(clock.clone()));
            let store = connected(Servers::single(&server.url()).unwrap(), settings);
            server.cli(&["FLUSHALL"]);
            let (key, quotas, begun) = (key_of(&first, "c"), [first, second], server.now());
            // By the test's clock: until when each quota's own state says something.
            let mut until = [0, 0];
            let mut receipts = [None, None];
            let mut expires_at = 0;
            for (gap, is_second, share, act) in visits {
                let n = usize::from(is_second);
                clock.advance(Micros::new(gap.micros(&quotas[n])));
                let now = clock.now().as_micros();
                if !quotas.iter().all(|quota| lasts(quota, now)) { break }
                let (quota, before) = (&quotas[n], server.now());
                let cost = cost(share, quota);
                let receipt: Option<Receipt> = if act == 2 { receipts[n].take() } else { None };
                let is_changed = match (act, receipt) {
                    (_, Some(receipt)) => {
                        give_back(&store, quota, receipt);
                        now < until[n]
                    }
                    (0, _) => is_paid(&apply(&store, quota, "c", Act::Record(cost)).unwrap()),
                    (1, _) => { apply(&store, quota, "c", Act::Look(cost)).unwrap(); false }
                    _ => match apply(&store, quota, "c", take(cost)).unwrap().outcome {
                        Outcome::Charged(paid) => { receipts[n] = Some(paid); true }
                        Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => false,
                    }
                };
                // Keys expire in real time, of which the test's clock knows nothing: after a pause it may be another key.
                if expires_at <= server.now() {
                    until = [0, 0];
                }
                expires_at = self::expires_at(server, &key);
                if is_changed {
                    until[n] = now + needed(&store, quota);
                }
                let pause = server.now() - begun;
                for (until, quota) in until.iter().zip(&quotas).filter(|(until, _)| **until > now) {
                    let due = before + (until - now);
                    prop_assert!(due <= expires_at + pause, "{} µs too early; {quota:?}", due - expires_at);
                }
            }
            Ok(())
        })?;
    }
}
