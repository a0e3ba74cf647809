//! The policies of descriptors.

use expect_test::expect;
use ratewright_core::policy::Mode;
use ratewright_core::query::{Ask, Entrypoint, Select};
use ratewright_core::quota::{Algorithm, WindowStart};
use ratewright_core::store::Charges;
use ratewright_core::{Micros, Policies, Query, Quota};
use ratewright_rls_rules::{Matched, Unit};

use crate::notation::{DOMAIN, domains, entries};

fn query<'a>(names: &'a [&'a str], attributes: &'a [ratewright_core::query::Attribute<'a>]) -> Query<'a> {
    Query {
        select: Select::Named(names),
        attributes,
        address: None,
        ask: Ask::Look(1),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    }
}

/// The buckets of a request, by names and values.
fn buckets(tree: &str, request: &str) -> String {
    let domains = domains(tree);
    let entries = entries(request);
    let policies = Policies::new(domains.policies().to_vec()).unwrap();
    let Matched::Limited(limited) = domains.find(DOMAIN, &entries) else { return "none".to_owned() };
    let (names, attributes) = ([limited.policy()], limited.attributes());
    let query = query(&names, &attributes);
    let mut charges = Charges::new();
    assert_eq!(policies.select(&query, &mut charges), None);
    charges.iter().map(|charge| format!("{:?} ", charge.key)).collect()
}

#[test]
fn each_value_that_the_file_leaves_open_has_its_own_bucket() {
    let tree = "c=red 1/minute\nc 1/minute\n  m=get 1/second 5/minute\n  m=x* share 1/minute\n  m=y* 1/day";
    let all = ["c=red", "c=blue", "c=blue m=get", "c=blue m=x1", "c=blue m=y1"]
        .map(|request| buckets(tree, request));
    expect![[r#"
        envoy.shop.c_red.fixed_window.minute[] 
        envoy.shop.c.fixed_window.minute["blue"] 
        envoy.shop.c.m_get.fixed_window.second["blue"] envoy.shop.c.m_get.fixed_window.minute["blue"] 
        envoy.shop.c.m_x-..ab318275d0074ddb.fixed_window.minute["blue"] 
        envoy.shop.c.m_y-..ab2de075d00404be.fixed_window.day["blue", "y1"] "#]]
    .assert_eq(&all.join("\n"));
}

#[test]
fn entries_with_the_same_text_share_a_bucket() {
    let tree = "a_b=* 1/minute\nc=* 1/minute\nd 1/minute";
    assert_eq!(buckets(tree, "a_b=c_d"), buckets(tree, "a=b_c_d"));
    assert_eq!(buckets(tree, "a_b=c_d"), buckets(tree, "a_b_c=d"));
    assert_eq!(buckets(tree, "c=x_y"), buckets(tree, "c_x=y"));
    assert_ne!(buckets(tree, "c_z=y"), buckets(tree, "c_x=y"));
    assert_ne!(buckets(tree, "d=1"), buckets(tree, "d=2"));
}

#[test]
fn a_policy_has_the_quota_and_mode_of_its_descriptor() {
    let domains = domains(
        "a 7/minute\nb 5/Second times:30 by:token_bucket burst:9\nc 0/minute\nd 1/hour shadow\ne 3/second 9/week",
    );
    let quotas: Vec<_> =
        domains.policies().iter().flat_map(|one| one.limits()).map(|limit| limit.quota()).collect();
    let summary = |quota: &&Quota| {
        format!("{:?} {:?} {:?} {}", quota.algorithm(), quota.units(), quota.window(), quota.capacity())
    };
    expect![[r#"
        FixedWindow(Epoch) 7 60s 7
        TokenBucket(Smooth) 5 30s 9
        FixedWindow(Epoch) 1 3600s 1
        FixedWindow(Epoch) 3 1s 3
        FixedWindow(Epoch) 9 604800s 9"#]]
    .assert_eq(&quotas.iter().map(summary).collect::<Vec<_>>().join("\n"));
    assert_eq!(quotas[0].algorithm(), Algorithm::FixedWindow(WindowStart::Epoch));
    let modes: Vec<_> = domains.policies().iter().map(|one| (one.name(), one.mode())).collect();
    assert_eq!(modes[2], ("envoy.shop.d", Mode::Shadow));
    let rules = domains.rules(DOMAIN);
    assert_eq!(rules.iter().map(|rule| rule.policy()).collect::<Vec<_>>()[2], None, "zero is not counted");
    let limit = &rules[1].limits()[0];
    assert_eq!((limit.requests_per_unit, limit.unit, limit.unit_multiplier.get()), (5, Unit::Second, 30));
}

#[test]
fn names_of_policies_do_not_depend_on_other_descriptors() {
    let name = |tree: &str| domains(tree).policies().last().unwrap().name().to_owned();
    assert_eq!(name("a=/x 1/minute"), name("b 1/day\nc\n  d 1/minute\na=/x 9/minute"));
    assert_eq!(name("a\n  b=c 1/minute"), "envoy.shop.a.b_c");
}
