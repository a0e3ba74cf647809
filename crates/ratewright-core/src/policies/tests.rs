//! Selection: which policies apply to which queries.

mod ambiguous_queries;
mod explain;

use super::*;
use crate::charge::Act;
use crate::key::Part;
use crate::pattern::Pattern;
use crate::policy::Cost;
use crate::quantity::Micros;
use crate::query::{Ask, Attribute, Entrypoint};
use crate::quota::{Algorithm, Refill};

fn policy(name: &str) -> Policy {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/s".parse().unwrap()).unwrap();
    Policy::new(name, quota).unwrap()
}

fn query<'a>(select: Select<'a>, attributes: &'a [Attribute<'a>]) -> Query<'a> {
    let address = None;
    Query {
        select,
        attributes,
        address,
        ask: Ask::Look(1),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    }
}

fn keys(policies: Vec<Policy>, named: &[&str], attributes: &[Attribute<'_>]) -> Vec<String> {
    let policies = Policies::new(policies).unwrap();
    let query = query(Select::Covering(named), attributes);
    let mut charges = Charges::new();
    policies.select(&query, &mut charges);
    charges.iter().map(|c| format!("{:?}", c.key)).collect()
}

#[test]
fn a_query_meets_every_policy_that_covers_it_and_those_it_names() {
    let policies = || {
        vec![
            policy("all"),
            policy("each").by(&[AttributeName::Ip]),
            policy("other").with_selector(Selector::Named),
            policy("asked")
                .with_selector(Selector::Named)
                .by(&[AttributeName::Ip, AttributeName::Named("route")]),
            policy("off").with_mode(Mode::Off),
        ]
    };
    let client = Attribute { name: AttributeName::Ip, value: "c" };
    let route = Attribute { name: AttributeName::Named("route"), value: "r" };
    assert_eq!(keys(policies(), &[], &[client]), ["all[]", r#"each["c"]"#]);
    assert_eq!(
        keys(policies(), &["asked", "nobody"], &[route, client]),
        ["all[]", r#"each["c"]"#, r#"asked["c", "r"]"#]
    );
    assert_eq!(
        keys(policies(), &["asked"], &[route]),
        ["all[]"],
        "a missing attribute: the policy is skipped"
    );
}

#[test]
fn several_quotas_of_a_policy_have_several_buckets() {
    let quota = Quota::new(Algorithm::SlidingWindow, "10/min".parse().unwrap()).unwrap();
    assert_eq!(keys(vec![policy("login").and("minute", quota)], &[], &[]), ["login[]", "login.minute[]"]);
}

#[test]
fn names_are_checked() {
    for bad in ["", "Login", "a b", "a:b", "a{b", &"x".repeat(65)] {
        let quota = policy("x").limits()[0].quota().clone();
        assert!(matches!(Policy::new(bad, quota), Err(PolicyError::Name { .. })), "{bad:?}");
    }
    let quota = policy("x").limits()[0].quota().clone();
    let shared = Policies::new(vec![policy("a").and("s", quota.clone()).and("s", quota)]).unwrap_err();
    assert_eq!(shared.to_string(), "policy \"a\" has two quotas of the same name; give each its own name");
    let other = Quota::new(Algorithm::SlidingWindow, "10/min".parse().unwrap()).unwrap();
    let quota = policy("x").limits()[0].quota().clone();
    let differing = policy("a").and("s", quota.clone()).and("s", other);
    assert!(matches!(Policies::new(vec![differing]), Err(PolicyError::QuotaTwice { .. })));
    assert!(matches!(Policies::new(vec![policy("a").and("s:{", quota)]), Err(PolicyError::Name { .. })));
    let twice = Policies::new(vec![policy("a"), policy("a")]).unwrap_err();
    assert_eq!(twice.to_string(), "there are two policies named \"a\"; give each its own name");
}

fn on(path: &str) -> Selector {
    let patterns = vec![Pattern::new(path, Some(b'/')).unwrap()];
    Selector::When(Condition::default().and_fits(AttributeName::Path, patterns))
}

fn path(value: &str) -> Attribute<'_> {
    Attribute { name: AttributeName::Path, value }
}

#[test]
fn b3_of_a_group_the_first_match_decides() {
    let policies = || {
        vec![
            policy("login").with_selector(on("**/login**")).with_group("endpoint"),
            policy("recovery").with_selector(on("**/reset**")).with_group("endpoint").with_mode(Mode::Off),
            policy("all"),
            policy("default").with_group("endpoint"),
        ]
    };
    assert_eq!(keys(policies(), &[], &[path("/api/login")]), ["login[]", "all[]"]);
    assert_eq!(keys(policies(), &[], &[path("/x")]), ["all[]", "default[]"]);
    assert_eq!(
        keys(policies(), &[], &[path("/reset")]),
        ["all[]"],
        "one that is off is still the first match"
    );
    assert_eq!(keys(policies(), &["login"], &[path("/login")]), ["login[]", "all[]"], "once, also if named");
}

#[test]
fn b4_an_exempt_query_falls_under_no_policy() {
    let Selector::When(health) = on("/health**") else { unreachable!() };
    let policies = Policies::new(vec![policy("all")]).unwrap().with_exempt(vec![health]);
    assert_eq!(**policies.needs(), [AttributeName::Path]);
    let [healthz, other] = [[path("/healthz")], [path("/x")]];
    let mut charges = Charges::new();
    policies.select(&query(Select::Covering(&["all"]), &healthz), &mut charges);
    assert_eq!(charges.len(), 0);
    policies.select(&query(Select::Covering(&[]), &other), &mut charges);
    assert_eq!(charges.len(), 1);
}

#[test]
fn b4_a_path_that_could_be_read_in_two_ways_exempts_nobody() {
    let Selector::When(health) = on("/health**") else { unreachable!() };
    let options = vec![Pattern::new("OPTIONS", None).unwrap()];
    let options = Condition::default().and_fits(AttributeName::Method, options);
    let within = Condition::default().and_within(vec!["10.1.2.0/24".parse().unwrap()]);
    let policies = Policies::new(vec![policy("all")]).unwrap().with_exempt(vec![health, options, within]);
    let n_charges = |select, method, address: &str| {
        let method = Attribute { name: AttributeName::Method, value: method };
        let attributes = [path("/health"), method, path("/login/../health")];
        let attributes = if matches!(select, Select::Covering(_)) { &attributes[..2] } else { &attributes };
        let mut charges = Charges::new();
        let query = Query { address: Some(address.parse().unwrap()), ..query(select, attributes) };
        policies.select(&query, &mut charges);
        charges.len()
    };
    let [plain, odd] = [Select::Covering(&[]), Select::CoveringReadings(&[])];
    assert_eq!([plain, odd].map(|select| n_charges(select, "GET", "192.0.2.1")), [0, 1]);
    assert_eq!(n_charges(odd, "OPTIONS", "192.0.2.1"), 0, "the method says the same in any reading");
    assert_eq!(n_charges(odd, "GET", "10.1.2.3"), 0, "so does the address");
    assert_eq!(n_charges(Select::CoveringReadings(&["all"]), "GET", "192.0.2.1"), 1, "once, also if named");
}

#[test]
fn who_names_policies_meets_no_others() {
    let policies = Policies::new(vec![policy("all"), policy("login").with_selector(on("/login"))]).unwrap();
    let mut charges = Charges::new();
    policies.select(&query(Select::Named(&["login"]), &[]), &mut charges);
    assert_eq!(charges.len(), 1, "also if its selector does not cover the query");
}

#[test]
fn an_override_with_a_quota_has_buckets_of_its_own() {
    let quota = |rate: &str| Quota::new(Algorithm::SlidingWindowCounter, rate.parse().unwrap()).unwrap();
    let user = |text: &str| {
        Condition::default().and_fits(AttributeName::User, vec![Pattern::new(text, None).unwrap()])
    };
    let per_user = Policy::new("per-user", quota("250/min"))
        .unwrap()
        .by(&[AttributeName::User])
        .with_override(None, user("batch-*"), vec![(None, quota("2500/min"))], None)
        .with_override(Some("x"), user("batch-x"), vec![], Some(Mode::Off))
        .with_override(None, user("admin"), vec![], Some(Mode::Shadow))
        .with_override(None, user("root"), vec![], Some(Mode::Off));
    let policies = Policies::new(vec![per_user]).unwrap();
    let of = |value| {
        let attributes = [Attribute { name: AttributeName::User, value }];
        let mut charges = Charges::new();
        policies.select(&query(Select::Covering(&[]), &attributes), &mut charges);
        charges.iter().map(|c| format!("{:?} {} {:?}", c.key, c.quota.rate(), c.act)).collect::<Vec<_>>()
    };
    assert_eq!(of("anna"), [r#"per-user["anna"] 250/min Look(1)"#]);
    let batch = r#"per-user+2f7798908167b0fc["batch-x"] 2500/min Look(1)"#;
    assert_eq!(of("batch-x"), [batch], "the first that holds");
    assert_eq!(of("admin"), [r#"per-user["admin"] 250/min Look(0)"#]);
    assert_eq!(of("root"), [""; 0]);
}

/// Its name says where its buckets lie, else what it matches; never its position.
#[test]
fn overrides_keep_their_buckets_when_others_come_before_them() {
    let fits = |name: AttributeName<&str>, texts: &[&str]| {
        let patterns = texts.iter().map(|text| Pattern::new(text, None).unwrap()).collect();
        (name.to_owned(), patterns)
    };
    let condition = |tests: Vec<(AttributeName<String>, Vec<Pattern>)>| {
        tests
            .into_iter()
            .fold(Condition::default(), |condition, (name, patterns)| condition.and_fits(name, patterns))
    };
    let get = || fits(AttributeName::Method, &["GET", "HEAD"]);
    let anna = || fits(AttributeName::User, &["anna"]);
    assert_eq!(condition(vec![get(), anna()]).digest(), condition(vec![anna(), get()]).digest());
    let swapped = fits(AttributeName::Method, &["HEAD", "GET"]);
    assert_eq!(condition(vec![get()]).digest(), condition(vec![swapped]).digest());
    assert_ne!(condition(vec![get()]).digest(), condition(vec![get(), anna()]).digest());
    let quota = || vec![(None, Quota::new(Algorithm::SlidingWindow, "1/s".parse().unwrap()).unwrap())];
    let twice = policy("p").with_override(None, condition(vec![get()]), quota(), None).with_override(
        None,
        condition(vec![get()]),
        quota(),
        None,
    );
    let error = Policies::new(vec![twice]).unwrap_err();
    assert!(
        matches!(error, PolicyError::OverrideTwice { .. }),
        "the second would share the first one's buckets"
    );
}

/// All buckets of a policy are looked at and forgotten, those of overrides that do not apply now too.
#[test]
fn a_look_at_every_bucket_and_a_reset_cover_overrides() {
    let quota = |rate: &str| Quota::new(Algorithm::SlidingWindow, rate.parse().unwrap()).unwrap();
    let method = |text: &str| {
        Condition::default().and_fits(AttributeName::Method, vec![Pattern::new(text, None).unwrap()])
    };
    let p = policy("p").by(&[AttributeName::Ip]).with_override(
        Some("get"),
        method("GET"),
        vec![(None, quota("5/s")), (Some("hour".to_owned()), quota("9/h"))],
        None,
    );
    let policies = Policies::new(vec![p, policy("q")]).unwrap();
    let attributes = [(AttributeName::Ip, "c"), (AttributeName::Method, "GET")]
        .map(|(name, value)| Attribute { name, value });
    let mut charges = Charges::new();
    policies.select(&query(Select::EveryBucket("p"), &attributes[..1]), &mut charges);
    let names: Vec<_> = charges.iter().map(|charge| format!("{:?}", charge.key)).collect();
    assert_eq!(names, [r#"p["c"]"#, r#"p+get["c"]"#, r#"p+get.hour["c"]"#]);
    let keys = |select, attributes| {
        let query = query(select, attributes);
        policies.keys(&query).iter().map(|key| format!("{key:?}")).collect::<Vec<_>>()
    };
    assert_eq!(keys(Select::Named(&["p"]), &attributes), names);
    assert_eq!(keys(Select::Covering(&[]), &attributes), [names, vec!["q[]".to_owned()]].concat());
}

#[test]
fn a_query_without_what_it_is_counted_by_is_skipped_or_refused() {
    let of = |missing, mode| {
        let by_user = policy("by-user").by(&[AttributeName::User]).with_missing(missing).with_mode(mode);
        let policies = Policies::new(vec![policy("all"), by_user]).unwrap();
        let mut charges = Charges::new();
        let refused = policies.select(&query(Select::Covering(&[]), &[]), &mut charges);
        (refused.and_then(|refused| Some(policies.refused(refused)?.0.name().to_owned())), charges.len())
    };
    assert_eq!(of(Missing::Skip, Mode::Enforce), (None, 1));
    assert_eq!(of(Missing::Deny, Mode::Enforce), (Some("by-user".to_owned()), 0));
    assert_eq!(of(Missing::Deny, Mode::Shadow), (None, 1));
}

#[test]
fn the_cost_of_a_policy_multiplies() {
    let act = |cost: Cost, ask, attributes: &[Attribute<'_>]| {
        let policies = Policies::new(vec![policy("p").with_cost(cost)]).unwrap();
        let mut charges = Charges::new();
        let query = Query { ask, ..query(Select::Covering(&[]), attributes) };
        policies.select(&query, &mut charges);
        charges.first().map(|charge| charge.act)
    };
    let spend = |n: u32| Ask::Spend(n.try_into().unwrap());
    let take = |n: u32| Some(Act::Take(n.try_into().unwrap()));
    assert_eq!(act(Cost::Fixed(3), spend(2), &[]), take(6));
    assert_eq!(act(Cost::Fixed(u32::MAX), spend(2), &[]), take(u32::MAX));
    assert_eq!(act(Cost::Fixed(0), spend(2), &[]), None);
    let header = AttributeName::Header("x-cost".to_owned());
    for (text, cost) in [("7", 7), ("0", 1), ("-3", 1), ("much", 1), ("99999999999", u32::MAX), ("", 1)] {
        let attribute = Attribute { name: AttributeName::Header("x-cost"), value: text };
        assert_eq!(act(Cost::Of(header.clone()), spend(1), &[attribute]), take(cost), "{text}");
    }
    let by_method = Cost::ByMethod { costs: vec![("GET".to_owned(), 0), ("POST".to_owned(), 5)], others: 2 };
    for (method, expected) in [("GET", None), ("POST", take(5)), ("PUT", take(2))] {
        let attribute = Attribute { name: AttributeName::Method, value: method };
        assert_eq!(act(by_method.clone(), spend(1), &[attribute]), expected, "{method}");
    }
}

#[test]
fn b4_a_path_that_could_be_read_in_two_ways_meets_no_policy_that_is_off() {
    let Selector::When(health) = on("/health") else { unreachable!() };
    let policies = vec![
        policy("free").with_selector(on("/health")).with_group("g").with_mode(Mode::Off),
        policy("default").with_group("g"),
        policy("all").with_override(None, health, vec![], Some(Mode::Off)),
    ];
    let policies = Policies::new(policies).unwrap();
    let n_charges = |select| {
        let attributes = [path("/health"), path("/login/../health")];
        let attributes = if matches!(select, Select::Covering(_)) { &attributes[..1] } else { &attributes };
        let mut charges = Charges::new();
        policies.select(&query(select, attributes), &mut charges);
        charges.len()
    };
    assert_eq!(n_charges(Select::Covering(&[])), 0);
    assert_eq!(n_charges(Select::CoveringReadings(&[])), 2);
}

/// A query without the key attribute of a group's first policy falls under the next.
#[test]
fn b3_a_policy_that_is_skipped_leaves_its_group_to_the_next() {
    let policies = |mode| {
        vec![
            policy("per-user").by(&[AttributeName::User]).with_group("g").with_mode(mode),
            policy("per-ip").by(&[AttributeName::Ip]).with_group("g"),
        ]
    };
    let [ip, user] = [AttributeName::Ip, AttributeName::User].map(|name| Attribute { name, value: "v" });
    assert_eq!(keys(policies(Mode::Enforce), &[], &[ip, user]), [r#"per-user["v"]"#]);
    assert_eq!(keys(policies(Mode::Enforce), &[], &[ip]), [r#"per-ip["v"]"#]);
    assert_eq!(keys(policies(Mode::Off), &[], &[ip]), [""; 0], "one that is off is still the first match");
}
