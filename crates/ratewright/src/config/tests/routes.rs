//! The sections `gateway` and `routes`, and the policies that routes name.

use http::Method;
use ratewright_core::policy::Selector;
use ratewright_core::query::{Ask, Attribute, AttributeName, Entrypoint, Select};
use ratewright_core::store::Charges;
use ratewright_core::{Micros, Query};
use ratewright_gateway::route::RouteLookup;

use super::*;

/// What holds for the gateway.
fn gateway(config: &Config) -> String {
    let GatewaySettings {
        connections_max,
        connections_per_address,
        header_max,
        body_max,
        timeouts,
        request_header,
        ..
    } = &config.gateway;
    let log = if config.gateway.has_access_log { ", logged" } else { "" };
    format!(
        "{} with {connections_max} connections, {connections_per_address:?} each; {header_max} and {body_max} bytes; {timeouts:?}, head within {request_header:?}{log}",
        config.listen.gateway.address
    )
}

/// What the routes come to, one line each.
fn routes(config: &Config) -> String {
    let mut text = String::new();
    for (_, route) in config.gateway.routes.iter() {
        let upstream = &route.upstream;
        let servers: Vec<_> = upstream.servers().map(ToString::to_string).collect();
        text.push_str(&format!(
            "{} as {}: {} {:?} {:?} {:?}; {:?}; {:?}; {} bytes; host {:?}; {} retries\n",
            route.id,
            route.label,
            servers.join(" "),
            upstream.balance(),
            upstream.protocol(),
            upstream.health(),
            route.policies,
            route.timeouts,
            route.body_max,
            route.host,
            route.retries_max
        ));
    }
    text
}

#[test]
fn the_gateway_has_safe_limits_unless_somebody_says_otherwise() {
    let check = |text, expected| Files::of(text).check_as(gateway, expected);
    check(
        "",
        expect![
            "127.0.0.1:8000 with 10000 connections, Some(1000) each; 32768 and 1073741824 bytes; Timeouts { connect: 2s, header: 30s, idle: 60s, total: None, tunnel_idle: 3600s }, head within 10s"
        ],
    );
    check(
        "gateway: {connections_per_address: 0, body_max: none}\nlisten: {gateway: '0.0.0.0:80'}",
        expect![
            "0.0.0.0:80 with 10000 connections, None each; 32768 and 18446744073709551615 bytes; Timeouts { connect: 2s, header: 30s, idle: 60s, total: None, tunnel_idle: 3600s }, head within 10s"
        ],
    );
    check(
        "listen: {gateway: {address: '[::]:443'}}
gateway:
  connections_max: 5
  connections_per_address: 2
  header_max: 8KB
  body_max: 100 mb
  timeouts: {connect: 500ms, header: 5s, idle: 1min, total: 1h, tunnel_idle: 2h, request_header: 3s}
  access_log: true",
        expect![
            "[::]:443 with 5 connections, Some(2) each; 8192 and 104857600 bytes; Timeouts { connect: 500ms, header: 5s, idle: 60s, total: Some(3600s), tunnel_idle: 7200s }, head within 3s, logged"
        ],
    );
}

#[test]
fn errors_of_the_gateway_are_reported() {
    check(
        "listen: {gateway: off}
gateway:
  connections_max: 0
  connections_per_address: -1
  header_max: 1KB
  body_max: 1e9
  timeouts: {connect: 0s, header: 2d, idle: 5, total: 0s, request_header: none, totl: 1s}
",
        expect![[r#"
            t.yaml:7:81: unknown setting "totl"; did you mean total? Known: connect, header, idle, total, tunnel_idle, request_header
        "#]],
    );
    check(
        "listen: {gateway: off}
gateway:
  connections_max: 0
  connections_per_address: -1
  header_max: 1KB
  body_max: 1e9
  timeouts: {connect: 0s, header: 2d, idle: 5, total: 0s, request_header: none}
  access_log: yes
",
        expect![[r#"
            t.yaml:1:19: listen.gateway is "off"; use an address and a port, for example 127.0.0.1:8080
            t.yaml:3:20: gateway.connections_max is "0"; use a whole number from 1 to 4294967295
            t.yaml:4:28: gateway.connections_per_address is "-1"; use a whole number from 0 to 4294967295
            t.yaml:5:15: gateway.header_max is 1024 bytes; use 8KB to 1MB
            t.yaml:6:13: gateway.body_max is "1e9"; use a whole number above 0 and B, KB (1024 bytes), MB, GB or TB: 32KB, 10MB; or write `none` to remove the limit
            t.yaml:7:23: gateway.timeouts.connect must be more than 0s and at most 1d; use for example 30s
            t.yaml:7:35: gateway.timeouts.header must be more than 0s and at most 1d; use for example 30s
            t.yaml:7:45: gateway.timeouts.idle is "5"; use a whole number and us, ms, s, min, h or d: 5ms, 60s
            t.yaml:7:55: gateway.timeouts.total must be more than 0s and at most 1d; use for example 30s
            t.yaml:7:75: gateway.timeouts.request_header is "none"; use a whole number and us, ms, s, min, h or d: 5ms, 60s
            t.yaml:8:15: gateway.access_log is "yes"; use true or false
        "#]],
    );
    check(
        "gateway: {header_max: 2MB, body_max: 99999999TB, timeouts: {total: soon}}",
        expect![[r#"
            t.yaml:1:23: gateway.header_max is 2097152 bytes; use 8KB to 1MB
            t.yaml:1:38: gateway.body_max is "99999999TB"; use a whole number above 0 and B, KB (1024 bytes), MB, GB or TB: 32KB, 10MB; or write `none` to remove the limit
            t.yaml:1:68: gateway.timeouts.total is "soon"; use a whole number and us, ms, s, min, h or d: 5ms, 60s; or write `none` to disable it
        "#]],
    );
    check(
        "gateway: {header_max: 0KB, body_max: 0}",
        expect![[r#"
            t.yaml:1:23: gateway.header_max is "0KB"; use a whole number above 0 and B, KB (1024 bytes), MB, GB or TB: 32KB, 10MB
            t.yaml:1:38: gateway.body_max is "0"; use a whole number above 0 and B, KB (1024 bytes), MB, GB or TB: 32KB, 10MB; or write `none` to remove the limit
        "#]],
    );
}

#[test]
fn a_route_says_which_requests_go_where() {
    let text = "
policies: [{name: per-user, by: user, quota: {rate: 1/s}}]
routes:
- id: orders
  match: {path: /api/orders/**, host: API.example.com, method: [get, POST]}
  upstream: [http://127.0.0.1:3000, 'http://127.0.0.1:${PORT:-3001}']
  policies: [per-user]
- id: users
  match: {path: ['/users/{id}', /people]}
  upstream: https://Users.internal
  timeouts: {header: 5s, total: 10s}
  body_max: 10MB
  host: upstream
  retries: 0
- id: rest
  match: {host: '*.example.com'}
  upstream: {servers: http://h, balance: least_connections, protocol: http2, health: {failures: 5, eject: 1min}}
  host: api.internal:8080
  body_max: none
gateway: {timeouts: {total: 1min, connect: 1s}, body_max: 5KB}
exempt: {paths: [], methods: []}
";
    Files::of(text).check_as(routes, expect![[r#"
        orders as /api/orders: http://127.0.0.1:3000 http://127.0.0.1:3001 RoundRobin Http1 Health { failures_max: 3, eject_for: 10s, ejected_max: 0.5 }; ["per-user"]; Timeouts { connect: 1s, header: 30s, idle: 60s, total: Some(60s), tunnel_idle: 3600s }; 5120 bytes; host Keep; 1 retries
        users as /users/{id}: https://users.internal:443 RoundRobin Http1 Health { failures_max: 3, eject_for: 10s, ejected_max: 0.5 }; []; Timeouts { connect: 1s, header: 5s, idle: 60s, total: Some(10s), tunnel_idle: 3600s }; 10485760 bytes; host Upstream; 0 retries
        rest as /: http://h:80 LeastConnections Http2 Health { failures_max: 5, eject_for: 60s, ejected_max: 0.5 }; []; Timeouts { connect: 1s, header: 30s, idle: 60s, total: Some(60s), tunnel_idle: 3600s }; 18446744073709551615 bytes; host Fixed("api.internal:8080"); 1 retries
    "#]]);
    check(
        text,
        expect![[r#"
        per-user  1 every second, for each user; on route orders; without user: not limited
        route orders: GET, POST api.example.com /api/orders/** to http://127.0.0.1:3000, http://127.0.0.1:3001
        route users: /users/{id}, /people to https://users.internal:443
        route rest: *.example.com to http://h:80
    "#]],
    );
}

#[test]
fn errors_of_routes_are_reported() {
    check(
        r#"
policies: [{name: per-user, by: user, quota: {rate: 1/s}}, {name: broken, quota: {rate: x}}]
routes:
- {match: {path: /a}, upstream: http://h}
- {id: A B, match: {path: /a}, upstream: http://h}
- {id: b}
- {id: c, match: {method: GET}, upstream: []}
- {id: d, match: {path: [], host: [], method: []}, upstream: [[http://h]]}
- {id: e, match: {path: [a, /x/, "/a b", "/{a}b", "/***"]}, upstream: {servers: []}}
- {id: f, match: {host: ["a:80", "u@h", "", "a/b"], method: "G T"}, upstream: {balance: random, protocol: http3, health: {failures: 0, eject: 0s}}}
- {id: g, match: {path: /g}, upstream: [http://h, ftp://h, h, "http://u:s3cret@h", http://h/x, "http://h:0"]}
- {id: h, match: {path: /h}, upstream: [http://h, http://h:80]}
- {id: i, match: {path: /i}, upstream: http://h, policies: [per-usr, per-user, per-user, token_bucket, broken, zzz, A]}
- {id: j, match: {path: /j}, upstream: http://h, host: "a b", retries: 11, body_max: 5, timeouts: {connect: 0s, total: 0s}}
- {id: j, match: {path: /k}, upstream: http://h}
"#,
        expect![[r#"
            t.yaml:2:89: policies.broken.quota.rate is "x"; a rate is units/time, for example 10/s, 1/6s or 250/min
            t.yaml:4:3: a route has no id; write id: orders
            t.yaml:5:8: routes.id is "A B"; invalid name; use 1 to 64 characters of a-z 0-9 . _ -
            t.yaml:6:8: routes.b.match has no path and no host; write match: {path: /api/orders/**}
            t.yaml:6:8: routes.b.upstream is missing; write upstream: http://127.0.0.1:3000
            t.yaml:7:8: routes.c.match has no path and no host; write match: {path: /api/orders/**}
            t.yaml:7:43: routes.c.upstream has no servers; write http://127.0.0.1:3000
            t.yaml:8:25: routes.d.match.path is an empty list, which matches nothing; remove it
            t.yaml:8:35: routes.d.match.host is an empty list, which matches nothing; remove it
            t.yaml:8:47: routes.d.match.method is an empty list, which matches nothing; remove it
            t.yaml:8:63: routes.d.upstream has an item that is not a url; list only urls, or write {servers: [http://127.0.0.1:3000], balance: round_robin}
            t.yaml:9:26: routes.e.match.path: path pattern "a" matches no path; start with / or **
            t.yaml:9:29: routes.e.match.path: path pattern "/x/" matches no path: paths are matched without empty segments and without a / at the end; leave it out
            t.yaml:9:34: routes.e.match.path: path segment "a b" matches no path: paths are matched in normalized form; write "a%20b"
            t.yaml:9:42: routes.e.match.path: path segment "{a}b" has invalid braces; write {id} for a whole segment, or use *
            t.yaml:9:51: routes.e.match.path: "/***" has more than two stars in a row; * stays in a segment, ** crosses segments
            t.yaml:9:81: routes.e.upstream.servers has no servers; write http://127.0.0.1:3000
            t.yaml:10:26: routes.f.match.host is "a:80", which matches no host; hosts are compared without port and user: api.example.com, *.example.com
            t.yaml:10:34: routes.f.match.host is "u@h", which matches no host; hosts are compared without port and user: api.example.com, *.example.com
            t.yaml:10:41: routes.f.match.host is "", which matches no host; hosts are compared without port and user: api.example.com, *.example.com
            t.yaml:10:45: routes.f.match.host is "a/b", which matches no host; hosts are compared without port and user: api.example.com, *.example.com
            t.yaml:10:61: routes.f.match.method is "G T"; use a method such as GET or POST
            t.yaml:10:79: routes.f.upstream.servers has no servers; write http://127.0.0.1:3000
            t.yaml:10:89: routes.f.upstream.balance is "random"; use one of round_robin, least_connections
            t.yaml:10:107: routes.f.upstream.protocol is "http3"; use one of http1, http2
            t.yaml:10:133: routes.f.upstream.health.failures is "0"; use a whole number from 1 to 4294967295
            t.yaml:10:143: routes.f.upstream.health.eject must be more than 0s; use for example 10s
            t.yaml:11:51: routes.g.upstream: unknown scheme; write http:// or https://
            t.yaml:11:60: routes.g.upstream: invalid URL; write http://host:port or https://host
            t.yaml:11:63: routes.g.upstream: URL has a user or a password, which the gateway does not send; write http://host:port
            t.yaml:11:84: routes.g.upstream: URL has a path or a query, but requests keep their own; write http://host:port
            t.yaml:11:96: routes.g.upstream: invalid port; use 1 to 65535
            t.yaml:12:40: routes.h.upstream has http://h:80 twice; remove one
            t.yaml:13:61: routes.i.policies: there is no policy "per-usr"; did you mean per-user?
            t.yaml:13:80: routes.i.policies names "per-user" twice; remove one
            t.yaml:13:90: routes.i.policies: there is no policy "token_bucket"; write one of that name under policies, or leave it out
            t.yaml:13:112: routes.i.policies: there is no policy "zzz"; write one of that name under policies, or leave it out
            t.yaml:13:117: routes.i.policies is "A"; invalid name; use 1 to 64 characters of a-z 0-9 . _ -
            t.yaml:14:56: routes.j.host is "a b"; use keep, upstream, or a host such as api.internal or api.internal:8080
            t.yaml:14:72: routes.j.retries is 11; use 0 to 8
            t.yaml:14:86: routes.j.body_max is "5"; use a whole number above 0 and B, KB (1024 bytes), MB, GB or TB: 32KB, 10MB; or write `none` to remove the limit
            t.yaml:14:109: routes.j.timeouts.connect must be more than 0s and at most 1d; use for example 30s
            t.yaml:14:120: routes.j.timeouts.total must be more than 0s and at most 1d; use for example 30s
            t.yaml:15:8: there is another route named "j" in line 14; give each its own id
        "#]],
    );
    check(
        "routes:\n- {id: a, match: {path: '/x/{id}'}, upstream: http://h}\n- {id: b, match: {path: [/y, /x/*]}, upstream: http://h}\n",
        expect![[r#"
            t.yaml:3:8: routes "a" and "b" both match /x/*; leave it out of one of them
        "#]],
    );
    check(
        "routes:\n- {id: a, match: {path: /x}, upstream: http://h, policies: login}\n",
        expect![[r#"
        t.yaml:2:60: routes.a.policies: there is no policy "login"; there are no policies; write one under policies, or leave it out
    "#]],
    );
}

#[test]
fn values_of_another_kind_in_routes_are_errors() {
    check(
        "routes: {a: {upstream: http://h}}",
        expect![[r#"
        t.yaml:1:9: a list is expected here: [a, b], or lines that begin with -
    "#]],
    );
    check(
        "routes: [a]",
        expect![[r#"
        t.yaml:1:10: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        "routes: [{id: a, match: /x, upstream: http://h}]",
        expect![[r#"
        t.yaml:1:25: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        "routes: [{id: a, match: {paht: /x}, upstream: http://h}]",
        expect![[r#"
        t.yaml:1:26: unknown setting "paht"; did you mean path? Known: path, host, method
    "#]],
    );
    check(
        "routes: [{id: a, match: {path: /x}, upstream: 1.5}]",
        expect![[r#"
            t.yaml:1:47: routes.a.upstream: invalid URL; write http://host:port or https://host
        "#]],
    );
    check(
        "routes: [{id: a, match: {path: /x}, upstream: {server: http://h}}]",
        expect![[r#"
            t.yaml:1:48: unknown setting "server"; did you mean servers? Known: servers, balance, protocol, health, tls
        "#]],
    );
    check(
        "routes: [{id: a, match: {path: /x}, upstreams: http://h}]",
        expect![[r#"
            t.yaml:1:37: unknown setting "upstreams"; did you mean upstream? Known: id, match, upstream, policies, timeouts, body_max, body_rate_min, host, retries, cors
        "#]],
    );
    check(
        "gateway: 127.0.0.1:8000",
        expect![[r#"
        t.yaml:1:10: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
}

#[test]
fn routes_of_a_folder_are_one_list_and_a_profile_changes_them() {
    let route = |id: &str| format!("routes: [{{id: {id}, match: {{path: /{id}}}, upstream: http://h}}]\n");
    Files::default().beside("conf/a.yaml", &route("a")).beside("conf/b.yaml", &route("b")).check(expect![[
        r#"
        no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
        route a: /a to http://h:80
        route b: /b to http://h:80
    "#
    ]]);
    Files::default().beside("conf/a.yaml", &route("a")).beside("conf/b.yaml", &route("a")).check(expect![[
        r#"
        conf/b.yaml:1:15: there is another route named "a" in conf/a.yaml:1; give each its own id
    "#
    ]]);
    let profile = "routes: [{id: a, upstream: http://other, match: {method: GET}}]\n";
    Files::of(&route("a")).profile("t.dev.yaml", profile).check(expect![[r#"
        no policies: the gateway limits nothing; only keys that callers name are limited, by the defaults
        route a: GET /a to http://other:80
    "#]]);
    Files::of("gateway: {body_max: 1MB, timeouts: {idle: 1s}}")
        .profile("t.dev.yaml", "gateway: {timeouts: {idle: 2s}}")
        .check_as(
            |config| format!("{:?} {}", config.gateway.timeouts.idle, config.gateway.body_max),
            expect!["2s 1048576"],
        );
}

/// Nobody should write one there, but who does finds it in no log.
#[test]
fn a_password_in_a_servers_url_is_not_shown() {
    for text in [
        "routes: [{id: a, match: {path: /x}, upstream: 'http://u:s3cret@h'}]",
        "routes:\n- {id: a, match: {path: /x}, upstream: [http://h, 'http://u:s3cret@h'], retries: many}",
        "routes:\n- {id: a, match: {path: /x}, upstream: {servers: 'http://u:s3cret@h', balance: x}}",
        "routes:\n- {id: a, match: {path: /x}, upstrem: 'http://u:s3cret@h'}",
        "routes:\n- {id: a, match: {path: /x}, upstream: 'http://u:s3cret@h}",
    ] {
        for error in Config::of_text(text).err().unwrap_or_else(|| panic!("{text} is valid")) {
            assert!(!format!("{error:#}").contains("s3cret"), "{error:#}");
        }
    }
}

/// The names of the policies that a request falls under on a route.
fn charged(config: &Config, path: &str) -> Vec<String> {
    let named: Vec<String> = match config.gateway.routes.find(None, path, &Method::GET) {
        RouteLookup::Route(route, _) => route.policies.clone(),
        RouteLookup::MethodNotAllowed(_) | RouteLookup::NoRoute => Vec::new(),
    };
    let named: Vec<_> = named.iter().map(String::as_str).collect();
    let attributes = [Attribute { name: AttributeName::Path, value: path }];
    let query = Query {
        select: Select::Covering(&named),
        attributes: &attributes,
        address: None,
        ask: Ask::Look(0),
        patience: Micros::ZERO,
        id: None,
        entrypoint: Entrypoint::Tower,
    };
    let mut charges = Charges::new();
    config.policies.select(&query, &mut charges);
    let name = |limit| config.policies.limit(limit).map(|(policy, _)| policy.name().to_owned());
    charges.iter().filter_map(|charge| name(charge.limit)).collect()
}

#[test]
fn a_policy_without_when_that_a_route_names_applies_on_that_route_only() {
    let text = "
policies:
- {name: everywhere, quota: {rate: 1/s}}
- {name: routed, quota: {rate: 1/s}}
- {name: both, when: {path: /free}, quota: {rate: 1/s}}
routes:
- {id: a, match: {path: /a/**}, upstream: http://h, policies: [routed, both]}
- {id: free, match: {path: /free}, upstream: http://h}
exempt: {paths: /a/exempt, methods: []}
";
    let Ok(config) = Config::of_text(text) else { panic!("the file is invalid") };
    assert_eq!(charged(&config, "/a/x"), ["everywhere", "routed", "both"]);
    assert_eq!(charged(&config, "/free"), ["everywhere", "both"]);
    assert_eq!(charged(&config, "/other"), ["everywhere"]);
    assert_eq!(charged(&config, "/a/exempt"), [""; 0], "what is exempt is so on a route too");
    assert_eq!(config.policies.named("routed").map(|policy| policy.selector()), Some(&Selector::Named));
    check(
        text,
        expect![[r#"
            everywhere  1 every second, for all together
            routed      1 every second, for all together; on route a
            both        1 every second, for all together; on /free; on route a
            never limited: on /a/exempt
            paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
            route a: /a/** to http://h:80
            route free: /free to http://h:80
        "#]],
    );
}

#[test]
fn many_routes_are_read() {
    let route = |n: u32| format!("- {{id: r{n}, match: {{path: /p{n}/**}}, upstream: http://h}}\n");
    let text: String = (1..=10_000).map(route).collect();
    let Ok(config) = Config::of_text(&format!("routes:\n{text}")) else { panic!("the file is invalid") };
    let found = config.gateway.routes.find(None, "/p7777/x", &Method::GET);
    assert!(matches!(found, RouteLookup::Route(route, _) if &*route.id == "r7777"));
}

#[test]
fn whom_to_trust_must_be_readable_and_matter() {
    let check = |upstream: &str, expected| {
        Files::of(&format!("routes: [{{id: r, match: {{path: /r}}, upstream: {upstream}}}]")).check(expected);
    };
    check(
        "{servers: https://h, tls: {ca: none.pem}}",
        expect![[r#"
        t.yaml:1:78: routes.r.upstream.tls.ca: cannot read none.pem: No such file or directory (os error 2); use a file that Ratewright can read
    "#]],
    );
    check(
        "{servers: https://h, tls: {ca: /dev/null}}",
        expect![[r#"
        t.yaml:1:78: routes.r.upstream.tls.ca contains no PEM certificate; it needs a line -----BEGIN CERTIFICATE-----
    "#]],
    );
    check(
        "{servers: http://h, tls: {ca: /dev/null}}",
        expect![[r#"
        t.yaml:1:77: routes.r.upstream.tls.ca is for https:// servers, but every server is http://; write https://, or remove it
    "#]],
    );
    check(
        "{servers: https://h, tls: {cert: none.pem}}",
        expect![[r#"
        t.yaml:1:74: unknown setting "cert"; known: ca
    "#]],
    );
}
