//! The sections `policies`, `exempt` and `api.defaults`, read back in words.

use super::*;

#[test]
fn b2_the_named_limits_mean_what_they_say() {
    check(
        r#"
policies:
- name: login
  group: endpoint
  when: {path: ["**/login**", "**/auth**", "**/signin**"]}
  by: {first_of: [user, ip]}
  quota: [{rate: 1/6s, burst: 10}, {name: window, algorithm: sliding_window, rate: 10/60s}]
  retry_after: 60s
- name: payment
  group: endpoint
  when: {path: "**/payments**"}
  by: ip
  quota: {rate: 5/2s, burst: 30, refill: stepped}
- {name: default, group: endpoint, by: ip, quota: {rate: 10/s, burst: 100}, retry_after: 5min}
- {name: late, group: endpoint, when: {path: /late}, quota: {rate: 1/s}}
"#,
        expect![[r#"
            of endpoint, the first that matches:
              login    10 at once, then 1 every 6 s, and 10 in any 60 s, for each user, or else client address; on **/login**, **/auth**, **/signin**; retry after at least 60 s
              payment  30 at once, then 5 together every 2 s, for each client address; on **/payments**
              default  100 at once, then 10 every second, for each client address; on all others; retry after at least 5 min
              late     1 every second, for all together; never, since one before it matches all
            never limited: on /actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**; with method OPTIONS
            paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
        "#]],
    );
}

#[test]
fn every_algorithm_reads_as_it_counts() {
    check(
        "policies:
- {name: a, quota: {rate: 1/s}}
- {name: b, quota: {rate: 10/s, burst: 50}}
- {name: c, quota: {rate: 250/min}}
- {name: d, quota: {rate: 5/2s, burst: 30, refill: stepped}}
- {name: e, quota: {algorithm: leaky_bucket, rate: 5/s, burst: 10}}
- {name: f, quota: {algorithm: leaky_bucket, rate: 5/500ms, burst: 10, leak: queue}}
- {name: g, quota: {algorithm: sliding_window, rate: 100/60s}}
- {name: h, quota: {algorithm: sliding_window_counter, rate: 1000/5min}}
- {name: i, quota: {algorithm: fixed_window, rate: 5/h}}
- {name: j, quota: {algorithm: fixed_window, rate: 5/month, start: first_hit}}
exempt: {paths: [], methods: []}
",
        expect![[r#"
            a  1 every second, for all together
            b  50 at once, then 10 every second, for all together
            c  250 at once, then 250 every minute, for all together
            d  30 at once, then 5 together every 2 s, for all together
            e  10 at once, then 5 every second, for all together
            f  5 every 500 ms evenly spaced, with up to 10 waiting, for all together
            g  100 in any 60 s, for all together
            h  about 1000 in any 5 min, for all together
            i  5 in each hour by the clock, for all together
            j  5 in the 30 d from the first, for all together
        "#]],
    );
}

#[test]
fn keys_are_attributes_lists_of_them_or_the_first_that_is_present() {
    check(
        "policies:
- {name: all, quota: {rate: 1/s}}
- {name: ip, by: ip, quota: {rate: 1/s}}
- {name: one-in-a-list, by: [ip], quota: {rate: 1/s}}
- {name: both, by: [header:X-Api-Key, path], quota: {rate: 1/s}}
- {name: first, by: {first_of: [user, cookie:sid, query:q]}, quota: {rate: 1/s}}
- {name: mixed, by: [route, {first_of: [user, ip]}], quota: {rate: 1/s}}
- {name: claim, by: claim:realm.plan, missing: deny, quota: {rate: 1/s}}
- {name: or-ip, by: [user, attribute:tenant], missing: ip, quota: {rate: 1/s}}
- {name: skip, by: user, missing: skip, quota: {rate: 1/s}}
exempt: {paths: [], methods: []}
",
        expect![[r#"
            all            1 every second, for all together
            ip             1 every second, for each client address
            one-in-a-list  1 every second, for each client address
            both           1 every second, for each header x-api-key and path; without header x-api-key: not limited
            first          1 every second, for each user, or else cookie sid, or else query parameter q; without user or cookie sid or query parameter q: not limited
            mixed          1 every second, for each route and (user, or else client address); without route: not limited
            claim          1 every second, for each claim realm.plan; without claim realm.plan: denied
            or-ip          1 every second, for each (user, or else client address) and (attribute tenant, or else client address)
            skip           1 every second, for each user; without user: not limited
        "#]],
    );
}

#[test]
fn conditions_costs_modes_and_waits() {
    check(
        r#"
store: {redis: {}, on_failure: open}
policies:
- {name: a, when: {method: [post, PUT], host: API.example.com, path: /Orders/*}, quota: {rate: 1/s}}
- {name: b, when: {ip: [10.0.0.0/8, 192.0.2.7], user: "batch-*"}, quota: {rate: 1/s}, on_failure: closed}
- {name: c, when: {"header:X-Plan": free}, quota: {rate: 1/s}, on_failure: local, cost: 5}
- {name: d, cost: {header: X-Cost}, quota: {rate: 9/s}, mode: shadow}
- {name: e, cost: {get: 1, POST: 5, default: 2}, quota: {rate: 9/s}, mode: off}
- {name: f, cost: {DELETE: 0}, quota: {rate: 9/s}, mode: enforce, retry_after: 90s}
- {name: g, cost: 0, quota: {rate: 9/s}, retry_after: 2h}
- {name: h, cost: {bytes: request}, quota: {rate: 1KB/s, burst: 2MB}}
- {name: i, cost: {path: {"/reports/**": 10, default: 2}}, quota: {rate: 9/s}}
clients: {case: insensitive}
exempt: {paths: /Health, methods: [options, trace], clients: [10.1.2.0/24, "::1"]}
"#,
        expect![[r#"
            a  1 every second, for all together; on /orders/* with host api.example.com with method POST, PUT; without Redis all pass
            b  1 every second, for all together; from 10.0.0.0/8, 192.0.2.7 with user batch-*; without Redis none pass
            c  1 every second, for all together; with header x-plan free; a request costs 5
            d  shadow, never denies: 9 at once, then 9 every second, for all together; a request costs what its header x-cost says; without Redis all pass
            e  off: 9 at once, then 9 every second, for all together; POST costs 5, GET costs 1, others cost 2; without Redis all pass
            f  9 at once, then 9 every second, for all together; DELETE costs 0, others cost 1; retry after at least 90 s; without Redis all pass
            g  9 at once, then 9 every second, for all together; a request costs nothing; retry after at least 2 h; without Redis all pass
            h  2097152 at once, then 1024 every second, for all together; a request costs the bytes of its body; without Redis all pass
            i  9 at once, then 9 every second, for all together; /reports/** costs 10, others cost 2; without Redis all pass
            never limited: on /health; with method OPTIONS, TRACE; from 10.1.2.0/24, ::1
        "#]],
    );
}

#[test]
fn overrides_inherit_what_they_do_not_say() {
    check(
        r#"
policies:
- name: per-user
  by: user
  quota: {algorithm: sliding_window_counter, rate: 250/min}
  overrides:
  - {match: {user: "batch-*"}, quota: {rate: 2500/min}}
  - {match: {user: root}, quota: {algorithm: token_bucket, rate: 5/s, burst: 10}}
  - {match: {ip: 10.0.0.0/8}, mode: off}
  - {match: {method: GET}, mode: shadow}
  - {match: {path: /a, "claim:plan": [free, trial]}, mode: shadow, quota: [{rate: 5/min}, {name: day, rate: 50/d}]}
- name: tried
  by: ip
  mode: shadow
  quota: {algorithm: fixed_window, rate: 9/min, start: first_hit}
  overrides:
  - {match: {ip: "2001:db8::/32"}, mode: enforce, quota: {rate: 5/min}}
  - {match: {ip: "::1"}, mode: enforce}
exempt: {methods: OPTIONS, paths: []}
"#,
        expect![[r#"
            per-user  about 250 in any 60 s, for each user; without user: not limited
                        with user batch-*: about 2500 in any 60 s
                        with user root: 10 at once, then 5 every second
                        from 10.0.0.0/8: no limit
                        with method GET: the same, in shadow
                        on /a with claim plan free, trial: shadow: about 5 in any 60 s, and about 50 in any day
            tried     shadow, never denies: 9 in the 60 s from the first, for each client address
                        from 2001:db8::/32: enforced: 5 in the 60 s from the first
                        from ::1: the same, enforced
            never limited: with method OPTIONS
            paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
        "#]],
    );
}

#[test]
fn b1_all_or_one_can_be_switched_off() {
    let text = "policies:\n- {name: a, quota: {rate: 1/s}}\n- {name: b, quota: {rate: 1/s}, mode: off}\nexempt: {methods: [], paths: []}\n";
    check(
        text,
        expect![[r#"
        a  1 every second, for all together
        b  off: 1 every second, for all together
    "#]],
    );
    check(
        &format!("enabled: false\n{text}"),
        expect![[r#"
        enabled is false: every request passes, uncounted
        a  off: 1 every second, for all together
        b  off: 1 every second, for all together
    "#]],
    );
}

#[test]
fn ad_hoc_limits_are_explained_if_the_file_sets_them() {
    check(
        "api:\n  defaults:\n    token_bucket: {rate: 1/6s, burst: 10, refill: stepped}\n    fixed_window: {rate: 5/h}\n",
        expect![[r#"
            token_bucket  10 at once, then 1 together every 6 s, for each key that callers name
            fixed_window  5 in each hour by the clock, for each key that callers name
        "#]],
    );
    check(
        "api: {defaults: {sliding_window: {algorithm: fixed_window, rate: 1/s}}}",
        expect![[r#"
        t.yaml:1:46: api.defaults.sliding_window.algorithm is always sliding_window; remove it
    "#]],
    );
}

#[test]
fn errors_of_policies_are_reported() {
    check(
        r#"
policies:
- {name: token_bucket, quota: {rate: 1/s}}
- {name: a}
- {name: b, quota: []}
- {name: c, quota: {rate: 0/s}}
- {name: d, quota: {rate: 1/s, burst: -1, algorithm: bucket}}
- {name: e, quota: {rate: 1/s, algorithm: sliding_window, burst: 5}}
- {name: f, quota: {rate: 1/s, algorithm: sliding_window, refill: stepped, leak: queue}}
- {name: g, quota: {rate: 1/100year, burst: 2}}
- {name: h, quota: [{rate: 1/s, name: x}, {rate: 1/h, name: x}, {rate: 1/d, name: X}]}
- {name: h, quota: {rate: 1/s}}
- {name: i, group: "A B", quota: {rate: 1/s}, mode: on, on_failure: maybe, retry_after: 60, missing: no}
- {name: Login, by: ipp, quota: {rate: 1/s, burst: 0}}
- {by: ipp, quota: {rate: 0/s}}
"#,
        expect![[r#"
            t.yaml:3:10: policies.token_bucket: the names of algorithms are reserved for ad hoc keys; use another
            t.yaml:4:10: policies.a has no quota; write quota: {rate: 10/s}, or in_flight: 10 to limit requests in flight
            t.yaml:5:20: policies.b.quota is an empty list; write {rate: 10/s}
            t.yaml:6:27: policies.c.quota.rate is "0/s"; "0" is not a number of units; use a whole number from 1 to 4294967295
            t.yaml:7:39: policies.d.quota.burst is "-1"; use a whole number from 1 to 4294967295
            t.yaml:7:54: policies.d.quota.algorithm is "bucket"; use one of token_bucket, leaky_bucket, sliding_window, sliding_window_counter, fixed_window
            t.yaml:8:66: policies.e.quota: sliding_window has no burst apart from its units; leave burst out, or use token_bucket
            t.yaml:9:67: policies.f.quota.refill is for token_bucket only, but the algorithm is sliding_window; remove it
            t.yaml:10:45: policies.g.quota: 2 units at 1/100year take over 100 years to come back; raise the rate or lower the burst
            t.yaml:11:61: policies.h.quota[1].name: duplicate quota name; rename one
            t.yaml:11:83: policies.h.quota[2].name is "X"; invalid name; use 1 to 64 characters of a-z 0-9 . _ -
            t.yaml:13:20: policies.i.group is "A B"; invalid name; use 1 to 64 characters of a-z 0-9 . _ -
            t.yaml:13:53: policies.i.mode is "on"; use one of enforce, shadow, off
            t.yaml:13:69: policies.i.on_failure is "maybe"; use one of local, open, closed
            t.yaml:13:89: policies.i.retry_after is "60"; use a whole number and us, ms, s, min, h or d: 5ms, 60s
            t.yaml:13:102: policies.i.missing is "no"; use one of skip, ip, deny
            t.yaml:14:10: policies.name is "Login"; invalid name; use 1 to 64 characters of a-z 0-9 . _ -
            t.yaml:14:21: policies.Login.by is "ipp"; did you mean ip? Otherwise use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:14:52: policies.Login.quota.burst is "0"; a burst of 0 would deny everything. Use at least 1
            t.yaml:15:3: a policy has no name; write name: login
            t.yaml:15:8: policies.by is "ipp"; did you mean ip? Otherwise use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:15:27: policies.quota.rate is "0/s"; "0" is not a number of units; use a whole number from 1 to 4294967295
        "#]],
    );
}

#[test]
fn errors_of_keys_costs_and_conditions_are_reported() {
    check(
        r#"
policies:
- {name: a, quota: {rate: 1/s}, by: []}
- {name: b, quota: {rate: 1/s}, by: [[ip]]}
- {name: c, quota: {rate: 1/s}, by: {first_of: []}}
- {name: d, quota: {rate: 1/s}, by: {first_of: [ip, key]}}
- {name: e, quota: {rate: 1/s}, cost: much}
- {name: f, quota: {rate: 1/s}, cost: {header: X-Cost, GET: 2}}
- {name: g, quota: {rate: 1/s}, cost: {GET: -2}}
- {name: h, quota: {rate: 1/s}, cost: {header: "X Cost"}}
- {name: h1, quota: {rate: 1/s}, cost: {bytes: response}}
- {name: h2, quota: {rate: 1/s}, cost: {bytes: request, GET: 1}}
- {name: h3, quota: {rate: 5GB/s}, cost: {bytes: request}}
- {name: h4, quota: {rate: 1/s}, cost: {bytes: request}, count: {status: [401]}}
- {name: h5, quota: {rate: 1XB/s, burst: 0B}}
- {name: h6, quota: {rate: 1KB/s, algorithm: leaky_bucket, leak: queue}, cost: {bytes: request}}
- {name: i, quota: {rate: 1/s}, when: {path: []}}
- {name: j, quota: {rate: 1/s}, when: {path: ["/***", ""], ip: 10/8, "header:": x}}
- {name: k, quota: {rate: 1/s}, overrides: [{quota: {rate: 1/s}}, {match: {user: x}}, {match: {}, mode: off}]}
- {name: l, quota: {rate: 1/s}, overrides: [{match: {user: x}, quota: {rate: x}, mode: x}]}
exempt: {paths: [health], clients: [x]}
"#,
        expect![[r#"
            t.yaml:3:37: policies.a.by is an empty list; remove it to count all clients in one bucket
            t.yaml:4:38: policies.b.by has a list inside a list; to count by the first attribute that a request has, write {first_of: [user, ip]}
            t.yaml:5:37: policies.c.by.first_of is empty; name the attributes to try
            t.yaml:6:53: policies.d.by.first_of is "key"; use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:7:39: policies.e.cost is "much"; use a whole number from 0 to 4294967295
            t.yaml:8:39: policies.f.cost mixes several kinds of cost; use one of {header: X-Cost}, {path: {"/a/**": 10}}, {bytes: request} and {GET: 1}
            t.yaml:9:45: policies.g.cost.GET is "-2"; use a whole number from 0 to 4294967295
            t.yaml:10:48: policies.h.cost.header is "X Cost"; use a header name, for example X-User-Id
            t.yaml:11:40: policies.h1.cost.bytes must be request, and must be the only entry; write cost: {bytes: request}
            t.yaml:12:40: policies.h2.cost.bytes must be request, and must be the only entry; write cost: {bytes: request}
            t.yaml:13:28: policies.h3.quota.rate is "5GB/s"; 5GB is too large; use at most 4095MB
            t.yaml:14:40: policies.h4: cost: {bytes: request} and count cannot be combined, since bytes are counted before the response; remove one
            t.yaml:15:28: policies.h5.quota.rate is "1XB/s"; use a whole number above 0 and B, KB (1024 bytes), MB, GB or TB: 32KB, 10MB
            t.yaml:15:42: policies.h5.quota.burst is "0B"; use a whole number above 0 and B, KB (1024 bytes), MB, GB or TB: 32KB, 10MB
            t.yaml:16:80: policies.h6: cost: {bytes: request} and leak: queue cannot be combined: chunks of a body cannot wait in a queue; remove leak
            t.yaml:17:46: policies.i.when.path is an empty list, which matches nothing; remove it
            t.yaml:18:47: policies.j.when.path: "/***" has more than two stars in a row; * stays in a segment, ** crosses segments
            t.yaml:18:55: policies.j.when.path is "", which matches no path; begin with / or **
            t.yaml:18:64: policies.j.when.ip is "10/8"; use a network or an address, for example 10.0.0.0/8 or 192.0.2.7
            t.yaml:18:81: policies.j.when.header:: unknown attribute "header:"; use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:19:45: policies.k.overrides[0] has no match; write a condition, for example match: {user: "batch-*"}
            t.yaml:19:67: policies.k.overrides[1] changes nothing; give it a quota or a mode
            t.yaml:19:87: policies.k.overrides[2] has no match; write a condition, for example match: {user: "batch-*"}
            t.yaml:20:78: policies.l.overrides[0].quota.rate is "x"; a rate is units/time, for example 10/s, 1/6s or 250/min
            t.yaml:20:88: policies.l.overrides[0].mode is "x"; use one of enforce, shadow, off
            t.yaml:21:18: exempt.paths is "health", which matches no path; begin with / or **
            t.yaml:21:37: exempt.clients is "x"; use a network or an address, for example 10.0.0.0/8 or 192.0.2.7
        "#]],
    );
}

#[test]
fn a_cost_by_path_is_read_and_its_errors_have_lines() {
    check(
        r#"
policies:
- {name: a, quota: {rate: 99/s}, cost: {path: {"/reports/**": 10}}}
- {name: b, quota: {rate: 99/s}, cost: {path: {"/Reports/**": 10, "/a/*": 0, default: 3}}}
"#,
        expect![[r#"
            a  99 at once, then 99 every second, for all together; /reports/** costs 10, others cost 1
            b  99 at once, then 99 every second, for all together; /Reports/** costs 10, /a/* costs 0, others cost 3
            never limited: on /actuator/**, /health, /health/**, /healthz, /livez, /readyz, /metrics, /static/**, /css/**, /js/**, /images/**; with method OPTIONS
        "#]],
    );
    check(
        r#"
policies:
- {name: a, quota: {rate: 99/s}, cost: {path: {"/reports/**": many}}}
- name: b
  quota: {rate: 99/s}
  cost:
    path:
      reports: 10
- {name: c, quota: {rate: 99/s}, cost: {path: {"/***": 10}}}
- {name: d, quota: {rate: 99/s}, cost: {path: {"/a": 10}, GET: 2}}
- {name: e, quota: {rate: 99/s}, cost: {path: 10}}
- {name: f, quota: {rate: 99/s}, cost: {path: {"/a": 4294967296, default: -1}}}
- {name: g, quota: {rate: 99/s}, cost: {GET: {"/a": 10}}}
- {name: h, quota: {rate: 99/s}, cost: {GET: {}}}
"#,
        expect![[r#"
            t.yaml:3:63: policies.a.cost.path./reports/** is "many"; use a whole number from 0 to 4294967295
            t.yaml:8:16: policies.b.cost.path is "reports", which matches no path; begin with / or **
            t.yaml:9:56: policies.c.cost.path: "/***" has more than two stars in a row; * stays in a segment, ** crosses segments
            t.yaml:10:40: policies.d.cost mixes several kinds of cost; use one of {header: X-Cost}, {path: {"/a/**": 10}}, {bytes: request} and {GET: 1}
            t.yaml:11:40: policies.e.cost mixes several kinds of cost; use one of {header: X-Cost}, {path: {"/a/**": 10}}, {bytes: request} and {GET: 1}
            t.yaml:12:54: policies.f.cost.path./a is "4294967296"; use a whole number from 0 to 4294967295
            t.yaml:13:53: policies.g.cost.GET is a section, but a number is expected; for a cost by path write {path: {"/a/**": 10}}
            t.yaml:14:40: policies.h.cost.GET is a section, but a number is expected; for a cost by path write {path: {"/a/**": 10}}
        "#]],
    );
}

/// Several files' worth of policies take no long time.
#[test]
fn many_policies_are_read() {
    let policy =
        |n: u32| format!("- {{name: p{n}, when: {{path: /p{n}/**}}, by: ip, quota: {{rate: {n}/s}}}}\n");
    let text: String = (1..=10_000).map(policy).collect();
    let Ok(config) = Config::of_text(&format!("policies:\n{text}")) else { panic!("the file is invalid") };
    assert_eq!(config.policies.n_policies(), 10_005);
}

#[test]
fn a_name_that_is_used_twice_is_reported_once() {
    check(
        "policies:
- name: a
  quota: {rate: 1/s}
  overrides:
  - {name: gold, match: {user: x}, quota: {rate: 2/s}}
  - {name: gold, match: {user: y}, quota: {rate: 3/s}}
- {name: a, quota: {rate: 1/s}}
- {name: b, quota: [{name: day, rate: 1/d}, {name: day, rate: 2/d}]}
",
        expect![[r#"
            t.yaml:6:5: policies.a has another override named "gold" in line 5; rename one
            t.yaml:7:10: duplicate policy name "a", also used in line 2; rename one
            t.yaml:8:52: policies.b.quota[1].name: duplicate quota name; rename one
        "#]],
    );
}
