//! Whether a change is softer or stricter: for rules with a limit of zero, and for policies that come and go.

use super::*;

/// The lines of all changes, each with its effect.
#[track_caller]
fn effects(old: &str, new: &str) -> Vec<(String, Effect)> {
    let [old, new] = [old, new].map(|text| {
        let config = Config::of_text(text);
        config.unwrap_or_else(|errors| panic!("{text}: {}", errors[0])).contents()
    });
    changes(&old, &new).iter().map(|change| (change.line(), change.effect)).collect()
}

#[track_caller]
fn check_effect(old: &str, new: &str, line: &str, effect: Effect) {
    assert_eq!(effects(old, new), [(line.to_owned(), effect)]);
}

/// The changes of rules for Envoy between two files of them, without what is said of the file itself.
#[track_caller]
fn check_rule(old: &str, new: &str, expected: Option<(&str, Effect)>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    let [old, new] = [old, new].map(|rule| {
        let rule = if rule.is_empty() { String::new() } else { format!("- {{key: user, {rule}}}\n") };
        let other = "- {key: other, rate_limit: {unit: hour, requests_per_unit: 1}}";
        std::fs::write(&file, format!("domain: edge\ndescriptors:\n{other}\n{rule}")).unwrap();
        let text = format!("envoy: {{files: ['{}']}}\n", file.display());
        Config::of_text(&text).unwrap_or_else(|errors| panic!("{rule}: {}", errors[0])).contents()
    });
    let changes = changes(&old, &new);
    let rules = changes.iter().filter(|change| change.subject != "envoy");
    let rules: Vec<_> = rules.map(|change| (change.line(), change.effect)).collect();
    let expected = expected.map(|(words, effect)| (format!("rule for Envoy edge.user: {words}"), effect));
    assert_eq!(rules, Vec::from_iter(expected));
}

const ZERO: &str = "rate_limit: {unit: hour, requests_per_unit: 0}";
const FIVE: &str = "rate_limit: {unit: hour, requests_per_unit: 5}";

/// A limit of zero has no policy, and denies everything.
#[test]
fn a_limit_of_zero_is_a_rule() {
    let limit = "5 in each hour by the clock";
    let stricter = format!("stricter: denies everything instead of {limit}");
    check_rule(FIVE, ZERO, Some((&stricter, Effect::Stricter)));
    let softer = format!("softer: {limit} instead of denying everything");
    check_rule(ZERO, FIVE, Some((&softer, Effect::Softer)));
    check_rule(ZERO, "", Some(("removed; it no longer denies everything", Effect::Softer)));
    check_rule("", ZERO, Some(("added: denies everything", Effect::Stricter)));
    check_rule(ZERO, ZERO, None);
}

#[test]
fn a_limit_of_zero_in_shadow_denies_nobody() {
    let shadow = format!("shadow_mode: true, {ZERO}");
    check_rule("", &shadow, Some(("added in shadow: denies everything", Effect::Other)));
    check_rule(&shadow, "", Some(("removed; it denied nobody", Effect::Other)));
    check_rule(&shadow, ZERO, Some(("switched to enforce: it denies", Effect::Stricter)));
    let switched = "switched to shadow: it counts, and no longer denies";
    check_rule(ZERO, &shadow, Some((switched, Effect::Softer)));
    let softer = "softer: denies everything in shadow instead of 5 in each hour by the clock";
    check_rule(FIVE, &shadow, Some((softer, Effect::Softer)));
}

/// The guard counts rules with a limit of zero, before and after.
#[test]
fn rules_with_a_limit_of_zero_are_counted() {
    let contents = |rules: &str| {
        let domains = super::super::super::envoy_of_text(rules).unwrap();
        let envoy = EnvoyConfig { domains: domains.into(), ..EnvoyConfig::default() };
        Contents { blocked: envoy.blocked().collect(), ..Contents::default() }
    };
    let zero = contents(&format!("domain: edge\ndescriptors: [{{key: user, {ZERO}}}]\n"));
    assert_eq!(Vec::from_iter(zero.rules()), ["envoy.edge.user"]);
    assert_eq!(zero.rules_dropped_by(&zero), Vec::<&str>::new());
    assert_eq!(zero.rules_dropped_by(&Contents::default()), ["envoy.edge.user"]);
}

/// Of a group the first that matches applies: with a member, others begin or cease to apply.
#[test]
fn a_member_of_a_group_that_comes_or_goes_is_neither_softer_nor_stricter() {
    let vip = "{name: vip, group: g, when: {path: /api/**}, by: ip, quota: {rate: 1000/s}}";
    let rest = "{name: rest, group: g, by: ip, quota: {rate: 10/s}}";
    let one = format!("policies: [{rest}]\n");
    let both = format!("policies: [{vip}, {rest}]\n");
    let added = "policy vip: added: 1000 at once, then 1000 every second, for each client address, on requests on /api/**; \
                 it comes before rest in group g, which no longer applies to these requests";
    check_effect(&one, &both, added, Effect::Other);
    let removed =
        "policy vip: removed; it no longer limits anybody; rest of group g now applies to its requests";
    check_effect(&both, &one, removed, Effect::Other);
    let first = format!("policies: [{vip}]\n");
    let last = "policy rest: removed; it no longer limits anybody";
    check_effect(&both, &first, last, Effect::Softer);
}

#[test]
fn a_removed_policy_that_denied_nobody_makes_nothing_softer() {
    let mode = |mode: &str| policy(&format!("quota: {{rate: 1/s}}, mode: {mode}"));
    let none = "policies: []\n";
    check_effect(&mode("enforce"), none, "policy api: removed; it no longer limits anybody", Effect::Softer);
    let shadow = "policy api: removed; it was in shadow and denied nobody";
    check_effect(&mode("shadow"), none, shadow, Effect::Other);
    check_effect(&mode("off"), none, "policy api: removed; it was switched off", Effect::Other);
}

/// Two policies that differ are never silent, also where neither of them is written differently.
#[test]
fn a_policy_that_another_setting_changes_is_reported() {
    let text = |on_failure: &str| {
        format!("store: {{redis: {{}}, on_failure: {on_failure}}}\n{}", policy("quota: {rate: 1/s}"))
    };
    check(
        &text("local"),
        &text("closed"),
        &[
            "policy api: changed by a setting elsewhere in the file",
            "store.on_failure: closed instead of local",
        ],
    );
}

/// Windows of different lengths: whatever the one admits, the other does, or neither.
#[test]
fn windows_are_compared_by_what_they_admit() {
    let window =
        |algorithm: &str, rate: &str| policy(&format!("quota: {{algorithm: {algorithm}, rate: {rate}}}"));
    for (algorithm, old, new, effect) in [
        ("sliding_window", "3/3s", "2/2s", Effect::Other),
        ("sliding_window", "10/2s", "16/3s", Effect::Other),
        ("sliding_window", "10/2s", "20/3s", Effect::Softer),
        ("sliding_window", "100/60s", "50/60s", Effect::Stricter),
        ("fixed_window", "3/3s", "9/2s", Effect::Other),
        ("fixed_window", "100/h", "100/d", Effect::Stricter),
        ("sliding_window_counter", "100/60s", "200/60s", Effect::Softer),
    ] {
        let effects = effects(&window(algorithm, old), &window(algorithm, new));
        assert_eq!(effects.len(), 1, "{effects:?}");
        assert_eq!(effects[0].1, effect, "{old} to {new}: {effects:?}");
    }
}

/// A policy that is renamed and moved within its group, and a group that is new as a whole.
#[test]
fn groups_are_followed_through_renames_and_new_members_hide_nothing() {
    let first = "{name: NAME, group: g, by: ip, when: {path: '**/x'}, quota: {rate: 1000/s}}";
    let second = "{name: a, group: g, by: ip, when: {path: '/api/**'}, quota: {rate: 10/s}}";
    let old = format!("policies: [{}, {second}]\n", first.replace("NAME", "b"));
    let new = format!("policies: [{second}, {}]\n", first.replace("NAME", "c"));
    let lines = lines(&old, &new);
    assert!(lines.contains(&"group g: tries its policies in another order: a, c".to_owned()), "{lines:?}");
    let added = effects("policies: []\n", &new);
    assert!(added.iter().all(|(_, effect)| *effect == Effect::Stricter), "{added:?}");
}
