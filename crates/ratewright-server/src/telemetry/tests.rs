//! Telemetry as a limiter's observer.

use std::num::NonZeroU32;

use expect_test::{Expect, expect};
use ratewright_core::policy::{Missing, Mode, Selector};
use ratewright_core::query::{Attribute, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, Refill};
use ratewright_core::{Limiter, ManualClock, Micros, Policies, Quota, Timestamp};
use ratewright_store::MemoryStore;

use super::denials::RECENT_MAX;
use super::top_clients::CLIENTS_MAX;
use super::*;

type TestLimiter = Limiter<MemoryStore<ManualClock>, TelemetryObserver<ManualClock>>;

fn telemetry() -> Arc<Telemetry<ManualClock>> {
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    Arc::new(Telemetry::new(Warnings::All, clock.clone(), Arc::new(clock)))
}

/// A policy of two a day for each client.
fn policy(name: &str) -> Policy {
    Policy::new(name, quota("2/d")).unwrap().by(&[AttributeName::Key])
}

fn quota(rate: &str) -> Quota {
    Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate.parse().unwrap()).unwrap()
}

fn limiter(telemetry: &Arc<Telemetry<ManualClock>>, policies: Vec<Policy>) -> TestLimiter {
    let store = MemoryStore::new(telemetry.clock().clone(), 100_000);
    Limiter::observed(Policies::new(policies).unwrap(), store, TelemetryObserver::Rates(telemetry.clone()))
}

fn attributes(client: &str) -> [Attribute<'_>; 3] {
    [
        Attribute { name: AttributeName::Key, value: client },
        Attribute { name: AttributeName::Method, value: "GET" },
        Attribute { name: AttributeName::Path, value: "/orders" },
    ]
}

fn query<'a>(policies: &'a [&'a str], attributes: &'a [Attribute<'a>]) -> Query<'a> {
    let ask = Ask::Spend(NonZeroU32::MIN);
    let select = Select::Covering(policies);
    Query {
        select,
        attributes,
        address: None,
        ask,
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    }
}

/// Sends `n` queries.
async fn ask(limiter: &TestLimiter, n: usize, policies: &[&str], client: &str) {
    for _ in 0..n {
        limiter.decide(&query(policies, &attributes(client))).await;
    }
}

#[track_caller]
fn counted(decisions: &Decisions, expected: Expect) {
    let shown = decisions.read().into_iter().map(|count| {
        let DecisionCount { policy, verdict, basis, mode, n, .. } = count;
        format!("{policy} {verdict:?} {} {mode} {n}", basis_name(basis))
    });
    expected.assert_eq(&shown.collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn c7_each_policy_counts_its_own_verdict() {
    let telemetry = telemetry();
    let tight = policy("tight");
    let wide = Policy::new("wide", quota("100/d")).unwrap().and("minute", quota("50/min"));
    ask(&limiter(&telemetry, vec![tight, wide]), 5, &[], "a").await;
    counted(
        telemetry.decisions(),
        expect![[r#"
            tight Allow local enforce 2
            tight Deny local enforce 3
            wide Allow local enforce 5
            wide Deny local enforce 0"#]],
    );
}

#[tokio::test]
async fn a_policy_in_shadow_mode_counts_what_it_would_have_denied() {
    let telemetry = telemetry();
    let limiter = limiter(
        &telemetry,
        vec![policy("tried").with_mode(Mode::Shadow), policy("off").with_mode(Mode::Off)],
    );
    ask(&limiter, 5, &[], "a").await;
    counted(
        telemetry.decisions(),
        expect![[r#"
            tried Allow local shadow 2
            tried Deny local shadow 3"#]],
    );
    let recent = telemetry.denials().recent(None, 10);
    assert_eq!(recent.len(), 3, "what it would have denied is remembered");
    for denial in &recent {
        let Denial { policy, mode, retry_after, basis, .. } = &**denial;
        assert_eq!((policy.as_str(), *mode, *basis), ("tried", Mode::Shadow, Some(Basis::Local)));
        assert!(retry_after.is_some_and(|wait| !wait.is_zero()));
    }
    let [denied] = telemetry.denials().top(None, 10, telemetry.clock().now()).try_into().unwrap();
    assert_eq!((&*denied.policy, denied.mode, denied.at_least), ("tried", Mode::Shadow, 3));
}

#[tokio::test]
async fn a_denial_and_a_shadow_denial_are_distinguished() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("tried").with_mode(Mode::Shadow), policy("tight")]);
    ask(&limiter, 4, &[], "a").await;
    let recent = telemetry.denials().recent(None, 10);
    let recorded: Vec<_> = recent.iter().map(|denial| (denial.policy.as_str(), denial.mode)).collect();
    assert_eq!(recorded, [("tight", Mode::Enforce); 2], "one entry a request, of the policy that denied it");
    let mut top: Vec<_> = telemetry
        .denials()
        .top(None, 10, telemetry.clock().now())
        .into_iter()
        .map(|denied| (denied.policy.to_string(), denied.mode, denied.at_least))
        .collect();
    top.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(top, [("tight".to_owned(), Mode::Enforce, 2), ("tried".to_owned(), Mode::Shadow, 2)]);
}

#[tokio::test]
async fn a_flood_of_shadow_denials_evicts_no_denial() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("tight"), policy("tried").with_mode(Mode::Shadow)]);
    ask(&limiter, 3, &[], "a").await;
    limiter.swap(Policies::new(vec![policy("tried").with_mode(Mode::Shadow)]).unwrap());
    ask(&limiter, 2 * RECENT_MAX, &[], "a").await;
    let recent = telemetry.denials().recent(None, RECENT_MAX);
    assert_eq!(recent.len(), RECENT_MAX);
    assert_eq!(recent.iter().filter(|denial| denial.policy == "tight").count(), 1);
}

#[tokio::test]
async fn a_denial_keeps_the_id_of_its_request() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("tight")]);
    let long = "x".repeat(1_000);
    for id in ["c-1", "c-2", "c-3", &long] {
        limiter.decide(&Query { id: Some(&id), ..query(&[], &attributes("a")) }).await;
    }
    let recent = telemetry.denials().recent(None, 10);
    let ids: Vec<_> = recent.iter().map(|denial| denial.correlation_id.as_str()).collect();
    assert_eq!(ids, [long.split_at(TEXT_MAX).0, "c-3"], "as much of it as is kept of any text");
}

#[tokio::test]
async fn a_request_without_the_key_attribute_is_denied_without_a_store() {
    let telemetry = telemetry();
    let policy = policy("users").by(&[AttributeName::User]).with_missing(Missing::Deny);
    let limiter = limiter(&telemetry, vec![policy]);
    let attributes = [Attribute { name: AttributeName::Ip, value: "192.0.2.1" }];
    limiter.decide(&query(&[], &attributes)).await;
    counted(
        telemetry.decisions(),
        expect![[r#"
            users Allow none enforce 0
            users Deny none enforce 1"#]],
    );
    let [denial] = telemetry.denials().recent(None, 10).try_into().unwrap();
    let Denial { policy, client, retry_after, basis, .. } = &*denial;
    assert_eq!((policy.as_str(), client.as_str(), *retry_after, *basis), ("users", "192.0.2.1", None, None));
    assert_eq!(telemetry.denials().top(Some("users"), 1, telemetry.clock().now())[0].client, "192.0.2.1");
}

#[tokio::test]
async fn counts_survive_a_reload_and_the_removal_of_their_policy() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("old"), policy("kept")]);
    ask(&limiter, 1, &[], "a").await;
    let before = limiter.decide(&query(&[], &attributes("a"))).await;
    limiter.swap(Policies::new(vec![policy("kept"), policy("new")]).unwrap());
    ask(&limiter, 1, &[], "a").await;
    let watcher = TelemetryObserver::Rates(telemetry.clone());
    watcher.observe(&query(&[], &attributes("a")), &before, watcher.now());
    counted(
        telemetry.decisions(),
        expect![[r#"
            kept Allow local enforce 3
            kept Deny local enforce 1
            new Allow local enforce 1
            new Deny local enforce 0
            old Allow local enforce 3
            old Deny local enforce 0"#]],
    );
}

/// Limits on rates and limits on requests in flight are separate rule sets, and a request falls under both: counting must take no
/// lock for either.
#[tokio::test]
async fn two_rule_sets_in_turn_have_a_table_each() {
    let telemetry = telemetry();
    let [rates, in_flight, newer] = [(); 3].map(|()| limiter(&telemetry, vec![policy("p")]));
    let has_table =
        |limiter: &TestLimiter| telemetry.decisions().table(limiter.policies().generation()).is_some();
    for limiter in [&rates, &in_flight, &rates, &in_flight] {
        ask(limiter, 1, &[], "a").await;
        assert!(has_table(limiter));
    }
    assert!(has_table(&rates) && has_table(&in_flight));
    ask(&newer, 1, &[], "a").await;
    assert!(has_table(&newer) && has_table(&in_flight) && !has_table(&rates));
}

#[tokio::test]
async fn policies_beyond_the_maximum_are_counted_together() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, ["a", "b", "c", "d"].map(policy).into());
    let decision = limiter.decide(&query(&[], &attributes("x"))).await;
    let decisions = Decisions::at_most(2);
    (0..3).for_each(|_| {
        decisions.count(&decision, Entrypoint::Rest);
    });
    counted(
        &decisions,
        expect![[r#"
            a Allow local enforce 3
            a Deny local enforce 0
            b Allow local enforce 3
            b Deny local enforce 0
            other Allow local enforce 6
            other Deny local enforce 0"#]],
    );
}

#[tokio::test]
async fn a_look_is_not_counted() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("p")]);
    let attributes = attributes("a");
    for n in [0, 1, 1_000] {
        limiter.decide(&Query { ask: Ask::Look(n), ..query(&[], &attributes) }).await;
    }
    assert!(telemetry.denials().recent(None, 10).is_empty(), "nor a look that would be denied");
    counted(telemetry.decisions(), expect![[""]]);
}

#[tokio::test]
async fn the_most_denied_clients_come_first_with_their_policy() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("p"), policy("named").with_selector(Selector::Named)]);
    ask(&limiter, 12, &[], "much").await;
    ask(&limiter, 5, &["named"], "some").await;
    ask(&limiter, 2, &[], "none").await;
    let now = telemetry.clock().now();
    let shown = |denied: DeniedClient| format!("{} {} {}", denied.policy, denied.client, denied.at_least);
    let top = |policy, n| telemetry.denials().top(policy, n, now).into_iter().map(shown).collect::<Vec<_>>();
    assert_eq!(top(None, 10), ["p much 10", "named some 3", "p some 3"]);
    assert_eq!(
        (top(None, 1), top(Some("named"), 10)),
        (vec!["p much 10".into()], vec!["named some 3".into()])
    );
    assert!(top(Some("nobody"), 10).is_empty());
    telemetry.clock().advance(Micros::from_secs(400));
    assert!(telemetry.denials().top(None, 10, telemetry.clock().now()).is_empty());
}

#[tokio::test]
async fn the_last_denials_are_remembered_latest_first() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("p")]);
    for n in 0..=RECENT_MAX {
        telemetry.clock().advance(Micros::from_millis(1));
        ask(&limiter, 3, &[], &format!("{n}-{}", "é".repeat(300))).await;
    }
    let recent = telemetry.denials().recent(None, usize::MAX);
    assert_eq!(recent.len(), RECENT_MAX);
    let [first, .., last] = recent.as_slice() else { panic!("there are many") };
    assert!(first.client.starts_with("1000-é") && last.client.starts_with("1-é"));
    assert!(recent.iter().all(|denial| (TEXT_MAX - 1..=TEXT_MAX).contains(&denial.client.len())));
    let Denial { policy, method, path, basis, .. } = &**first;
    assert_eq!([policy, method, path], ["p", "GET", "/orders"]);
    assert_eq!((*basis, first.retry_after), (Some(Basis::Local), Some(Micros::from_secs(43_200))));
}

/// Promise 6: a flood of unique keys, under more policies than are remembered, is bounded everywhere.
#[tokio::test]
async fn a_flood_of_unique_clients_is_remembered_up_to_a_limit() {
    let telemetry = telemetry();
    let names: Vec<_> = (0..1_100).map(|n| format!("p{n}")).collect();
    let named = |name: &String| policy(name).with_selector(Selector::Named);
    let limiter = limiter(&telemetry, names.iter().map(named).collect());
    let mut clients = 0..;
    for name in &names {
        telemetry.clock().advance(Micros::new(1));
        let n = if name == "p1099" { 3_000 } else { 3 };
        for client in clients.by_ref().take(n) {
            ask(&limiter, 3, &[name], &format!("client-{client}")).await;
        }
    }
    let size = telemetry.denials().size();
    assert_eq!(size.n_policies, 1_000);
    assert!(size.n_clients <= 999 * 3 + CLIENTS_MAX, "{size:?}");
    assert_eq!(size.n_recent, RECENT_MAX);
    let now = telemetry.clock().now();
    assert!(
        telemetry.denials().top(Some("p99"), 9, now).is_empty(),
        "the policy idle for longest was removed"
    );
    assert_eq!(telemetry.denials().top(Some("p100"), 9, now).len(), 3);
}

#[tokio::test]
async fn neither_an_allowed_decision_nor_a_denial_of_a_known_client_allocates() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("p"), policy("q")]);
    let attributes = attributes("a");
    let query = query(&[], &attributes);
    let allowed = limiter.decide(&query).await;
    limiter.decide(&query).await;
    let denied = limiter.decide(&query).await;
    let allocations = |decision: &Decision| {
        let counted_decision = || {
            telemetry.decisions().count(decision, query.entrypoint);
        };
        let denials =
            || telemetry.denials().record(&query, decision, ObservedLimiter::Rates, telemetry.clock().now());
        let counts = allocation_counter::measure(counted_decision).count_total;
        let records = match decision.verdict() {
            Verdict::Allow => 0,
            Verdict::Deny => allocation_counter::measure(denials).count_total,
        };
        counts + records
    };
    (0..=RECENT_MAX).for_each(|_| {
        telemetry.denials().record(&query, &denied, ObservedLimiter::Rates, telemetry.clock().now())
    });
    assert_eq!((allocations(&allowed), allocations(&denied)), (0, 0));
}

/// The decisions that `rate_limiter_requests_total` counts, as `ALGORITHM allowed n`.
fn checked(telemetry: &Telemetry<ManualClock>) -> Vec<String> {
    let counted = telemetry.checks().read().filter(|check| check.took.n > 0);
    counted.map(|check| format!("{} {:?} {}", check.algorithm, check.verdict, check.took.n)).collect()
}

#[tokio::test]
async fn e4_each_entrypoint_has_its_own_count() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("a")]);
    for (n, entrypoint) in Entrypoint::ALL.into_iter().enumerate() {
        assert_eq!(entrypoint as usize, n, "{}", entrypoint.name());
        for _ in 0..=n {
            limiter.decide(&Query { entrypoint, ..query(&[], &attributes("a")) }).await;
        }
    }
    let by_entrypoint = |entrypoint| {
        let counts = telemetry.decisions().read().into_iter().filter(|count| count.entrypoint == entrypoint);
        counts.map(|count| count.n).sum::<u64>()
    };
    assert_eq!(Entrypoint::ALL.map(by_entrypoint), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn c8_a_decision_counts_once_under_the_algorithm_of_the_deciding_policy() {
    let other = Quota::new(Algorithm::named("fixed_window").unwrap(), "1/d".parse().unwrap()).unwrap();
    let denies = Policy::new("denies", other).unwrap();
    let telemetry = telemetry();
    ask(&limiter(&telemetry, vec![policy("wide"), denies.clone()]), 3, &[], "a").await;
    assert_eq!(
        checked(&telemetry),
        ["FIXED_WINDOW Allow 1", "FIXED_WINDOW Deny 2"],
        "the first left least, the others were denied"
    );

    let telemetry = self::telemetry();
    ask(&limiter(&telemetry, vec![denies.with_mode(Mode::Shadow)]), 3, &[], "a").await;
    assert_eq!(checked(&telemetry), ["FIXED_WINDOW Allow 3"], "a policy in shadow mode denies nobody");

    let telemetry = self::telemetry();
    let lacks = policy("lacks").by(&[AttributeName::User]).with_missing(Missing::Deny);
    ask(&limiter(&telemetry, vec![lacks]), 1, &[], "a").await;
    assert_eq!(checked(&telemetry), ["TOKEN_BUCKET Deny 1"], "denied without asking the store");

    let telemetry = self::telemetry();
    ask(&limiter(&telemetry, vec![]), 1, &[], "a").await;
    assert_eq!(checked(&telemetry), [""; 0], "no policy decided");
}

#[tokio::test]
async fn c8_requests_in_flight_have_no_algorithm() {
    let telemetry = telemetry();
    let store = MemoryStore::new(telemetry.clock().clone(), 100);
    let policies = Policies::new(vec![policy("in-flight")]).unwrap();
    let limiter = Limiter::observed(policies, store, TelemetryObserver::InFlight(telemetry.clone()));
    ask(&limiter, 1, &[], "a").await;
    assert_eq!(checked(&telemetry), [""; 0]);
    counted(
        telemetry.decisions(),
        expect![[r#"
            in-flight Allow local enforce 1
            in-flight Deny local enforce 0"#]],
    );
}

#[tokio::test]
async fn c8_a_duration_goes_from_the_query_to_the_decision() {
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![policy("a")]);
    let watcher = TelemetryObserver::Rates(telemetry.clone());
    let decision = limiter.decide(&query(&[], &attributes("a"))).await;
    let begun_at = watcher.now();
    telemetry.clock().advance(Micros::from_millis(3));
    watcher.observe(&query(&[], &attributes("a")), &decision, begun_at);
    let sums = telemetry.checks().read().map(|check| check.took.sum.as_micros());
    assert_eq!(sums.sum::<u64>(), 3_000);
}

#[tokio::test]
async fn e4_a_policy_is_near_its_limit_with_less_than_a_fifth_left() {
    let telemetry = telemetry();
    let ten = Policy::new("ten", quota("10/d")).unwrap();
    let limiter = limiter(&telemetry, vec![ten]);
    let mut near = Vec::new();
    for _ in 0..12 {
        ask(&limiter, 1, &[], "a").await;
        near.push(telemetry.decisions().near_limit()[0].n);
    }
    assert_eq!(
        near,
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 2],
        "with 1 and 0 of 10 left; denials are not counted"
    );
}

/// E4, C8: counting a decision does not allocate.
#[test]
fn counting_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let telemetry = telemetry();
    let limiter = limiter(&telemetry, vec![Policy::new("a", quota("1000/d")).unwrap()]);
    let attributes = attributes("a");
    let query = query(&[], &attributes);
    runtime.block_on(limiter.decide(&query));
    let allocated = allocation_counter::measure(|| drop(runtime.block_on(limiter.decide(&query))));
    assert_eq!(allocated.count_total, 0);
}
