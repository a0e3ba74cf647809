//! Queries that could be read in several ways.

use super::*;

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
    let sixteen = [&four[..], &["c", "d", "e", "f", "g", "h"].map(|value| (sid, value))].concat();
    assert_eq!(readings(vec![both.clone()], &sixteen).len(), usize::from(Policies::READINGS_MAX));
    let eighteen = [&sixteen[..], &[(sid, "i")]].concat();
    assert_eq!(readings(vec![both.clone()], &eighteen), ["p TooMany"]);
    let shadow = vec![both.with_mode(Mode::Shadow), by_sid()];
    assert_eq!(readings(shadow, &eighteen).len(), 9, "shadow denies nobody");
    let elsewhere = both_on("/other").by(&[sid, AttributeName::Method]);
    assert_eq!(readings(vec![elsewhere], &eighteen), [""; 0], "only policies that cover the request deny it");
}

fn both_on(path: &str) -> Policy {
    policy("elsewhere").with_selector(on(path))
}

#[test]
fn what_may_come_once_only_denies_where_it_is_counted_by() {
    let key = AttributeName::Header("x-api-key");
    let twice = [(key, "a"), (key, "b"), (key, Attribute::REPEATED)];
    assert_eq!(readings(vec![policy("by-key").by(&[key])], &twice), ["by-key Repeated"]);
    assert_eq!(readings(vec![policy("all")], &twice), ["all[]"]);
}

/// What cannot be read may be what a policy asks for. It chooses no override, and keeps no other policy of a group away.
#[test]
fn what_cannot_be_read_fits_the_conditions_of_policies() {
    let quota = policy("p").limits()[0].quota().clone();
    for name in [AttributeName::Param("plan"), AttributeName::Claim("plan")] {
        let on =
            |plan| Condition::default().and_fits(name.to_owned(), vec![Pattern::new(plan, None).unwrap()]);
        let when = |plan| policy(plan).with_selector(Selector::When(on(plan))).by(&[AttributeName::Ip]);
        let unreadable = [(name, Attribute::UNREADABLE), (AttributeName::Ip, "i")];
        let both = [r#"gold["i"]"#, r#"free["i"]"#];
        assert_eq!(readings(vec![when("gold"), when("free")], &unreadable), both);
        let beside = [(name, "free"), unreadable[0], unreadable[1]];
        assert_eq!(readings(vec![when("gold"), when("free")], &beside), [both[1], both[0]]);
        let grouped = vec![when("gold").with_group("g"), policy("rest").with_group("g")];
        assert_eq!(readings(grouped, &unreadable), [both[0], "rest[]"]);
        let other = policy("p").with_override(Some("gold"), on("gold"), vec![(None, quota.clone())], None);
        assert_eq!(readings(vec![other], &unreadable), ["p[]"]);
        let off = vec![when("gold").with_mode(Mode::Off).with_group("g"), policy("rest").with_group("g")];
        assert_eq!(readings(off, &unreadable), ["rest[]"]);
    }
}

/// A client cannot spend shared units by sending unreadable bytes.
#[test]
fn what_cannot_be_read_spends_nothing_that_others_share() {
    for name in [AttributeName::Header("k"), AttributeName::Cookie("k"), AttributeName::Claim("k")] {
        let on = Condition::default().and_fits(name.to_owned(), vec![Pattern::new("secret", None).unwrap()]);
        let shared = policy("shared").with_selector(Selector::When(on.clone()));
        let unreadable =
            [(name, Attribute::UNREADABLE), (AttributeName::Ip, "i"), (AttributeName::Path, "/p")];
        assert_eq!(readings(vec![shared.clone()], &unreadable), [""; 0]);
        assert_eq!(readings(vec![shared.by(&[AttributeName::Path])], &unreadable), [""; 0]);
        let own = policy("own").with_selector(Selector::When(on)).by(&[AttributeName::Ip]);
        assert_eq!(readings(vec![own], &unreadable), [r#"own["i"]"#]);
    }
}

/// One invalid byte is not charged under each of a thousand policies.
#[test]
fn what_cannot_be_read_is_charged_under_some_policies_only() {
    let policies: Vec<_> = (0..1_000)
        .map(|n| {
            let pattern = Pattern::new(&format!("k{n}"), None).unwrap();
            let on = Condition::default().and_fits(AttributeName::Header("k").to_owned(), vec![pattern]);
            policy(&format!("p{n}")).with_selector(Selector::When(on)).by(&[AttributeName::Ip])
        })
        .collect();
    let of = |values: &[&'static str]| {
        let values = values.iter().map(|value| (AttributeName::Header("k"), *value));
        let attributes: Vec<_> = values.chain([(AttributeName::Ip, "i")]).collect();
        readings(policies.clone(), &attributes)
    };
    assert_eq!(of(&[Attribute::UNREADABLE]).len(), 8);
    assert!(
        of(&["k999", Attribute::UNREADABLE]).contains(&r#"p999["i"]"#.to_owned()),
        "what can be read counts"
    );
}

/// An explicit HEAD wins over GET; a pattern that fits every method does not.
#[test]
fn only_an_explicit_head_is_taken_before_get() {
    let on = |method: &str| {
        let pattern = Pattern::new(method, None).unwrap();
        Condition::default().and_fits(AttributeName::Method, vec![pattern])
    };
    let quota = policy("p").limits()[0].quota().clone();
    let head = [(AttributeName::Method, "HEAD")];
    for (other, expected) in [("HEAD", "other"), ("*", "get"), ("H*", "get")] {
        let grouped =
            |name: &str, method| policy(name).with_selector(Selector::When(on(method))).with_group("g");
        let group = vec![grouped("get", "GET"), grouped("other", other)];
        assert_eq!(readings(group, &head), [format!("{expected}[]")], "{other} in a group");
        let overridden = policy("p")
            .with_override(Some("get"), on("GET"), vec![(None, quota.clone())], None)
            .with_override(Some("other"), on(other), vec![(None, quota.clone())], None);
        let policies = Policies::new(vec![overridden]).unwrap();
        let attributes = head.map(|(name, value)| Attribute { name, value });
        let query = query(Select::Covering(&[]), &attributes);
        let mut charges = Charges::new();
        assert_eq!(policies.select(&query, &mut charges), None);
        let names: Vec<_> = charges.iter().map(|charge| charge.key.name().override_name()).collect();
        assert_eq!(names, [Some(expected)], "{other} among overrides");
    }
}

/// A11: what cannot be read is counted by address, in a bucket of its own, unless the policy denies.
#[test]
fn what_cannot_be_read_is_counted_by_address() {
    let unreadable = [(AttributeName::User, Attribute::UNREADABLE), (AttributeName::Ip, "10.0.0.1")];
    let by_user = || policy("by-user").by(&[AttributeName::User]);
    assert_eq!(readings(vec![by_user()], &unreadable), [r#"by-user["ip:10.0.0.1"]"#]);
    assert_eq!(readings(vec![by_user()], &unreadable[..1]), [r#"by-user["ip:"]"#], "no address: one for all");
    assert_eq!(readings(vec![by_user().with_missing(Missing::Deny)], &unreadable), ["by-user Missing"]);
    let route = (AttributeName::Route, "r");
    let composite = policy("p").by(&[AttributeName::Route, AttributeName::User]);
    assert_eq!(
        readings(vec![composite], &[route, unreadable[0], unreadable[1]]),
        [r#"p["r", "ip:10.0.0.1"]"#]
    );
    let first_of = Part::first_of(AttributeName::User, vec![AttributeName::Ip]);
    let either = policy("either").with_partition(vec![first_of]);
    assert_eq!(readings(vec![either], &unreadable), [r#"either["ip:10.0.0.1"]"#]);
    let grouped = vec![by_user().with_group("g"), policy("rest").with_group("g")];
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
        policy(name).with_selector(Selector::When(condition))
    };
    let of = |policies: Vec<Policy>, methods: &[&str]| {
        let attributes: Vec<_> = methods.iter().map(|method| (AttributeName::Method, *method)).collect();
        readings(policies, &attributes)
    };
    assert_eq!(of(vec![method("posts", &["POST"])], &["post", "POST"]), ["posts[]"]);
    assert_eq!(of(vec![method("deletes", &["DELETE"])], &["POST", "DELETE"]), ["deletes[]"]);
    assert_eq!(of(vec![method("gets", &["GET"])], &["HEAD"]), ["gets[]"], "routes for GET serve HEAD");
    assert_eq!(of(vec![method("stars", &["G*"])], &["HEAD"]), [""; 0], "by its name only");
    let group = || vec![method("gets", &["GET"]).with_group("g"), method("heads", &["HEAD"]).with_group("g")];
    assert_eq!(of(group(), &["HEAD"]), ["heads[]"], "the one that names it");
    assert_eq!(of(group(), &["GET"]), ["gets[]"]);
}

#[test]
fn an_exemption_must_hold_for_every_reading() {
    let options =
        Condition::default().and_fits(AttributeName::Method, vec![Pattern::new("OPTIONS", None).unwrap()]);
    let policies = Policies::new(vec![policy("all")]).unwrap().with_exempt(vec![options]);
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
        let policies =
            Policies::new(vec![policy("p").with_cost(Cost::ByMethod { costs, others: 2 })]).unwrap();
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
    let on = |name: &str, text: &str| policy(name).with_selector(Selector::When(method(text)));
    let of = |policies: Vec<Policy>, methods: &[&str]| {
        let attributes: Vec<_> = methods.iter().map(|method| (AttributeName::Method, *method)).collect();
        readings(policies, &attributes)
    };
    let group = || vec![on("reads", "GET").with_group("g"), on("writes", "POST").with_group("g")];
    assert_eq!(of(group(), &["POST", "GET"]), ["writes[]", "reads[]"]);
    let heads = vec![on("writes", "POST").with_group("g"), on("heads", "HEAD").with_group("g")];
    assert_eq!(of(heads, &["POST", "HEAD"]), ["writes[]", "heads[]"]);
    let quota = Quota::new(Algorithm::SlidingWindow, "9/s".parse().unwrap()).unwrap();
    let more = policy("p").with_override(Some("get"), method("GET"), vec![(None, quota)], None);
    assert_eq!(of(vec![more], &["POST", "GET"]), ["p[]", "p+get[]"]);
    for mode in [Mode::Shadow, Mode::Off] {
        let spared = policy("p").with_override(None, method("GET"), vec![], Some(mode));
        let policies = Policies::new(vec![spared]).unwrap();
        let attributes = ["POST", "GET"].map(|value| Attribute { name: AttributeName::Method, value });
        let mut charges = Charges::new();
        policies.select(&query(Select::CoveringReadings(&[]), &attributes), &mut charges);
        let modes: Vec<_> = charges.iter().map(|charge| charge.limit.mode()).collect();
        assert_eq!(modes, [Mode::Enforce], "{mode:?} for one reading only");
    }
}

/// A token that is refused does not choose the members' quota, and spends nothing that all of them share.
#[test]
fn a_token_that_is_refused_does_not_spend_what_members_share() {
    let anybody = Condition::default().and_fits(AttributeName::User, vec![Pattern::new("*", None).unwrap()]);
    let members = policy("members").with_selector(Selector::When(anybody)).with_group("g");
    let attributes = [(AttributeName::User, Attribute::UNREADABLE), (AttributeName::Ip, "i")];
    assert_eq!(readings(vec![members, policy("guests").with_group("g")], &attributes), ["guests[]"]);
}

/// More values than a query carries: policies that look at them deny, in conditions, overrides and costs too, and nothing is exempt.
#[test]
fn too_many_values_hide_nothing() {
    let action = AttributeName::Param("action");
    let attributes = [(action, "1"), (action, "2"), (action, Attribute::TOO_MANY)];
    let export =
        Condition::default().and_fits(action.to_owned(), vec![Pattern::new("export", None).unwrap()]);
    let exports = policy("exports").with_selector(Selector::When(export.clone()));
    assert_eq!(readings(vec![exports, policy("all")], &attributes), ["exports TooMany"]);
    assert_eq!(readings(vec![policy("all")], &attributes), ["all[]"]);
    let dear = policy("dear").with_cost(Cost::Of(action.to_owned()));
    assert_eq!(readings(vec![dear], &attributes), ["dear TooMany"]);
    let spared = policy("spared").with_override(None, export.clone(), vec![], Some(Mode::Shadow));
    assert_eq!(readings(vec![spared], &attributes), ["spared TooMany"], "not by the terms of shadow");
    let free = Cost::ByMethod { costs: vec![("POST".to_owned(), 1)], others: 0 };
    let methods = [(AttributeName::Method, "GET"), (AttributeName::Method, Attribute::TOO_MANY)];
    assert_eq!(readings(vec![policy("posts").with_cost(free)], &methods), ["posts TooMany"]);
    let shadow = policy("shadow")
        .with_selector(Selector::When(export.clone()))
        .with_group("g")
        .with_mode(Mode::Shadow);
    let keys = readings(vec![shadow, policy("next").with_group("g")], &attributes);
    assert_eq!(keys, ["next[]"], "it does not keep the next of its group away");
    let policies = Policies::new(vec![policy("all")]).unwrap().with_exempt(vec![export]);
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
    let deletes = policy("deletes").with_selector(Selector::When(on_method));
    assert_eq!(readings(vec![deletes], &many), ["deletes TooMany"], "more readings than are looked at");
    assert_eq!(readings(vec![policy("all")], &many), ["all[]"]);
}

/// As many readings as no integer can count are too many, and not none.
#[test]
fn readings_beyond_every_integer_are_too_many() {
    let names: Vec<String> = (0..64).map(|n| format!("c{n}")).collect();
    for (n_names, values) in [(64, &["a", "b"][..]), (32, &["a", "b", "c", "d"])] {
        let cookies = names[..n_names].iter().map(|name| AttributeName::Cookie(name.as_str()));
        let policies: Vec<_> =
            cookies.clone().map(|cookie| policy(cookie.text().unwrap()).by(&[cookie])).collect();
        let attributes: Vec<_> =
            cookies.flat_map(|cookie| values.iter().map(move |value| (cookie, *value))).collect();
        assert_eq!(readings(policies, &attributes), ["c0 TooMany"], "{} ^ {n_names}", values.len());
    }
}

/// One policy counts on its own: two users, one of them unreadable, leave two values to each of 64 parts.
#[test]
fn a_policy_refuses_readings_beyond_every_integer() {
    let names: Vec<String> = (0..64).map(|n| format!("c{n}")).collect();
    let cookies = names.iter().map(|name| AttributeName::Cookie(name.as_str()));
    let part = |cookie: AttributeName<&str>| Part::first_of(AttributeName::User, vec![cookie.to_owned()]);
    let policies = vec![policy("p").with_partition(cookies.clone().map(part).collect())];
    let users = ["u", Attribute::UNREADABLE].map(|user| (AttributeName::User, user));
    let attributes: Vec<_> = users.into_iter().chain(cookies.map(|cookie| (cookie, "a"))).collect();
    assert_eq!(readings(policies, &attributes), ["p TooMany"]);
}

/// Denied for want of what it is counted by, also where a query costs nothing.
#[test]
fn missing_deny_holds_for_queries_that_cost_nothing() {
    let cost = Cost::ByMethod { costs: vec![("GET".to_owned(), 0)], others: 1 };
    let by_user = policy("p").by(&[AttributeName::User]).with_missing(Missing::Deny).with_cost(cost);
    assert_eq!(readings(vec![by_user.clone()], &[(AttributeName::Method, "GET")]), ["p Missing"]);
    assert_eq!(readings(vec![by_user.with_mode(Mode::Off)], &[(AttributeName::Method, "GET")]), [""; 0]);
}

/// What is charged for a query with several values is what would be charged for each of its readings alone.
#[test]
fn the_buckets_of_a_query_are_those_of_its_readings() {
    let (a, b) = (AttributeName::Cookie("a"), AttributeName::Cookie("b"));
    let part = |name: AttributeName<&str>| Part::one(name.to_owned());
    let first_of = |first: AttributeName<&str>, other: AttributeName<&str>| {
        Part::first_of(first.to_owned(), vec![other.to_owned()])
    };
    let partitions = [
        vec![part(a)],
        vec![first_of(a, b)],
        vec![first_of(a, AttributeName::Ip)],
        vec![part(a), part(b)],
        vec![first_of(a, b), part(a)],
        vec![part(b), first_of(b, a)],
    ];
    let sets: Vec<Vec<&str>> = (0..8usize)
        .map(|set| {
            (0..3).filter(|n| set >> n & 1 == 1).map(|n| ["1", "2", Attribute::UNREADABLE][n]).collect()
        })
        .collect();
    for partition in &partitions {
        let by = policy("p").with_partition(partition.clone());
        for (of_a, of_b) in sets.iter().flat_map(|of_a| sets.iter().map(move |of_b| (of_a, of_b))) {
            let of =
                |name, values: &[&'static str]| values.iter().map(|&value| (name, value)).collect::<Vec<_>>();
            let all = [of(a, of_a), of(b, of_b), of(AttributeName::Ip, &["i"])].concat();
            let alone = |values: &[&'static str]| {
                if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
            };
            let mut expected = Vec::new();
            for (one_a, one_b) in alone(of_a)
                .into_iter()
                .flat_map(|one_a| alone(of_b).into_iter().map(move |one_b| (one_a, one_b)))
            {
                let seen = [of(a, one_a.as_slice()), of(b, one_b.as_slice()), of(AttributeName::Ip, &["i"])]
                    .concat();
                expected.extend(readings(vec![by.clone()], &seen));
            }
            expected.sort();
            expected.dedup();
            let mut charged = readings(vec![by.clone()], &all);
            charged.sort();
            if charged != ["p TooMany"] {
                assert_eq!(charged, expected, "{partition:?}: {all:?}");
            }
        }
    }
}
