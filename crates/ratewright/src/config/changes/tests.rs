mod directions;

use std::collections::BTreeSet;

use super::super::file;
use super::*;

/// The lines of all changes.
#[track_caller]
fn lines(old: &str, new: &str) -> Vec<String> {
    let [old, new] = [old, new].map(|text| {
        let config = Config::of_text(text);
        config.unwrap_or_else(|errors| panic!("{text}: {}", errors[0])).contents()
    });
    changes(&old, &new).iter().map(Change::line).collect()
}

#[track_caller]
fn check(old: &str, new: &str, expected: &[&str]) {
    assert_eq!(lines(old, new), expected);
    assert!(lines(old, old).is_empty() && lines(new, new).is_empty());
}

/// A policy that counts by address.
fn policy(terms: &str) -> String {
    format!("policies: [{{name: api, by: ip, {terms}}}]\n")
}

#[test]
fn what_means_the_same_is_no_difference() {
    check(
        "",
        "policies: []\nexempt: {methods: options}\n",
        &["exempt.methods: options added; OPTIONS removed"],
    );
    check(
        "",
        "enabled: true\nstop_delay: 5s\nheaders: {retry_after: true, families: [ietf, x-ratelimit]}\n",
        &["headers.families: ietf, x-ratelimit, was not set"],
    );
    check("stop_delay: 60s\n", "stop_delay: 60 s\n", &[]);
    check(
        &policy("quota: {rate: 120/min}"),
        &policy("quota: {rate: 120/60s, burst: 120}, mode: enforce"),
        &[],
    );
    check("exempt: {paths: [/a, /b]}\n", "exempt: {paths: [/b, /a]}\n", &[]);
    for [old, new] in [
        [
            "quota: {rate: 1/s}, when: {method: [GET, POST]}",
            "quota: {rate: 1/s}, when: {method: [POST, GET]}",
        ],
        [
            "quota: {rate: 1/s}, when: {ip: [10.0.0.0/8, ::1]}",
            "quota: {rate: 1/s}, when: {ip: ['::1', 10.0.0.0/8]}",
        ],
        ["quota: {rate: 1/s, burst: 2}", "quota: {rate: 2/2s}"],
        [
            "quota: {algorithm: leaky_bucket, rate: 1/s, burst: 2}",
            "quota: {algorithm: leaky_bucket, rate: 2/2s}",
        ],
        [
            "quota: {rate: 1/s}, count: {status: [401, 403]}",
            "quota: {rate: 1/s}, count: {status: [403, 401]}",
        ],
    ] {
        check(&policy(&old.replace(" ::1", " '::1'")), &policy(new), &[]);
    }
    check("listen: {api: '127.0.0.1:8080'}\n", "listen: {api: {address: '127.0.0.1:8080'}}\n", &[]);
}

/// Names are compared with variables replaced, so a policy cannot hide behind one.
#[test]
fn a_policy_that_is_named_by_a_variable_is_compared() {
    let named = |name: &str, mode: &str| {
        format!("policies: [{{name: '{name}', by: ip, quota: {{rate: 1/s}}, mode: {mode}}}]\n")
    };
    let expected = ["policy api: switched to shadow: it counts, and no longer denies"];
    check(&named("${NAME:-api}", "enforce"), &named("${NAME:-api}", "shadow"), &expected);
    check(&named("api", "enforce"), &named("${NAME:-api}", "shadow"), &expected);
}

/// What the words of two conditions do not tell apart is a difference all the same.
#[test]
fn conditions_that_read_alike_are_compared() {
    let when = |terms: &str| policy(&format!("quota: {{rate: 1/s}}, when: {{{terms}}}"));
    let expected = ["policy api: applies to other requests: when has changed"];
    check(&when("path: [/a, /b]"), &when("path: ['/a, /b']"), &expected);
    check(&when("'header:X-Tier': [gold, silver]"), &when("'header:X-Tier': 'gold, silver'"), &expected);
    let other = |user: &str, rate: &str| {
        let other = |user: &str, rate: &str| format!("{{match: {{user: {user}}}, quota: {{rate: {rate}}}}}");
        policy(&format!(
            "quota: {{rate: 1/s}}, overrides: [{}, {}]",
            other(user, rate),
            other("[a, b]", "2/s")
        ))
    };
    assert_eq!(lines(&other("'a, b'", "5/s"), &other("'a, b'", "50/s")).len(), 1);
}

/// Values of headers that may be secrets are compared, and never shown.
#[test]
fn a_secret_in_a_condition_is_not_shown() {
    let when = |key: &str| policy(&format!("quota: {{rate: 1/s}}, when: {{'header:X-Api-Key': {key}}}"));
    let other = |key: &str| {
        policy(&format!(
            "quota: {{rate: 1/s}}, overrides: [{{match: {{'header:X-Api-Key': {key}}}, quota: {{rate: 5/s}}}}]"
        ))
    };
    for [old, new] in [[when("s3cret"), when("other3")], [other("s3cret"), other("other3")]] {
        let lines = lines(&old, &new);
        assert!(!lines.is_empty(), "{old} {new}");
        assert!(!lines.concat().contains("s3cret") && !lines.concat().contains("other3"), "{lines:?}");
    }
}

#[test]
fn the_first_route_needs_a_restart() {
    let route = |id: &str| format!("{{id: {id}, match: {{path: /{id}}}, upstream: 'http://127.0.0.1:3000'}}");
    let added = "route b: added, to http://127.0.0.1:3000";
    check("", &format!("routes: [{}]\n", route("b")), &[&format!("{added}; needs a restart")]);
    let [one, two] = [route("a"), format!("{}, {}", route("a"), route("b"))];
    check(&format!("routes: [{one}]\n"), &format!("routes: [{two}]\n"), &[added]);
}

#[test]
fn a_softer_quota_is_described_in_figures_and_keeps_its_counts() {
    let window = |rate: &str| policy(&format!("quota: {{algorithm: sliding_window, rate: {rate}}}"));
    check(
        &window("100/60s"),
        &window("200/60s"),
        &["policy api: softer: 200 in any 60 s instead of 100 in any 60 s; counts are kept"],
    );
    check(
        &window("200/60s"),
        &window("100/60s"),
        &["policy api: stricter: 100 in any 60 s instead of 200 in any 60 s; counts are kept"],
    );
    check(
        &window("100/60s"),
        &window("100/30s"),
        &["policy api: softer: 100 in any 30 s instead of 100 in any 60 s; counts start anew"],
    );
    let bucket = |terms: &str| policy(&format!("quota: {{{terms}}}"));
    check(
        &bucket("rate: 10/s, burst: 100"),
        &bucket("rate: 20/s, burst: 50"),
        &[
            "policy api: 50 at once, then 20 every second instead of 100 at once, then 10 every second; counts are kept",
        ],
    );
    check(
        &bucket("rate: 10/s"),
        &window("10/s"),
        &["policy api: 10 in any second instead of 10 at once, then 10 every second; counts start anew"],
    );
}

#[test]
fn switches_of_a_policy_and_of_everything_are_reported() {
    let mode = |mode: &str| policy(&format!("quota: {{rate: 1/s}}, mode: {mode}"));
    check(
        &mode("enforce"),
        &mode("shadow"),
        &["policy api: switched to shadow: it counts, and no longer denies"],
    );
    check(&mode("enforce"), &mode("off"), &["policy api: switched off: it neither counts nor denies"]);
    check(&mode("off"), &mode("enforce"), &["policy api: switched to enforce: it denies"]);
    let off = "enabled: everything is switched off; every request passes, uncounted";
    check(&mode("shadow"), &format!("enabled: false\n{}", mode("shadow")), &[off]);
    check(
        &mode("shadow"),
        &format!("enabled: false\n{}", mode("enforce")),
        &[off, "policy api: switched to enforce: it denies"],
    );
    check(
        "",
        "headers: {retry_after: false}\n",
        &["headers.retry_after: denials no longer carry Retry-After"],
    );
    check("headers: {retry_after: false}\n", "", &["headers.retry_after: denials carry Retry-After again"]);
}

#[test]
fn policies_come_go_and_are_renamed() {
    let old = policy("quota: {rate: 1/s}");
    check(&old, "policies: []\n", &["policy api: removed; it no longer limits anybody"]);
    check(
        "policies: []\n",
        &old,
        &["policy api: added: 1 every second, for each client address, on all requests"],
    );
    check(
        &old,
        &old.replace("api", "web"),
        &["policy web: the new name of api, otherwise unchanged; counts start anew"],
    );
    let group = |names: [&str; 2]| {
        let one = |name| format!("{{name: {name}, group: g, when: {{path: /{name}}}, quota: {{rate: 1/s}}}}");
        format!("policies: [{}]\n", names.map(one).join(", "))
    };
    check(&group(["a", "b"]), &group(["b", "a"]), &["group g: tries its policies in another order: b, a"]);
}

#[test]
fn secrets_are_compared_and_never_shown() {
    let tokens = |tokens: &str| format!("api: {{tokens: [{tokens}]}}\n");
    check(&tokens("s3cret"), &tokens("0ther, s3cret"), &["api.tokens: 1 added"]);
    check(&tokens("s3cret"), &tokens("0ther"), &["api.tokens: 1 added, 1 removed"]);
    let redis = |url: &str| format!("store: {{redis: {{url: '{url}'}}}}\n");
    for shown in lines(&redis("redis://u:s3cret@h"), &redis("redis://u:0ther@h")) {
        assert_eq!(shown, "store.redis.url: 1 added, 1 removed; needs a restart");
    }
    let jwks =
        |token: &str| format!("clients: {{user: {{jwt: {{jwks: 'https://h/keys?token={token}'}}}}}}\n");
    check(&jwks("s3cret"), &jwks("0ther"), &["clients.user.jwt.jwks: changed"]);
    let jwt = |secret: &str| format!("clients: {{user: {{jwt: {{secret: {secret}}}}}}}\n");
    let long = "0123456789abcdef0123456789abcdef";
    check(&jwt(long), &jwt(&long.replace('0', "9")), &["clients.user.jwt.secret: changed"]);
    let shown = lines("", &jwt(long)).join("\n");
    assert!(shown.contains("jwt.secret: a secret, was not set") && !shown.contains(long), "{shown}");
}

/// A text with a value at a path such as `listen.api.address`; routes are a list, and have an id.
fn raw(path: &str, value: &str) -> String {
    let names: Vec<_> = path.split('.').collect();
    let mut text = match path {
        "log.modules" | "metrics.labels" => format!("{{x: {value}}}"),
        _ => value.to_owned(),
    };
    for (depth, name) in names.iter().enumerate().rev() {
        text = match depth {
            0 if *name == "routes" => format!("{{routes: [{{id: r, {}]}}", text.trim_start_matches('{')),
            _ => format!("{{{name}: {text}}}"),
        };
    }
    text
}

/// The paths of all settings that the schema knows, without sections.
fn settings() -> BTreeSet<String> {
    let paths: BTreeSet<_> = documented().into_iter().map(|it| it.path).collect();
    let is_section = |path: &String| paths.range(format!("{path}.")..format!("{path}/")).next().is_some();
    paths.iter().filter(|path| !is_section(path)).cloned().collect()
}

/// Nothing that the schema knows can change without a word: a setting that is added to the file is compared, or this fails.
#[test]
fn every_setting_outside_policies_is_compared() {
    let contents = |text: &str| {
        let file = file::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        Contents { outline: Outline::of(&file, &mut str::to_owned), ..Contents::default() }
    };
    let settings = settings().into_iter().filter(|path| !path.starts_with("policies."));
    let mut n_compared = 0;
    for path in settings.filter(|path| !["enabled", "routes.id"].contains(&path.as_str())) {
        let [old, new] = ["7", "8"].map(|value| contents(&raw(&path, value)));
        let shown = changes(&old, &new);
        let last = path.rsplit('.').next().unwrap_or_default();
        assert!(!shown.is_empty(), "{path} is not compared");
        let shown: Vec<_> = shown.iter().map(Change::line).collect();
        assert!(shown.iter().all(|line| line.contains(last)), "{path}: {shown:?}");
        assert!(changes(&old, &old).is_empty(), "{path}");
        n_compared += 1;
    }
    assert!(n_compared > 130, "{n_compared}");
    check(
        "enabled: true\n",
        "enabled: false\n",
        &["enabled: everything is switched off; every request passes, uncounted"],
    );
}

/// Two policies that differ in one setting, for each setting that a policy can have.
const OF_POLICIES: [(&str, &str, &str); 33] = [
    ("name", "name: a, quota: {rate: 1/s}", "name: b, quota: {rate: 1/s}"),
    ("group", "name: a, quota: {rate: 1/s}", "name: a, quota: {rate: 1/s}, group: g"),
    ("when", "name: a, quota: {rate: 1/s}", "name: a, quota: {rate: 1/s}, when: {path: /x}"),
    ("by", "name: a, quota: {rate: 1/s}", "name: a, quota: {rate: 1/s}, by: ip"),
    (
        "by.first_of",
        "name: a, quota: {rate: 1/s}, by: {first_of: ['header:a', ip]}",
        "name: a, quota: {rate: 1/s}, by: {first_of: ['header:b', ip]}",
    ),
    (
        "missing",
        "name: a, quota: {rate: 1/s}, by: 'header:a'",
        "name: a, quota: {rate: 1/s}, by: 'header:a', missing: deny",
    ),
    (
        "quota.name",
        "name: a, quota: [{rate: 1/s}, {rate: 9/min, name: x}]",
        "name: a, quota: [{rate: 1/s}, {rate: 9/min, name: y}]",
    ),
    (
        "quota.algorithm",
        "name: a, quota: {rate: 1/s}",
        "name: a, quota: {rate: 1/s, algorithm: fixed_window}",
    ),
    ("quota.rate", "name: a, quota: {rate: 1/s}", "name: a, quota: {rate: 2/s}"),
    ("quota.burst", "name: a, quota: {rate: 1/s}", "name: a, quota: {rate: 1/s, burst: 2}"),
    ("quota.refill", "name: a, quota: {rate: 1/s}", "name: a, quota: {rate: 1/s, refill: stepped}"),
    (
        "quota.leak",
        "name: a, quota: {rate: 1/s, algorithm: leaky_bucket}",
        "name: a, quota: {rate: 1/s, algorithm: leaky_bucket, leak: queue}",
    ),
    (
        "quota.start",
        "name: a, quota: {rate: 1/s, algorithm: fixed_window}",
        "name: a, quota: {rate: 1/s, algorithm: fixed_window, start: first_hit}",
    ),
    ("in_flight", "name: a, in_flight: 1", "name: a, in_flight: 2"),
    ("cost", "name: a, quota: {rate: 9/s}", "name: a, quota: {rate: 9/s}, cost: 2"),
    (
        "cost.header",
        "name: a, quota: {rate: 9/s}, cost: {header: a}",
        "name: a, quota: {rate: 9/s}, cost: {header: b}",
    ),
    (
        "cost.path",
        "name: a, quota: {rate: 9/s}, cost: {path: {/a: 2}}",
        "name: a, quota: {rate: 9/s}, cost: {path: {/a: 3}}",
    ),
    (
        "count.status",
        "name: a, quota: {rate: 9/s}, count: {status: 401}",
        "name: a, quota: {rate: 9/s}, count: {status: 403}",
    ),
    ("after_abort", "name: a, by: ip, in_flight: 9", "name: a, by: ip, in_flight: 9, after_abort: free"),
    ("retry_after", "name: a, quota: {rate: 9/s}", "name: a, quota: {rate: 9/s}, retry_after: 60s"),
    ("mode", "name: a, quota: {rate: 9/s}", "name: a, quota: {rate: 9/s}, mode: shadow"),
    ("on_failure", "name: a, quota: {rate: 9/s}", "name: a, quota: {rate: 9/s}, on_failure: closed"),
    (
        "overrides.name",
        "name: a, quota: {rate: 9/s}, overrides: [{name: x, match: {path: /a}, quota: {rate: 1/s}}]",
        "name: a, quota: {rate: 9/s}, overrides: [{name: y, match: {path: /a}, quota: {rate: 1/s}}]",
    ),
    (
        "overrides.match",
        "name: a, quota: {rate: 9/s}, overrides: [{name: x, match: {path: /a}, quota: {rate: 1/s}}]",
        "name: a, quota: {rate: 9/s}, overrides: [{name: x, match: {path: /b}, quota: {rate: 1/s}}]",
    ),
    (
        "overrides.mode",
        "name: a, quota: {rate: 9/s}, overrides: [{match: {path: /a}, mode: shadow}]",
        "name: a, quota: {rate: 9/s}, overrides: [{match: {path: /a}, mode: off}]",
    ),
    (
        "overrides.in_flight",
        "name: a, in_flight: 9, overrides: [{match: {path: /a}, in_flight: 1}]",
        "name: a, in_flight: 9, overrides: [{match: {path: /a}, in_flight: 2}]",
    ),
    (
        "overrides.quota.name",
        "OVERRIDE [{rate: 1/s}, {rate: 9/min, name: x}]",
        "OVERRIDE [{rate: 1/s}, {rate: 9/min, name: y}]",
    ),
    ("overrides.quota.algorithm", "OVERRIDE {rate: 1/s}", "OVERRIDE {rate: 1/s, algorithm: fixed_window}"),
    ("overrides.quota.rate", "OVERRIDE {rate: 1/s}", "OVERRIDE {rate: 2/s}"),
    ("overrides.quota.burst", "OVERRIDE {rate: 1/s}", "OVERRIDE {rate: 1/s, burst: 2}"),
    ("overrides.quota.refill", "OVERRIDE {rate: 1/s}", "OVERRIDE {rate: 1/s, refill: stepped}"),
    (
        "overrides.quota.leak",
        "OVERRIDE {rate: 1/s, algorithm: leaky_bucket}",
        "OVERRIDE {rate: 1/s, algorithm: leaky_bucket, leak: queue}",
    ),
    (
        "overrides.quota.start",
        "OVERRIDE {rate: 1/s, algorithm: fixed_window}",
        "OVERRIDE {rate: 1/s, algorithm: fixed_window, start: first_hit}",
    ),
];

#[test]
fn every_setting_of_a_policy_is_compared() {
    let documented = settings();
    let documented: BTreeSet<_> =
        documented.iter().filter_map(|path| path.strip_prefix("policies.")).map(str::to_owned).collect();
    let tried: BTreeSet<_> = OF_POLICIES.iter().map(|(path, _, _)| (*path).to_owned()).collect();
    assert_eq!(documented.difference(&tried).collect::<Vec<_>>(), Vec::<&String>::new());
    for (path, old, new) in OF_POLICIES {
        let text = |terms: &str| match terms.strip_prefix("OVERRIDE ") {
            Some(quota) => {
                format!(
                    "policies: [{{name: a, quota: {{rate: 9/s}}, overrides: [{{match: {{path: /a}}, quota: {quota}}}]}}]\n"
                )
            }
            None => format!("policies: [{{{terms}}}]\n"),
        };
        assert!(!lines(&text(old), &text(new)).is_empty(), "{path} is not compared");
        assert!(lines(&text(new), &text(new)).is_empty(), "{path}");
    }
    let first = "{match: {path: /a}, mode: off}";
    let second = "{match: {path: '/**'}, quota: {rate: 1/s}}";
    let with = |overrides: [&str; 2]| {
        policy(&format!("quota: {{rate: 9/s}}, overrides: [{}]", overrides.join(", ")))
    };
    check(
        &with([first, second]),
        &with([second, first]),
        &["policy api: overrides.order: path /**, path /a instead of path /a, path /**"],
    );
}
