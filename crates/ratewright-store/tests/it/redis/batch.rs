//! Decisions that wait for Redis together and go out in one call.

use futures_util::future::join_all;
use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::store::{Act, BucketName, Charge, Key, Standing, Standings};
use ratewright_core::{ManualClock, Micros, Quota, Store, Timestamp};
use ratewright_lab::Redis;
use ratewright_store::{MemoryStore, RedisStore, Servers};

use super::{TOKEN, connected, is_paid, quota, settings, store_on};
use crate::world::{block_on, take};

/// How often the script was called since the statistics were reset.
fn n_script_calls(server: &Redis) -> usize {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    calls.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn decisions_that_wait_together_travel_together_and_stay_apart() {
    let server = Redis::start();
    let store = store_on(&server);
    let quota = quota(TOKEN, "50/h");
    let name = BucketName::new("p", None, &quota, vec![Part::one(AttributeName::Ip)]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    let n_paid = block_on(async {
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
    let n_calls = n_script_calls(&server);
    assert!(n_calls < 200, "400 decisions took {n_calls} calls");
}

/// One decision of the only client: its charges, and how each stands.
async fn decide<const N: usize>(store: &impl Store, charges: [(&Quota, Act); N]) -> [Standing; N] {
    let attributes = [Attribute { name: AttributeName::Ip, value: "c" }];
    let name =
        |(quota, _): (&Quota, Act)| BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
    let names = charges.map(name);
    let charge = |n: usize| Charge {
        limit: LimitId::default(),
        key: Key::new(&names[n], &attributes).unwrap(),
        quota: charges[n].0,
        act: charges[n].1,
        patience: Micros::ZERO,
        on_failure: OnFailure::Local,
    };
    let mut standings = Standings::new();
    let applied = store.apply(&std::array::from_fn::<_, N, _>(charge), &mut standings).await;
    assert!(applied.is_ok(), "the store answers");
    Vec::from_iter(standings).try_into().unwrap()
}

/// Decisions of one call, in which a key meets several quotas in turn: each is judged as if it came in a call of its own, what they
/// write is what is found afterwards, and no quota pays more than it has.
#[test]
fn quotas_that_alternate_within_a_call_keep_what_each_spent() {
    let server = Redis::start();
    let clock = ManualClock::at(Timestamp::from_micros(1_700_002_800_000_000));
    let min_ttl = Micros::from_secs(600);
    let settings = settings("ratelimit").clock(Some(clock.clone())).min_ttl(min_ttl);
    let store = connected(Servers::single(&server.url()).unwrap(), settings);
    let algorithms = [
        TOKEN,
        Algorithm::TokenBucket(Refill::Stepped),
        Algorithm::LeakyBucket(Leak::Meter),
        Algorithm::LeakyBucket(Leak::Queue),
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::FixedWindow(WindowStart::Epoch),
    ];
    // Of three, the second is used up by its first charge: the others are written after it, and must not take its place.
    let rates = [&["20/h", "12/h"][..], &["30/h", "3/h", "60/h"]];
    for (algorithm, rates) in
        algorithms.into_iter().flat_map(|algorithm| rates.map(|rates| (algorithm, rates)))
    {
        let quotas: Vec<_> = rates.iter().map(|rate| quota(algorithm, rate)).collect();
        let decisions: Vec<_> = (0..20)
            .map(|n| (&quotas[n % quotas.len()], if n % 5 == 4 { Act::Look(1) } else { take(2) }))
            .collect();
        let memory = MemoryStore::new(clock.clone(), 100);
        let alone = |quota: &Quota, act: Act| {
            let [standing] = block_on(decide(&memory, [(quota, act)]));
            told(&standing)
        };
        server.cli(&["FLUSHALL"]);
        let together = decide_together(&server, &store, &decisions);
        for (n, (standing, (quota, act))) in together.iter().zip(&decisions).enumerate() {
            assert_eq!(told(standing), alone(quota, *act), "{algorithm:?} {rates:?}, decision {n}");
        }
        for (n, quota) in quotas.iter().enumerate() {
            let n_paid =
                together.iter().skip(n).step_by(quotas.len()).filter(|standing| is_paid(standing)).count();
            assert!(2 * n_paid <= quota.units() as usize, "{algorithm:?} {rates:?}: {n_paid} under {n}");
            let [after] = block_on(decide(&store, [(quota, Act::Look(1))]));
            assert_eq!(told(&after), alone(quota, Act::Look(1)), "{algorithm:?} {rates:?}, after");
        }
    }
}

/// Decides all of these together.
///
/// At most four calls are under way. So four decisions go first that are too heavy to share one, to a server that stands still.
/// The others wait for them and share a call, or two if the first of them came in time for one of their own.
fn decide_together(server: &Redis, store: &RedisStore, decisions: &[(&Quota, Act)]) -> Vec<Standing> {
    let heavy = quota(Algorithm::SlidingWindow, "10000/d");
    server.cli(&["CONFIG", "RESETSTAT"]);
    server.pause();
    let standings = block_on(async {
        let look = (&heavy, Act::Look(1));
        let mut first: Vec<_> = (0..4).map(|_| Box::pin(decide(store, [look; 2]))).collect();
        let mut others: Vec<_> =
            decisions.iter().map(|decision| Box::pin(decide(store, [*decision]))).collect();
        for decision in &mut first {
            assert!(futures_util::poll!(decision).is_pending(), "the server stands still");
        }
        for decision in &mut others {
            assert!(futures_util::poll!(decision).is_pending(), "the server stands still");
        }
        server.resume();
        join_all(first).await;
        join_all(others).await.into_iter().map(|[standing]| standing).collect()
    });
    let n_calls = n_script_calls(server);
    assert!(n_calls <= 4 + 2 + 1, "{n_calls} calls; one may have been an idle link's own");
    standings
}

/// A standing without its basis.
fn told(standing: &Standing) -> (String, u32, Micros, Micros) {
    (format!("{:?}", standing.outcome), standing.remaining, standing.reset_after, standing.wait)
}
