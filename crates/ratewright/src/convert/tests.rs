//! Policies that mean the same.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use ratewright_core::{Ask, Attribute, AttributeName, Charges, Entrypoint, Micros, Query, Select};
use ratewright_rls_rules::{Domains, DuplicateDomains, Entry, Matched};

use super::*;
use crate::config::{Config, envoy_of_text};

/// A domain with these descriptors, as YAML has them in one line.
fn written(descriptors: &str) -> Vec<(String, Vec<Descriptor>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.yaml");
    std::fs::write(&path, format!("domain: d\ndescriptors: {descriptors}\n")).unwrap();
    envoy_descriptors(&[path]).unwrap_or_else(|errors| panic!("{errors:?}"))
}

#[track_caller]
fn check(descriptors: &str, expected: Expect) {
    let text = policies(&written(descriptors));
    let policies = text.strip_prefix(HEAD).unwrap();
    expected.assert_eq(policies);
    if let Err(errors) = Config::of_text(&text) {
        panic!("{errors:?}");
    }
}

#[test]
fn policies_stand_as_requests_try_them() {
    check(
        "[{key: c, rate_limit: {unit: minute, requests_per_unit: 1}}, \
          {key: c, value: red, descriptors: [{key: m, value: get, rate_limit: {unit: second, unit_multiplier: 30, requests_per_unit: 2, algorithm: token_bucket, burst: 5}}]}, \
          {key: c, value: r*, share_threshold: true, shadow_mode: true, rate_limit: [{unit: second, requests_per_unit: 3}, {unit: week, requests_per_unit: 4}]}]",
        expect![[r#"
            policies:
              # domain d
              - name: "d.c_red.m_get"
                group: "d"
                when: {"attribute:c": "red", "attribute:m": "get"}
                quota: {algorithm: token_bucket, rate: 2/30s, burst: 5}
              - name: "d.c.m.none"
                group: "d"
                when: {"attribute:c": "**", "attribute:m": "**"}
                quota: {rate: 1/s}
                mode: off
              - name: "d.c_red"
                group: "d"
                when: {"attribute:c": "red"}
                quota: {rate: 1/s}
                mode: off
              - name: "d.c_r-"
                group: "d"
                when: {"attribute:c": "r*"}
                quota: [{name: limit-1, algorithm: fixed_window, rate: 3/s}, {name: limit-2, algorithm: fixed_window, rate: 4/w}]
                mode: shadow
              - name: "d.c"
                group: "d"
                when: {"attribute:c": "**"}
                by: ["attribute:c"]
                quota: {algorithm: fixed_window, rate: 1/min}
        "#]],
    );
}

#[test]
fn what_cannot_be_said_is_told() {
    check(
        "[{key: a, rate_limit: {unit: day}, descriptors: [{key: a}]}, {key: 'b*'}, {key: c, value: '${X}'}, \
          {key: d, quota_mode: true, record_mode: true, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: x}]}}]",
        expect![[r#"
            policies:
              # domain d
              # cannot be said: a.a, and what is below it: an attribute has one value, and this key is there already
              # cannot be said: b*, and what is below it: attributes have whole names, without stars
              # cannot be said: c_${X}, and what is below it: ${ begins a variable
              # none pass: who is counted by what nothing has is denied
              - name: "d.a"
                group: "d"
                when: {"attribute:a": "**"}
                by: "attribute:nothing-has-this"
                missing: deny
                quota: {rate: 1/s}
              # cannot be said: quota_mode, that all such descriptors must be over their limits to deny
              # cannot be said: record_mode, that also what is denied is counted
              # cannot be said: replaces
              - name: "d.d"
                group: "d"
                when: {"attribute:d": "**"}
                by: ["attribute:d"]
                quota: {algorithm: fixed_window, rate: 1/d}
        "#]],
    );
    check(
        "[]",
        expect![[r#"
            policies: []
              # domain d
        "#]],
    );
}

#[test]
fn several_domains_are_told_apart() {
    let descriptors = written("[{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]").remove(0).1;
    let text = policies(&[("envoy".to_owned(), descriptors.clone()), ("Ä\n".to_owned(), descriptors)]);
    expect![[r##"
        # There are several domains: a call tells its own as attributes.other.domain.
        policies:
          # domain envoy
          - name: "envoy-k"
            group: "envoy"
            when: {"attribute:domain": "envoy", "attribute:k": "**"}
            by: ["attribute:k"]
            quota: {algorithm: fixed_window, rate: 1/d}
          # domain Ä 
          - name: "--.k"
            group: "--"
            when: {"attribute:domain": "Ä\n", "attribute:k": "**"}
            by: ["attribute:k"]
            quota: {algorithm: fixed_window, rate: 1/d}
    "##]]
    .assert_eq(text.strip_prefix(HEAD).unwrap());
    assert!(Config::of_text(&text).is_ok());
    let odd = ["a*", "${X}", &"x".repeat(5000)].map(|domain| (domain.to_owned(), Vec::new()));
    assert!(Config::of_text(&policies(&odd)).is_ok());
}

#[test]
fn a_file_of_rules_is_no_policy_file_and_the_other_way_round() {
    assert!(envoy_of_text(&policies(&written("[{key: a}]"))).is_err());
}

/// Keys in the order in which a request has them.
const KEYS: [&str; 3] = ["k", "l", "m"];

/// Descriptors for the keys from the nth on, with few values, so that they get in each other's way.
fn trees(n: usize) -> BoxedStrategy<Vec<Descriptor>> {
    if n == KEYS.len() {
        return Just(Vec::new()).boxed();
    }
    let key = prop::sample::select(&KEYS[n..]);
    let value = prop::sample::select(vec!["", "a", "b", "a*", "*b", "*"]);
    let limit = prop::sample::select(vec![None, Some(0), Some(1), Some(1)]);
    let one = (key, value, limit, any::<bool>()).prop_flat_map(|(key, value, limit, shares)| {
        let n = KEYS.iter().position(|known| *known == key).unwrap_or_default();
        let unit = "minute".to_owned();
        let limit =
            limit.map(|requests_per_unit| RateLimit { unit, requests_per_unit, ..RateLimit::default() });
        trees(n + 1).prop_map(move |descriptors| Descriptor {
            key: key.to_owned(),
            value: value.to_owned(),
            share_threshold: shares && value.contains('*'),
            rate_limits: limit.iter().cloned().collect(),
            descriptors,
            ..Descriptor::default()
        })
    });
    prop::collection::vec(one, 0..5)
        .prop_map(|descriptors| {
            let mut kept: Vec<Descriptor> = Vec::new();
            for one in descriptors {
                if kept.iter().all(|other| other.composite() != one.composite()) {
                    kept.push(one);
                }
            }
            kept
        })
        .boxed()
}

/// True if some descriptor is for these keys.
fn is_known(descriptors: &[Descriptor], entries: &[Entry<'_>]) -> bool {
    let Some((first, rest)) = entries.split_first() else { return true };
    descriptors.iter().any(|one| one.key == first.key && is_known(&one.descriptors, rest))
}

/// What policies say of a request: whose bucket it meets, if it meets one.
fn said(config: &Config, entries: &[Entry<'_>]) -> String {
    let attributes: Vec<_> = entries
        .iter()
        .map(|entry| Attribute { name: AttributeName::Named(entry.key), value: entry.value })
        .collect();
    let query = Query {
        select: Select::Covering(&[]),
        attributes: &attributes,
        address: None,
        ask: Ask::Look(1),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    };
    let mut charges = Charges::new();
    if config.policies.select(&query, &mut charges).is_some() {
        return "denied".to_owned();
    }
    let met = charges.iter().map(|charge| {
        let values: Vec<_> = charge.key.values().map(|value| value.text.to_owned()).collect();
        format!("{values:?}")
    });
    met.collect()
}

/// What the rules say.
fn meant(domains: &Domains, entries: &[Entry<'_>]) -> String {
    match domains.find("d", entries) {
        Matched::Nothing | Matched::Unlimited(_) => String::new(),
        Matched::Blocked(_) => "denied".to_owned(),
        Matched::Limited(limited) => {
            let values: Vec<_> = limited.attributes().iter().map(|one| one.value.to_owned()).collect();
            format!("{values:?}")
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// For every request that has the keys of some descriptor: the same buckets, the same denials.
    #[test]
    fn policies_mean_what_the_rules_mean(tree in trees(0)) {
        let mut domains = Domains::default();
        domains.add("d", &tree, DuplicateDomains::Reject).expect("a valid tree");
        let text = policies(&[("d".to_owned(), tree.clone())]);
        let config = Config::of_text(&text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
        for keys in [&KEYS[..], &["k", "l"], &["l", "m"], &["k", "m"], &["k"], &["l"], &["m"]] {
            let values = ["a", "b", "ab", "c"];
            for n in 0..values.len().pow(3) {
                let value = |at: usize| values[n / values.len().pow(u32::try_from(at).unwrap_or(0)) % values.len()];
                let entries: Vec<_> =
                    keys.iter().enumerate().map(|(at, key)| Entry { key, value: value(at) }).collect();
                if is_known(&tree, &entries) {
                    prop_assert_eq!(said(&config, &entries), meant(&domains, &entries), "{:?}\n{}", entries, text);
                }
            }
        }
    }
}
