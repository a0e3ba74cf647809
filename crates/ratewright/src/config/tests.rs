//! The policy file, as people write it.

mod body_rate;
mod cors;
mod counting;
mod envoy;
mod files;
mod hostile;
mod ineffective;
mod policies;
mod proxy_protocol;
mod routes;
mod sections;

use expect_test::{Expect, expect};

use super::*;

/// Files to be read together, those of a profile last, in an environment.
#[derive(Default)]
struct Files<'a> {
    files: Vec<SourceFile>,
    environment: Vec<(&'a str, &'a str)>,
}

impl<'a> Files<'a> {
    /// One file.
    fn of(text: &str) -> Self {
        Self::default().beside("t.yaml", text)
    }

    fn beside(self, name: &str, text: &str) -> Self {
        self.with(name, text, false)
    }

    fn profile(self, name: &str, text: &str) -> Self {
        self.with(name, text, true)
    }

    fn with(mut self, name: &str, text: &str, is_profile: bool) -> Self {
        self.files.push(SourceFile { path: name.into(), text: text.to_owned(), is_profile });
        self
    }

    fn variable(mut self, name: &'a str, value: &'a str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// What is valid but probably not meant, or everything that is wrong.
    #[track_caller]
    fn check_warnings(self, expected: Expect) {
        self.check_as(
            |config| config.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect(),
            expected,
        );
    }

    fn read(self) -> Result<Config, Vec<ConfigError>> {
        let environment = |name: &str| {
            self.environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Config::of(&mut Fingerprint { files: self.files, ..Fingerprint::default() }, &environment)
    }

    /// What they mean in words, or everything that is wrong.
    #[track_caller]
    fn check(self, expected: Expect) {
        self.check_as(explain, expected);
    }

    /// Something that they mean, or everything that is wrong.
    #[track_caller]
    fn check_as(self, show: impl Fn(&Config) -> String, expected: Expect) {
        let shown = match self.read() {
            Ok(config) => show(&config),
            Err(errors) => errors.iter().map(|error| format!("{error}\n")).collect(),
        };
        expected.assert_eq(&shown);
    }
}

#[track_caller]
fn check(text: &str, expected: Expect) {
    Files::of(text).check(expected);
}

#[test]
fn an_empty_file_is_a_working_limiter() {
    for text in ["", "# nothing\n", "---\n", "api: {}\nlisten:\n", "policies: []\n", "policies:\nenabled:\n"]
    {
        let Ok(config) = Config::of_text(text) else { panic!("{text:?}") };
        assert_eq!(config.listen.api.address.to_string(), "127.0.0.1:8080");
        assert_eq!(config.policies.n_policies(), 5, "one for each algorithm");
        expect!["no policies: only keys that callers name are limited, by the defaults\n"]
            .assert_eq(&explain(&config));
    }
}

#[test]
fn all_errors_are_reported_at_once_with_their_positions() {
    check(
        "listen:\n  api: nowhere\napi:\n  defaults:\n    token_bucket: {rate: 10/s, burst: 0}\n    sliding_window: {rate: 20000/s}\n    fixed_window: {rate: often}\npolicies:\n- {name: A B, quota: {rate: 1/s}}\n- {quota: {rate: 1/s}}\n- {name: p, by: [ip, usr], quota: {burst: 3}, when: {path: login, sky: blue}}\n- {name: q, quota: [{rate: 1/s}, {rate: 1/h}], missing: perhaps}\n",
        expect![[r#"
            t.yaml:2:8: listen.api is "nowhere"; use an address and a port, for example 127.0.0.1:8080
            t.yaml:5:39: api.defaults.token_bucket.burst is "0"; a burst of 0 would deny everything. Use at least 1
            t.yaml:6:28: api.defaults.sliding_window: sliding_window remembers every charge, so it takes at most 10000 units, not 20000; use sliding_window_counter for more
            t.yaml:7:26: api.defaults.fixed_window.rate is "often"; a rate is units/time, for example 10/s, 1/6s or 250/min
            t.yaml:9:10: policies.name is "A B"; invalid name; use 1 to 64 characters of a-z 0-9 . _ -
            t.yaml:10:3: a policy has no name; write name: login
            t.yaml:11:22: policies.p.by is "usr"; did you mean user? Otherwise use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:11:35: policies.p.quota has no rate; write rate: 10/s
            t.yaml:11:60: policies.p.when.path is "login", which matches no path; begin with / or **
            t.yaml:11:72: policies.p.when.sky: unknown attribute "sky"; use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:12:34: policies.q.quota[1] has no name; the second quota and later ones need one, for example name: hour
            t.yaml:12:57: policies.q.missing is "perhaps"; use one of skip, ip, deny
        "#]],
    );
}

#[test]
fn an_error_shows_the_line_and_points_at_the_position() {
    let errors = Config::of_text("log:\n  level: info\n  format: xml\n").err().unwrap();
    expect![[r#"
        t.yaml:3:11: log.format is "xml"; use one of auto, text, json
          |
        3 |   format: xml
          |           ^"#]]
    .assert_eq(&format!("{:#}", errors[0]));
}

/// Whatever is wrong, and wherever: nobody reads a secret in a log of errors.
#[test]
fn no_secret_is_shown() {
    for text in [
        "store: {redis: {url: 'redis://:s3cret@h:x', deadline: soon}}",
        "store: {redis: {url: ['redis://:s3cret@h', 'x://s3cret'], cluster: perhaps}}",
        "store: {redis: {sentinel: {master: m, nodes: 'redis://:s3cret@h:x'}}}",
        "store: 'redis://:s3cret@h'",
        "store:\n  redis: 'redis://:s3cret@h'",
        "store: {redis: {ulr: 'redis://:s3cret@h'}}",
        "api: {tokens: [s3cret], tokns: []}",
        "api: {tokens: {s3cret: s3cret}}",
        "api:\n  tokens:\n  - s3cret\n  - [s3cret]\n",
        "api: {tokens: [s3cret, ''], defaults: {token_bucket: {rate: x}}}",
        "{api: {tokens: s3cret}, log: {level: x}}",
        "api: {tokens: 's3cret}",
        "clients: {user: {jwt: {secret: s3cret, leeway: long}}}",
        "clients: {user: {jwt: {jwks: 'https://u:s3cret@h/'}}}",
        "clients: {user: {jwt: {secret: s3cret, public_key: none}}}",
        "tokens: [s3cret]",
        "s3cret",
        // A missing space makes the secret a part of the name.
        "api: {tokens:s3cret}",
        "api: {s3cret}",
        "api: {s3cret: 1, s3cret: 2}",
        "clients: {user: {jwt: {secret:s3cret}}}",
        "clients: {user: {jwt: {s3cret: secret}}}",
        "store: {redis: {url:redis://:s3cret@127.0.0.1}}",
        "store: {redis: {'redis://:s3cret@h': x}}",
        // The section's name is not a bare word.
        "policies: []\n\"api\":\n  tokens: [s3cret, *x]",
        "policies: []\n'clients': {user: {jwt: {secret: s3cret, leewai: 5}}}",
        "policies: []\n!!str api:\n  tokens: [s3cret, *x]",
        "policies: []\n&z api:\n  tokens: [s3cret, *x]",
        "policies: []\n? api\n: tokens: [s3cret, *x]",
        "policies: []\n<<: {api: {tokens: [s3cret, *x]}}",
        "policies: []\n--- {api: {tokens: [s3cret, *x]}}",
        // Keys of clients are secrets too.
        "policies:\n  - {name: a, quota: {rate: 0/s}, when: {'header:X-Api-Key': s3cret}}",
        "policies:\n  - {name: a, quota: {rate: 0/s}, when: {\"cookie:session\" : s3cret}}",
    ] {
        let errors = Config::of_text(text).err().unwrap_or_else(|| panic!("{text} is valid"));
        for error in errors {
            assert!(!format!("{error:#}").contains("s3cret"), "{error:#}");
        }
    }
    let files = Files::of("api: {tokens: '${TOKEN}'}\nlog: {level: '${TOKEN}'}").variable("TOKEN", "s3cret");
    for error in files.read().err().unwrap() {
        assert!(!format!("{error:#}").contains("s3cret"), "{error:#}");
    }
}

/// A value that is invalid in one setting may be the secret of another.
#[test]
fn no_error_shows_the_value_of_a_variable() {
    let mut leaks = Vec::new();
    for text in [
        "store: {redis: {prefix: '${V}'}}",
        "store: {redis: {url: 'redis://${V}@h:x', tls: {ca: '/${V}/ca.pem'}}}",
        "store: {redis: {sentinel: {master: '${V}', nodes: '${V}'}}}",
        "exempt: {paths: '${V}'}",
        "listen: {tls: {cert: '${V}', key: '${V}'}}",
        "listen: {api: '${V}'}",
        "clients: {user: {jwt: {public_key: '/run/${V}.pem'}}}",
        "clients: {user: {jwt: {jwks: 'keys/${V}'}}}",
        "clients: {user: {jwt: {jwks: 'ftp://${V}'}}}",
        "clients: {user: {jwt: {secret: '${V}'}}}",
        "envoy: {files: 'rules/${V}'}",
        "gateway: {cors: {origins: '${V}'}}",
        "routes: [{id: a, match: {path: '${V}'}, upstream: http://h}]",
        "routes: [{id: a, match: {path: '/${V}***'}, upstream: http://h}]",
        "policies: [{name: a, quota: {rate: 1/s}, when: {'header:authorization': 'Bearer  ${V}***'}}]",
        "routes: [{id: a, match: {host: '${V}'}, upstream: http://h}]",
        "routes: [{id: a, match: {path: /a}, upstream: '${V}'}]",
        "routes: [{id: a, match: {path: /a}, upstream: ['http://${V}', 'http://${V}']}]",
        "routes: [{id: a, match: {path: /a}, upstream: http://h, host: '${V}', policies: '${V}'}]",
        "metrics: {labels: {a: '${V}', '0': '${V}'}}",
        "problem: {type: '${V}'}\nlog: {level: '${V}'}",
        "traces: {endpoint: '${V}'}\nlog: {level: x}",
    ] {
        for value in ["S3CRET key{}", "s3cret/\"quoted\"", "s3cret:s3cret", "/a{/s3cret}"] {
            let errors = Files::of(text).variable("V", value).read().err().unwrap_or_default();
            let shown = errors.iter().map(|error| format!("{error:#}\n"));
            leaks.extend(shown.filter(|error| error.to_lowercase().contains("s3cret")));
        }
    }
    assert!(leaks.is_empty(), "{}", leaks.concat());
    Files::of("store: {redis: {prefix: '${V}'}}").variable("V", "s3 cret").check(expect![[r#"
        t.yaml:1:25: store.redis.prefix is "${V}"; use 1 to 64 visible characters without spaces and braces
    "#]]);
}
