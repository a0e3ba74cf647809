//! The matcher against a plain reference: it builds texts and loops.

use proptest::prelude::*;
use ratewright_lab::is_long_run;
use ratewright_rls_rules::{Descriptor, Domains, DuplicateDomains, Entry, Matched, RateLimit};

/// The path of the descriptor that matches a request, if it has a limit.
fn reference(descriptors: &[Descriptor], entries: &[(String, String)]) -> Option<String> {
    let mut level = descriptors;
    let mut path = "d".to_owned();
    for (n, (key, value)) in entries.iter().enumerate() {
        let text = format!("{key}_{value}");
        let by_text = |text: &str| level.iter().find(|one| one.composite() == *text);
        let matches =
            |one: &&Descriptor| one.composite().contains('*') && wildcard_matches(&one.composite(), &text);
        let found = by_text(&text).or_else(|| level.iter().find(matches)).or_else(|| by_text(key))?;
        path = format!("{path}.{}", found.composite());
        if n + 1 == entries.len() {
            return (!found.rate_limits.is_empty()).then_some(path);
        }
        level = &found.descriptors;
    }
    None
}

/// A `*` matches any text.
fn wildcard_matches(pattern: &str, text: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => text.is_empty(),
        Some(("*", rest)) => (0..=text.len()).any(|n| wildcard_matches(rest, text.split_at(n).1)),
        Some((first, rest)) => text.strip_prefix(first).is_some_and(|text| wildcard_matches(rest, text)),
    }
}

/// Short texts that are often equal, and often split in several ways.
fn texts() -> impl Strategy<Value = String> {
    "[ab_]{1,3}|[ab_*]{1,4}|a"
}

fn trees() -> impl Strategy<Value = Vec<Descriptor>> {
    let leaf = (texts(), prop_oneof![Just(String::new()), texts()], any::<bool>(), any::<bool>());
    let leaf = leaf.prop_map(|(key, value, is_limited, shares)| {
        let share_threshold = shares && (key.contains('*') || value.contains('*'));
        let limit = RateLimit { unit: "minute".to_owned(), requests_per_unit: 1, ..RateLimit::default() };
        let rate_limits = if is_limited { vec![limit] } else { Vec::new() };
        Descriptor { key, value, share_threshold, rate_limits, ..Descriptor::default() }
    });
    let one = leaf.prop_recursive(3, 60, 6, |inner| {
        (inner.clone(), prop::collection::vec(inner, 0..6)).prop_map(|(mut one, nested)| {
            one.descriptors = without_duplicates(nested);
            one
        })
    });
    prop::collection::vec(one, 1..8).prop_map(without_duplicates)
}

/// Without duplicates, which would be rejected.
fn without_duplicates(descriptors: Vec<Descriptor>) -> Vec<Descriptor> {
    let mut kept: Vec<Descriptor> = Vec::new();
    for one in descriptors {
        if kept.iter().all(|other| other.composite() != one.composite()) {
            kept.push(one);
        }
    }
    kept
}

/// A request with up to four entries.
fn requests() -> impl Strategy<Value = Vec<(String, String)>> {
    let values = prop_oneof![Just(String::new()), texts(), "[ab_]{0,6}"];
    prop::collection::vec((texts(), values), 0..5)
}

fn find(
    tree: &[Descriptor],
    request: &[(String, String)],
) -> (Option<String>, Option<(String, Vec<String>)>) {
    let mut domains = Domains::default();
    domains.add("d", tree, DuplicateDomains::Reject).expect("a valid tree");
    let entries: Vec<_> = request.iter().map(|(key, value)| Entry { key, value }).collect();
    match domains.find("d", &entries) {
        Matched::Limited(limited) => {
            let values = limited.attributes().iter().map(|one| one.value.to_owned()).collect();
            (Some(limited.rule().path().to_owned()), Some((limited.policy().to_owned(), values)))
        }
        Matched::Nothing | Matched::Unlimited(_) | Matched::Blocked(_) => (None, None),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_long_run() { 2_000 } else { 500 }))]

    /// For every tree and every request.
    #[test]
    fn the_matcher_agrees_with_the_reference(tree in trees(), requests in prop::collection::vec(requests(), 1..20)) {
        for request in requests {
            prop_assert_eq!(find(&tree, &request).0, reference(&tree, &request), "{:?}", request);
        }
    }

    /// Entries with the same text share a bucket; entries with different texts do not.
    #[test]
    fn a_bucket_belongs_to_one_text(pattern in "[ab_]{1,2}\\*", texts in prop::collection::vec("[ab_]{1,3}_[ab_]{0,3}", 2)) {
        let limit = RateLimit { unit: "minute".to_owned(), requests_per_unit: 1, ..RateLimit::default() };
        for (key, value) in [(pattern.clone(), String::new()), ("a".to_owned(), "*".to_owned())] {
            let tree = [Descriptor { key, value, rate_limits: vec![limit.clone()], ..Descriptor::default() }];
            let splits = |text: &str| -> Vec<_> {
                let at = text.match_indices('_').map(|(at, _)| at).filter(|at| *at > 0);
                let halves = at.filter_map(|at| Some((text.get(..at)?.to_owned(), text.get(at + 1..)?.to_owned())));
                halves.map(|half| vec![half]).collect()
            };
            let buckets: Vec<_> = texts.iter().map(|text| splits(text).iter().map(|one| find(&tree, one).1).collect::<Vec<_>>()).collect();
            for same in &buckets {
                prop_assert!(same.windows(2).all(|two| two[0] == two[1]), "{:?}", same);
            }
            if let [Some(Some(one)), Some(Some(other))] = [0, 1].map(|n| buckets[n].first()) {
                prop_assert_eq!(one == other, texts[0] == texts[1]);
            }
        }
    }
}
