//! A simulated history is what the engine decides when it is driven by hand.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use proptest::prelude::*;
use ratewright_core::query::{Attribute, AttributeName};
use ratewright_core::{Limiter, ManualClock, Query, Quota, Timestamp, Verdict};
use ratewright_sim::{Format, SimulationSettings};
use ratewright_store::{KeyedLimiter, MemoryStore};

use crate::{json_format, json_line, log, policies, simulate, simulate_with};

/// Files with every algorithm, several quotas, shadow, groups, costs and counted responses.
const FILES: [&str; 6] = [
    "policies: [{name: a, by: ip, quota: {rate: 2/s, burst: 3}}]",
    "policies: [{name: a, by: ip, quota: [{rate: 2/s, burst: 2}, {name: minute, rate: 5/min}]}, {name: b, quota: {rate: 4/s}}]",
    "policies: [{name: a, by: ip, when: {path: '/a/**'}, quota: {rate: 3/s, algorithm: sliding_window}}, \
     {name: b, by: [ip, path], mode: shadow, quota: {rate: 1/s, algorithm: fixed_window}}]",
    "policies: [{name: a, by: ip, when: {method: POST}, group: g, quota: {rate: 1/s, algorithm: sliding_window_counter}}, \
     {name: b, by: ip, group: g, quota: {rate: 9/s}}]",
    "policies: [{name: a, by: ip, count: {status: [500-599]}, quota: {rate: 1/min, burst: 2}}]",
    "policies: [{name: a, by: ip, cost: {POST: 3, default: 1}, quota: {rate: 3/s, burst: 6, algorithm: leaky_bucket}}]",
];

const PATHS: [&str; 3] = ["/a/x", "/b", "/health"];
const METHODS: [&str; 2] = ["GET", "POST"];

#[derive(Clone, Debug)]
struct Visit {
    step: u64,
    ip: u8,
    path: &'static str,
    method: &'static str,
    status: u16,
}

fn visits() -> impl Strategy<Value = Vec<Visit>> {
    let step = prop_oneof![Just(0), 0u64..400_000, 0u64..5_000_000];
    let visit = (
        step,
        0u8..4,
        prop::sample::select(&PATHS[..]),
        prop::sample::select(&METHODS[..]),
        prop::sample::select(vec![200, 500]),
    );
    let visit = visit.prop_map(|(step, ip, path, method, status)| Visit { step, ip, path, method, status });
    prop::collection::vec(visit, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every request gets the decision that the engine gives it, in the log's own time.
    #[test]
    fn a_simulation_equals_the_engine_driven_by_hand(file in prop::sample::select(&FILES[..]), visits in visits()) {
        let mut at = 1_700_000_000_000_000;
        let visits: Vec<_> = visits.into_iter().map(|visit| { at += visit.step; (at, visit) }).collect();
        let text: String = visits.iter().map(|(at, visit)| {
            json_line(*at, &format!("192.0.2.{}", visit.ip), visit.method, visit.path, visit.status)
        }).collect();
        let report = simulate(file, vec![log("log", json_format(), text)]);

        let clock = ManualClock::default();
        let limiter = Limiter::new(policies(file).policies, MemoryStore::new(clock.clone(), 1_000_000));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut by_policy: BTreeMap<String, [u64; 3]> = BTreeMap::new();
        let mut denied = 0;
        for (at, visit) in &visits {
            clock.set(Timestamp::from_micros(*at));
            let ip = format!("192.0.2.{}", visit.ip);
            let attributes = [
                Attribute { name: AttributeName::Ip, value: &ip },
                Attribute { name: AttributeName::Method, value: visit.method },
                Attribute { name: AttributeName::Path, value: visit.path },
            ];
            let query = Query::new(&attributes);
            let mut decision = runtime.block_on(limiter.decide(&query));
            let mut seen: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
            for (policy, limit, standing) in decision.standings() {
                let (is_denied, is_near) = seen.entry(policy.name()).or_default();
                *is_denied |= standing.is_over();
                // Less than a fifth of the capacity remains.
                *is_near |= f64::from(standing.remaining) < f64::from(limit.quota().capacity().get()) / 5.0;
            }
            for (name, (is_denied, is_near)) in seen {
                let [requests, denied, near_misses] = by_policy.entry(name.to_owned()).or_default();
                *requests += 1;
                *denied += u64::from(is_denied);
                *near_misses += u64::from(is_near && !is_denied);
            }
            denied += u64::from(decision.verdict() == Verdict::Deny);
            if decision.verdict() == Verdict::Allow {
                runtime.block_on(limiter.refund_uncounted(&query, &mut decision, visit.status));
            }
        }
        prop_assert_eq!((report.requests, report.denied), (visits.len() as u64, denied));
        for policy in &report.policies {
            let counts = by_policy.get(&policy.policy).copied().unwrap_or_default();
            prop_assert_eq!([policy.requests, policy.denied, policy.near_misses], counts, "{}", policy.policy);
            let [requests, denied, _] = counts;
            prop_assert_eq!(policy.allowed, requests - denied);
            prop_assert_eq!(policy.timeline.denied.iter().sum::<u64>(), denied);
            prop_assert_eq!(policy.timeline.allowed.iter().sum::<u64>(), requests - denied);
            if policy.by == ["ip"] {
                prop_assert_eq!(policy.most_denied.iter().map(|client| client.denied).sum::<u64>(), denied);
                prop_assert_eq!(policy.clients_denied, policy.most_denied.len() as u64);
            }
            prop_assert_eq!(policy.first_denial.is_some(), denied > 0);
        }
    }

    /// The same, against the plain limiter without policies.
    #[test]
    fn one_policy_by_address_is_a_keyed_limiter(visits in visits()) {
        let file = "{exempt: {paths: []}, policies: [{name: a, by: ip, quota: {rate: 2/s, burst: 3}}]}";
        let clock = ManualClock::default();
        let quota = Quota::per_second(2).with_burst(NonZeroU32::new(3).unwrap()).unwrap();
        let limiter = KeyedLimiter::new(quota, clock.clone(), 1_000);
        let (mut at, mut denied, mut text) = (1_700_000_000_000_000, 0, String::new());
        for visit in visits {
            at += visit.step;
            clock.set(Timestamp::from_micros(at));
            denied += u64::from(limiter.check(&visit.ip).is_err());
            text += &json_line(at, &format!("192.0.2.{}", visit.ip), "GET", "/", 200);
        }
        prop_assert_eq!(simulate(file, vec![log("log", json_format(), text)]).denied, denied);
    }
}

#[test]
fn a_policy_that_is_off_or_in_shadow_is_enforced_when_asked() {
    let file = "policies: [{name: a, by: ip, mode: shadow, quota: {rate: 1/min}}, {name: b, by: ip, mode: off, quota: {rate: 1/min}}]";
    let text: String =
        (0..5).map(|n| json_line(1_700_000_000_000_000 + n, "192.0.2.1", "GET", "/", 200)).collect();
    let of = |enforce: &[&str]| {
        let mut settings = SimulationSettings::default();
        settings.enforce = enforce.iter().map(|name| (*name).to_owned()).collect();
        let report = simulate_with(file, vec![log("log", json_format(), text.clone())], &settings);
        let policies = report.policies.iter().map(|policy| (policy.mode, policy.denied)).collect::<Vec<_>>();
        (report.denied, policies)
    };
    assert_eq!(of(&[]), (0, vec![("shadow", 4), ("off", 0)]));
    assert_eq!(of(&["a"]), (4, vec![("enforce", 4), ("off", 0)]));
    assert_eq!(of(&["b"]), (4, vec![("shadow", 4), ("enforce", 4)]));
    assert_eq!(of(&["*"]), (4, vec![("enforce", 4), ("enforce", 4)]));
}

#[test]
fn what_the_log_lacks_is_reported_and_not_guessed() {
    let file = "policies: [{name: key, by: 'header:X-Api-Key', quota: {rate: 1/h}}, \
        {name: free, group: g, by: ip, when: {'header:X-Tier': free}, quota: {rate: 1/h}}, \
        {name: others, group: g, by: ip, quota: {rate: 1/h}}]";
    let line = "192.0.2.1 - - [10/Feb/2026:08:20:11 +0000] \"GET / HTTP/1.1\" 200 1\n";
    let logs = || vec![log("access.log", Format::Combined, line.repeat(3))];
    let report = simulate(file, logs());
    let shown: Vec<_> = report
        .policies
        .iter()
        .map(|policy| (policy.is_simulated, policy.requests, policy.notes.join("; ")))
        .collect();
    assert_eq!(
        shown,
        [
            (false, 0, "the log does not record header:x-api-key; if requests never have header:x-api-key, add --assume-absent header:x-api-key".to_owned()),
            (false, 0, "the log does not record header:x-tier; if requests never have header:x-tier, add --assume-absent header:x-tier".to_owned()),
            (true, 3, "may be too strict: free precedes it in its group and was not simulated, so this policy received its requests too".to_owned()),
        ]
    );
    let mut settings = SimulationSettings::default();
    settings.assume_absent = vec![AttributeName::parse("header:X-Tier").unwrap()];
    let report = simulate_with(file, logs(), &settings);
    let shown: Vec<_> = report
        .policies
        .iter()
        .map(|policy| (policy.is_simulated, policy.requests, policy.notes.len()))
        .collect();
    assert_eq!(shown, [(false, 0, 1), (true, 0, 0), (true, 3, 0)]);
}

/// Every request has a method: it is mapped, not assumed to be absent.
#[test]
fn a_missing_method_is_to_be_mapped() {
    let file = "policies: [{name: posts, by: ip, when: {method: POST}, quota: {rate: 1/h}}]";
    let format = Format::Json("time=t,ip=i".parse().unwrap());
    let report =
        simulate(file, vec![log("log", format, "{\"t\":1770710411,\"i\":\"192.0.2.1\"}\n".to_owned())]);
    assert_eq!(
        report.policies[0].notes,
        ["the log does not record method; map it with --fields method=NAME"]
    );
}

/// nginx writes a user only for Basic authentication: a policy by the user of a token must not look as if nobody had one.
#[test]
fn an_attribute_that_no_line_shows_is_not_taken_for_absent() {
    let file = "policies: [{name: user, by: user, missing: deny, quota: {rate: 9/s}}, \
        {name: either, by: {first_of: [user, ip]}, quota: {rate: 1/h}}, {name: agent, by: 'header:User-Agent', quota: {rate: 1/h}}]";
    let line =
        |user: &str| format!("192.0.2.1 - {user} [10/Feb/2026:08:20:11 +0000] \"GET / HTTP/1.1\" 200 1\n");
    let simulated = |text: String, absent: &[&str]| {
        let mut settings = SimulationSettings::default();
        settings.assume_absent = absent.iter().map(|name| AttributeName::parse(name).unwrap()).collect();
        let report = simulate_with(file, vec![log("access.log", Format::Combined, text)], &settings);
        (report.denied, report.policies.iter().map(|policy| policy.is_simulated).collect::<Vec<_>>())
    };
    let anonymous = line("-").repeat(3);
    assert_eq!(simulated(anonymous.clone(), &[]), (0, vec![false, false, false]));
    assert_eq!(simulated(anonymous.clone(), &["user"]), (3, vec![true, true, false]));
    assert_eq!(simulated(anonymous + &line("anna"), &[]), (3, vec![true, true, false]));
}

#[test]
fn a_queue_without_a_gateway_is_noted() {
    let file = "policies: [{name: q, by: ip, quota: {rate: 1/s, algorithm: leaky_bucket, leak: queue}}]";
    let text: String =
        (0..3).map(|n| json_line(1_700_000_000_000_000 + n, "192.0.2.1", "GET", "/", 200)).collect();
    let report = simulate(file, vec![log("log", json_format(), text)]);
    assert!(report.policies[0].notes[0].contains("would have to wait"), "{:?}", report.policies[0].notes);
}

/// One log shows users and the other does not, or a field map names a field that no line has: both are not recorded.
#[test]
fn each_log_must_show_an_attribute() {
    let file = "policies: [{name: user, by: user, quota: {rate: 1/h}}]";
    let line =
        |user: &str| format!("192.0.2.1 - {user} [10/Feb/2026:08:20:11 +0000] \"GET / HTTP/1.1\" 200 1\n");
    let is_simulated = |logs: Vec<ratewright_sim::Log>| simulate(file, logs).policies[0].is_simulated;
    let of = |user: &str| log(user, Format::Combined, line(user));
    assert!(is_simulated(vec![of("anna"), of("bert")]));
    assert!(!is_simulated(vec![of("anna"), of("-")]));
    assert!(is_simulated(vec![of("anna"), log("empty", Format::Combined, "")]));
    let json = |field: &str| {
        let fields = format!("time=t,user={field}").parse().unwrap();
        log("json", Format::named("json", Some(fields)).unwrap(), "{\"t\":1770711611,\"user\":\"anna\"}\n")
    };
    assert!(is_simulated(vec![json("user")]));
    assert!(!is_simulated(vec![json("usr")]));
}

/// Each takes memory.
#[test]
fn a_simulation_ends_with_too_many_clients() {
    let file = || policies("policies: [{name: a, by: ip, quota: {rate: 1/h, burst: 1}}]");
    let lines: String =
        (0..500).map(|n| json_line(n, &format!("10.0.{}.{}", n / 250, n % 250), "GET", "/", 200)).collect();
    let mut settings = SimulationSettings::default();
    settings.n_clients_max = 100;
    let logs = vec![log("many", json_format(), lines.clone())];
    let error = ratewright_sim::simulate(file(), None, logs, &settings, &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "too many clients: more than 100, counted once for each policy");
    settings.n_clients_max = 500;
    let logs = vec![log("as many as may be", json_format(), lines)];
    ratewright_sim::simulate(file(), None, logs, &settings, &mut |_| {}).unwrap();
}
