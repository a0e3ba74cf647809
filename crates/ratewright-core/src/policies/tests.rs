//! Selection: who falls under what.

use super::*;
use crate::charge::Act;
use crate::key::Part;
use crate::pattern::Pattern;
use crate::policy::Cost;
use crate::quantity::Micros;
use crate::query::{Ask, Attribute};
use crate::quota::{Algorithm, Refill};

fn policy(name: &str) -> Policy {
    let quota = Quota::new(Algorithm::TokenBucket(Refill::Smooth), "1/s".parse().unwrap()).unwrap();
    Policy::new(name, quota).unwrap()
}

fn query<'a>(select: Select<'a>, attributes: &'a [Attribute<'a>]) -> Query<'a> {
    let address = None;
    Query { select, attributes, address, ask: Ask::Look(1), patience: Micros::ZERO }
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
            policy("other").covering(Selector::Named),
            policy("asked").covering(Selector::Named).by(&[AttributeName::Ip, AttributeName::Named("route")]),
            policy("off").in_mode(Mode::Off),
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
            policy("login").covering(on("**/login**")).grouped("endpoint"),
            policy("recovery").covering(on("**/reset**")).grouped("endpoint").in_mode(Mode::Off),
            policy("all"),
            policy("default").grouped("endpoint"),
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
    let policies = Policies::new(vec![policy("all")]).unwrap().exempting(vec![health]);
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
    let policies = Policies::new(vec![policy("all")]).unwrap().exempting(vec![health, options, within]);
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
    let policies = Policies::new(vec![policy("all"), policy("login").covering(on("/login"))]).unwrap();
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
        .overridden(None, user("batch-*"), vec![(None, quota("2500/min"))], None)
        .overridden(Some("x"), user("batch-x"), vec![], Some(Mode::Off))
        .overridden(None, user("admin"), vec![], Some(Mode::Shadow))
        .overridden(None, user("root"), vec![], Some(Mode::Off));
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
    let twice = policy("p").overridden(None, condition(vec![get()]), quota(), None).overridden(
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
    let p = policy("p").by(&[AttributeName::Ip]).overridden(
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
        let by_user = policy("by-user").by(&[AttributeName::User]).lacking(missing).in_mode(mode);
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
        let policies = Policies::new(vec![policy("p").costing(cost)]).unwrap();
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
        policy("free").covering(on("/health")).grouped("g").in_mode(Mode::Off),
        policy("default").grouped("g"),
        policy("all").overridden(None, health, vec![], Some(Mode::Off)),
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

/// Who has nothing that the first policy of a group counts by falls under the next.
#[test]
fn b3_a_policy_that_is_skipped_leaves_its_group_to_the_next() {
    let policies = |mode| {
        vec![
            policy("per-user").by(&[AttributeName::User]).grouped("g").in_mode(mode),
            policy("per-ip").by(&[AttributeName::Ip]).grouped("g"),
        ]
    };
    let [ip, user] = [AttributeName::Ip, AttributeName::User].map(|name| Attribute { name, value: "v" });
    assert_eq!(keys(policies(Mode::Enforce), &[], &[ip, user]), [r#"per-user["v"]"#]);
    assert_eq!(keys(policies(Mode::Enforce), &[], &[ip]), [r#"per-ip["v"]"#]);
    assert_eq!(keys(policies(Mode::Off), &[], &[ip]), [""; 0], "one that is off is still the first match");
}

/// The keys that a query is charged to, where attributes may be there several times, or why it is refused.
fn readings(policies: Vec<Policy>, attributes: &[(AttributeName<&str>, &str)]) -> Vec<String> {
    let attributes: Vec<_> = attributes.iter().map(|&(name, value)| Attribute { name, value }).collect();
    let policies = Policies::new(policies).unwrap();
    let mut charges = Charges::new();
    let query = query(Select::CoveringReadings(&[]), &attributes);
    if let Some(refused) = policies.select(&query, &mut charges) {
        let (policy, why) = policies.refused(refused).unwrap();
        return vec![format!("{} {why:?}", policy.name())];
    }
    for charge in &charges {
        assert_eq!(query.key(charge.key.name(), charge.limit), Some(charge.key), "found again for a refund");
    }
    charges.iter().map(|charge| format!("{:?}", charge.key)).collect()
}

#[test]
fn every_reading_of_what_is_counted_by_is_charged() {
    let sid = AttributeName::Cookie("sid");
    let by_sid = || policy("by-sid").by(&[sid]);
    let twice = [(sid, "a"), (sid, "b"), (AttributeName::Ip, "i")];
    assert_eq!(readings(vec![by_sid()], &twice), [r#"by-sid["a"]"#, r#"by-sid["b"]"#]);
    let both = policy("p").by(&[sid, AttributeName::Method]);
    let four = [(sid, "a"), (AttributeName::Method, "GET"), (sid, "b"), (AttributeName::Method, "PUT")];
    let keys = [r#"p["a", "GET"]"#, r#"p["b", "GET"]"#, r#"p["a", "PUT"]"#, r#"p["b", "PUT"]"#];
    assert_eq!(readings(vec![both.clone()], &four), keys);
    let six = [&four[..], &[(sid, "c")]].concat();
    assert_eq!(readings(vec![both.clone()], &six), ["p TooMany"]);
    assert_eq!(readings(vec![both.in_mode(Mode::Shadow), by_sid()], &six).len(), 3, "shadow denies nobody");
    let elsewhere = both_on("/other").by(&[sid, AttributeName::Method]);
    assert_eq!(readings(vec![elsewhere], &six), [""; 0], "only policies that cover the request deny it");
}

fn both_on(path: &str) -> Policy {
    policy("elsewhere").covering(on(path))
}

#[test]
fn what_may_come_once_only_denies_where_it_is_counted_by() {
    let key = AttributeName::Header("x-api-key");
    let twice = [(key, "a"), (key, "b"), (key, Attribute::REPEATED)];
    assert_eq!(readings(vec![policy("by-key").by(&[key])], &twice), ["by-key Repeated"]);
    assert_eq!(readings(vec![policy("all")], &twice), ["all[]"]);
}

/// A11: what cannot be read is counted by address, in a bucket of its own, unless the policy denies.
#[test]
fn what_cannot_be_read_is_counted_by_address() {
    let unreadable = [(AttributeName::User, Attribute::UNREADABLE), (AttributeName::Ip, "10.0.0.1")];
    let by_user = || policy("by-user").by(&[AttributeName::User]);
    assert_eq!(readings(vec![by_user()], &unreadable), [r#"by-user["ip:10.0.0.1"]"#]);
    assert_eq!(readings(vec![by_user()], &unreadable[..1]), [r#"by-user["ip:"]"#], "no address: one for all");
    assert_eq!(readings(vec![by_user().lacking(Missing::Deny)], &unreadable), ["by-user Missing"]);
    let route = (AttributeName::Route, "r");
    let composite = policy("p").by(&[AttributeName::Route, AttributeName::User]);
    assert_eq!(
        readings(vec![composite], &[route, unreadable[0], unreadable[1]]),
        [r#"p["r", "ip:10.0.0.1"]"#]
    );
    let first_of = Part::first_of(AttributeName::User, vec![AttributeName::Ip]);
    let either = policy("either").partitioned(vec![first_of]);
    assert_eq!(readings(vec![either], &unreadable), [r#"either["ip:10.0.0.1"]"#]);
    let grouped = vec![by_user().grouped("g"), policy("rest").grouped("g")];
    let both = [r#"by-user["ip:10.0.0.1"]"#, "rest[]"];
    assert_eq!(readings(grouped, &unreadable), both, "it does not keep the guests' policy away");
    let named_so = [(AttributeName::User, "ip:10.0.0.1"), (AttributeName::Ip, "10.0.0.1")];
    let policies = Policies::new(vec![by_user()]).unwrap();
    let name = policies.named("by-user").unwrap().limits()[0].name();
    let key = |attributes: [(AttributeName<&'static str>, &'static str); 2]| {
        attributes.map(|(name, value)| Attribute { name, value })
    };
    let (refused, user) = (key(unreadable), key(named_so));
    let (refused, user) = (Key::new(name, &refused).unwrap(), Key::new(name, &user).unwrap());
    assert_ne!(refused, user, "a user of that name has another bucket");
    for key in [refused, user] {
        let exact: Vec<String> = key.values().map(|value| value.exact()).collect();
        let again = name.attributes(&exact.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert_eq!(Key::new(name, &again), Some(key), "and back");
    }
}

#[test]
fn a_policy_covers_a_query_if_it_covers_one_of_its_readings() {
    let method = |name: &str, methods: &[&str]| {
        let patterns = methods.iter().map(|text| Pattern::new(text, None).unwrap()).collect();
        let condition = Condition::default().and_fits(AttributeName::Method, patterns);
        policy(name).covering(Selector::When(condition))
    };
    let of = |policies: Vec<Policy>, methods: &[&str]| {
        let attributes: Vec<_> = methods.iter().map(|method| (AttributeName::Method, *method)).collect();
        readings(policies, &attributes)
    };
    assert_eq!(of(vec![method("posts", &["POST"])], &["post", "POST"]), ["posts[]"]);
    assert_eq!(of(vec![method("deletes", &["DELETE"])], &["POST", "DELETE"]), ["deletes[]"]);
    assert_eq!(of(vec![method("gets", &["GET"])], &["HEAD"]), ["gets[]"], "routes for GET serve HEAD");
    assert_eq!(of(vec![method("stars", &["G*"])], &["HEAD"]), [""; 0], "by its name only");
    let group = || vec![method("gets", &["GET"]).grouped("g"), method("heads", &["HEAD"]).grouped("g")];
    assert_eq!(of(group(), &["HEAD"]), ["heads[]"], "the one that names it");
    assert_eq!(of(group(), &["GET"]), ["gets[]"]);
}

#[test]
fn an_exemption_must_hold_for_every_reading() {
    let options =
        Condition::default().and_fits(AttributeName::Method, vec![Pattern::new("OPTIONS", None).unwrap()]);
    let policies = Policies::new(vec![policy("all")]).unwrap().exempting(vec![options]);
    let n_charges = |methods: &[&str]| {
        let attributes: Vec<_> =
            methods.iter().map(|value| Attribute { name: AttributeName::Method, value }).collect();
        let mut charges = Charges::new();
        policies.select(&query(Select::CoveringReadings(&[]), &attributes), &mut charges);
        charges.len()
    };
    assert_eq!(n_charges(&["OPTIONS"]), 0);
    assert_eq!(n_charges(&["OPTIONS", "POST"]), 1, "a header makes it a POST");
    assert_eq!(n_charges(&["options", "OPTIONS"]), 1, "only who ignores case takes it for one");
    assert_eq!(n_charges(&[]), 1);
}

#[test]
fn a_cost_by_method_is_that_of_the_dearest_reading_and_head_costs_what_get_does() {
    let cost = |costs: &[(&str, u32)], methods: &[&str]| {
        let costs = costs.iter().map(|(method, cost)| ((*method).to_owned(), *cost)).collect();
        let policies = Policies::new(vec![policy("p").costing(Cost::ByMethod { costs, others: 2 })]).unwrap();
        let attributes: Vec<_> =
            methods.iter().map(|value| Attribute { name: AttributeName::Method, value }).collect();
        let mut charges = Charges::new();
        let ask = Ask::Spend(std::num::NonZeroU32::MIN);
        policies.select(&Query { ask, ..query(Select::CoveringReadings(&[]), &attributes) }, &mut charges);
        charges.first().map_or(0, |charge| charge.act.cost())
    };
    assert_eq!(cost(&[("GET", 5)], &["HEAD"]), 5);
    assert_eq!(cost(&[("GET", 5), ("HEAD", 1)], &["HEAD"]), 1, "its own entry wins");
    assert_eq!(cost(&[("GET", 0), ("DELETE", 9)], &["GET", "DELETE"]), 9);
    assert_eq!(cost(&[("POST", 7)], &["post", "POST"]), 7);
}

/// What is selected for each reading counts: groups, overrides and modes of one reading do not hide those of another.
#[test]
fn no_reading_hides_what_another_is_counted_by() {
    let method = |text: &str| {
        Condition::default().and_fits(AttributeName::Method, vec![Pattern::new(text, None).unwrap()])
    };
    let on = |name: &str, text: &str| policy(name).covering(Selector::When(method(text)));
    let of = |policies: Vec<Policy>, methods: &[&str]| {
        let attributes: Vec<_> = methods.iter().map(|method| (AttributeName::Method, *method)).collect();
        readings(policies, &attributes)
    };
    let group = || vec![on("reads", "GET").grouped("g"), on("writes", "POST").grouped("g")];
    assert_eq!(of(group(), &["POST", "GET"]), ["writes[]", "reads[]"]);
    let heads = vec![on("writes", "POST").grouped("g"), on("heads", "HEAD").grouped("g")];
    assert_eq!(of(heads, &["POST", "HEAD"]), ["writes[]", "heads[]"]);
    let quota = Quota::new(Algorithm::SlidingWindow, "9/s".parse().unwrap()).unwrap();
    let more = policy("p").overridden(Some("get"), method("GET"), vec![(None, quota)], None);
    assert_eq!(of(vec![more], &["POST", "GET"]), ["p[]", "p+get[]"]);
    for mode in [Mode::Shadow, Mode::Off] {
        let spared = policy("p").overridden(None, method("GET"), vec![], Some(mode));
        let policies = Policies::new(vec![spared]).unwrap();
        let attributes = ["POST", "GET"].map(|value| Attribute { name: AttributeName::Method, value });
        let mut charges = Charges::new();
        policies.select(&query(Select::CoveringReadings(&[]), &attributes), &mut charges);
        let modes: Vec<_> = charges.iter().map(|charge| charge.limit.mode()).collect();
        assert_eq!(modes, [Mode::Enforce], "{mode:?} for one reading only");
    }
}

/// What cannot be read fits no condition, so that a token that is refused does not choose the members' quota.
#[test]
fn what_cannot_be_read_fits_no_condition() {
    let anybody = Condition::default().and_fits(AttributeName::User, vec![Pattern::new("*", None).unwrap()]);
    let members = policy("members").covering(Selector::When(anybody)).grouped("g");
    let attributes = [(AttributeName::User, Attribute::UNREADABLE), (AttributeName::Ip, "i")];
    assert_eq!(readings(vec![members, policy("guests").grouped("g")], &attributes), ["guests[]"]);
}

/// More values than are told: policies that look at them deny, in conditions, overrides and costs too, and nothing is exempt.
#[test]
fn too_many_values_hide_nothing() {
    let action = AttributeName::Param("action");
    let attributes = [(action, "1"), (action, "2"), (action, Attribute::TOO_MANY)];
    let export =
        Condition::default().and_fits(action.to_owned(), vec![Pattern::new("export", None).unwrap()]);
    let exports = policy("exports").covering(Selector::When(export.clone()));
    assert_eq!(readings(vec![exports, policy("all")], &attributes), ["exports TooMany"]);
    assert_eq!(readings(vec![policy("all")], &attributes), ["all[]"]);
    let dear = policy("dear").costing(Cost::Of(action.to_owned()));
    assert_eq!(readings(vec![dear], &attributes), ["dear TooMany"]);
    let spared = policy("spared").overridden(None, export.clone(), vec![], Some(Mode::Shadow));
    assert_eq!(readings(vec![spared], &attributes), ["spared TooMany"], "not by the terms of shadow");
    let free = Cost::ByMethod { costs: vec![("POST".to_owned(), 1)], others: 0 };
    let methods = [(AttributeName::Method, "GET"), (AttributeName::Method, Attribute::TOO_MANY)];
    assert_eq!(readings(vec![policy("posts").costing(free)], &methods), ["posts TooMany"]);
    let shadow = policy("shadow").covering(Selector::When(export.clone())).grouped("g").in_mode(Mode::Shadow);
    let keys = readings(vec![shadow, policy("next").grouped("g")], &attributes);
    assert_eq!(keys, ["next[]"], "it does not keep the next of its group away");
    let policies = Policies::new(vec![policy("all")]).unwrap().exempting(vec![export]);
    let exempt = attributes.map(|(name, value)| Attribute { name, value });
    let mut charges = Charges::new();
    policies.select(&query(Select::CoveringReadings(&[]), &exempt), &mut charges);
    assert_eq!(charges.len(), 1);
    let many: Vec<_> = ["a", "b", "c", "d", "e"]
        .into_iter()
        .flat_map(|value| {
            [(AttributeName::Cookie("c"), value), (action, value), (AttributeName::Method, value)]
        })
        .collect();
    let on_method =
        Condition::default().and_fits(AttributeName::Method, vec![Pattern::new("DELETE", None).unwrap()]);
    let deletes = policy("deletes").covering(Selector::When(on_method));
    assert_eq!(readings(vec![deletes], &many), ["deletes TooMany"], "more readings than are looked at");
    assert_eq!(readings(vec![policy("all")], &many), ["all[]"]);
}

/// Denied for want of what it is counted by, also where a query costs nothing.
#[test]
fn missing_deny_holds_for_queries_that_cost_nothing() {
    let cost = Cost::ByMethod { costs: vec![("GET".to_owned(), 0)], others: 1 };
    let by_user = policy("p").by(&[AttributeName::User]).lacking(Missing::Deny).costing(cost);
    assert_eq!(readings(vec![by_user.clone()], &[(AttributeName::Method, "GET")]), ["p Missing"]);
    assert_eq!(readings(vec![by_user.in_mode(Mode::Off)], &[(AttributeName::Method, "GET")]), [""; 0]);
}
