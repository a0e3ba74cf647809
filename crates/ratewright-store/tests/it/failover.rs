//! What happens without Redis: a real server that is not there, or goes and comes.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use ratewright_core::joint_decision::{GiveBack, JointQuery, JointQuota, JointTerms, Veto};
use ratewright_core::policy::{CountedResponses, LimitId, Mode, OnFailure, Part};
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Refill, Share, WindowStart};
use ratewright_core::store::{
    Act, Basis, BucketName, Charge, Key, Outcome, PaidCharge, Receipt, Refund, Standing, Standings,
};
use ratewright_core::{
    Clock, Decision, Limiter, ManualClock, Micros, Policies, Policy, Query, Quota, Store, Timestamp, Verdict,
};
use ratewright_lab::{Fault, Proxy, Redis, wait_until};
use ratewright_store::{Failover, FailoverSettings, LocalShare, Peers, RedisStore, Servers, StoreError};

use crate::limiter::refunded;
use crate::redis::{connected, quota, settings};
use crate::world::{RUNTIME, block_on, ready, take, trial};

type Tested = Failover<RedisStore, ManualClock>;

/// A shared store that answers for the first charges only.
struct Forgetful(usize);

/// A shared store that never answers, but knows the number of instances.
struct Unreachable(Arc<AtomicU32>);

const TOKEN: Algorithm = Algorithm::TokenBucket(Refill::Smooth);

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A store whose Redis is that server, and its clock.
fn store_on(server: &Redis, settings: FailoverSettings) -> (Tested, ManualClock) {
    let _in_it = RUNTIME.enter();
    let shared =
        RedisStore::new(Servers::single(&server.url()).unwrap(), crate::redis::settings("ratelimit"));
    let clock = ManualClock::at(START);
    (Failover::new(shared, clock.clone(), settings), clock)
}

/// A store whose Redis is gone.
fn alone(settings: FailoverSettings) -> (Tested, ManualClock) {
    let mut server = Redis::start();
    server.kill();
    store_on(&server, settings)
}

impl Peers for Forgetful {
    fn n_instances(&self) -> Option<u32> {
        None
    }
}

impl Peers for Unreachable {
    fn n_instances(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed))
    }
}

impl Store for Unreachable {
    type Error = StoreError;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), StoreError> {
        Forgetful(0).apply(charges, standings).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, StoreError> {
        Forgetful(0).refund(refunds).await
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, StoreError> {
        Forgetful(0).reset(keys).await
    }
}

impl Store for Forgetful {
    type Error = StoreError;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), StoreError> {
        standings.extend(charges.iter().take(self.0).map(|charge| Standing::unknown(charge, Basis::Shared)));
        Ok(())
    }

    async fn refund(&self, _: &[Refund<'_>]) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn reset(&self, _: &[Key<'_>]) -> Result<Basis, StoreError> {
        Ok(Basis::Shared)
    }
}

/// What a store left out it has not checked: the whole decision is made without it.
#[test]
fn a_store_that_leaves_charges_out_has_not_answered() {
    let quota = quota(TOKEN, "10/h");
    for n_answered in 0..2 {
        let store = Failover::new(Forgetful(n_answered), ManualClock::at(START), share(1, 2));
        let (verdict, standings) = apply(
            &store,
            &[("p", &quota, take(1), OnFailure::Local), ("q", &quota, take(1), OnFailure::Closed)],
        );
        assert_eq!((verdict, standings.len()), (Verdict::Deny, 2));
        let (verdict, standings) = apply(
            &store,
            &[("p", &quota, take(4), OnFailure::Local), ("q", &quota, take(1), OnFailure::Open)],
        );
        assert_eq!(verdict, Verdict::Allow);
        assert_eq!(
            (standings[0].basis, standings[0].remaining),
            (Basis::Local, 1),
            "four of its share of five"
        );
        assert_eq!(standings[1].basis, Basis::FailOpen);
        assert!(store.status().is_out);
    }
}

/// Applies charges of one client: policy, quota, act, and what to do without the store.
fn apply(
    store: &impl Store<Error = Infallible>,
    charges: &[(&str, &Quota, Act, OnFailure)],
) -> (Verdict, Standings) {
    let names: Vec<_> = charges
        .iter()
        .map(|(name, quota, _, _)| BucketName::new(name, None, quota, vec![Part::one(AttributeName::Ip)]))
        .collect();
    let client = [Attribute { name: AttributeName::Ip, value: "c" }];
    let charges: Vec<_> = charges
        .iter()
        .zip(&names)
        .map(|(&(_, quota, act, on_failure), name)| {
            let (limit, patience) = (LimitId::default(), Micros::ZERO);
            Charge { limit, key: Key::new(name, &client).unwrap(), quota, act, patience, on_failure }
        })
        .collect();
    let mut standings = Standings::new();
    let Ok(()) = block_on(store.apply(&charges, &mut standings));
    (Verdict::judge(&charges, &standings), standings)
}

fn apply_one(store: &Tested, quota: &Quota, act: Act, on_failure: OnFailure) -> (Verdict, Standing) {
    let (verdict, mut standings) = apply(store, &[("p", quota, act, on_failure)]);
    (verdict, standings.remove(0))
}

fn share(part: u32, of: u32) -> FailoverSettings {
    let share = LocalShare::Fixed(Share { part, of: NonZeroU32::new(of).unwrap() });
    FailoverSettings::default().share(share)
}

#[test]
fn a9_without_redis_half_of_the_policy_is_granted_here() {
    let (store, _) = alone(FailoverSettings::default());
    let quota = quota(TOKEN, "10/h");
    for left in (0..5).rev() {
        let (verdict, standing) = apply_one(&store, &quota, take(1), OnFailure::Local);
        assert_eq!((verdict, standing.remaining, standing.basis), (Verdict::Allow, left, Basis::Local));
    }
    let (verdict, standing) = apply_one(&store, &quota, take(1), OnFailure::Local);
    assert_eq!(verdict, Verdict::Deny);
    assert_eq!(standing.retry_after(), Some(Micros::from_secs(720)), "five an hour come back");
    assert!(store.status().is_out);
}

#[test]
fn a9_the_share_is_a_setting_and_never_below_one_unit() {
    for (part, of, granted) in [(1, 2, 5), (1, 1, 10), (1, 4, 2), (1, 1_000, 1)] {
        let (store, _) = alone(share(part, of));
        let quota = quota(TOKEN, "10/h");
        let paid =
            (0..20).filter(|_| apply_one(&store, &quota, take(1), OnFailure::Local).0 == Verdict::Allow);
        assert_eq!(paid.count(), granted, "{part}/{of}");
    }
}

#[test]
fn c7_open_lets_through_unchecked_and_closed_denies() {
    let (store, _) = alone(FailoverSettings::default());
    let quota = quota(TOKEN, "1/h");
    for _ in 0..3 {
        let (verdict, standing) = apply_one(&store, &quota, take(1), OnFailure::Open);
        assert_eq!(
            (verdict, standing.outcome, standing.basis),
            (Verdict::Allow, Outcome::Unknown, Basis::FailOpen)
        );
        let (verdict, standing) = apply_one(&store, &quota, take(1), OnFailure::Closed);
        assert_eq!((verdict, standing.basis), (Verdict::Deny, Basis::FailClosed));
        assert_eq!(standing.retry_after(), Some(Micros::from_secs(1)), "never at once");
    }
    assert_eq!([Basis::FailOpen, Basis::FailClosed].map(|basis| store.n_by_basis(basis)), [3, 3]);
    let (verdict, _) = apply_one(&store, &quota, trial(1), OnFailure::Closed);
    assert_eq!(verdict, Verdict::Allow, "what may not veto does not");
}

#[test]
fn c7_closed_denies_before_anything_local_is_charged() {
    let (store, _) = alone(FailoverSettings::default());
    let quota = quota(TOKEN, "10/h");
    let local = ("local", &quota, take(1), OnFailure::Local);
    let open = ("open", &quota, take(1), OnFailure::Open);
    let closed = ("closed", &quota, take(1), OnFailure::Closed);
    for _ in 0..10 {
        let (verdict, standings) = apply(&store, &[local, open, closed]);
        assert_eq!(verdict, Verdict::Deny);
        let bases: Vec<_> = standings.iter().map(|standing| standing.basis).collect();
        assert_eq!(bases, [Basis::Local, Basis::FailOpen, Basis::FailClosed]);
        assert_eq!(standings[0].remaining, 5, "nothing was charged");
    }
    let (verdict, standings) = apply(&store, &[local, open]);
    assert_eq!((verdict, standings[0].remaining), (Verdict::Allow, 4));
}

#[test]
fn a2_local_charges_are_all_or_nothing() {
    let (store, _) = alone(FailoverSettings::default());
    let (wide, narrow) = (quota(TOKEN, "10/h"), quota(TOKEN, "2/h"));
    let both = [("wide", &wide, take(1), OnFailure::Local), ("narrow", &narrow, take(1), OnFailure::Local)];
    assert_eq!(apply(&store, &both).0, Verdict::Allow);
    assert_eq!(apply(&store, &both).0, Verdict::Deny);
    assert_eq!(apply(&store, &both[..1]).1[0].remaining, 3, "the denied one cost nothing");
}

#[test]
fn what_never_fits_a_share_may_fit_later() {
    let (store, _) = alone(FailoverSettings::default());
    let quota = quota(TOKEN, "10/h");
    let (verdict, standing) = apply_one(&store, &quota, take(8), OnFailure::Local);
    assert_eq!((verdict, standing.retry_after()), (Verdict::Deny, Some(Micros::from_secs(1))));
    assert_eq!(apply_one(&store, &quota, take(11), OnFailure::Local).1.outcome, Outcome::Never);
}

proptest! {
    #[test]
    fn after_a_refund_without_redis_the_decision_shows_what_a_look_shows(
        refunded in refunded(),
        (part, of) in (1..=4u32, 4..=8u32),
    ) {
        let clock = ManualClock::at(START);
        refunded.check(Failover::new(Forgetful(0), clock.clone(), share(part, of)), &clock)?;
    }
}

/// A limit of 100/h on an instance without Redis, whose share follows the number of instances: two at first.
struct Shares {
    limiter: Limiter<Failover<Unreachable, ManualClock>>,
    n_instances: Arc<AtomicU32>,
}

impl Shares {
    fn new() -> Self {
        let n_instances = Arc::new(AtomicU32::new(2));
        let settings = FailoverSettings::default().share(LocalShare::Auto);
        let store = Failover::new(Unreachable(n_instances.clone()), ManualClock::at(START), settings);
        let rate = Quota::per_hour(100).burst(100);
        let policy = Policy::new("p", rate).unwrap().with_count(CountedResponses::only(Vec::new()));
        Self { limiter: Limiter::new(Policies::new(vec![policy]).unwrap(), store), n_instances }
    }

    fn query(ask: Ask) -> Query<'static> {
        Query {
            select: Select::Covering(&[]),
            attributes: &[],
            address: None,
            ask,
            patience: Micros::ZERO,
            id: None,
            entrypoint: Entrypoint::Tower,
        }
    }

    fn spend(&self, cost: u32) -> Decision {
        let ask = Ask::Spend(NonZeroU32::new(cost).unwrap());
        let decision = ready(self.limiter.decide(&Self::query(ask)));
        assert_eq!(decision.verdict(), Verdict::Allow);
        decision
    }

    /// The units left with so many instances.
    fn left_with(&self, n_instances: u32) -> u32 {
        self.n_instances.store(n_instances, Ordering::Relaxed);
        let decision = ready(self.limiter.decide(&Self::query(Ask::Look(0))));
        decision.tightest().unwrap().2.remaining
    }

    /// Refunds a charge as `POST /api/v1/refund` does, and says how many refunds were made.
    fn refund_by_receipt(&self, decision: &Decision) -> usize {
        let (policy, limit, standing) = decision.tightest().unwrap();
        let Outcome::Charged(receipt) = &standing.outcome else { panic!("it is charged") };
        let paid = PaidCharge {
            policy: policy.name(),
            override_name: None,
            quota: None,
            rate: limit.quota().rate(),
            kind: &limit.quota().kind(),
            capacity: limit.quota().capacity(),
            values: Vec::new(),
            cost: receipt.cost,
            paid_at: receipt.paid_at,
            basis: standing.basis,
            share: standing.share,
            id: 1,
        };
        ready(self.limiter.refund_paid(&[paid]))
    }
}

/// Otherwise the refund would look for a bucket of another quota, and be lost.
#[test]
fn a_refund_goes_to_the_share_that_was_charged() {
    let shares = Shares::new();
    let mut decision = shares.spend(10);
    assert_eq!((shares.left_with(2), shares.left_with(4)), (40, 20));
    ready(shares.limiter.refund_uncounted(&Shares::query(Ask::Look(0)), &mut decision, 200));
    assert_eq!(shares.left_with(2), 50);

    let decision = shares.spend(10);
    assert_eq!(shares.left_with(4), 20);
    assert_eq!(shares.refund_by_receipt(&decision), 1);
    assert_eq!(shares.left_with(2), 50);
}

/// The corrections of a joint decision too.
#[test]
fn a_correction_goes_to_the_share_that_was_charged() {
    let shares = Shares::new();
    let query = |cost| {
        let query = Shares::query(Ask::Spend(NonZeroU32::new(cost).unwrap()));
        JointQuery { query, quota: JointQuota::OfPolicy, veto: Veto::Together, gives_back: None }
    };
    // Both queries fit, so the request is allowed. The second query then refunds its 10 units.
    let queries = [query(10), JointQuery { gives_back: Some(GiveBack::IfAllowed(10)), ..query(10) }];
    let terms = JointTerms { mode: Mode::Enforce, is_report: false };
    let decision = ready(shares.limiter.decide_all(shares.limiter.load(), &queries, terms));
    assert_eq!(shares.left_with(2), 30);
    assert_eq!(shares.left_with(4), 15);
    ready(shares.limiter.correct(&queries, decision));
    assert_eq!(shares.left_with(2), 40);
}

/// A share that was never charged has nothing to give back, and a refund leaves no more than if nothing had been charged.
#[test]
fn a_refund_by_receipt_never_returns_more_than_was_charged() {
    let shares = Shares::new();
    shares.spend(38);
    let decision = shares.spend(10);
    assert_eq!(shares.left_with(4), 1);
    shares.spend(1);
    assert_eq!(shares.refund_by_receipt(&decision), 1, "of the share of two");
    assert_eq!(shares.left_with(4), 0);
    assert_eq!(shares.left_with(2), 12);
}

#[test]
fn a_refund_goes_where_it_was_paid() {
    let (store, clock) = alone(FailoverSettings::default());
    let quota = quota(TOKEN, "10/h");
    let (_, paid) = apply_one(&store, &quota, take(3), OnFailure::Local);
    let Outcome::Charged(receipt) = paid.outcome else { panic!("it is paid") };
    assert_eq!(receipt.paid_at, clock.now());
    refund(&store, &quota, receipt, paid.basis);
    assert_eq!(apply_one(&store, &quota, Act::Look(0), OnFailure::Local).1.remaining, 5);
}

/// Refunds a charge of the only client, and says how many refunds arrived.
fn refund(store: &Tested, quota: &Quota, receipt: Receipt, basis: Basis) -> usize {
    let name = BucketName::new("p", None, quota, vec![Part::one(AttributeName::Ip)]);
    let client = [Attribute { name: AttributeName::Ip, value: "c" }];
    let key = Key::new(&name, &client).unwrap();
    let Ok(n_refunded) =
        block_on(store.refund(&[Refund { key, quota, receipt, basis, share: None, id: Some(1) }]));
    n_refunded
}

/// A receipt for a shared charge is worth nothing while Redis is out: this instance was not paid. Nor is it kept for later.
#[test]
fn without_redis_a_shared_charge_is_not_refunded() {
    for algorithm in [TOKEN, Algorithm::SlidingWindow, Algorithm::FixedWindow(WindowStart::Epoch)] {
        let mut server = Redis::start();
        let (store, clock) = store_on(&server, FailoverSettings::default());
        wait_until("the link is up", || store.shared().status().is_up);
        let quota = quota(algorithm, "10/1000d");
        let look = || apply_one(&store, &quota, Act::Look(0), OnFailure::Local).1;
        // Both clocks show one time, so that only the basis tells the two charges apart.
        clock.set(Timestamp::from_micros(server.now()));
        let (_, shared) = apply_one(&store, &quota, take(3), OnFailure::Local);
        let Outcome::Charged(receipt) = shared.outcome else { panic!("it is paid") };
        assert_eq!((shared.basis, shared.remaining), (Basis::Shared, 7));
        assert_eq!(server.cli(&["SAVE"]), "OK");
        server.kill();
        wait_until("the outage is noticed", || look().basis == Basis::Local);
        clock.set(receipt.paid_at);
        let (_, local) = apply_one(&store, &quota, take(3), OnFailure::Local);
        assert_eq!((local.basis, local.remaining), (Basis::Local, 2), "{algorithm:?}");

        assert_eq!(refund(&store, &quota, receipt, Basis::Shared), 0, "{algorithm:?}");
        assert_eq!((look().basis, look().remaining), (Basis::Local, 2), "{algorithm:?}");
        server.run();
        wait_until("the return is noticed", || look().basis == Basis::Shared);
        assert_eq!(look().remaining, 7, "{algorithm:?}");
    }
}

/// The bound of docs/operations/reliability.md: while only some calls time out, a client gets the shared quota and the share of every
/// instance, however the calls are spread.
#[test]
fn while_some_calls_time_out_the_shared_quota_and_each_share_are_granted_once() {
    let server = Redis::start();
    for algorithm in [TOKEN, Algorithm::SlidingWindow, Algorithm::FixedWindow(WindowStart::Epoch)] {
        server.cli(&["FLUSHALL"]);
        let instances = [(); 2].map(|()| Instance::behind_a_proxy(&server));
        let quota = quota(algorithm, "6/1000d");
        let (mut n_shared, mut n_local) = (0, [0, 0]);
        // Every third call of an instance is late, until the shared quota and both shares are spent; and then some more.
        let mut is_spent = [false; 3];
        let mut n_more = 0;
        for n in 0.. {
            let instance = &instances[n % 2];
            instance.clock.advance(Micros::from_secs(2)); // so that each late call is an outage of its own
            let standing = instance.take(&quota, n / 2 % 3 == 2);
            let is_paid = matches!(standing.outcome, Outcome::Charged(_));
            match standing.basis {
                Basis::Shared => {
                    n_shared += u32::from(is_paid);
                    is_spent[2] |= !is_paid;
                }
                Basis::Local => {
                    n_local[n % 2] += u32::from(is_paid);
                    is_spent[n % 2] |= !is_paid;
                }
                Basis::FailOpen | Basis::FailClosed => panic!("it is local: {standing:?}"),
            }
            assert!(
                n_shared <= 6 && n_local[n % 2] <= 3,
                "{algorithm:?}: {n_shared} by Redis, and {n_local:?}"
            );
            n_more += u32::from(is_spent == [true; 3]);
            if n_more == 12 {
                break;
            }
        }
        assert!(n_shared > 0, "{algorithm:?}: Redis decided some");
        assert_eq!(n_local, [3, 3], "{algorithm:?}: a half of six each");
    }
}

/// An instance whose calls to Redis the test makes late.
struct Instance {
    proxy: Proxy,
    store: Tested,
    clock: ManualClock,
}

impl Instance {
    /// How long a decision waits for Redis.
    const DEADLINE: Duration = Duration::from_millis(50);

    fn behind_a_proxy(server: &Redis) -> Self {
        let proxy = Proxy::start(server.port());
        let settings = settings("ratelimit").deadline(Self::DEADLINE);
        let shared = connected(Servers::single(&proxy.url()).unwrap(), settings);
        let clock = ManualClock::at(START);
        Self { proxy, store: Failover::new(shared, clock.clone(), FailoverSettings::default()), clock }
    }

    /// Charges one unit. A late call reaches Redis, and is answered after the deadline, unless this process stands still until both
    /// are past; the next one finds Redis as before.
    fn take(&self, quota: &Quota, is_late: bool) -> Standing {
        if is_late {
            self.proxy.set(Fault::Delay(Self::DEADLINE));
        }
        let (_, standing) = apply_one(&self.store, quota, take(1), OnFailure::Local);
        self.proxy.set(Fault::None);
        wait_until("Redis answers in time", || {
            apply_one(&self.store, quota, Act::Look(0), OnFailure::Local).1.basis == Basis::Shared
        });
        standing
    }
}

/// A8: an outage begins and ends by itself, and says so once each time.
#[test]
fn a8_redis_goes_and_comes_back() {
    let mut server = Redis::start();
    let (store, clock) = store_on(&server, FailoverSettings::default());
    wait_until("the link is up", || store.shared().status().is_up);
    let quota = quota(TOKEN, "100/h");
    let basis = || apply_one(&store, &quota, take(1), OnFailure::Local).1.basis;
    assert_eq!(basis(), Basis::Shared);
    assert!(!store.status().is_out);
    server.kill();
    wait_until("the outage is noticed", || basis() == Basis::Local);
    let out = store.status();
    assert!(out.is_out && out.since == START);
    assert_eq!(basis(), Basis::Local);
    assert_eq!(store.status().n_substituted, out.n_substituted + 1);
    server.run();
    wait_until("the return is noticed", || basis() == Basis::Shared);
    assert!(store.status().is_out, "not calm for a second yet");
    clock.advance(Micros::from_secs(1));
    assert_eq!(basis(), Basis::Shared);
    let back = store.status();
    assert_eq!((back.is_out, back.since), (false, START + Micros::from_secs(1)));
}

/// `tests/it/outages.rs` has the default: no `ttl`.
#[test]
fn a9_local_charges_are_forgiven_after_the_ttl() {
    let mut server = Redis::start();
    let ttl = Some(Micros::from_secs(60));
    let (store, clock) = store_on(&server, FailoverSettings::default().ttl(ttl));
    let quota = quota(TOKEN, "4/d");
    let mut outage = |pause: u64| {
        wait_until("Redis decides", || {
            apply_one(&store, &quota, Act::Look(0), OnFailure::Local).1.basis == Basis::Shared
        });
        clock.advance(Micros::from_secs(1));
        apply_one(&store, &quota, Act::Look(0), OnFailure::Local);
        clock.advance(Micros::from_secs(pause));
        server.kill();
        wait_until("Redis does not decide", || {
            apply_one(&store, &quota, Act::Look(0), OnFailure::Local).1.basis == Basis::Local
        });
        let paid =
            (0..5).filter(|_| apply_one(&store, &quota, take(1), OnFailure::Local).0 == Verdict::Allow);
        let n_paid = paid.count();
        server.run();
        n_paid
    };
    assert_eq!(outage(0), 2);
    assert_eq!(outage(58), 0, "spent in the last outage");
    assert_eq!(outage(60), 2, "forgiven");
}

#[test]
fn share_auto_is_one_part_for_each_instance() {
    let mut server = Redis::start();
    let announcing = || settings("ratelimit").announces(true);
    let servers = || Servers::single(&server.url()).unwrap();
    let stores: Vec<_> = (0..3)
        .map(|_| {
            let shared = connected(servers(), announcing());
            let settings = FailoverSettings::default().share(LocalShare::Auto);
            Failover::new(shared, ManualClock::at(START), settings)
        })
        .collect();
    wait_until("all know of all", || stores.iter().all(|store| store.shared().n_instances() == Some(3)));
    server.kill();
    let quota = quota(TOKEN, "9/h");
    let n_paid = stores
        .iter()
        .map(|store| {
            wait_until("the outage is noticed", || {
                apply_one(store, &quota, Act::Look(0), OnFailure::Local).1.basis == Basis::Local
            });
            (0..9).filter(|_| apply_one(store, &quota, take(1), OnFailure::Local).0 == Verdict::Allow).count()
        })
        .sum::<usize>();
    assert_eq!(n_paid, 9, "all together, the policy");
}
