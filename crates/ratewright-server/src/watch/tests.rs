//! The watch as a limiter's observer.

use std::num::NonZeroU32;

use expect_test::{Expect, expect};
use ratewright_core::{
    Algorithm, Attribute, Entrypoint, Limiter, ManualClock, Micros, Missing, Mode, Policies, Quota, Refill,
    Select, Selector, Timestamp,
};
use ratewright_store::MemoryStore;

use super::denials::RECENT_MAX;
use super::tally::CLIENTS_MAX;
use super::*;

type Watched = Limiter<MemoryStore<ManualClock>, Watcher<ManualClock>>;

fn watch() -> Arc<Watch<ManualClock>> {
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    Arc::new(Watch::new(Warnings::All, clock.clone(), Arc::new(clock)))
}

/// A policy of two a day for each client.
fn policy(name: &str) -> Policy {
    Policy::new(name, quota("2/d")).unwrap().by(&[AttributeName::Key])
}

fn quota(rate: &str) -> Quota {
    Quota::new(Algorithm::TokenBucket(Refill::Smooth), rate.parse().unwrap()).unwrap()
}

fn limiter(watch: &Arc<Watch<ManualClock>>, policies: Vec<Policy>) -> Watched {
    let store = MemoryStore::new(watch.clock().clone(), 100_000);
    Limiter::observed(Policies::new(policies).unwrap(), store, Watcher::Rates(watch.clone()))
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

/// Asks `n` times.
async fn ask(limiter: &Watched, n: usize, policies: &[&str], client: &str) {
    for _ in 0..n {
        limiter.decide(&query(policies, &attributes(client))).await;
    }
}

#[track_caller]
fn counted(decisions: &Decisions, expected: Expect) {
    let shown = decisions.read().into_iter().map(|count| {
        let Count { policy, verdict, basis, mode, n, .. } = count;
        format!("{policy} {verdict:?} {} {mode} {n}", basis_name(basis))
    });
    expected.assert_eq(&shown.collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn c7_each_policy_counts_what_it_said_itself() {
    let watch = watch();
    let tight = policy("tight");
    let wide = Policy::new("wide", quota("100/d")).unwrap().and("minute", quota("50/min"));
    ask(&limiter(&watch, vec![tight, wide]), 5, &[], "a").await;
    counted(
        watch.decisions(),
        expect![[r#"
            tight Allow local enforce 2
            tight Deny local enforce 3
            wide Allow local enforce 5
            wide Deny local enforce 0"#]],
    );
}

#[tokio::test]
async fn a_policy_in_shadow_mode_counts_whom_it_would_have_denied() {
    let watch = watch();
    let limiter =
        limiter(&watch, vec![policy("tried").in_mode(Mode::Shadow), policy("off").in_mode(Mode::Off)]);
    ask(&limiter, 5, &[], "a").await;
    counted(
        watch.decisions(),
        expect![[r#"
            tried Allow local shadow 2
            tried Deny local shadow 3"#]],
    );
    let recent = watch.denials().recent(10);
    assert_eq!(recent.len(), 3, "what it would have denied is remembered");
    for denial in &recent {
        let Denial { policy, mode, retry_after, basis, .. } = &**denial;
        assert_eq!((policy.as_str(), *mode, *basis), ("tried", Mode::Shadow, Some(Basis::Local)));
        assert!(retry_after.is_some_and(|wait| !wait.is_zero()));
    }
    let [denied] = watch.denials().top(None, 10, watch.clock().now()).try_into().unwrap();
    assert_eq!((&*denied.policy, denied.mode, denied.at_least), ("tried", Mode::Shadow, 3));
}

#[tokio::test]
async fn a_denial_beside_one_in_shadow_mode_is_told_apart() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("tried").in_mode(Mode::Shadow), policy("tight")]);
    ask(&limiter, 4, &[], "a").await;
    let recent = watch.denials().recent(10);
    let told: Vec<_> = recent.iter().map(|denial| (denial.policy.as_str(), denial.mode)).collect();
    assert_eq!(told, [("tight", Mode::Enforce); 2], "one entry a request, of the policy that denied it");
    let mut top: Vec<_> = watch
        .denials()
        .top(None, 10, watch.clock().now())
        .into_iter()
        .map(|denied| (denied.policy.to_string(), denied.mode, denied.at_least))
        .collect();
    top.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(top, [("tight".to_owned(), Mode::Enforce, 2), ("tried".to_owned(), Mode::Shadow, 2)]);
}

#[tokio::test]
async fn a_flood_of_shadow_denials_pushes_no_denial_out() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("tight"), policy("tried").in_mode(Mode::Shadow)]);
    ask(&limiter, 3, &[], "a").await;
    limiter.swap(Policies::new(vec![policy("tried").in_mode(Mode::Shadow)]).unwrap());
    ask(&limiter, 2 * RECENT_MAX, &[], "a").await;
    let recent = watch.denials().recent(RECENT_MAX);
    assert_eq!(recent.len(), RECENT_MAX);
    assert_eq!(recent.iter().filter(|denial| denial.policy == "tight").count(), 1);
}

#[tokio::test]
async fn a_denial_keeps_the_id_of_its_request() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("tight")]);
    let long = "x".repeat(1_000);
    for id in ["c-1", "c-2", "c-3", &long] {
        limiter.decide(&Query { id: Some(&id), ..query(&[], &attributes("a")) }).await;
    }
    let recent = watch.denials().recent(10);
    let ids: Vec<_> = recent.iter().map(|denial| denial.correlation_id.as_str()).collect();
    assert_eq!(ids, [long.split_at(TEXT_MAX).0, "c-3"], "as much of it as is kept of any text");
}

#[tokio::test]
async fn who_lacks_what_a_policy_counts_by_is_denied_without_a_store() {
    let watch = watch();
    let policy = policy("users").by(&[AttributeName::User]).with_missing(Missing::Deny);
    let limiter = limiter(&watch, vec![policy]);
    let attributes = [Attribute { name: AttributeName::Ip, value: "192.0.2.1" }];
    limiter.decide(&query(&[], &attributes)).await;
    counted(
        watch.decisions(),
        expect![[r#"
            users Allow none enforce 0
            users Deny none enforce 1"#]],
    );
    let [denial] = watch.denials().recent(10).try_into().unwrap();
    let Denial { policy, client, retry_after, basis, .. } = &*denial;
    assert_eq!((policy.as_str(), client.as_str(), *retry_after, *basis), ("users", "192.0.2.1", None, None));
    assert_eq!(watch.denials().top(Some("users"), 1, watch.clock().now())[0].client, "192.0.2.1");
}

#[tokio::test]
async fn counts_go_on_over_a_reload_and_outlast_their_policy() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("old"), policy("kept")]);
    ask(&limiter, 1, &[], "a").await;
    let before = limiter.decide(&query(&[], &attributes("a"))).await;
    limiter.swap(Policies::new(vec![policy("kept"), policy("new")]).unwrap());
    ask(&limiter, 1, &[], "a").await;
    let watcher = Watcher::Rates(watch.clone());
    watcher.observe(&query(&[], &attributes("a")), &before, watcher.now());
    counted(
        watch.decisions(),
        expect![[r#"
            kept Allow local enforce 3
            kept Deny local enforce 1
            new Allow local enforce 1
            new Deny local enforce 0
            old Allow local enforce 3
            old Deny local enforce 0"#]],
    );
}

/// Limits on rates and limits on requests in flight are a rule set each, and a request falls under both: counting must take no
/// lock for either.
#[tokio::test]
async fn two_rule_sets_in_turn_have_a_table_each() {
    let watch = watch();
    let [rates, in_flight, newer] = [(); 3].map(|()| limiter(&watch, vec![policy("p")]));
    let has_table = |limiter: &Watched| watch.decisions().table(limiter.policies().generation()).is_some();
    for limiter in [&rates, &in_flight, &rates, &in_flight] {
        ask(limiter, 1, &[], "a").await;
        assert!(has_table(limiter));
    }
    assert!(has_table(&rates) && has_table(&in_flight));
    ask(&newer, 1, &[], "a").await;
    assert!(has_table(&newer) && has_table(&in_flight) && !has_table(&rates));
}

#[tokio::test]
async fn policies_past_the_most_are_counted_together() {
    let watch = watch();
    let limiter = limiter(&watch, ["a", "b", "c", "d"].map(policy).into());
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
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("p")]);
    let attributes = attributes("a");
    for n in [0, 1, 1_000] {
        limiter.decide(&Query { ask: Ask::Look(n), ..query(&[], &attributes) }).await;
    }
    assert!(watch.denials().recent(10).is_empty(), "nor is one that does not fit");
    counted(watch.decisions(), expect![[""]]);
}

#[tokio::test]
async fn who_is_denied_most_comes_first_with_the_policy_that_did_it() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("p"), policy("named").covering(Selector::Named)]);
    ask(&limiter, 12, &[], "much").await;
    ask(&limiter, 5, &["named"], "some").await;
    ask(&limiter, 2, &[], "none").await;
    let now = watch.clock().now();
    let shown = |denied: Denied| format!("{} {} {}", denied.policy, denied.client, denied.at_least);
    let top = |policy, n| watch.denials().top(policy, n, now).into_iter().map(shown).collect::<Vec<_>>();
    assert_eq!(top(None, 10), ["p much 10", "named some 3", "p some 3"]);
    assert_eq!(
        (top(None, 1), top(Some("named"), 10)),
        (vec!["p much 10".into()], vec!["named some 3".into()])
    );
    assert!(top(Some("nobody"), 10).is_empty());
    watch.clock().advance(Micros::from_secs(400));
    assert!(watch.denials().top(None, 10, watch.clock().now()).is_empty());
}

#[tokio::test]
async fn the_last_denials_are_kept_the_latest_first() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("p")]);
    for n in 0..=RECENT_MAX {
        watch.clock().advance(Micros::from_millis(1));
        ask(&limiter, 3, &[], &format!("{n}-{}", "é".repeat(300))).await;
    }
    let recent = watch.denials().recent(usize::MAX);
    assert_eq!(recent.len(), RECENT_MAX);
    let [first, .., last] = recent.as_slice() else { panic!("there are many") };
    assert!(first.client.starts_with("1000-é") && last.client.starts_with("1-é"));
    assert!(recent.iter().all(|denial| (TEXT_MAX - 1..=TEXT_MAX).contains(&denial.client.len())));
    let Denial { policy, method, path, basis, .. } = &**first;
    assert_eq!([policy, method, path], ["p", "GET", "/orders"]);
    assert_eq!((*basis, first.retry_after), (Some(Basis::Local), Some(Micros::from_secs(43_200))));
}

/// Promise 6: a flood of unique keys, under more policies than have a tally, meets a limit everywhere.
#[tokio::test]
async fn a_flood_of_unique_clients_is_remembered_up_to_a_limit() {
    let watch = watch();
    let names: Vec<_> = (0..1_100).map(|n| format!("p{n}")).collect();
    let named = |name: &String| policy(name).covering(Selector::Named);
    let limiter = limiter(&watch, names.iter().map(named).collect());
    let mut clients = 0..;
    for name in &names {
        watch.clock().advance(Micros::new(1));
        let n = if name == "p1099" { 3_000 } else { 3 };
        for client in clients.by_ref().take(n) {
            ask(&limiter, 3, &[name], &format!("client-{client}")).await;
        }
    }
    let kept = watch.denials().kept();
    assert_eq!(kept.n_policies, 1_000);
    assert!(kept.n_clients <= 999 * 3 + CLIENTS_MAX, "{kept:?}");
    assert_eq!(kept.n_recent, RECENT_MAX);
    let now = watch.clock().now();
    assert!(watch.denials().top(Some("p99"), 9, now).is_empty(), "the idlest made room");
    assert_eq!(watch.denials().top(Some("p100"), 9, now).len(), 3);
}

#[tokio::test]
async fn counting_an_allowed_decision_allocates_nothing_nor_does_a_denial_of_somebody_known() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("p"), policy("q")]);
    let attributes = attributes("a");
    let query = query(&[], &attributes);
    let allowed = limiter.decide(&query).await;
    limiter.decide(&query).await;
    let denied = limiter.decide(&query).await;
    let allocations = |decision: &Decision| {
        let watched = || {
            watch.decisions().count(decision, query.entrypoint);
        };
        let denials = || watch.denials().record(&query, decision, watch.clock().now());
        let counts = allocation_counter::measure(watched).count_total;
        let records = match decision.verdict() {
            Verdict::Allow => 0,
            Verdict::Deny => allocation_counter::measure(denials).count_total,
        };
        counts + records
    };
    (0..=RECENT_MAX).for_each(|_| watch.denials().record(&query, &denied, watch.clock().now()));
    assert_eq!((allocations(&allowed), allocations(&denied)), (0, 0));
}

/// The decisions that `rate_limiter_requests_total` counts, as `ALGORITHM allowed n`.
fn checked(watch: &Watch<ManualClock>) -> Vec<String> {
    let counted = watch.checks().read().filter(|check| check.took.n > 0);
    counted.map(|check| format!("{} {:?} {}", check.algorithm, check.verdict, check.took.n)).collect()
}

#[tokio::test]
async fn e4_each_entrypoint_is_counted_apart() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("a")]);
    for (n, entrypoint) in Entrypoint::ALL.into_iter().enumerate() {
        assert_eq!(entrypoint as usize, n, "{}", entrypoint.name());
        for _ in 0..=n {
            limiter.decide(&Query { entrypoint, ..query(&[], &attributes("a")) }).await;
        }
    }
    let by_entrypoint = |entrypoint| {
        let counts = watch.decisions().read().into_iter().filter(|count| count.entrypoint == entrypoint);
        counts.map(|count| count.n).sum::<u64>()
    };
    assert_eq!(Entrypoint::ALL.map(by_entrypoint), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn c8_a_decision_counts_once_under_the_algorithm_of_the_policy_that_decided() {
    let other = Quota::new(Algorithm::named("fixed_window").unwrap(), "1/d".parse().unwrap()).unwrap();
    let denies = Policy::new("denies", other).unwrap();
    let watch = watch();
    ask(&limiter(&watch, vec![policy("wide"), denies.clone()]), 3, &[], "a").await;
    assert_eq!(
        checked(&watch),
        ["FIXED_WINDOW Allow 1", "FIXED_WINDOW Deny 2"],
        "the first left least, the others were denied"
    );

    let watch = self::watch();
    ask(&limiter(&watch, vec![denies.in_mode(Mode::Shadow)]), 3, &[], "a").await;
    assert_eq!(checked(&watch), ["FIXED_WINDOW Allow 3"], "a policy in shadow mode denies nobody");

    let watch = self::watch();
    let lacks = policy("lacks").by(&[AttributeName::User]).with_missing(Missing::Deny);
    ask(&limiter(&watch, vec![lacks]), 1, &[], "a").await;
    assert_eq!(checked(&watch), ["TOKEN_BUCKET Deny 1"], "denied without asking the store");

    let watch = self::watch();
    ask(&limiter(&watch, vec![]), 1, &[], "a").await;
    assert_eq!(checked(&watch), [""; 0], "no policy decided");
}

#[tokio::test]
async fn c8_requests_in_flight_have_no_algorithm() {
    let watch = watch();
    let store = MemoryStore::new(watch.clock().clone(), 100);
    let policies = Policies::new(vec![policy("in-flight")]).unwrap();
    let limiter = Limiter::observed(policies, store, Watcher::InFlight(watch.clone()));
    ask(&limiter, 1, &[], "a").await;
    assert_eq!(checked(&watch), [""; 0]);
    counted(
        watch.decisions(),
        expect![[r#"
            in-flight Allow local enforce 1
            in-flight Deny local enforce 0"#]],
    );
}

#[tokio::test]
async fn c8_a_duration_goes_from_the_query_to_the_decision() {
    let watch = watch();
    let limiter = limiter(&watch, vec![policy("a")]);
    let watcher = Watcher::Rates(watch.clone());
    let decision = limiter.decide(&query(&[], &attributes("a"))).await;
    let begun_at = watcher.now();
    watch.clock().advance(Micros::from_millis(3));
    watcher.observe(&query(&[], &attributes("a")), &decision, begun_at);
    let sums = watch.checks().read().map(|check| check.took.sum.as_micros());
    assert_eq!(sums.sum::<u64>(), 3_000);
}

#[tokio::test]
async fn e4_a_policy_is_near_its_limit_with_less_than_a_fifth_left() {
    let watch = watch();
    let ten = Policy::new("ten", quota("10/d")).unwrap();
    let limiter = limiter(&watch, vec![ten]);
    let mut near = Vec::new();
    for _ in 0..12 {
        ask(&limiter, 1, &[], "a").await;
        near.push(watch.decisions().near_limit()[0].n);
    }
    assert_eq!(
        near,
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 2],
        "with 1 and 0 of 10 left; denials are not counted"
    );
}

/// E4, C8: what is counted of each decision costs no allocation.
#[test]
fn counting_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let watch = watch();
    let limiter = limiter(&watch, vec![Policy::new("a", quota("1000/d")).unwrap()]);
    let attributes = attributes("a");
    let query = query(&[], &attributes);
    runtime.block_on(limiter.decide(&query));
    let allocated = allocation_counter::measure(|| drop(runtime.block_on(limiter.decide(&query))));
    assert_eq!(allocated.count_total, 0);
}
