use ratewright_core::Quota;
use ratewright_core::policy::Pattern;

use super::*;

/// The tests of a condition: attributes and their patterns or networks.
type Tests = Vec<(AttributeName<String>, Vec<String>)>;

/// Policies of one group, each with these tests.
fn group(conditions: &[Tests]) -> Vec<Policy> {
    let policy = |(n, tests): (usize, &Tests)| {
        let condition = tests.iter().fold(Condition::default(), |condition, (name, values)| {
            if *name == AttributeName::Ip {
                return condition.and_within(values.iter().map(|value| value.parse().unwrap()).collect());
            }
            let pattern = |value: &String| Pattern::new(value, name.separator()).unwrap();
            condition.and_fits(name.clone(), values.iter().map(pattern).collect())
        });
        let policy = Policy::new(&format!("p{n}"), Quota::per_second(1)).unwrap();
        policy.with_group("g").with_selector(Selector::When(condition))
    };
    conditions.iter().enumerate().map(policy).collect()
}

fn on_path(values: &[&str]) -> Tests {
    vec![(AttributeName::Path, values.iter().map(|value| (*value).to_owned()).collect())]
}

/// The first policy that covers each, by its name.
fn found(policies: &[Policy]) -> (Vec<Option<&str>>, usize) {
    let mut index = CoverIndex::of(policies.iter());
    let found = policies.iter().map(|policy| index.first_covering(policy).map(Policy::name)).collect();
    (found, index.n_compared)
}

#[test]
fn the_index_finds_what_comparing_each_with_each_finds() {
    let paths = [
        "/a", "/a/*", "/a/**", "/a/b", "/a/*/c", "/a/**/c", "**", "*", "/**", "**/c", "**/c**", "/a**",
        "/a*", "/ab", "/a/b/c", "/**/c", "**/b/**", "/a/", "/é/*", "*/c",
    ];
    let mut conditions: Vec<_> = paths.iter().map(|path| on_path(&[path])).collect();
    conditions.extend(paths.iter().zip(paths.iter().rev()).map(|(one, other)| on_path(&[one, other])));
    let host = |text: &str| vec![(AttributeName::Host, vec![text.to_owned()])];
    conditions.extend(["*.example.com", "**.example.com", "a.example.com", "example.com"].map(host));
    conditions.extend(paths.iter().map(|path| [on_path(&[path]), host("*.example.com")].concat()));
    let network = |text: &str| vec![(AttributeName::Ip, vec![text.to_owned()])];
    conditions.extend(
        ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2001:db8::/32", "2001:db8::1/128", "0.0.0.0/0"]
            .map(network),
    );
    for turn in 0..conditions.len() {
        conditions.rotate_left(turn);
        let policies = group(&conditions);
        let naive: Vec<_> = policies
            .iter()
            .enumerate()
            .map(|(n, later)| {
                let includes =
                    |earlier: &&Policy| member(earlier).unwrap().1.includes(member(later).unwrap().1);
                policies[..n].iter().find(includes).map(Policy::name)
            })
            .collect();
        assert_eq!(found(&policies).0, naive, "turn {turn}");
    }
}

#[test]
fn comparisons_grow_with_the_number_of_policies_and_not_with_its_square() {
    let shapes: [fn(usize) -> String; 5] = [
        |n| format!("/api/{n:05}"),
        |n| format!("/api/{n:05}/**"),
        |n| format!("/api/*/{n:05}"),
        |n| format!("**/{n:05}"),
        |n| format!("/{n:05}*"),
    ];
    for shape in shapes {
        let conditions: Vec<_> = (0..1_000).map(|n| on_path(&[&shape(n)])).collect();
        let policies = group(&conditions);
        let (found, n_compared) = found(&policies);
        assert!(found.iter().all(Option::is_none));
        assert!(n_compared <= 2_000, "{n_compared} comparisons for {}", shape(0));
    }
}
