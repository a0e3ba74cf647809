use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;
use crate::referenced_files::NoFiles;
use crate::settings_by_path::Outline;

/// A base file and a profile, as one.
fn merged(base: &str, profile: &str) -> File {
    let file = |path: &str, text: &str, is_profile| SourceFile {
        path: path.into(),
        text: text.to_owned(),
        is_profile,
    };
    let files = [file("base.yaml", base, false), file("profile.yaml", profile, true)];
    let mut referenced = NoFiles;
    let mut reader = Reader::new(&files, &mut referenced, &|_| None);
    let merged = reader.merged_file();
    assert!(reader.errors.is_empty(), "{:?}", reader.errors);
    merged.unwrap()
}

fn shown(file: &File) -> String {
    let settings = Outline::of(file, &mut str::to_owned).into_settings().into_iter();
    settings.fold(String::new(), |mut lines, (path, value)| {
        writeln!(lines, "{path}: {}", value.shown()).unwrap();
        lines
    })
}

#[track_caller]
fn check(base: &str, profile: &str, expected: Expect) {
    expected.assert_eq(&shown(&merged(base, profile)));
}

#[test]
fn sections_are_merged_setting_by_setting() {
    check(
        "gateway: {body_max: 1MB, timeouts: {idle: 5s, connect: 1s}}\nstore: {redis: {prefix: a}}\n",
        "gateway: {header_max: 8KB, timeouts: {idle: 7s}}\nstore: {redis: {tls: {ca: c}}}\n",
        expect![[r#"
            gateway.body_max: 1MB
            gateway.header_max: 8KB
            gateway.timeouts.connect: 1 s
            gateway.timeouts.idle: 7 s
            store.redis.prefix: a
            store.redis.tls.ca: c
            store.redis: set
        "#]],
    );
}

#[test]
fn values_lists_tables_and_sections_with_a_position_are_replaced() {
    check(
        "
listen: {api: {address: '127.0.0.1:1', open: true}}
exempt: {paths: [/a, /b]}
metrics: {labels: {a: x, b: y}}
log: {modules: {h2: debug}}
api: {defaults: {token_bucket: {rate: 1/s, burst: 9}}}
gateway: {cors: {origins: '*', max_age: 1s}}
policies: [{name: p, when: {path: /a}, quota: {rate: 1/s, burst: 9}, count: {status: 401}, cost: {GET: 1, POST: 2}, overrides: [{name: o, match: {user: u}, mode: off}]}]
",
        "
listen: {api: {address: '127.0.0.1:2'}}
exempt: {paths: /c}
metrics: {labels: {c: z}}
log: {modules: {ratewright: info}}
api: {defaults: {token_bucket: {rate: 2/s}}}
gateway: {cors: off}
policies: [{name: p, when: {method: GET}, quota: {rate: 2/s}, count: {status: 5xx}, cost: 3, overrides: []}]
",
        expect![[r#"
            api.defaults.token_bucket.rate: 2/s
            exempt.paths: /c
            gateway.cors: off
            listen.api.address: 127.0.0.1:2
            log.modules.ratewright: info
            metrics.labels.c: z
            policies.p.cost: 3
            policies.p.count.status: 5xx
            policies.p.name: p
            policies.p.quota.rate: 2/s
            policies.p.when.method: GET
        "#]],
    );
}

#[test]
fn a_name_without_a_value_changes_nothing() {
    check(
        "store: {redis: {prefix: a}}\nlog: {level: info}\npolicies: [{name: p, mode: off}]\n",
        "store: {redis: }\nlog: {level: ~}\npolicies:\n",
        expect![[r#"
            log.level: info
            policies.p.mode: off
            policies.p.name: p
            store.redis.prefix: a
            store.redis: set
        "#]],
    );
    check(
        "store: {redis: }\n",
        "log:\n",
        expect![[r#"
        store.redis: set
    "#]],
    );
}

#[test]
fn items_of_a_profile_change_the_first_of_their_name() {
    check(
        "
policies: [{name: p, mode: off}, {mode: off}]
routes: [{id: r, match: {path: /a, method: GET}, upstream: [http://a, http://b]}]
",
        "
policies: [{name: new, by: ip}, {name: p, by: ip}]
routes: [{id: r, match: {path: /b}, upstream: http://c}, {id: s}]
",
        expect![[r#"
            policies..mode: off
            policies.new.by: ip
            policies.new.name: new
            policies.p.by: ip
            policies.p.mode: off
            policies.p.name: p
            routes.r.id: r
            routes.r.match.method: GET
            routes.r.match.path: /b
            routes.r.upstream.servers: http://c
            routes.s.id: s
        "#]],
    );
}

/// A type that asks for a text gets it as written, whatever YAML would make of it.
#[test]
fn texts_stay_as_written() {
    check(
        "
enabled: True
stop_delay: 1_000
clients: {ipv6_prefix: 0x40}
problem: {type: 'null'}
metrics: {labels: {a: 010, b: 1e3}}
",
        "drain_timeout: 1.50\npolicies: [{name: 007, by: [ip, {first_of: [user, ip]}], cost: 5, in_flight: -1}]\n",
        expect![[r#"
            clients.ipv6_prefix: 0x40
            drain_timeout: 1.50
            enabled: True
            metrics.labels.a: 010
            metrics.labels.b: 1e3
            policies.007.by: [ip, {first_of: [user, ip]}]
            policies.007.cost: 5
            policies.007.in_flight: -1
            policies.007.name: 007
            problem.type: null
            stop_delay: 1_000
        "#]],
    );
}

/// Anchors belong to their file. A position is where a value is used.
#[test]
fn positions_are_those_of_each_file() {
    let file = merged(
        "policies:\n- &a {name: a, mode: off, by: ip}\n- {<<: *a, name: b}\nlog: {level: info}\n",
        "\n\npolicies: [{name: b, mode: shadow}]\n",
    );
    let policies = file.policies.unwrap();
    let at = |position: Option<Position>| position.map(|at| (at.file, at.line, at.column));
    let b = &policies[1];
    assert_eq!(at(b.position), Some((0, 3, 3)), "an item keeps its position");
    assert_eq!(at(b.value.name.as_ref().unwrap().position), Some((1, 3, 19)));
    assert_eq!(at(b.value.mode.as_ref().unwrap().position), Some((1, 3, 28)));
    assert_eq!(at(b.value.by.as_ref().unwrap().position).map(|(file, line, _)| (file, line)), Some((0, 3)));
    assert_eq!(at(file.log.unwrap().level.unwrap().position), Some((0, 4, 14)));
}

#[test]
fn a_profile_may_change_ten_thousand_policies() {
    let list = |setting: &str| {
        (0..10_000).fold("policies:\n".to_owned(), |text, n| text + &format!("- {{name: p{n}, {setting}}}\n"))
    };
    let file = merged(&list("mode: off"), &list("by: ip"));
    let policies = file.policies.unwrap();
    assert_eq!(policies.len(), 10_000);
    assert!(policies.iter().all(|policy| policy.value.mode.is_some() && policy.value.by.is_some()));
}
