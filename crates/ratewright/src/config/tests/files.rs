//! Several files, profiles, and the environment.

use super::*;

#[test]
fn the_environment_stands_in_any_value() {
    let text = r#"
enabled: ${ENABLED}
clients: {trusted_proxies: ["${NET:-10.0.0.0/8}", 192.0.2.7], ipv6_prefix: "${BITS:-56}"}
policies:
- name: login
  by: "${BY:-ip}"
  quota: {rate: "${UNITS}/${TIME:-min}", burst: "${BURST:-5}"}
  cost: "${COST:-2}"
  mode: ${MODE:-shadow}
exempt: {paths: "${PREFIX}/**", methods: "${METHODS:-}${MORE:-TRACE}"}
"#;
    let files = || Files::of(text).variable("UNITS", "7").variable("PREFIX", "/free");
    files().variable("ENABLED", "true").variable("BURST", "9").variable("MODE", "").check(expect![[r#"
        login  shadow, never denies: 9 at once, then 7 every minute, for each client address; a request costs 2
        never limited: on /free/**; with method TRACE
    "#]]);
    files().variable("ENABLED", "perhaps").variable("BURST", "many").check(expect![[r#"
        t.yaml:2:10: enabled is "${ENABLED}"; use true or false
        t.yaml:7:49: policies.login.quota.burst is "${BURST:-5}"; use a whole number from 1 to 4294967295
    "#]]);
    Files::of(text).check(expect![[r#"
        t.yaml:2:10: enabled: the environment has no variable ENABLED; set it, or write a default: ${ENABLED:-…}
        t.yaml:7:17: policies.login.quota.rate: the environment has no variable UNITS; set it, or write a default: ${UNITS:-…}
        t.yaml:10:17: exempt.paths: the environment has no variable PREFIX; set it, or write a default: ${PREFIX:-…}
    "#]]);
}

#[test]
fn invalid_variables_are_reported() {
    check(
        "log: {level: '${}'}",
        expect![[r#"
        t.yaml:1:14: log.level: "" is not a variable name; write ${NAME} or ${NAME:-default}
    "#]],
    );
    check(
        "log: {level: '${A', format: '${1}'}",
        expect![[r#"
            t.yaml:1:14: log.level: unclosed ${; write ${NAME}
            t.yaml:1:29: log.format: "1" is not a variable name; write ${NAME} or ${NAME:-default}
        "#]],
    );
    check(
        "problem: {type: '$HOME {A} $'}",
        expect![[r#"
        no policies: only keys that callers name are limited, by the defaults
    "#]],
    );
}

/// A password from the environment may have any character; an address from there is an address already.
#[test]
fn a_password_from_the_environment_is_made_fit_for_an_address() {
    let show = |config: &Config| match &config.store {
        StoreConfig::Redis(redis) => format!("{:?}", redis.servers),
        StoreConfig::Memory { .. } => "memory".to_owned(),
    };
    let files = |url: &str| Files::of(&format!("store: {{redis: {{url: '{url}'}}}}"));
    files("redis://:${PASSWORD}@redis.example:7")
        .variable("PASSWORD", "a/b@c:1")
        .check_as(show, expect!["Servers(redis.example:7)"]);
    files("${URL}")
        .variable("URL", "redis://:a@redis.example:7")
        .check_as(show, expect!["Servers(redis.example:7)"]);
    files("${URL:-redis://h:8}").check_as(show, expect!["Servers(h:8)"]);
    files("redis://:${PASSWORD}@h").check_as(show, expect![[r#"
        t.yaml:1:22: store.redis.url: the environment has no variable PASSWORD; set it, or write a default: ${PASSWORD:-…}
    "#]]);
}

#[test]
fn files_of_a_folder_lie_beside_each_other() {
    Files::default()
        .beside("conf/a.yaml", "policies: [{name: a, quota: {rate: 1/s}}]\nlisten: {admin: off}\n")
        .beside("conf/b.yaml", "policies: [{name: b, quota: {rate: 2/s}}]\nlisten: {api: '127.0.0.1:1'}\n")
        .beside("conf/c.yaml", "exempt: {methods: [], paths: []}\n")
        .check(expect![[r#"
            a  1 every second, for all together
            b  2 at once, then 2 every second, for all together
        "#]]);
}

#[test]
fn a_setting_stands_in_one_file_of_a_folder() {
    Files::default()
        .beside(
            "conf/a.yaml",
            "log: {level: info}\npolicies: [{name: a, quota: {rate: 1/s}}]\napi: {defaults: {token_bucket: {rate: 1/s}}}\n",
        )
        .beside(
            "conf/b.yaml",
            "\nlog: {level: warn, format: text}\npolicies: [{name: a, quota: {rate: 2/s}}]\napi: {defaults: {token_bucket: {rate: 1/s}}}\n",
        )
        .check(expect![[r#"
            conf/b.yaml:2:14: duplicate setting, also set in conf/a.yaml:1; keep one, or move one into a profile
            conf/b.yaml:3:19: duplicate policy name "a", also used in conf/a.yaml:2; rename one
            conf/b.yaml:4:32: duplicate setting, also set in conf/a.yaml:3; keep one, or move one into a profile
        "#]]);
}

#[test]
fn b1_a_profile_says_what_is_different() {
    let base = "
policies:
- {name: login, group: g, by: ip, when: {path: /login}, quota: {rate: 1/6s, burst: 10}, retry_after: 60s}
- {name: default, group: g, by: ip, quota: {rate: 10/s, burst: 100}}
exempt: {methods: [], paths: []}
log: {level: info, format: text}
";
    let with = |profile: &str| Files::of(base).profile("t.dev.yaml", profile);
    with("").check(expect![[r#"
        of g, the first that matches:
          login    10 at once, then 1 every 6 s, for each client address; on /login; retry after at least 60 s
          default  100 at once, then 10 every second, for each client address; on all others
        paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
    "#]]);
    with("enabled: false").check(expect![[r#"
        enabled is false: every request passes, uncounted
        of g, the first that matches:
          login    off: 10 at once, then 1 every 6 s, for each client address; on /login; retry after at least 60 s
          default  off: 100 at once, then 10 every second, for each client address; on all others
        paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
    "#]]);
    with(
        "policies:
- {name: login, quota: {rate: 1/12s, burst: 5}}
- {name: default, mode: off}
- {name: payment, by: user, quota: {rate: 5/2s, burst: 30}}
",
    )
    .check(expect![[r#"
        payment  30 at once, then 5 every 2 s, for each user; without user: not limited
        of g, the first that matches:
          login    5 at once, then 1 every 12 s, for each client address; on /login; retry after at least 60 s
          default  off: 100 at once, then 10 every second, for each client address; on all others
        paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
    "#]]);
    with("log: {level: warn}").check_as(
        |config| format!("{:?}", config.log),
        expect!["LogConfig { level: LevelFilter::WARN, modules: [], format: Text, denials: PerSecond(10) }"],
    );
}

#[test]
fn errors_name_their_file() {
    Files::of("policies: [{name: login, by: ip, quota: {rate: 1/6s}}]\nlog: {level: loud}\n")
        .profile("t.dev.yaml", "policies:\n- {name: login, quota: {rate: soon}}\n- {name: logn, mode: off}\n")
        .check(expect![[r#"
            t.dev.yaml:2:31: policies.login.quota.rate is "soon"; a rate is units/time, for example 10/s, 1/6s or 250/min
            t.dev.yaml:3:10: policies.logn has no quota, and no base file has a policy of that name; correct the name, or write quota: {rate: 10/s}, or in_flight: 10 to limit requests in flight
            t.yaml:2:14: log.level is "loud"; use one of off, error, warn, info, debug, trace
        "#]]);
    Files::of("log: {level: loud}\n").profile("t.dev.yaml", "log: {levle: info}\n").check(expect![[r#"
        t.dev.yaml:1:7: unknown setting "levle"; did you mean level? Known: level, modules, format, denials
    "#]]);
}

/// What a profile puts another value in the place of is not read: it may be wrong, or need another environment.
#[test]
fn what_a_profile_replaces_is_not_read() {
    Files::of("log: {level: '${LEVEL}'}\nstore: {redis: {url: '${REDIS}'}}\n")
        .profile("t.dev.yaml", "log: {level: info}\nstore: {redis: {url: redis://h}}\n")
        .check(expect![[r#"
            no policies: only keys that callers name are limited, by the defaults
        "#]]);
}

#[test]
fn a_broken_profile_that_nobody_asks_for_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.yaml");
    std::fs::write(&path, "log: {level: info}\n").unwrap();
    std::fs::write(folder.path().join("t.dev.yaml"), "log: [\n").unwrap();
    let read = |profile: Option<&str>| {
        let source = Source { path: Some(path.clone()), profile: profile.map(str::to_owned) };
        Config::read(&source, &|_| None).map(|_| ()).map_err(|errors| errors[0].to_string())
    };
    assert_eq!(read(None), Ok(()));
    assert!(read(Some("dev")).unwrap_err().contains("t.dev.yaml:1:6: "));
    assert!(read(Some("none")).unwrap_err().contains("t.none.yaml: profile none: cannot read the file"));
}

/// A simulation may run on another machine than the instance, without its certificates and keys.
#[test]
fn a_simulation_does_not_read_the_files_that_a_policy_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.yaml");
    let text = "store: {redis: {url: 'rediss://r:6379', tls: {ca: /t/ca}}}\nclients: {user: {jwt: {public_key: /t/jwt}}}\nenvoy: {files: [/t/rules]}\nroutes: [{id: a, match: {path: /**}, upstream: {servers: ['https://u'], tls: {ca: /t/up}}}]\npolicies: [{name: per-user, by: user, quota: {rate: 1/s}}]\nlisten: {admin: '127.0.0.1:8082', tls: {cert: /t/cert, key: /t/key, client_ca: /t/clients}}\n";
    std::fs::write(&path, text).unwrap();
    let source = Source { path: Some(path), profile: None };
    let config = Config::read_alone(&source, &|_| None).unwrap_or_else(|errors| panic!("{errors:?}"));
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    for name in ["/t/ca", "/t/jwt", "/t/rules", "/t/up", "/t/clients"] {
        let reported = format!("{name} is not checked: a simulation does not read it");
        assert!(warnings.iter().any(|warning| warning.contains(&reported)), "{name}: {warnings:?}");
    }
    assert_eq!(warnings.len(), 5, "{warnings:?}");
}
