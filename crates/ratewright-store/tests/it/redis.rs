//! The Redis store on a real redis-server: what several instances and decisions at once make of it.

mod batch;
mod expiry;
mod link;
mod stored;

use std::time::Duration;

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::store::{Act, Basis, BucketName, Charge, Key, Outcome, Standing, Standings};
use ratewright_core::{Micros, Quota, Store};
use ratewright_lab::{Redis, wait_until};
use ratewright_store::{RedisSettings, RedisStore, Servers, StoreError};

use crate::world::{RUNTIME, block_on, take};

const TOKEN: Algorithm = Algorithm::TokenBucket(Refill::Smooth);

/// Long enough that only a server that does not answer misses it.
const PATIENT: Duration = Duration::from_secs(20);

pub(crate) fn settings(prefix: &str) -> RedisSettings {
    RedisSettings::default().prefix(prefix.to_owned()).deadline(PATIENT)
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
    block_on(store.apply(&[Charge { limit, key, quota, act, patience, on_failure }], &mut standings))?;
    Ok(standings.remove(0))
}

fn is_paid(standing: &Standing) -> bool {
    matches!(standing.outcome, Outcome::Charged(_))
}

fn reset(store: &RedisStore, quota: &Quota, client: &str) {
    let name = BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
    let attributes = [Attribute { name: AttributeName::Ip, value: client }];
    let basis = block_on(store.reset(&[Key::new(&name, &attributes).unwrap()])).unwrap();
    assert_eq!(basis, Basis::Shared);
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
