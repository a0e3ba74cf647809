//! The files in `examples/`: they are valid, they have the numbers of their requirements, and the JSON Schema agrees with the program.
//!
//! `requests` sends requests to each of them.

mod requests;

use std::collections::BTreeSet;
use std::path::PathBuf;

use expect_test::{Expect, expect};
use jsonschema::Validator;
use ratewright_lab::output;
use serde_json::Value;

use crate::process::{command, run};

/// The examples, each with its profile if it has one.
const EXAMPLES: [(&str, Option<&str>); 7] = [
    ("gateway.yaml", None),
    ("endpoints.yaml", None),
    ("endpoints.yaml", Some("production")),
    ("endpoints.yaml", Some("dev")),
    ("decisions.yaml", None),
    ("availability.yaml", None),
    ("availability-strict.yaml", None),
];

fn folder() -> PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// The output of `ratewright check` for an example, without the line on exempt paths.
fn words(name: &str, profile: Option<&str>) -> String {
    let mut command = command(&["check", name]);
    command.args(profile.iter().flat_map(|profile| ["--profile", profile]));
    command.current_dir(folder()).env("JWT_SECRET", "a secret for tests, long enough for HS256");
    let output = output(&mut command);
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{printed}");
    printed.lines().filter(|line| !line.contains("never limited")).map(|line| format!("{line}\n")).collect()
}

#[track_caller]
fn check(name: &str, profile: Option<&str>, expected: Expect) {
    expected.assert_eq(&words(name, profile));
}

/// The schema, as an editor has it.
fn schema() -> Validator {
    let output = run(&["schema"]);
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("invalid schema: {error}"));
    jsonschema::validator_for(&schema).unwrap()
}

/// A file as an editor sees it.
fn json(text: &str) -> Value {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).unwrap()
}

#[test]
fn every_example_is_listed_here() {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name());
    let files = files.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".yaml"));
    let files: BTreeSet<_> = files.collect();
    let listed = EXAMPLES.map(|(name, profile)| match profile {
        None => name.to_owned(),
        Some(profile) => name.replace(".yaml", &format!(".{profile}.yaml")),
    });
    assert_eq!(files, BTreeSet::from(listed));
}

#[test]
fn every_example_is_valid_for_the_program_and_for_editors() {
    let schema = schema();
    for (name, profile) in EXAMPLES {
        words(name, profile);
        let file =
            profile.map_or(name.to_owned(), |profile| name.replace(".yaml", &format!(".{profile}.yaml")));
        let text = std::fs::read_to_string(folder().join(&file)).unwrap();
        let errors: Vec<_> = schema
            .iter_errors(&json(&text))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{file}: {errors:#?}");
    }
}

/// The schema and the program accept the same files.
#[test]
fn the_schema_accepts_what_the_program_accepts() {
    let schema = schema();
    for good in [
        "{}",
        "enabled: ${ENABLED:-true}",
        "listen: {api: {address: 127.0.0.1:80}, admin: off, tls: }",
        "store: {redis: }",
        "store: {redis: {url: [redis://a, redis://b]}, local: {share: auto}}",
        "store: {local: {share: 1, max_keys: '${N:-5}'}}",
        "clients: {trusted_proxies: 10.0.0.0/8, user: {header: X-User-Id}}",
        "exempt: {paths: [], methods: get}",
        "policies: [{name: a, quota: {rate: 1/s}, by: [ip, {first_of: [user, 'header:X']}]}]",
        "policies: [{name: a, quota: [{rate: 1/s}, {name: b, rate: 5/h, burst: 2}], by: '${BY:-ip}', cost: '${C:-1}'}]",
        "policies: [{name: a, quota: {rate: 1/s}, cost: {GET: 1, default: '${C:-0}'}, mode: off}]",
        "policies: [{name: a, quota: {rate: 1/s}, cost: {header: X-Cost}, retry_after: 5min}]",
        "policies: [{name: a, quota: {rate: 1/s}, overrides: [{match: {'claim:a': [b], ip: '::1'}, mode: shadow}]}]",
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: [401, '403', 4xx, 5XX, 500-503, '${S:-429}']}}]",
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: 5xx}}]",
        "policies: [{name: a, in_flight: 10, overrides: [{match: {user: b}, in_flight: '${N:-5}'}]}]",
        "listen: {gateway: '0.0.0.0:80'}\ngateway: {header_max: 8KB, body_max: none, timeouts: {total: none, idle: 5s}}",
        "routes: [{id: a, match: {path: ['/a/{b}', /c], method: get}, upstream: ['http://h', 'https://h'], host: keep}]",
        "routes: [{id: a, match: {host: '*.b'}, upstream: {servers: 'http://h', balance: least_connections, health: {failures: 1}}}]",
        "problem: {type: 5}",
        "log: {level: debug, modules: {h2: off}, denials: 5}",
        "headers: {families: []}",
    ] {
        assert_eq!(ratewright::parse_policy_file(good), Ok(()), "{good}");
        let errors: Vec<_> = schema.iter_errors(&json(good)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{good}: {errors:?}");
    }
}

#[test]
fn the_schema_rejects_what_the_program_rejects() {
    let schema = schema();
    for bad in [
        "polices: []",
        "- a",
        "text",
        "enabled: perhaps",
        "enabled: [true]",
        "listen: {apy: 127.0.0.1:80}",
        "listen: [127.0.0.1:80]",
        "listen: {api: {address: 127.0.0.1:80, port: 1}}",
        "store: {redis: {url: {a: b}}}",
        "store: redis://127.0.0.1",
        "store: {on_failure: panic}",
        "store: {local: {share: 2}}",
        "store: {local: {max_keys: 0}}",
        "store: {redis: {deadline: 5}}",
        "policies: {a: {quota: {rate: 1/s}}}",
        "policies: [a]",
        "policies: [{name: A B, quota: {rate: 1/s}}]",
        "policies: [{name: a, quota: 10/s}]",
        "policies: [{name: a, quota: {rate: 10}}]",
        "policies: [{name: a, quota: {rate: [1/s]}}]",
        "policies: [{name: a, quota: {rate: 1/s, brust: 5}}]",
        "policies: [{name: a, quota: {rate: 1/s, burst: 0}}]",
        "policies: [{name: a, quota: {rate: 1/s, algorithm: bucket}}]",
        "policies: [{name: a, quota: {rate: 1/s}, by: sky}]",
        "policies: [{name: a, quota: {rate: 1/s}, by: []}]",
        "policies: [{name: a, quota: {rate: 1/s}, by: {first: [ip]}}]",
        "policies: [{name: a, quota: {rate: 1/s}, cost: much}]",
        "policies: [{name: a, quota: {rate: 1/s}, cost: {GET: -1}}]",
        "policies: [{name: a, quota: {rate: 1/s}, mode: sometimes}]",
        "policies: [{name: a, quota: {rate: 1/s}, when: {sky: blue}}]",
        "policies: [{name: a, quota: {rate: 1/s}, overrides: {match: {}}}]",
        "policies: [{name: a, quota: {rate: 1/s}, count: 401}]",
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: 99}}]",
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: [200, 600]}}]",
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: failures}}]",
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: 500-600}}]",
        "policies: [{name: a, quota: {rate: 1/s}, count: {states: 401}}]",
        "policies: [{name: a, in_flight: 0}]",
        "policies: [{name: a, in_flight: [1]}]",
        "policies: [{name: a, in_flight: many}]",
        "policies: [{name: a, in_flight: 5, overrides: [{match: {user: b}, in_flight: 0}]}]",
        "gateway: {header_max: 32}",
        "gateway: {timeouts: {idle: none}}",
        "routes: {a: {upstream: 'http://h'}}",
        "routes: [{id: A, match: {path: /a}, upstream: 'http://h'}]",
        "routes: [{id: a, match: /a, upstream: 'http://h'}]",
        "routes: [{id: a, match: {path: /a}, upstream: 'ftp://h'}]",
        "routes: [{id: a, match: {path: /a}, upstream: []}]",
        "routes: [{id: a, match: {path: /a}, upstream: {servers: 'http://h', balance: random}}]",
        "routes: [{id: a, match: {path: /a}, upstream: 'http://h', retries: many}]",
        "clients: {ipv6_prefix: many}",
        "clients: {user: {jwt: {algorithms: none}}}",
        "headers: {families: all}",
        "log: {level: loud}",
        "log: {denials: many}",
        "api: {defaults: {tokenbucket: {rate: 1/s}}}",
    ] {
        assert!(ratewright::parse_policy_file(bad).is_err(), "the program accepts {bad}");
        assert!(!schema.is_valid(&json(bad)), "the schema accepts {bad}");
    }
}

/// A1, A6, A9.
#[test]
fn the_gateway_example_has_the_required_numbers() {
    check(
        "gateway.yaml",
        None,
        expect![[r#"
            gateway.yaml is valid; buckets in Redis
              orders   50 at once, then 10 every second, for each client address; on /api/orders/**
              reports  15 at once, then 10 every second, for each client address; on /api/reports/**
              paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
              route orders: /api/orders/** to http://127.0.0.1:3000
              route reports: /api/reports/** to http://127.0.0.1:3000
              route rest: /** to http://127.0.0.1:3000
        "#]],
    );
}

/// B1, B2, B3.
#[test]
fn the_endpoints_example_has_the_required_numbers() {
    check(
        "endpoints.yaml",
        None,
        expect![[r#"
            endpoints.yaml is valid; buckets in Redis
              of endpoint, the first that matches:
                login     10 at once, then 1 every 6 s, and 10 in any 60 s, for each user, or else client address; on **/login**, **/auth**, **/signin**; retry after at least 60 s
                recovery  5 at once, then 1 every minute, and 5 in any 5 min, for each user, or else client address; on **/recovery**, **/reset**, **/forgot**; retry after at least 5 min
                payment   30 at once, then 5 together every 2 s, for each user, or else client address; on **/payments**
                default   100 at once, then 10 every second, for each user, or else client address; on all others; retry after at least 60 s
              paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
              route app: /** to http://127.0.0.1:3000
        "#]],
    );
    check(
        "endpoints.yaml",
        Some("production"),
        expect![[r#"
            endpoints.yaml with profile production is valid; buckets in Redis
              of endpoint, the first that matches:
                login     5 at once, then 1 every 12 s, and 5 in any 60 s, for each user, or else client address; on **/login**, **/auth**, **/signin**; retry after at least 60 s
                recovery  3 at once, then 1 every 3 min, and 3 in any 10 min, for each user, or else client address; on **/recovery**, **/reset**, **/forgot**; retry after at least 10 min
                payment   30 at once, then 5 together every 2 s, for each user, or else client address; on **/payments**
                default   60 at once, then 10 every second, for each user, or else client address; on all others; retry after at least 60 s
              paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
              route app: /** to http://127.0.0.1:3000
        "#]],
    );
    check(
        "endpoints.yaml",
        Some("dev"),
        expect![[r#"
            endpoints.yaml with profile dev is valid; buckets in Redis
              enabled is false: every request passes, uncounted
              of endpoint, the first that matches:
                login     off: 10 at once, then 1 every 6 s, and 10 in any 60 s, for each user, or else client address; on **/login**, **/auth**, **/signin**; retry after at least 60 s
                recovery  off: 5 at once, then 1 every minute, and 5 in any 5 min, for each user, or else client address; on **/recovery**, **/reset**, **/forgot**; retry after at least 5 min
                payment   off: 30 at once, then 5 together every 2 s, for each user, or else client address; on **/payments**
                default   off: 100 at once, then 10 every second, for each user, or else client address; on all others; retry after at least 60 s
              paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
              route app: /** to http://127.0.0.1:3000
        "#]],
    );
}

/// C3, C7.
#[test]
fn the_decisions_example_has_the_required_numbers() {
    check(
        "decisions.yaml",
        None,
        expect![[r#"
        decisions.yaml is valid; buckets in Redis
          token_bucket            100 at once, then 10 every second, for each key that callers name; without Redis all pass
          leaky_bucket            100 at once, then 10 every second, for each key that callers name; without Redis all pass
          sliding_window          100 in any 60 s, for each key that callers name; without Redis all pass
          sliding_window_counter  about 100 in any 60 s, for each key that callers name; without Redis all pass
          fixed_window            100 in each 60 s by the clock, for each key that callers name; without Redis all pass
    "#]],
    );
}

/// E1.
#[test]
fn the_availability_example_has_the_required_numbers() {
    check(
        "availability.yaml",
        None,
        expect![[r#"
            availability.yaml is valid; buckets in Redis
              per-ip    100 at once, then 100 every minute, for each client address
              per-user  250 at once, then 250 every minute, for each user; without user: not limited
              route app: /** to http://127.0.0.1:3000
        "#]],
    );
    check(
        "availability-strict.yaml",
        None,
        expect![[r#"
            availability-strict.yaml is valid; buckets in Redis
              per-ip    100 in any 60 s, for each client address
              per-user  250 in any 60 s, for each user; without user: not limited
              route app: /** to http://127.0.0.1:3000
        "#]],
    );
}
