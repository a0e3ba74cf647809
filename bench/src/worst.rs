//! The longest calls: how long the script keeps Redis busy where it has most to do, by Redis' own count.
//!
//! A log of 10,000 units is recorded to twice its limit, the deepest there is, and copied for each case. Buckets whose
//! quota was changed are converted, as many as go out in one call. Each case is played some times; the worst counts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Act, Basis, BucketName, Charge, Key, Outcome, Receipt, Refund, Standings};
use ratewright_core::{Clock as _, ManualClock, Micros, Quota, Store, Timestamp};
use ratewright_lab::Redis;
use ratewright_store::{RedisSettings, RedisStore, Servers};
use tokio::runtime::Runtime;

const UNITS: u32 = 10_000;
const ROUNDS: usize = 9;
const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const WINDOW: Micros = Micros::from_secs(60);
const LOG: &str = "ratelimit:p~sliding_window.60000000:log";

/// The time between two charges of the log.
const APART: Micros = Micros::from_millis(1);

struct Bench<'a> {
    runtime: &'a Runtime,
    server: &'a Redis,
    store: Arc<RedisStore>,
    clock: ManualClock,
}

/// How long a script call may keep Redis busy, in microseconds.
const MICROS_MAX: u64 = 1_000;

/// Prints the median and the worst time of each case.
///
/// # Errors
/// If the worst is longer than a call may take.
pub(crate) fn run(runtime: &Runtime, server: &Redis) -> Result<(), String> {
    let clock = ManualClock::at(START);
    let store = runtime.block_on(async {
        let settings = RedisSettings::default()
            .deadline(Duration::from_secs(10))
            .min_ttl(Micros::from_secs(600))
            .clock(Some(clock.clone()));
        let store = RedisStore::new(Servers::single(&server.url()).expect("an address"), settings);
        while !store.status().is_up {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Arc::new(store)
    });
    let bench = Bench { runtime, server, store, clock };
    let (mut worst_median, mut worst) = (0, 0);
    for (name, micros) in bench.logs().into_iter().chain([bench.converted()]) {
        let (median, most) = (micros[micros.len() / 2], micros[micros.len() - 1]);
        println!("{name:44}  {median:6} µs, at most {most} µs");
        (worst_median, worst) = (worst_median.max(median), worst.max(most));
    }
    println!("worst script call: {worst} µs; worst median of a case: {worst_median} µs");
    judge(worst)
}

fn judge(worst: u64) -> Result<(), String> {
    match worst <= MICROS_MAX {
        true => Ok(()),
        false => Err(format!("the worst script call took {worst} µs; it has to stay within {MICROS_MAX} µs")),
    }
}

impl Bench<'_> {
    fn logs(&self) -> Vec<(&'static str, Vec<u64>)> {
        let quota = quota(Algorithm::SlidingWindow, UNITS);
        let mut middle = None;
        for n in 0..2 * UNITS {
            self.clock.advance(APART);
            let receipt = self.apply(&quota, "full", Act::Record(1));
            middle = if n == UNITS * 3 / 2 { receipt } else { middle };
        }
        let end = self.clock.now();
        let half = Micros::new(u64::from(UNITS) * APART.as_micros());
        let before = |time: Timestamp, by: Micros| Timestamp::from_micros(time.as_micros() - by.as_micros());
        let paid_at = middle.map_or(end, |receipt| receipt.paid_at);
        let all = take(UNITS);
        [
            ("log: a unit denied, half must leave", end, Some(take(1))),
            ("log: all units denied, all must leave", end, Some(all)),
            ("log: one more recorded", end, Some(Act::Record(1))),
            ("log: a whole limit recorded", end, Some(Act::Record(UNITS))),
            ("log: half has left", before(end, half) + WINDOW, Some(all)),
            ("log: all has left", end + WINDOW, Some(all)),
            ("log: clock set back, half lies ahead", before(before(end, half), WINDOW), Some(take(1))),
            ("log: clock set back, all lies ahead", before(START, WINDOW), Some(take(1))),
            ("log: a charge from the middle given back", before(end, half) + WINDOW, None),
        ]
        .into_iter()
        .map(|(name, now, act)| {
            let times = (0..ROUNDS).map(|_| {
                self.server.cli(&["COPY", &LOG.replace("log", "full"), LOG, "REPLACE"]);
                self.clock.set(now);
                self.timed(|| match act {
                    Some(act) => drop(self.apply(&quota, "log", act)),
                    None => self.refund(&quota, Receipt::new(1, &quota, paid_at)),
                })
            });
            (name, sorted(times))
        })
        .collect()
    }

    /// Buckets that another quota has written, as many as wait together.
    fn converted(&self) -> (&'static str, Vec<u64>) {
        let token = Algorithm::TokenBucket(Refill::Smooth);
        let times = (0..ROUNDS).map(|round| {
            let clients: Vec<_> = (0..32).map(|n| format!("{round}-{n}")).collect();
            self.together(&quota(token, 10), &clients);
            self.timed(|| self.together(&quota(token, 11), &clients))
        });
        ("32 token buckets of another quota", sorted(times))
    }

    /// Microseconds that Redis counts for the script.
    fn timed(&self, call: impl FnOnce()) -> u64 {
        self.server.cli(&["CONFIG", "RESETSTAT"]);
        call();
        let stats = self.server.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("it ran");
        let micros = line.split("usec=").nth(1).and_then(|rest| rest.split(',').next());
        micros.expect("microseconds").parse().expect("a number")
    }

    fn apply(&self, quota: &Quota, client: &str, act: Act) -> Option<Receipt> {
        self.runtime.block_on(apply(&self.store, quota, client, act))
    }

    fn together(&self, quota: &Quota, clients: &[String]) {
        self.runtime
            .block_on(join_all(clients.iter().map(|client| apply(&self.store, quota, client, take(1)))));
    }

    fn refund(&self, quota: &Quota, receipt: Receipt) {
        let name = BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
        let attributes = [Attribute { name: AttributeName::Ip, value: "log" }];
        let key = Key::new(&name, &attributes).expect("the attribute is there");
        // As if no later time had been seen: then it would return nothing.
        let store = self.store.anew();
        let refunds = [Refund { key, quota, receipt, basis: Basis::Shared, share: None, id: None }];
        self.runtime.block_on(store.refund(&refunds)).expect("Redis answers");
    }
}

async fn apply(store: &RedisStore, quota: &Quota, client: &str, act: Act) -> Option<Receipt> {
    let name = BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
    let attributes = [Attribute { name: AttributeName::Ip, value: client }];
    let key = Key::new(&name, &attributes).expect("the attribute is there");
    let (limit, patience, on_failure) = (LimitId::default(), Micros::ZERO, OnFailure::Local);
    let mut standings = Standings::new();
    let charge = Charge { limit, key, quota, act, patience, on_failure };
    store.apply(&[charge], &mut standings).await.expect("Redis answers");
    match standings.remove(0).outcome {
        Outcome::Charged(receipt) => Some(receipt),
        Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => None,
    }
}

fn quota(algorithm: Algorithm, units: u32) -> Quota {
    Quota::new(algorithm, format!("{units}/60s").parse().expect("a rate")).expect("a quota")
}

fn take(cost: u32) -> Act {
    Act::Take(NonZeroU32::new(cost).expect("a take costs something"))
}

fn sorted(times: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_call_of_more_than_a_millisecond_fails_the_benchmark() {
        assert_eq!([0, 750, 1_000].map(judge), [const { Ok(()) }; 3]);
        for worst in [1_001, 36_000, u64::MAX] {
            let why = judge(worst).unwrap_err();
            assert_eq!(why, format!("the worst script call took {worst} µs; it has to stay within 1000 µs"));
        }
    }
}
