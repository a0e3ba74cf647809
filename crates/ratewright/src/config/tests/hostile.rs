//! Hostile texts. Every text is read or rejected with an error; nothing panics, nothing
//! takes all memory.

use proptest::prelude::*;

use super::*;

/// A file with something of everything, to be broken.
const VALID: &str = r#"
enabled: true
listen: {api: 127.0.0.1:8080, admin: off}
store:
  redis: {url: "redis://u:p@127.0.0.1:6379", prefix: rate_limiter, deadline: 5ms, min_ttl: 120s}
  on_failure: open
  local: {share: 0.5, ttl: 60s, max_keys: 1000}
clients:
  trusted_proxies: [10.0.0.0/8]
  user: {jwt: {claim: sub, secret: "${SECRET:-0123456789abcdef0123456789abcdef}"}, header: X-User-Id}
exempt: {paths: [/health**], methods: [OPTIONS], clients: [192.0.2.0/24]}
policies:
- &login
  name: login
  group: endpoint
  when: {path: ["**/login**", "**/auth**"], method: [POST], ip: 10.0.0.0/8}
  by: [route, {first_of: [user, ip]}]
  missing: deny
  quota: [{rate: 1/6s, burst: 10, refill: stepped}, {name: day, algorithm: sliding_window, rate: 100/d}]
  retry_after: 60s
  count: {status: [401, 4xx, 500-503]}
- {<<: *login, name: other, cost: {GET: 1, POST: 5, default: 1}}
- name: user
  by: user
  quota: {algorithm: fixed_window, rate: 250/min, start: first_hit}
  cost: {header: X-Cost}
  overrides: [{match: {user: "batch-*"}, quota: {rate: 2500/min}, mode: shadow}]
- {name: under-way, group: at-once, by: user, in_flight: 10, retry_after: 2s, overrides: [{match: {user: root}, in_flight: 99}]}
gateway: {connections_max: 10, header_max: 8KB, body_max: 1GB, timeouts: {idle: 5s, total: none}, access_log: true}
routes:
- id: orders
  match: {path: ["/orders/{id}", /o/**], host: "*.example.com", method: [GET, POST]}
  upstream: [http://127.0.0.1:3000, "https://h:${PORT:-3001}"]
  policies: [user, under-way]
  timeouts: {connect: 1s, total: 5s}
  host: upstream
- id: rest
  match: {path: /**}
  upstream: {servers: [http://h], balance: least_connections, protocol: http2, health: {failures: 3, eject: 10s}}
  body_max: 10MB
  retries: 1
api: {defaults: {leaky_bucket: {rate: 1/s, leak: queue}}, tokens: ["${TOKEN:-t}"]}
headers: {families: [x-ratelimit], retry_after: true, limit: rate}
problem: {type: "about:blank"}
metrics: {labels: {application: t}}
log: {level: info, modules: {ratewright: debug}, format: auto, denials: all}
"#;

/// Texts that mean something in YAML or here.
const PIECES: [&str; 24] = [
    ": ",
    "- ",
    "\n",
    "  ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "<<: ",
    "${",
    "}",
    "\"",
    "'",
    "|",
    ">",
    "!!",
    "#",
    "---",
    "\t",
    "\u{feff}",
    "\0",
    "99999999999999999999/s",
];

proptest! {
    /// No text panics.
    #[test]
    fn any_text_is_read_or_rejected(text in ".{0,300}") {
        tell(&text);
    }

    /// No text of pieces that mean something panics.
    #[test]
    fn any_heap_of_pieces_is_read_or_rejected(pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..60)) {
        tell(&pieces.concat());
    }

    /// No file that is broken in some places panics.
    #[test]
    fn a_broken_file_is_read_or_rejected(
        breaks in prop::collection::vec((any::<prop::sample::Index>(), 0..30_usize, prop::sample::select(PIECES.to_vec())), 1..4),
    ) {
        let mut text = VALID.to_owned();
        for (at, n_gone, piece) in breaks {
            let at = at.index(text.len());
            text.replace_range(at..(at + n_gone).min(text.len()), piece.trim_matches('\u{feff}'));
        }
        tell(&text);
    }
}

/// Reads a text, and writes down what is wrong with it.
fn tell(text: &str) {
    match Config::of_text(text) {
        Ok(config) => drop(explain(&config)),
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                let shown = format!("{error:#}");
                assert!(shown.len() < 3_000, "{} bytes are shown", shown.len());
            }
        }
    }
}

#[test]
fn the_file_to_be_broken_is_valid() {
    check(
        VALID,
        expect![[r#"
            leaky_bucket  1 every second evenly spaced, with up to 1 waiting, for each key that callers name; without Redis all pass
            user          250 in the 60 s from the first, for each user; on route orders; without user: not limited; a request costs what its header x-cost says; without Redis all pass
                            with user batch-*: shadow: 2500 in the 60 s from the first
            of endpoint, the first that matches:
              login         10 at once, then 1 together every 6 s, and 100 in any day, for each route and (user, or else client address); on **/login**, **/auth** from 10.0.0.0/8 with method POST; without route: denied; counts responses 401, 4xx, 500-503; retry after at least 60 s; without Redis all pass
              other         10 at once, then 1 together every 6 s, and 100 in any day, for each route and (user, or else client address); on **/login**, **/auth** from 10.0.0.0/8 with method POST; without route: denied; GET costs 1, POST costs 5, others cost 1; counts responses 401, 4xx, 500-503; retry after at least 60 s; without Redis all pass
            of at-once, the first that matches:
              under-way     10 in flight at once, for each user; on route orders; without user: not limited; retry after at least 2 s
                              with user root: 99 in flight at once
            never limited: on /health**; with method OPTIONS; from 192.0.2.0/24
            paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
            route orders: GET, POST *.example.com /orders/{id}, /o/** to http://127.0.0.1:3000, https://h:3001
            route rest: /** to http://h:80
        "#]],
    );
}

#[test]
fn unknown_names_are_reported_with_the_closest_known_one() {
    check(
        "polices: []",
        expect![[r#"
            t.yaml:1:1: unknown setting "polices"; did you mean policies? Known: enabled, listen, stop_delay, drain_timeout, store, clients, exempt, policies, gateway, routes, envoy, api, headers, problem, metrics, log, traces
        "#]],
    );
    check(
        "listen: {apy: 127.0.0.1:1}",
        expect![[r#"
            t.yaml:1:10: unknown setting "apy"; did you mean api? Known: gateway, api, grpc, admin, tls, control
        "#]],
    );
    check(
        "policies:\n- {name: a, quotas: {rate: 1/s}}",
        expect![[r#"
            t.yaml:2:13: unknown setting "quotas"; did you mean quota? Known: name, group, when, by, missing, quota, in_flight, after_abort, cost, count, overrides, retry_after, mode, on_failure
        "#]],
    );
    check(
        "policies:\n- {name: a, quota: {rat: 1/s}}",
        expect![[r#"
        t.yaml:2:21: unknown setting "rat"; did you mean rate? Known: name, algorithm, rate, burst, refill, leak, start
    "#]],
    );
    check(
        "log: {zzz: 1}",
        expect![[r#"
        t.yaml:1:7: unknown setting "zzz"; known: level, modules, format, denials
    "#]],
    );
    check(
        "policies:\n- {name: a, quota: {rate: 1/s}, by: {first: [ip]}}",
        expect![[r#"
        t.yaml:2:38: unknown setting "first"; did you mean first_of? Known: first_of
    "#]],
    );
}

#[test]
fn values_of_another_kind_are_errors() {
    check(
        "just text",
        expect![[r#"
        t.yaml:1:1: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        "- a",
        expect![[r#"
        t.yaml:1:1: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        "policies: {login: {quota: {rate: 1/s}}}",
        expect![[r#"
        t.yaml:1:11: a list is expected here: [a, b], or lines that begin with -
    "#]],
    );
    check(
        "policies: [login]",
        expect![[r#"
        t.yaml:1:12: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        "policies:\n- {name: [a], quota: {rate: 1/s}}",
        expect![[r#"
        t.yaml:2:10: a single value is expected here, not a list and not a section
    "#]],
    );
    check(
        "policies:\n- {name: a, quota: 10/s}",
        expect![[r#"
            t.yaml:2:13: a section such as {rate: 10/s}, or a list of them, is expected here, not "10/s"
        "#]],
    );
    check(
        "policies:\n- {name: a, quota: {rate: 1/s}, cost: 1.5}",
        expect![[r#"
            t.yaml:2:39: policies.a.cost is "1.5"; use a whole number from 0 to 4294967295
        "#]],
    );
    check(
        "policies:\n- {name: a, quota: {rate: 1/s}, by: 1.5}",
        expect![[r#"
            t.yaml:2:37: policies.a.by is "1.5"; use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
        "#]],
    );
    check(
        "exempt: {paths: {a: b}}",
        expect![[r#"
            t.yaml:1:17: a value or a list of values is expected here, not a section
        "#]],
    );
    check(
        "log: {modules: [a]}",
        expect![[r#"
        t.yaml:1:16: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
}

#[test]
fn invalid_yaml_is_reported() {
    check(
        "log: {level: info",
        expect![[r#"
            t.yaml:1:6: unclosed bracket; close it with } or ]
        "#]],
    );
    check(
        "log: {level: info}}",
        expect![[r#"
        t.yaml:1:19: invalid YAML: misplaced bracket
    "#]],
    );
    check(
        "log: 'x",
        expect![[r#"
        t.yaml:1:6: invalid YAML: unclosed quote
    "#]],
    );
    check(
        "log:\n\tlevel: info",
        expect![[r#"
        t.yaml:2:2: invalid YAML: tabs disallowed within this context (block indentation)
    "#]],
    );
    check(
        "log: {}\nlog: {}",
        expect![[r#"
        t.yaml:2:1: duplicate name "log"; remove one
    "#]],
    );
    check(
        "log: {level: info, level: warn}",
        expect![[r#"
        t.yaml:1:20: duplicate name "level"; remove one
    "#]],
    );
    check(
        "log: {}\n---\nlog: {}",
        expect![[r#"
        t.yaml:3:1: second YAML document; a policy file has one, so remove the ---
    "#]],
    );
    check(
        "log: *nobody",
        expect![[r#"
            t.yaml:1:6: a text that begins with * needs quotes, as in "**/login"; without quotes it is a YAML alias, and no anchor has that name
        "#]],
    );
    check(
        "log: {level: !secret info}",
        expect![[r#"
        no policies: only keys that callers name are limited, by the defaults
    "#]],
    );
    check(
        "log: {level: \"\\x\"}",
        expect![[r#"
        t.yaml:1:14: invalid YAML: while parsing a quoted scalar, did not find expected hexadecimal number
    "#]],
    );
}

#[test]
fn anchors_and_merge_keys_save_writing() {
    check(
        "
policies:
- &base {name: a, by: ip, quota: &quota {rate: 1/s}}
- {<<: *base, name: b}
- {name: c, quota: *quota}
- {<<: *base, name: d, quota: {rate: 5/s}}
exempt: {paths: [], methods: []}
",
        expect![[r#"
            a  1 every second, for each client address
            b  1 every second, for each client address
            c  1 every second, for all together
            d  5 at once, then 5 every second, for each client address
        "#]],
    );
}

#[test]
fn an_error_in_an_alias_is_reported_where_it_is_used() {
    check(
        "policies:\n- &a {name: a, quota: {rate: 1/s}}\n- *a\n- {<<: *a}\n",
        expect![[r#"
            t.yaml:3:3: duplicate policy name "a", also used in line 2; rename one
            t.yaml:4:8: duplicate policy name "a", also used in line 3; rename one
        "#]],
    );
}

/// Few lines that would be billions of nodes.
#[test]
fn a_bomb_does_not_go_off() {
    let names = ('a'..='i').collect::<Vec<_>>();
    let mut text = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for pair in names.windows(2) {
        let (before, name) = (pair[0], pair[1]);
        text.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(", ")));
    }
    tell(&text);
    tell(&format!("exempt:\n  paths: &z [x]\n{}", text.replace("a: &a", "  methods: &a")));
    let lists = "- &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n".repeat(1_000);
    tell(&format!("policies:\n- &a [x, x]\n{lists}"));
    tell("policies: &a [*a]\n");
    tell("log: &a {<<: *a}\n");
}

#[test]
fn depth_and_length_are_no_burden() {
    for deep in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000), "? ".repeat(10_000)] {
        tell(&deep);
        tell(&format!("policies: {deep}"));
    }
    let long = "x".repeat(3_000_000);
    tell(&long);
    tell(&format!("log: {{level: {long}}}"));
    tell(&format!("log: {{{long}: info}}"));
    tell(&format!(
        "policies:\n- {{name: a, by: {long}, quota: {{rate: {long}/s}}, when: {{path: /{long}}}}}"
    ));
    tell(&format!("# {}\nlog: {{level: info}}\n", long));
    tell(&"# a comment\n".repeat(100_000));
    tell(&format!("problem: {{type: '{}'}}", "${".repeat(10_000)));
}

#[test]
fn an_endless_device_is_not_a_certificate() {
    check(
        "clients: {user: {jwt: {public_key: /dev/zero}}}\n",
        expect![[r#"
            t.yaml:1:36: clients.user.jwt.public_key: /dev/zero is larger than 1048576 bytes, the limit for keys and certificates
        "#]],
    );
}

/// Errors go into logs and onto the live page, so they must not quote a password or a token within a url.
#[test]
fn errors_do_not_quote_credentials_in_urls() {
    for file in [
        "traces:\n  endpoint: https://user:hunter2@collector:4318\n",
        "traces: {endpoint: 'http://user:hunter2@collector:4318', ratio: 2}\n",
        "routes:\n- {id: a, match: {path: /a}, upstream: 'ftp://user:hunter2@app'}\n",
        "routes:\n- {id: a, match: {path: /a}, upstream: 'http://app/?token=hunter2'}\n",
        "routes:\n- {id: a, match: {path: /a}, upstream: 'http://user:hunter2@app:99999'}\n",
        "store: {redis: {url: 'ftp://:hunter2@redis'}}\n",
        "routes:\n- {id: a, match: {path: /a}, upstreams: 'http://user:hunter2@app'}\n",
    ] {
        let errors = crate::parse_policy_file(file).unwrap_err().join("\n");
        assert!(!errors.contains("hunter2"), "{file}{errors}");
    }
}
