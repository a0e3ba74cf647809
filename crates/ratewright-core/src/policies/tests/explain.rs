//! Explanations agree with what is charged.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::explain::Finding;
use crate::policy::Cost;

fn condition(tests: Vec<(AttributeName<&'static str>, &'static str)>) -> Condition {
    tests.into_iter().fold(Condition::default(), |condition, (name, pattern)| {
        condition.and_fits(name.to_owned(), vec![Pattern::new(pattern, name.separator()).unwrap()])
    })
}

fn tests() -> impl Strategy<Value = (AttributeName<&'static str>, &'static str)> {
    prop_oneof![
        Just((AttributeName::Path, "/a")),
        Just((AttributeName::Path, "/**")),
        Just((AttributeName::Method, "GET")),
        Just((AttributeName::Method, "HEAD")),
        Just((AttributeName::User, "u*")),
        Just((AttributeName::Header("k"), "gold")),
    ]
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let modes = || prop_oneof![3 => Just(Mode::Enforce), 1 => Just(Mode::Shadow), 1 => Just(Mode::Off)];
    let parts = prop_oneof![
        Just(vec![]),
        Just(vec![Part::from(AttributeName::Ip)]),
        Just(vec![Part::from(AttributeName::User)]),
        Just(vec![Part::from(AttributeName::Header("k")), Part::from(AttributeName::Path)]),
        Just(vec![Part::first_of(AttributeName::User, vec![AttributeName::Ip])]),
    ];
    let one = (
        prop::option::weighted(0.9, prop::collection::vec(tests(), 0..3)),
        prop::option::of(prop_oneof![Just("g"), Just("h")]),
        parts,
        any::<bool>(),
        modes(),
        prop::option::of((tests(), prop::option::of(modes()))),
        any::<bool>(),
    );
    prop::collection::vec(one, 1..6).prop_map(|all| {
        let build = |(n, (tests, group, parts, denies, mode, other, is_free)): (usize, _)| {
            let tests: Option<Vec<_>> = tests;
            let selector = tests.map_or(Selector::Named, |tests| Selector::When(condition(tests)));
            let missing = if denies { Missing::Deny } else { Missing::Skip };
            let mut policy =
                policy(&format!("p{n}")).with_selector(selector).with_partition(parts).with_missing(missing);
            policy = policy.with_mode(mode);
            if let Some(group) = group {
                policy = policy.with_group(group);
            }
            if is_free {
                policy = policy.with_cost(Cost::ByMethod { costs: vec![("GET".to_owned(), 0)], others: 1 });
            }
            if let Some((test, mode)) = other {
                let quota = policy.limits()[0].quota().clone();
                policy = policy.with_override(Some("o"), condition(vec![test]), vec![(None, quota)], mode);
            }
            policy
        };
        all.into_iter().enumerate().map(build).collect()
    })
}

fn attributes() -> impl Strategy<Value = Vec<(AttributeName<&'static str>, &'static str)>> {
    let of = |name: AttributeName<&'static str>, values: &'static [&'static str]| {
        let values = prop::sample::subsequence(values.to_vec(), 0..=values.len().min(2));
        values.prop_map(move |values| values.into_iter().map(|value| (name, value)).collect::<Vec<_>>())
    };
    (
        of(AttributeName::Path, &["/a", "/b"]),
        of(AttributeName::Method, &["GET", "HEAD", "POST"]),
        of(AttributeName::User, &["u1", "v", Attribute::UNREADABLE]),
        of(AttributeName::Header("k"), &["gold", "free", Attribute::UNREADABLE]),
        of(AttributeName::Ip, &["i"]),
    )
        .prop_map(|(a, b, c, d, e)| [a, b, c, d, e].concat())
}

proptest! {
    /// What is explained to apply is charged, and nothing else.
    #[test]
    fn explanations_agree_with_charges(
        policies in policies(),
        attributes in attributes(),
        names in prop::sample::subsequence(vec!["p0", "p1", "p2"], 0..=2),
        exempts in any::<bool>(),
    ) {
        let exempt = if exempts { vec![condition(vec![(AttributeName::Path, "/b")])] } else { Vec::new() };
        let policies = Policies::new(policies).unwrap().with_exempt(exempt);
        let attributes: Vec<_> = attributes.iter().map(|&(name, value)| Attribute { name, value }).collect();
        let query = query(Select::CoveringReadings(&names), &attributes);
        let mut charges = Charges::new();
        let refused = policies.select(&query, &mut charges);
        let explained = policies.explain(&query);
        let is_refused = |finding: &Finding<'_>| matches!(finding, Finding::Refused(_));
        let refuses = explained.iter().any(|explained| explained.findings.iter().any(is_refused));
        prop_assert_eq!(refused.is_some(), refuses, "{:#?}", explained);
        if refused.is_some() {
            return Ok(());
        }
        let charged: BTreeSet<_> = charges
            .iter()
            .map(|charge| {
                let (policy, limit) = policies.limit(charge.limit).unwrap();
                (policy.name().to_owned(), limit.name().override_name().map(str::to_owned))
            })
            .collect();
        let applies: BTreeSet<_> = explained
            .iter()
            .flat_map(|explained| {
                explained.findings.iter().filter_map(|finding| {
                    let Finding::Applies { override_name, .. } = finding else { return None };
                    Some((explained.policy.name().to_owned(), override_name.map(str::to_owned)))
                })
            })
            .collect();
        prop_assert_eq!(charged, applies, "{:#?}", explained);
    }
}

#[test]
fn a_condition_that_fails_is_told_with_its_value() {
    let on_login = policy("login").with_selector(on("/login"));
    let policies = Policies::new(vec![on_login, policy("all").by(&[AttributeName::User])]).unwrap();
    let attributes = [Attribute { name: AttributeName::Path, value: "/logout" }];
    let query = query(Select::Covering(&[]), &attributes);
    let explained = policies.explain(&query);
    let [Finding::NotCovered(failed)] = &explained[0].findings[..] else { panic!("{explained:#?}") };
    assert_eq!(
        (failed[0].values.as_slice(), failed[0].expected.as_slice()),
        (&["/logout".to_owned()][..], &["/login".to_owned()][..])
    );
    assert_eq!(explained[1].findings, [Finding::Missing(vec![AttributeName::User])]);
}
