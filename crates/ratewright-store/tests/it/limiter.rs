//! The engine over the memory store.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Mutex;

use proptest::prelude::*;
use ratewright_core::decision::Observe;
use ratewright_core::policy::{CountedResponses, Mode, OnFailure};
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Leak, Refill};
use ratewright_core::store::{Basis, Charge, Key, Refund, Standings};
use ratewright_core::{
    Decision, Limiter, ManualClock, Micros, Policies, Policy, Query, Quota, Store, Timestamp, Verdict,
};
use ratewright_store::MemoryStore;

use crate::generate;
use crate::world::ready;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

const CLIENT: [Attribute<'static>; 1] = [Attribute { name: AttributeName::Ip, value: "192.0.2.1" }];

fn policy(name: &str, algorithm: Algorithm, rate: &str) -> Policy {
    let quota = Quota::new(algorithm, rate.parse().unwrap()).unwrap();
    Policy::new(name, quota).unwrap().by(&[AttributeName::Ip])
}

fn smooth(name: &str, rate: &str) -> Policy {
    policy(name, Algorithm::TokenBucket(Refill::Smooth), rate)
}

fn rules<const N: usize>(policies: [Policy; N]) -> Policies {
    Policies::new(policies.into()).unwrap()
}

fn limiter<const N: usize>(policies: [Policy; N]) -> (Limiter<MemoryStore<ManualClock>>, ManualClock) {
    let clock = ManualClock::at(START);
    (Limiter::new(rules(policies), MemoryStore::new(clock.clone(), 1_000)), clock)
}

fn query(cost: u32) -> Query<'static> {
    let ask = Ask::Spend(NonZeroU32::new(cost).unwrap());
    Query {
        select: Select::Covering(&[]),
        attributes: &CLIENT,
        address: None,
        ask,
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    }
}

fn spend<O: Observe>(limiter: &Limiter<MemoryStore<ManualClock>, O>, cost: u32) -> Decision {
    ready(limiter.decide(&query(cost)))
}

fn remaining(limiter: &Limiter<MemoryStore<ManualClock>>) -> u32 {
    let decision = ready(limiter.decide(&Query { ask: Ask::Look(0), ..query(1) }));
    decision.tightest().unwrap().2.remaining
}

#[test]
fn a_query_without_policies_is_allowed_and_asks_no_store() {
    let (limiter, _) = limiter([smooth("off", "1/h").with_mode(Mode::Off)]);
    let decision = spend(&limiter, 5);
    assert_eq!(
        (decision.verdict(), decision.basis(), decision.standings().count()),
        (Verdict::Allow, None, 0)
    );
}

#[test]
fn a_denial_tells_the_longest_wait_and_names_its_policy() {
    let (limiter, clock) = limiter([smooth("short", "3/s"), smooth("long", "3/min")]);
    assert_eq!(spend(&limiter, 3).verdict(), Verdict::Allow);
    let denied = spend(&limiter, 1);
    assert_eq!((denied.verdict(), denied.basis()), (Verdict::Deny, Some(Basis::Local)));
    assert_eq!(denied.retry_after(), Some(Micros::from_secs(20)));
    assert_eq!(denied.tightest().unwrap().0.name(), "long");
    clock.advance(Micros::new(19_999_999));
    assert_eq!(spend(&limiter, 1).verdict(), Verdict::Deny);
    clock.advance(Micros::new(1));
    assert_eq!(spend(&limiter, 1).verdict(), Verdict::Allow);
    assert_eq!(spend(&limiter, 4).retry_after(), None, "more than there can ever be");
}

#[test]
fn an_allowed_decision_speaks_of_the_smallest_share() {
    let (limiter, _) = limiter([smooth("ten", "10/h"), smooth("hundred", "100/h")]);
    assert_eq!(spend(&limiter, 5).tightest().unwrap().0.name(), "ten", "5 of 10, not 95 of 100");
}

#[test]
fn a_shadow_policy_counts_and_has_no_say() {
    let (limiter, clock) =
        limiter([smooth("enforced", "3/3s"), smooth("shadow", "2/h").with_mode(Mode::Shadow)]);
    assert_eq!(spend(&limiter, 2).verdict(), Verdict::Allow);
    assert_eq!(spend(&limiter, 1).verdict(), Verdict::Allow, "the shadow is empty, and silent");
    let denied = spend(&limiter, 2);
    assert_eq!((denied.verdict(), denied.retry_after()), (Verdict::Deny, Some(Micros::from_secs(2))));
    assert_eq!(denied.tightest().unwrap().0.name(), "enforced");
    assert_eq!(
        spend(&limiter, 3).retry_after(),
        Some(Micros::from_secs(3)),
        "not never, though the shadow says so"
    );
    clock.advance(Micros::from_secs(2));
    assert_eq!(spend(&limiter, 2).verdict(), Verdict::Allow);
}

#[test]
fn a_queue_is_paid_with_a_wait_and_a_door_that_cannot_wait_is_denied() {
    let (limiter, _) = limiter([policy("queue", Algorithm::LeakyBucket(Leak::Queue), "2/s")]);
    let patient = |millis| {
        let query = Query { patience: Micros::from_millis(millis), ..query(1) };
        let decision = ready(limiter.decide(&query));
        (decision.verdict(), decision.wait(), decision.retry_after())
    };
    assert_eq!(patient(0), (Verdict::Allow, Micros::ZERO, Some(Micros::ZERO)));
    assert_eq!(patient(0), (Verdict::Deny, Micros::ZERO, Some(Micros::from_millis(500))));
    assert_eq!(patient(499), (Verdict::Deny, Micros::ZERO, Some(Micros::from_millis(1))));
    assert_eq!(patient(500), (Verdict::Allow, Micros::from_millis(500), Some(Micros::ZERO)));
}

#[test]
fn a_refund_gives_back_what_was_charged_to_every_policy() {
    let (limiter, _) = limiter([smooth("a", "10/h"), policy("b", Algorithm::SlidingWindow, "10/h")]);
    let decision = spend(&limiter, 4);
    assert_eq!(remaining(&limiter), 6);
    ready(limiter.refund(&query(4), decision));
    assert_eq!(remaining(&limiter), 10);
    let denied = spend(&limiter, 11);
    ready(limiter.refund(&query(11), denied));
    assert_eq!(remaining(&limiter), 10, "a denial has nothing to give back");
    spend(&limiter, 7);
    ready(limiter.reset(&query(1)));
    assert_eq!(remaining(&limiter), 10);
}

proptest! {
    #[test]
    fn after_a_refund_the_decision_shows_what_a_look_shows(refunded in refunded()) {
        let clock = ManualClock::at(START);
        refunded.check(MemoryStore::new(clock.clone(), 1_000), &clock)?;
    }
}

/// A charge under one or two quotas of a policy that counts no response, and what precedes it.
#[derive(Debug)]
pub(crate) struct Refunded {
    quotas: (Quota, Option<Quota>),
    before: u32,
    cost: u32,
    /// From the charge to the refund.
    waits: Micros,
}

prop_compose! {
    pub(crate) fn refunded()(
        quotas in (generate::quotas(), prop::option::of(generate::quotas())),
        (before, cost) in (0..=1_000u32, 0..=1_000u32),
        waits in prop_oneof![Just(0), 0..100_000_000u64].prop_map(Micros::new),
    ) -> Refunded {
        let of = |share| generate::cost(share, &quotas.0);
        Refunded { before: of(before), cost: of(cost), quotas, waits }
    }
}

impl Refunded {
    /// Each standing of the decision shows the units that a look at its bucket shows; if time has passed, not more. At once, its
    /// reset time may be one microsecond later, because it was rounded up.
    pub(crate) fn check<S>(self, store: S, clock: &ManualClock) -> Result<(), TestCaseError>
    where
        S: Store<Error = Infallible>,
    {
        let Self { quotas: (quota, second), before, cost, waits } = self;
        let counts_nothing = CountedResponses::only(Vec::new());
        let policy = Policy::new("p", quota).unwrap().by(&[AttributeName::Ip]).with_count(counts_nothing);
        let policy = match second {
            Some(second) => policy.and("second", second),
            None => policy,
        };
        let limiter = Limiter::new(rules([policy]), store);
        ready(limiter.decide(&query(before)));
        let query = query(cost);
        let mut decision = ready(limiter.decide(&query));
        clock.advance(waits);
        ready(limiter.refund_uncounted(&query, &mut decision, 200));
        let looked = ready(limiter.decide(&Query { ask: Ask::Look(0), ..query }));
        for ((_, limit, shown), (.., looked)) in decision.standings().zip(looked.standings()) {
            prop_assert!(shown.remaining <= shown.capacity(limit).get());
            prop_assert!(shown.remaining <= looked.remaining, "{shown:?} {looked:?}");
            // The standing of a counter still shows the charge: if the window has ended, the refund is lost.
            if waits.is_zero() && limit.quota().algorithm() != Algorithm::SlidingWindowCounter {
                prop_assert_eq!(shown.remaining, looked.remaining);
                let latest = looked.reset_after + Micros::new(1);
                prop_assert!(looked.reset_after <= shown.reset_after && shown.reset_after <= latest);
            }
        }
        Ok(())
    }
}

/// What was spent stays spent when a quota changes: of a window the count, of a bucket the share.
#[test]
fn a_reload_keeps_what_was_spent() {
    let windows = [
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::named("fixed_window").unwrap(),
    ];
    for algorithm in windows {
        let (limiter, _) = limiter([policy("p", algorithm, "10/h")]);
        spend(&limiter, 7);
        limiter.swap(rules([policy("p", algorithm, "20/h")]));
        assert_eq!(remaining(&limiter), 13, "{algorithm:?}");
        limiter.swap(rules([policy("p", algorithm, "5/h")]));
        assert_eq!(remaining(&limiter), 0, "{algorithm:?}");
    }
    let (limiter, _) = limiter([smooth("p", "10/min")]);
    spend(&limiter, 5);
    limiter.swap(rules([smooth("p", "100/s")]));
    assert_eq!(remaining(&limiter), 50, "half of one is half of the other");
    spend(&limiter, 20);
    limiter.swap(rules([smooth("p", "7/h")]));
    assert_eq!(remaining(&limiter), 2, "seven tenths of seven are spent, rounded up");
    limiter.swap(rules([smooth("p", "10/min")]));
    assert_eq!(remaining(&limiter), 5, "back again, its own state is there");
}

/// A refund must not be worth more than the charge was, whatever became of the quota meanwhile.
#[test]
fn a_refund_across_a_changed_quota_gives_nothing_back() {
    for algorithm in [Algorithm::TokenBucket(Refill::Smooth), Algorithm::TokenBucket(Refill::Stepped)] {
        let (limiter, clock) = limiter([policy("p", algorithm, "10/s")]);
        let early = spend(&limiter, 1);
        limiter.swap(rules([policy("p", algorithm, "10/h")]));
        let n_allowed = (0..100).take_while(|_| spend(&limiter, 1).verdict() == Verdict::Allow).count();
        assert!((1..=10).contains(&n_allowed), "{algorithm:?}: {n_allowed}");
        clock.advance(Micros::new(1));
        ready(limiter.refund(&query(1), early));
        assert_eq!(remaining(&limiter), 0, "{algorithm:?}");
    }
}

/// A store that makes refunds, and confirms none of them.
struct Unconfirmed(MemoryStore<ManualClock>);

impl Store for Unconfirmed {
    type Error = Infallible;

    async fn apply(&self, charges: &[Charge<'_>], standings: &mut Standings) -> Result<(), Infallible> {
        self.0.apply(charges, standings).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<usize, Infallible> {
        self.0.refund(refunds).await.map(|_| 0)
    }

    async fn reset(&self, keys: &[Key<'_>]) -> Result<Basis, Infallible> {
        self.0.reset(keys).await
    }
}

/// A response must not promise units that may not be there.
#[test]
fn a_refund_that_the_store_does_not_confirm_is_not_shown() {
    let counts_nothing = smooth("p", "10/h").with_count(CountedResponses::only(Vec::new()));
    let store = Unconfirmed(MemoryStore::new(ManualClock::at(START), 1_000));
    let limiter = Limiter::new(rules([counts_nothing]), store);
    let mut decision = ready(limiter.decide(&query(4)));
    ready(limiter.refund_uncounted(&query(4), &mut decision, 200));
    assert_eq!(decision.tightest().unwrap().2.remaining, 6);
}

/// Otherwise the standings of the first query would allow the second.
#[test]
fn a_decision_that_is_filled_twice_shows_the_second_query() {
    let limiter = Limiter::new(rules([smooth("p", "10/h")]), MemoryStore::new(ManualClock::at(START), 1_000));
    let mut decision = Decision::under(limiter.load());
    ready(limiter.decide_into(&query(6), &mut decision));
    assert_eq!((decision.verdict(), decision.standings().count()), (Verdict::Allow, 1));
    ready(limiter.decide_into(&query(6), &mut decision));
    assert_eq!((decision.verdict(), decision.standings().count()), (Verdict::Deny, 1));
}

#[test]
fn the_observer_is_told_of_each_decision() {
    #[derive(Default)]
    struct Seen(Mutex<Vec<(Verdict, usize)>>);
    impl Observe for &Seen {
        fn observe(&self, query: &Query<'_>, decision: &Decision, _: Timestamp) {
            self.0.lock().unwrap().push((decision.verdict(), query.attributes.len()));
        }
    }
    let seen = Seen::default();
    let clock = ManualClock::at(Timestamp::from_micros(1));
    let limiter = Limiter::observed(rules([smooth("p", "1/h")]), MemoryStore::new(clock, 10), &seen);
    spend(&limiter, 1);
    spend(&limiter, 1);
    assert_eq!(*seen.0.lock().unwrap(), [(Verdict::Allow, 1), (Verdict::Deny, 1)]);
}

/// Deciding allocates nothing, for up to four charges of keys that are known.
#[test]
fn a_decision_allocates_nothing() {
    let policies = || {
        [
            smooth("a", "1000/h"),
            policy("b", Algorithm::TokenBucket(Refill::Stepped), "1000/h"),
            policy("c", Algorithm::SlidingWindowCounter, "1000/h"),
            policy("d", Algorithm::named("fixed_window").unwrap(), "1000/h"),
        ]
    };
    let (one, _) = limiter([smooth("a", "1000/h")]);
    let (four, _) = limiter(policies());
    for limiter in [one, four] {
        spend(&limiter, 1);
        let allocated = allocation_counter::measure(|| {
            for cost in [1, 5, 2_000] {
                drop(spend(&limiter, cost));
            }
        });
        assert_eq!(allocated.count_total, 0);
    }
}

/// A store that answers nothing.
struct Mute;

impl Store for Mute {
    type Error = Infallible;

    async fn apply(&self, _: &[Charge<'_>], _: &mut Standings) -> Result<(), Infallible> {
        Ok(())
    }

    async fn refund(&self, _: &[Refund<'_>]) -> Result<usize, Infallible> {
        Ok(0)
    }

    async fn reset(&self, _: &[Key<'_>]) -> Result<Basis, Infallible> {
        Ok(Basis::Local)
    }
}

/// A charge without a standing is denied, unless the policy is open on failure.
#[test]
fn a_charge_without_a_standing_is_not_checked_and_not_admitted() {
    for (on_failure, verdict) in [
        (OnFailure::Local, Verdict::Deny),
        (OnFailure::Closed, Verdict::Deny),
        (OnFailure::Open, Verdict::Allow),
    ] {
        let limiter = Limiter::new(rules([smooth("p", "10/s").with_on_failure(on_failure)]), Mute);
        let decision = ready(limiter.decide(&query(1)));
        assert_eq!((decision.verdict(), decision.standings().count()), (verdict, 1), "{on_failure:?}");
    }
}

/// One request a second for an hour under a bucket and a window: in shadow mode, 88 % of these were once reported as denials
/// that enforcing would not cause, since each quota spent by itself.
#[test]
fn a_shadow_policy_reports_the_denials_that_enforcing_would_cause() {
    let of_mode = |mode| {
        let window = Quota::new(Algorithm::SlidingWindow, "100/h".parse().unwrap()).unwrap();
        let policy = Policy::new("both", Quota::per_hour(100).burst(10)).unwrap().and("hour", window);
        limiter([policy.by(&[AttributeName::Ip]).with_mode(mode)])
    };
    let ((enforced, clock), (shadow, shadow_clock)) = (of_mode(Mode::Enforce), of_mode(Mode::Shadow));
    let mut n_allowed = 0;
    for _ in 0..3_600 {
        let taken = spend(&enforced, 1).verdict();
        let tried = spend(&shadow, 1);
        assert_eq!(tried.verdict(), Verdict::Allow);
        let would_deny = tried.standings().any(|(_, _, standing)| standing.is_against());
        assert_eq!(would_deny, taken == Verdict::Deny);
        n_allowed += u32::from(!would_deny);
        clock.advance(Micros::from_secs(1));
        shadow_clock.advance(Micros::from_secs(1));
    }
    assert_eq!(n_allowed, 100);
}

/// Several shadow policies do not wait for each other: each spends as if it were the only one.
#[test]
fn shadow_policies_spend_independently_of_each_other() {
    let shadow = |name: &str, rate: &str| smooth(name, rate).with_mode(Mode::Shadow);
    let (limiter, _) = limiter([shadow("small", "1/h"), shadow("large", "3/h")]);
    let remaining: Vec<Vec<u32>> = (0..3)
        .map(|_| spend(&limiter, 1).standings().map(|(_, _, standing)| standing.remaining).collect())
        .collect();
    assert_eq!(remaining, [[0, 2], [0, 1], [0, 0]]);
}

/// A request with two values of a cookie is charged to both under an enforced policy, or to none; so it is in shadow mode.
#[test]
fn a_shadow_policy_spends_under_all_readings_of_a_request_or_none() {
    let cookie = |value| Attribute { name: AttributeName::Cookie("sid"), value };
    let (a, both, b) = ([cookie("a")], [cookie("a"), cookie("b")], [cookie("b")]);
    let remaining_of_b = |mode| {
        let by_cookie =
            |name: &str, quota| Policy::new(name, quota).unwrap().by(&[AttributeName::Cookie("sid")]);
        let shadow = by_cookie("sid", Quota::per_hour(1)).with_mode(mode);
        let (limiter, _) = limiter([shadow, by_cookie("other", Quota::per_hour(10))]);
        let select = Select::CoveringReadings(&[]);
        let decide = |attributes, ask| ready(limiter.decide(&Query { attributes, select, ask, ..query(1) }));
        assert_eq!(decide(&a[..], query(1).ask).verdict(), Verdict::Allow);
        decide(&both, query(1).ask);
        let looked = decide(&b, Ask::Look(0));
        looked.standings().map(|(_, _, standing)| standing.remaining).collect::<Vec<_>>()
    };
    assert_eq!(remaining_of_b(Mode::Enforce), [1, 10], "denied: nothing is charged");
    assert_eq!(remaining_of_b(Mode::Shadow), [1, 9], "it would be denied; the other policy is charged");
}
