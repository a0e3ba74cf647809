use expect_test::{Expect, expect};
use futures_util::FutureExt as _;
use std::num::NonZeroU32;

use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::{Limiter, ManualClock, Micros, Query, Timestamp, Verdict};
use ratewright_store::{MemoryStore, SystemClock};

use super::*;

/// The errors of a text for a limiter in memory.
#[track_caller]
fn rejects(text: &str, expected: Expect) {
    let errors = Limiter::<MemoryStore<SystemClock>>::from_yaml(text).map(drop).unwrap_err();
    expected.assert_eq(&errors.to_string());
}

fn query<'a>(attributes: &'a [Attribute<'a>]) -> Query<'a> {
    Query {
        select: Select::Covering(&[]),
        attributes,
        address: None,
        ask: Ask::Spend(NonZeroU32::MIN),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    }
}

#[test]
fn errors_have_lines_and_all_are_reported_at_once() {
    rejects(
        "policies:\n- {name: a, quota: {rate: often}}\n- {name: b, by: usr, quota: {rate: 1/s}}\n",
        expect![[r#"
            <yaml>:2:27: policies.a.quota.rate is "often"; a rate is units/time, for example 10/s, 1/6s or 250/min
            <yaml>:3:17: policies.b.by is "usr"; did you mean user? Otherwise use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME"#]],
    );
    rejects("policies: [", expect!["<yaml>:1:11: unclosed bracket; close it with } or ]"]);
    rejects(
        "polices: []",
        expect![[
            r#"<yaml>:1:1: unknown setting "polices"; did you mean policies? Known: enabled, listen, stop_delay, drain_timeout, store, clients, exempt, policies, gateway, routes, envoy, api, headers, problem, metrics, log, traces"#
        ]],
    );
}

#[test]
fn sections_of_the_program_are_accepted_but_their_names_are_checked() {
    let text = "
listen: {api: '0.0.0.0:80', tls: {cert: missing.pem, key: missing.pem}}
gateway: {body_max: 1MB}
routes: [{id: app, match: {path: /**}, upstream: 'http://127.0.0.1:1', policies: [p]}]
clients: {user: {jwt: {public_key: missing.pem}}}
envoy: {files: [missing.yaml]}
log: {level: debug}
policies: [{name: p, by: user, quota: {rate: 1/s}}]
";
    let policies = Policies::from_yaml(text).unwrap();
    assert!(policies.named("p").is_some());
    rejects(
        "listen: {apy: '0.0.0.0:80'}\n",
        expect![[
            r#"<yaml>:1:10: unknown setting "apy"; did you mean api? Known: gateway, api, grpc, admin, tls, control"#
        ]],
    );
}

#[test]
fn what_would_silently_not_limit_is_rejected() {
    rejects(
        "store: {redis: {url: 'redis://:s3cret@h'}}\npolicies: [{name: u, in_flight: 3}]\n",
        expect![[r#"
            <yaml>:1:22: store.redis is not supported by Limiter::from_yaml, which counts in memory; use Policies::from_yaml and a Failover over a RedisStore, or remove the section
            <yaml>:2:33: policies.u.in_flight is not enforced by a Limiter: only the gateway and the tower layer count requests in flight; read the file with Limits::read, or remove the policy"#]],
    );
    let redis = "store: {redis: {}}\npolicies: [{name: u, quota: {rate: 1/s}}]\n";
    assert!(Policies::from_yaml(redis).is_ok(), "the caller chooses the store");
    let files = [SourceFile {
        path: "p.yaml".into(),
        text: "policies: [{name: '${NAME}', in_flight: 3}]".to_owned(),
        is_profile: false,
    }];
    let limits = Limits::read(&files, &|name| (name == "NAME").then(|| "uploads".to_owned())).unwrap();
    assert!(limits.permits.named("uploads").is_some());
}

#[test]
fn two_policies_on_one_key_are_both_charged_and_either_denies() {
    let text = "policies:
- {name: burst, by: ip, quota: {rate: 2/s}}
- {name: hour, by: ip, quota: {rate: 3/h}}
";
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let limiter = Limiter::new(Policies::from_yaml(text).unwrap(), MemoryStore::new(clock.clone(), 100));
    let decide = || {
        let attributes = [Attribute { name: AttributeName::Ip, value: "192.0.2.7" }];
        limiter.decide(&query(&attributes)).now_or_never().unwrap().verdict()
    };
    assert_eq!([decide(), decide(), decide()], [Verdict::Allow, Verdict::Allow, Verdict::Deny]);
    clock.advance(Micros::from_secs(1));
    assert_eq!([decide(), decide()], [Verdict::Allow, Verdict::Deny], "the hour's quota is used up");
}

/// The header is a text; the policy must not wait for the number that YAML makes of `0x10`.
#[test]
fn a_condition_matches_a_header_as_written() {
    let text = "policies: [{name: a, when: {'header:X-Tier': 0x10}, quota: {rate: 1/h}}]";
    let clock = ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000));
    let limiter = Limiter::new(Policies::from_yaml(text).unwrap(), MemoryStore::new(clock, 100));
    let decide = |value| {
        let attributes = [Attribute { name: AttributeName::Header("x-tier"), value }];
        limiter.decide(&query(&attributes)).now_or_never().unwrap().verdict()
    };
    assert_eq!([decide("0x10"), decide("0x10")], [Verdict::Allow, Verdict::Deny]);
    assert_eq!([decide("16"), decide("16")], [Verdict::Allow, Verdict::Allow]);
}
