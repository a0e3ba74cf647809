//! Several outages under one quota: what local memory grants in all of them together.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ratewright_core::policy::{LimitId, OnFailure, Part};
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::quota::{Algorithm, Leak, Refill, WindowStart};
use ratewright_core::store::{Basis, BucketName, Charge, Key, Outcome, Receipt, Refund, Standing, Standings};
use ratewright_core::{ManualClock, Micros, Quota, Store, Timestamp};
use ratewright_store::{Failover, FailoverSettings, LocalShare, Peers, StoreError};

use crate::redis::quota;
use crate::world::{block_on, take};

/// A shared store that fails when the test says so, with as many instances as the test says.
struct Flaky {
    is_out: AtomicBool,
    n_instances: AtomicU32,
}

/// A failover store, its clock, and a shared store that the test switches off and on.
struct World {
    clock: ManualClock,
    store: Failover<Flaky, ManualClock>,
}

const TOKEN: Algorithm = Algorithm::TokenBucket(Refill::Smooth);
const WINDOW: Algorithm = Algorithm::FixedWindow(WindowStart::Epoch);
const LOG: Algorithm = Algorithm::SlidingWindow;

const HOUR: Micros = Micros::from_secs(3_600);

/// Midnight, when windows of a day begin.
const MIDNIGHT: Timestamp = Timestamp::from_micros(19_675 * 86_400_000_000);

/// `share: auto`, and no `ttl`.
fn auto() -> FailoverSettings {
    FailoverSettings::default().share(LocalShare::Auto).n_keys_max(10_000)
}

fn forgiving() -> FailoverSettings {
    auto().ttl(Some(Micros::from_secs(60)))
}

impl Peers for Flaky {
    fn n_instances(&self) -> Option<u32> {
        Some(self.n_instances.load(Ordering::SeqCst))
    }
}

impl Store for Flaky {
    type Error = StoreError;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), StoreError> {
        if self.is_out.load(Ordering::SeqCst) {
            return Err(StoreError::Incomplete { n_charges: charges.len(), n_standings: 0 });
        }
        standings.extend(charges.iter().map(|charge| Standing::unknown(charge, Basis::Shared)));
        Ok(())
    }

    async fn refund(&self, _: &[Refund<'_>]) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn reset(&self, _: &[Key<'_>]) -> Result<Basis, StoreError> {
        Ok(Basis::Shared)
    }
}

impl World {
    /// Two instances, so that `share: auto` is a half.
    fn new(settings: FailoverSettings) -> Self {
        let clock = ManualClock::at(MIDNIGHT);
        let shared = Flaky { is_out: AtomicBool::new(false), n_instances: AtomicU32::new(2) };
        Self { store: Failover::new(shared, clock.clone(), settings), clock }
    }

    fn instances(&self, n: u32) -> &Self {
        self.store.shared().n_instances.store(n, Ordering::SeqCst);
        self
    }

    /// Charges one unit, under a policy whose name stays while its quota may change.
    fn charge(&self, quota: &Quota, client: &str) -> Standing {
        let name = name(quota);
        let client = [Attribute { name: AttributeName::Ip, value: client }];
        let (limit, key) = (LimitId::default(), Key::new(&name, &client).unwrap());
        let (act, patience, on_failure) = (take(1), Micros::ZERO, OnFailure::Local);
        let mut standings = Standings::new();
        let charge = Charge { limit, key, quota, act, patience, on_failure };
        let Ok(()) = block_on(self.store.apply(&[charge], &mut standings));
        standings.remove(0)
    }

    /// Refunds a charge of client `c`, and says how many refunds arrived.
    fn refund(&self, quota: &Quota, receipt: Receipt) -> usize {
        let name = name(quota);
        let client = [Attribute { name: AttributeName::Ip, value: "c" }];
        let key = Key::new(&name, &client).unwrap();
        let refund = Refund { key, quota, receipt, basis: Basis::Local, share: None, id: None };
        let Ok(n_refunded) = block_on(self.store.refund(&[refund]));
        n_refunded
    }

    /// Takes all that client `c` can get.
    fn take_all(&self, quota: &Quota) -> Vec<Receipt> {
        let paid = || match self.charge(quota, "c").outcome {
            Outcome::Charged(receipt) => Some(receipt),
            Outcome::WouldPass | Outcome::Denied { .. } | Outcome::Never | Outcome::Unknown => None,
        };
        std::iter::from_fn(paid).take(100).collect()
    }

    /// An outage in which client `c` takes all it can get. It ends, and an hour passes.
    fn outage(&self, quota: &Quota) -> Vec<Receipt> {
        self.outage_of(|| self.take_all(quota))
    }

    /// An outage in which this happens. It ends, and an hour passes.
    fn outage_of<T>(&self, happens: impl FnOnce() -> T) -> T {
        let is_out = &self.store.shared().is_out;
        is_out.store(true, Ordering::SeqCst);
        let result = happens();
        assert!(self.store.status().is_out);
        is_out.store(false, Ordering::SeqCst);
        self.clock.advance(Micros::from_secs(1));
        assert_eq!(self.charge(&quota(TOKEN, "1/s"), "another").basis, Basis::Shared);
        assert!(!self.store.status().is_out);
        self.clock.advance(HOUR);
        result
    }
}

fn name(quota: &Quota) -> BucketName {
    BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)])
}

/// How much each of several outages an hour apart grants to one client.
fn granted(settings: FailoverSettings, quota: &Quota) -> [usize; 5] {
    let world = World::new(settings);
    std::array::from_fn(|_| world.outage(quota).len())
}

const ALGORITHMS: [Algorithm; 7] = [
    TOKEN,
    Algorithm::TokenBucket(Refill::Stepped),
    LOG,
    Algorithm::SlidingWindowCounter,
    WINDOW,
    Algorithm::FixedWindow(WindowStart::FirstHit),
    Algorithm::LeakyBucket(Leak::Meter),
];

/// The bound that docs/operations/reliability.md gives: each instance adds its share once, however often Redis fails.
#[test]
fn a9_outages_within_a_day_grant_the_share_of_a_daily_quota_once() {
    for algorithm in ALGORITHMS {
        let quota = quota(algorithm, "4/d");
        assert_eq!(granted(FailoverSettings::default(), &quota), [2, 0, 0, 0, 0], "{algorithm:?}");
        assert_eq!(granted(auto(), &quota), [2, 0, 0, 0, 0], "{algorithm:?}, share: auto");
    }
}

#[test]
fn a9_with_a_ttl_each_outage_grants_the_share_again() {
    for algorithm in ALGORITHMS {
        assert_eq!(granted(forgiving(), &quota(algorithm, "4/d")), [2; 5], "{algorithm:?}");
    }
    let long = auto().ttl(Some(Micros::from_secs(2 * 3_600)));
    assert_eq!(
        granted(long, &quota(WINDOW, "4/d")),
        [2, 0, 0, 0, 0],
        "each outage comes before the ttl is over"
    );
}

/// Nothing is forgotten early, and nothing is remembered for ever.
#[test]
fn a_local_bucket_is_repaid_by_its_own_quota() {
    for algorithm in [WINDOW, LOG, TOKEN] {
        let (world, quota) = (World::new(auto()), quota(algorithm, "4/d"));
        assert_eq!(world.outage(&quota).len(), 2);
        world.clock.set(MIDNIGHT + Micros::from_secs(86_400));
        assert_eq!(world.outage(&quota).len(), 2, "{algorithm:?}");
        assert_eq!(world.outage(&quota).len(), 0, "{algorithm:?}");
    }
}

/// `share: auto` follows the number of instances. A window keeps its count, so the largest share is the most; a token
/// bucket keeps the part that was spent, so one that is empty stays empty.
#[test]
fn another_share_does_not_grant_what_was_spent() {
    for (algorithm, expected) in
        [(WINDOW, [4, 0, 0, 4, 0, 0]), (LOG, [4, 0, 0, 4, 0, 0]), (TOKEN, [4, 0, 0, 0, 0, 0])]
    {
        let (world, quota) = (World::new(auto()), quota(algorithm, "8/30d"));
        let granted = [2, 4, 2, 1, 2, 1].map(|n| world.instances(n).outage(&quota).len());
        assert_eq!(granted, expected, "{algorithm:?}");
    }
}

#[test]
fn a_reload_between_outages_does_not_grant_what_was_spent() {
    for (algorithm, expected) in [(WINDOW, [2, 2, 0, 0]), (LOG, [2, 2, 0, 0]), (TOKEN, [2, 0, 0, 0])] {
        let world = World::new(auto());
        let granted = ["4/d", "8/d", "4/d", "8/d"].map(|rate| world.outage(&quota(algorithm, rate)).len());
        assert_eq!(granted, expected, "{algorithm:?}");
    }
}

#[test]
fn a_local_charge_that_is_refunded_after_the_outage_is_granted_in_the_next() {
    for algorithm in [WINDOW, LOG] {
        let (world, quota) = (World::new(auto()), quota(algorithm, "4/d"));
        let mut receipts = world.outage(&quota);
        assert_eq!(world.refund(&quota, receipts.remove(0)), 1);
        assert_eq!(world.outage(&quota).len(), 1, "{algorithm:?}");
        assert_eq!(world.refund(&quota, receipts.remove(0)), 1);
        assert_eq!(world.outage(&quota).len(), 1, "{algorithm:?}");
        assert_eq!(world.outage(&quota).len(), 0, "{algorithm:?}");
    }
}

/// Otherwise receipts from earlier outages would undo charges of this one.
#[test]
fn a_local_charge_that_was_forgiven_is_not_refunded_too() {
    for algorithm in [WINDOW, LOG, TOKEN] {
        let (world, quota) = (World::new(forgiving()), quota(algorithm, "4/d"));
        let earlier = world.outage(&quota);
        world.outage_of(|| {
            let mut receipts = world.take_all(&quota);
            assert_eq!(receipts.len(), 2);
            for receipt in earlier {
                assert_eq!(
                    world.refund(&quota, receipt),
                    0,
                    "{algorithm:?}: forgiven when this outage began"
                );
            }
            assert_eq!(world.take_all(&quota).len(), 0, "{algorithm:?}");
            assert_eq!(world.refund(&quota, receipts.remove(0)), 1);
            assert_eq!(world.take_all(&quota).len(), 1, "{algorithm:?}");
        });
    }
}

#[test]
fn local_memory_stays_within_max_keys_over_many_outages() {
    for algorithm in [WINDOW, LOG, TOKEN] {
        let (world, quota) = (World::new(auto().n_keys_max(100)), quota(algorithm, "4/d"));
        assert_eq!(world.outage(&quota).len(), 2);
        for n_outage in 0..5 {
            world.outage_of(|| {
                for n in 0..500 {
                    world.charge(&quota, &format!("{n_outage}-{n}"));
                }
            });
            assert_eq!(world.store.local_stats().n_keys, 100);
        }
        assert_eq!(
            world.outage(&quota).len(),
            0,
            "{algorithm:?}: the client that has spent most is remembered"
        );
        // Two days later nothing is owed, and new clients take the room of the old ones.
        world.clock.advance(Micros::from_secs(2 * 86_400));
        let n_evicted = world.store.local_stats().n_evicted;
        world.outage_of(|| {
            for n in 0..50 {
                world.charge(&quota, &format!("new-{n}"));
            }
        });
        let stats = world.store.local_stats();
        assert!(stats.n_keys <= 100 && stats.n_evicted == n_evicted, "{algorithm:?}: {stats:?}");
    }
}
