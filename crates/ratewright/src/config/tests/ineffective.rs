//! Limits that never act, and mistakes that look like limits.

use super::*;

#[track_caller]
fn warns(text: &str, expected: Expect) {
    Files::of(text).check_warnings(expected);
}

const ROUTES: &str = "routes: [{id: app, match: {path: /**}, upstream: 'http://127.0.0.1:1'}]\n";

#[test]
fn what_cannot_be_is_an_error() {
    check(
        "policies:
- {name: a, when: {method: PSOT}, quota: {rate: 1/s}}
- {name: b, cost: {'/reports/**': 10}, quota: {rate: 1/s}}
- {name: c, by: 'header: X-Api-Key', quota: {rate: 1/s}}
- {name: d, by: api-key, quota: {rate: 1/s}}
- {name: e, by: usr, quota: {rate: 1/s}}
- {name: f, when: {path: '^/api/.*$'}, quota: {rate: 1/s}}
- {name: g, when: {path: '/api/[0-9]+'}, quota: {rate: 1/s}}
- {name: h, when: {ip: 10.0.0.1/8}, quota: {rate: 1/s}}
- {name: i, by: 'header:X Api', quota: {rate: 1/s}}
- {name: j, cost: {PSOT: 3}, quota: {rate: 1/s}}
- {name: k, when: {method: 'GE T'}, quota: {rate: 1/s}}
exempt: {methods: [OPTION]}
clients: {trusted_proxies: [2001:db8::1/32]}
",
        expect![[r#"
            t.yaml:2:28: policies.a.when.method is "PSOT", which is not a method; did you mean POST?
            t.yaml:3:35: policies.b.cost has "/reports/**", which is not a method; for a cost by path write cost: {path: {"/reports/**": 10}}
            t.yaml:4:17: policies.c.by is "header: X-Api-Key"; write header:x-api-key, without a space
            t.yaml:5:17: policies.d.by is "api-key"; for the header of that name write header:api-key; otherwise use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:6:17: policies.e.by is "usr"; did you mean user? Otherwise use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:7:26: policies.f.when.path is "^/api/.*$"; patterns are not regular expressions: * stands for any text within a segment, ** for any text. Write a list for alternatives: [/a/**, /b/**]
            t.yaml:8:26: policies.g.when.path is "/api/[0-9]+"; patterns are not regular expressions: * stands for any text within a segment, ** for any text. Write a list for alternatives: [/a/**, /b/**]
            t.yaml:9:24: policies.h.when.ip is "10.0.0.1/8"; write 10.0.0.0/8 for the whole network, or 10.0.0.1 for this address only
            t.yaml:10:17: policies.i.by is "header:X Api"; invalid header name; use letters, digits and -, for example header:X-Api-Key
            t.yaml:11:26: policies.j.cost is "PSOT", which is not a method; did you mean POST?
            t.yaml:12:28: policies.k.when.method is "GE T", which is not a method; use GET, POST or another one
            t.yaml:13:20: exempt.methods is "OPTION", which is not a method; did you mean OPTIONS?
            t.yaml:14:29: clients.trusted_proxies is "2001:db8::1/32"; write 2001:db8::/32 for the whole network, or 2001:db8::1 for this address only
        "#]],
    );
}

#[test]
fn a_route_that_does_not_exist_is_an_error() {
    check(
        &format!("{ROUTES}policies:\n- {{name: a, when: {{route: ap}}, quota: {{rate: 1/s}}}}\n"),
        expect![[r#"
            t.yaml:3:27: policies.a.when.route is "ap", which is an unknown route; did you mean app?
        "#]],
    );
    warns("policies:\n- {name: a, when: {route: told}, quota: {rate: 1/s}}\n", expect![[""]]);
    let attribute = "routes: [{id: app, match: {path: /**}, upstream: 'http://127.0.0.1:1', policies: [a]}]
policies: [{name: a, by: 'attribute:tenant', quota: {rate: 1/s}}]\n";
    check(
        attribute,
        expect![[r#"
            t.yaml:2:26: policies.a.by: only callers of /api/v1/decide send this attribute, but the policy applies only to routes of the gateway, so it never applies; use header:NAME or another attribute
        "#]],
    );
}

#[test]
fn limits_that_never_act_are_warned_of() {
    warns(
        "policies:
- {name: a, by: user, quota: {rate: 1/s}}
- {name: b, by: 'claim:plan', quota: {rate: 1/s}}
- {name: c, when: {path: /login/, method: FROBNICATE}, quota: {rate: 1/s}}
- {name: d, when: {path: [/a//b, '/a?x=1', /caf%C3%A9, '/.*', /a b]}, quota: {rate: 1/s}}
- {name: e, when: {host: 'example.com:8080'}, quota: {rate: 1/s}}
- {name: f, by: {first_of: [user, ip]}, quota: {rate: 1/s}, overrides: [{match: {user: x}, quota: {rate: 2/s}}]}
",
        expect![[r#"
            warning: t.yaml:2:17: policies.a.by: no request has a user, because neither clients.user.jwt nor clients.user.header is set; set one. The policy or condition applies only to requests to /api/v1/decide that send user
            warning: t.yaml:3:17: policies.b.by: no request has claims, because clients.user.jwt is not set; set it. The policy or condition applies only to requests to /api/v1/decide that send claim:plan
            warning: t.yaml:4:26: policies.c.when.path is "/login/", which matches no request: paths are compared without a slash at the end. Write /login, or /login/** to match everything below it too
            warning: t.yaml:4:43: policies.c.when.method is "FROBNICATE", which is not a standard method; it matches only requests with exactly this method
            warning: t.yaml:5:27: policies.d.when.path is "/a//b", but paths are compared in their normal form: decoded, without //, . and .., and without parameters (;v=1). Write /a/b
            warning: t.yaml:5:34: policies.d.when.path is "/a?x=1", which matches no request: paths are compared without the query. Remove the query; to match a parameter, use query:NAME
            warning: t.yaml:5:44: policies.d.when.path is "/caf%C3%A9", but paths are compared in their normal form: decoded, without //, . and .., and without parameters (;v=1). Write /café
            warning: t.yaml:5:56: policies.d.when.path is "/.*", which matches only names that begin with a dot. Write * for any text within a segment, ** for any text
            warning: t.yaml:5:63: policies.d.when.path is "/a b", but paths are compared in their normal form: decoded, without //, . and .., and without parameters (;v=1). Write /a%20b
            warning: t.yaml:6:26: policies.e.when.host is "example.com:8080", which matches no request: hosts are compared without port, user and a dot at the end: api.example.com, *.example.com
            warning: t.yaml:7:88: policies.f.overrides[0].match.user: no request has a user, because neither clients.user.jwt nor clients.user.header is set; set one. The policy or condition applies only to requests to /api/v1/decide that send user
        "#]],
    );
    warns(
        &format!(
            "{ROUTES}policies:\n- {{name: a, by: user, quota: {{rate: 1/s}}}}\n- {{name: b, by: 'attribute:x', quota: {{rate: 1/s}}}}\n"
        ),
        expect![[r#"
            warning: t.yaml:3:17: policies.a.by: no request has a user, because neither clients.user.jwt nor clients.user.header is set; set one. The policy or condition applies only to requests to /api/v1/decide that send user, not in the gateway
            warning: t.yaml:4:17: policies.b.by: requests through the gateway have no attribute:NAME; use header:NAME or another attribute. The policy or condition applies only to requests to /api/v1/decide that send attribute:x, not in the gateway
        "#]],
    );
    let users = "clients: {trusted_proxies: [10.0.0.0/8], user: {header: X-User-Id}}\n";
    warns(&format!("{users}policies:\n- {{name: a, by: user, quota: {{rate: 1/s}}}}\n"), expect![[""]]);
}

#[test]
fn limits_that_deny_everybody_and_parameters_of_routes_are_warned_of() {
    warns(
        "policies:\n- {name: a, by: user, missing: deny, quota: {rate: 1/s}}\n\
         - {name: b, by: ip, when: {path: ['/users/{id}', '/users/:id']}, quota: {rate: 1/s}}\n",
        expect![[r#"
            warning: t.yaml:2:17: policies.a.by: no request has a user, because neither clients.user.jwt nor clients.user.header is set; set one. With missing: deny, every request that the policy covers gets 403, unless a caller of /api/v1/decide sends user
            warning: t.yaml:3:35: policies.b.when.path is "/users/{id}"; only routes have parameters such as {id}. Write * for any text within a segment: /users/*
            warning: t.yaml:3:50: policies.b.when.path is "/users/:id"; only routes have parameters such as {id}. Write * for any text within a segment: /users/*
        "#]],
    );
}

#[test]
fn policies_that_others_of_their_group_keep_away_are_warned_of() {
    warns(
        "policies:
- {name: wide, group: g, when: {path: /api/**}, by: ip, quota: {rate: 1/s}}
- {name: narrow, group: g, when: {path: /api/login, method: POST}, by: ip, quota: {rate: 1/s}}
- {name: rest, group: g, by: ip, quota: {rate: 1/s}}
- {name: last, group: g, when: {path: /x}, by: ip, quota: {rate: 1/s}}
- {name: off, group: h, mode: off, quota: {rate: 1/s}}
- {name: never, group: h, quota: {rate: 1/s}}
",
        expect![[r#"
            warning: t.yaml:3:10: policies.narrow never applies: only the first matching policy of group g applies, and wide, which is listed earlier, matches every request that narrow matches. Put narrow before wide
            warning: t.yaml:5:10: policies.last never applies: only the first matching policy of group g applies, and rest, which is listed earlier, matches every request that last matches. Put last before rest
            warning: t.yaml:7:10: policies.never never applies: only the first matching policy of group h applies, and off, which is listed earlier, matches every request that never matches. Put never before off
        "#]],
    );
    let skipped = "clients: {trusted_proxies: [10.0.0.0/8], user: {header: X-User-Id}}
policies:
- {name: member, group: g, by: user, quota: {rate: 10/s}}
- {name: guest, group: g, by: ip, quota: {rate: 1/s}}
";
    warns(skipped, expect![[""]]);
    check(
        skipped,
        expect![[r#"
        of g, the first that matches:
          member  10 at once, then 10 every second, for each user; without user: next in the group
          guest   1 every second, for each client address; on all others
        never limited: on /actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**; with method OPTIONS
    "#]],
    );
}

#[test]
fn limits_that_clients_escape_by_new_values_are_warned_of() {
    warns(
        "policies:\n- {name: a, by: path, quota: {rate: 1/s}}\n",
        expect![[r#"
            warning: t.yaml:2:17: policies.a.by has path, which clients can change at will: each new value gets a full quota, so a client can evade the limit. Also add a policy with by: ip that covers all requests
        "#]],
    );
    warns(
        "policies:\n- {name: a, by: 'header:X-Api-Key', quota: {rate: 1/s}}\n",
        expect![[r#"
            warning: t.yaml:2:17: policies.a.by has header:x-api-key, which clients can change at will: each new value gets a full quota, so a client can evade the limit. Also add a policy with by: ip that covers all requests
        "#]],
    );
    warns(
        "policies:\n- {name: a, by: 'header:X-Api-Key', quota: {rate: 1/s}}\n- {name: b, by: ip, quota: {rate: 1/s}}\n",
        expect![[""]],
    );
    warns(
        "policies:\n- {name: a, by: [ip, path], quota: {rate: 1/s}}\n",
        expect![[r#"
            warning: t.yaml:2:17: policies.a.by has path, which clients can change at will: each new value gets a full quota, so a client can evade the limit. Also add a policy with by: ip that covers all requests
        "#]],
    );
    warns("policies:\n- {name: a, by: [ip, route], quota: {rate: 1/s}}\n", expect![[""]]);
}

#[test]
fn bad_indentation_is_explained() {
    check(
        "policies:\n  - name: a\n   quota: {rate: 1/s}\n",
        expect![[r#"
            t.yaml:3:4: inconsistent indentation: the items of a list, and the names of a section, begin at the same column. Align this line with those above it
        "#]],
    );
    check(
        "policies:\n- name: a\n  quota:\n  rate: 1/s\n",
        expect![[r#"
            t.yaml:4:3: rate is a setting of quota; write quota: {rate: …}, or indent this line below quota:
        "#]],
    );
    check(
        "policies:\n- name: a\n\tquota: {rate: 1/s}\n",
        expect![[r#"
            t.yaml:2:9: tab in the indentation; indent with spaces
        "#]],
    );
    check(
        "policies:\n  - name: a\n    quota: {rate: 1/s}\n - name: b\n   quota: {rate: 1/s}\n",
        expect![[r#"
            t.yaml:4:2: inconsistent indentation: the items of a list, and the names of a section, begin at the same column. Align this line with those above it
        "#]],
    );
    check(
        "policies:\n- name: a\n  quota: {rate: 1/s\n",
        expect![[r#"
            t.yaml:3:10: unclosed bracket; close it with } or ]
        "#]],
    );
}
