//! The limiter for one quota: the same buckets and laws as the store, without policies.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use ratewright_core::quota::{Algorithm, Leak};
use ratewright_core::store::Outcome;
use ratewright_core::{ManualClock, Micros, Quota, Timestamp};
use ratewright_store::KeyedLimiter;

use crate::generate::{cost, quotas, starts, visits};
use crate::on_memory::World;
use crate::world::{Gate, take};

fn limiter(quota: Quota) -> (KeyedLimiter<ManualClock>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    (KeyedLimiter::new(quota, clock.clone(), 10_000), clock)
}

/// A1: a new key starts full, the burst passes at once, and then one for each period.
#[test]
fn a1_a_burst_passes_at_once_and_then_one_for_each_period() {
    let (limiter, clock) = limiter(Quota::per_second(10).burst(3));
    assert_eq!(limiter.check("anna").map(|allowed| allowed.remaining), Ok(2));
    assert!(limiter.check("anna").is_ok() && limiter.check("anna").is_ok());
    let denied = limiter.check("anna").unwrap_err();
    assert_eq!((denied.retry_after, denied.remaining), (Some(Duration::from_millis(100)), 0));
    assert_eq!(denied.to_string(), "rate limit exceeded; retry after 100ms");
    assert!(limiter.check("bert").is_ok(), "another key has its own quota");
    clock.advance(Micros::new(99_999));
    assert!(limiter.check("anna").is_err(), "a microsecond early");
    clock.advance(Micros::new(1));
    assert!(limiter.check("anna").is_ok());
}

#[test]
fn looks_spend_nothing_several_units_go_together_and_too_many_never_pass() {
    let (limiter, _clock) = limiter(Quota::per_minute(6).burst(5));
    assert_eq!(limiter.check_n("a", 4).map(|allowed| allowed.remaining), Ok(1));
    let denied = limiter.check_n("a", 2).unwrap_err();
    assert_eq!((denied.remaining, denied.retry_after), (1, Some(Duration::from_secs(10))));
    assert_eq!(limiter.peek("a").map(|allowed| allowed.remaining), Ok(1));
    assert_eq!(limiter.check_n("a", 0).map(|allowed| allowed.remaining), Ok(1));
    let never = limiter.check_n("a", 6).unwrap_err();
    assert_eq!(never.retry_after, None);
    assert_eq!(never.to_string(), "rate limit exceeded; the cost is above the limit, so no retry can pass");
    assert!(limiter.check("a").is_ok());
    assert!(limiter.peek("a").is_err());
    limiter.reset("a");
    assert_eq!(limiter.peek("a").map(|allowed| allowed.remaining), Ok(5));
}

#[test]
fn any_hash_is_a_key_and_equal_texts_are_one() {
    let (limiter, _clock) = limiter(Quota::per_hour(2));
    assert!(limiter.is_empty());
    let text = "anna".to_owned();
    assert!(limiter.check("anna").is_ok() && limiter.check(&text).is_ok());
    assert!(limiter.check(text.as_str()).is_err());
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    assert!(limiter.check(&address).is_ok() && limiter.check(&(address, 7_u16)).is_ok());
    assert!(limiter.check(&("ab", "c")).is_ok() && limiter.check(&("a", "bc")).is_ok());
    assert_eq!(limiter.len(), 5);
}

/// A queue that nobody waits in denies what would have to wait.
#[test]
fn a_leaky_bucket_as_a_queue_tells_when_the_turn_comes() {
    let rate = "10/s".parse().unwrap();
    let quota = Quota::new(Algorithm::LeakyBucket(Leak::Queue), rate).unwrap();
    let (limiter, clock) = limiter(quota);
    assert!(limiter.check("a").is_ok());
    let wait = limiter.check("a").unwrap_err().retry_after.unwrap();
    clock.advance(Micros::new(u64::try_from(wait.as_micros()).unwrap() - 1));
    assert!(limiter.check("a").is_err());
    clock.advance(Micros::new(1));
    assert!(limiter.check("a").is_ok());
}

#[test]
fn keys_are_bounded() {
    let limiter = KeyedLimiter::new(Quota::per_hour(10), ManualClock::default(), 1_000);
    (0..20_000_u32).for_each(|n| assert!(limiter.check(&n).is_ok()));
    assert!(limiter.len() <= 1_000, "{}", limiter.len());
}

/// A3: of many threads that want the same units, exactly as many get one as there are.
#[test]
fn a3_threads_share_one_quota_exactly() {
    let (limiter, _clock) = limiter(Quota::per_hour(1).burst(1_000));
    let n_allowed = AtomicU32::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..1_000 {
                    n_allowed.fetch_add(u32::from(limiter.check("hot").is_ok()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(n_allowed.into_inner(), 1_000);
}

/// By the clock of the runtime, which is stopped and leaps ahead when everybody waits.
#[tokio::test(start_paused = true)]
async fn until_ready_waits_as_long_as_it_must() {
    #[derive(Debug)]
    struct RuntimeClock(tokio::time::Instant);
    impl ratewright_core::Clock for RuntimeClock {
        fn now(&self) -> Timestamp {
            let elapsed = u64::try_from(self.0.elapsed().as_micros()).unwrap();
            Timestamp::from_micros(1_700_000_000_000_000 + elapsed)
        }
    }
    let begun = tokio::time::Instant::now();
    let limiter = KeyedLimiter::new(Quota::per_second(10).burst(1), RuntimeClock(begun), 100);
    for _ in 0..21 {
        limiter.until_ready("a").await;
    }
    assert_eq!(begun.elapsed().as_millis() / 10, 200, "the first at once, then one each 100 ms");
}

proptest! {
    /// The same history gives the same answers as the store behind a policy, for every algorithm.
    #[test]
    fn it_answers_as_the_store_does(quota in quotas(), start in starts(), visits in visits(60)) {
        let (world, gate) = (World::at(start), Gate::new("g", quota.clone()));
        let limiter = KeyedLimiter::new(quota, world.clock.clone(), 100);
        for (gap, share) in visits {
            if !world.pass(gap, &[&gate]) { break }
            let cost = cost(share, &gate.quota);
            let standing = world.apply_within(Micros::ZERO, &[(&gate, "g", take(cost))]).remove(0);
            let checked = limiter.check_n("g", cost);
            let reset_after = Duration::from(standing.reset_after);
            match standing.outcome {
                Outcome::Charged(_) => {
                    let allowed = checked.unwrap();
                    prop_assert_eq!((allowed.remaining, allowed.reset_after), (standing.remaining, reset_after));
                }
                Outcome::Denied { retry_after } => {
                    let denied = checked.unwrap_err();
                    prop_assert_eq!(denied.retry_after, Some(Duration::from(retry_after)));
                    prop_assert_eq!((denied.remaining, denied.reset_after), (standing.remaining, reset_after));
                }
                Outcome::Never => prop_assert_eq!(checked.unwrap_err().retry_after, None),
                Outcome::WouldPass | Outcome::Unknown => prop_assert!(false, "a take is paid or short: {:?}", standing),
            }
        }
    }
}
