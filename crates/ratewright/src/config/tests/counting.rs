//! `count` and `in_flight`: which answers count, and how many requests may be under way.

use ratewright_core::Policy;
use ratewright_core::policy::Selector;
use ratewright_core::quota::Algorithm;

use super::*;

#[test]
fn a_policy_can_count_some_answers_only() {
    let text = "
policies:
- {name: a, by: ip, quota: {rate: 1/6s, burst: 10}, count: {status: [401, 403]}, retry_after: 60s}
- {name: b, quota: {rate: 1/s}, count: {status: 429}}
- {name: c, quota: {rate: 1/s}, count: {status: [4xx, 5XX, 100-199, 500-503, 302-302, 200 - 204]}}
- {name: d, quota: {rate: 1/s}, count: {status: '${FAILED:-401}'}}
- {name: e, quota: {rate: 1/s}, count: }
exempt: {paths: [], methods: []}
routes: [{id: r, match: {path: /**}, upstream: http://h}]
";
    check(
        text,
        expect![[r#"
        a  10 at once, then 1 every 6 s, for each client address; counts responses 401, 403; retry after at least 60 s
        b  1 every second, for all together; counts responses 429
        c  1 every second, for all together; counts responses 4xx, 5xx, 1xx, 500-503, 302, 200-204
        d  1 every second, for all together; counts responses 401
        e  1 every second, for all together
        route r: /** to http://h:80
    "#]],
    );
    let Ok(config) = Config::of_text(text) else { panic!("the file is invalid") };
    let covered = |name: &str, status| config.policies.named(name).unwrap().count().covers(status);
    let counts =
        |name: &str| [200, 204, 302, 399, 400, 401, 404, 500, 599].map(|status| covered(name, status));
    assert_eq!(counts("a"), [false, false, false, false, false, true, false, false, false]);
    assert_eq!(counts("c"), [true, true, true, false, true, true, true, true, true]);
    assert_eq!(counts("e"), [true; 9]);
}

/// Callers of the REST API see the response themselves, and can refund.
#[test]
fn without_a_gateway_nobody_sees_the_answers() {
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: 401}}]\nexempt: {paths: [], methods: []}",
        expect![[r#"
            a  1 every second, for all together; counts responses 401, but only in the gateway, and there are no routes
        "#]],
    );
}

#[test]
fn errors_of_count_are_reported() {
    check(
        "policies:
- {name: a, quota: {rate: 1/s}, count: {}}
- {name: b, quota: {rate: 1/s}, count: {status: []}}
- {name: c, quota: {rate: 1/s}, count: {status: [99, 600, 0401, -1, 4.1, '', failures, 6xx, 4xxx]}}
- {name: d, quota: {rate: 1/s}, count: {status: [500-, -599, 599-500, 99-100, 500-600, 4xx-5xx, 1-2-3, 500..599]}}
- {name: e, quota: {rate: 1/s}, count: {status: 0}}
- {name: g, quota: {rate: 1/s}, count: {status: true}}
",
        expect![[r#"
            t.yaml:2:40: policies.a.count has no status, so no response would count; write {status: [401, 403]}, or remove count
            t.yaml:3:49: policies.b.count has no status, so no response would count; write {status: [401, 403]}, or remove count
            t.yaml:4:50: policies.c.count.status is "99"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:4:54: policies.c.count.status is "600"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:4:59: policies.c.count.status is "0401"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:4:65: policies.c.count.status is "-1"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:4:69: policies.c.count.status is "4.1"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:4:74: policies.c.count.status is ""; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:4:78: policies.c.count.status is "failures"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:4:88: policies.c.count.status is "6xx"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:4:93: policies.c.count.status is "4xxx"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:5:50: policies.d.count.status is "500-"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:5:56: policies.d.count.status is "-599"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:5:62: policies.d.count.status is "599-500"; a range goes from the smaller to the larger; write 500-599
            t.yaml:5:71: policies.d.count.status is "99-100"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:5:79: policies.d.count.status is "500-600"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:5:88: policies.d.count.status is "4xx-5xx"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:5:97: policies.d.count.status is "1-2-3"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:5:104: policies.d.count.status is "500..599"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:6:49: policies.e.count.status is "0"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
            t.yaml:7:49: policies.g.count.status is "true"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
        "#]],
    );
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: [401]}]",
        expect![[r#"
        t.yaml:1:49: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: 401}]",
        expect![[r#"
        t.yaml:1:49: a section is expected here: lines of name: value, indented further than the line above
    "#]],
    );
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: {statuses: 401}}]",
        expect![[r#"
        t.yaml:1:50: unknown setting "statuses"; did you mean status? Known: status
    "#]],
    );
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: {a: b}}}]",
        expect![[r#"
        t.yaml:1:58: a value or a list of values is expected here, not a section
    "#]],
    );
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: [[401]]}}]",
        expect![[r#"
        t.yaml:1:59: a single value is expected here, not a list and not a section
    "#]],
    );
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: 4e2}}]",
        expect![[r#"
            t.yaml:1:58: policies.a.count.status is "4e2"; use a status from 100 to 599, a class such as 5xx, or a range such as 500-599
        "#]],
    );
}

#[test]
fn a_profile_says_which_answers_count() {
    let text = "policies: [{name: a, quota: {rate: 1/s}, count: {status: [401, 403]}}]
routes: [{id: r, match: {path: /**}, upstream: http://h}]
exempt: {paths: [], methods: []}
";
    Files::of(text).profile("t.dev.yaml", "policies: [{name: a, count: {status: 5xx}}]").check(expect![[
        r#"
        a  1 every second, for all together; counts responses 5xx
        route r: /** to http://h:80
    "#
    ]]);
    Files::of(text).profile("t.dev.yaml", "policies: [{name: a, mode: shadow}]").check(expect![[r#"
        a  shadow, never denies: 1 every second, for all together; counts responses 401, 403
        route r: /** to http://h:80
    "#]]);
}

#[test]
fn a_policy_can_limit_what_is_under_way() {
    let text = "
store: {redis: {}, on_failure: closed}
policies:
- {name: rate, by: ip, quota: {rate: 10/s}}
- {name: under-way, by: ip, in_flight: 10}
- {name: uploads, when: {path: /upload/**, method: POST}, by: user, missing: deny, in_flight: '${UPLOADS:-2}', retry_after: 5s}
- {name: costly, in_flight: 100, cost: {GET: 1, POST: 5}, mode: shadow}
- {name: routed, in_flight: 4294967295}
- name: tiers
  by: user
  missing: ip
  in_flight: 5
  overrides:
  - {match: {user: 'batch-*'}, in_flight: 50}
  - {match: {ip: 10.0.0.0/8}, mode: off}
  - {match: {'claim:plan': free}, in_flight: 1, mode: shadow}
routes: [{id: r, match: {path: /**}, upstream: http://h, policies: [routed, rate]}]
exempt: {paths: /health, methods: [], clients: [192.0.2.7]}
";
    check(
        text,
        expect![[r#"
            rate       10 at once, then 10 every second, for each client address; on route r; without Redis none pass
            under-way  10 in flight at once, for each client address
            uploads    2 in flight at once, for each user; on /upload/** with method POST; without user: denied; retry after at least 5 s
            costly     shadow, never denies: 100 in flight at once, for all together; GET costs 1, POST costs 5, others cost 1
            routed     4294967295 in flight at once, for all together; on route r
            tiers      5 in flight at once, for each user, or else client address
                         with user batch-*: 50 in flight at once
                         from 10.0.0.0/8: no limit
                         with claim plan free: shadow: 1 in flight at once
            never limited: on /health; from 192.0.2.7
            paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
            route r: /** to http://h:80
        "#]],
    );
    let Ok(config) = Config::of_text(text) else { panic!("the file is invalid") };
    let names = |policies: &Policies| -> Vec<String> {
        policies
            .iter()
            .skip_while(|policy| Algorithm::named(policy.name()).is_some())
            .map(|policy| policy.name().to_owned())
            .collect()
    };
    assert_eq!(names(&config.policies), ["rate"]);
    assert_eq!(names(&config.permits), ["under-way", "uploads", "costly", "routed", "tiers"]);
    assert_eq!(config.permits.exempt(), config.policies.exempt());
    let capacities = config.permits.iter().map(|policy| policy.limits()[0].quota().capacity().get());
    assert_eq!(capacities.collect::<Vec<_>>(), [10, 2, 100, u32::MAX, 5]);
    assert_eq!(config.permits.named("routed").map(Policy::selector), Some(&Selector::Named));
}

#[test]
fn what_is_under_way_can_be_switched_off_and_needs_a_gateway() {
    let text = "policies:\n- {name: a, in_flight: 5}\n- {name: b, by: ip, in_flight: 1, mode: off}\nexempt: {paths: [], methods: []}\n";
    check(
        text,
        expect![[r#"
        a  5 in flight at once, for all together, but only in the gateway, and there are no routes
        b  off: 1 in flight at once, for each client address, but only in the gateway, and there are no routes
    "#]],
    );
    check(
        &format!("enabled: false\n{text}"),
        expect![[r#"
        enabled is false: every request passes, uncounted
        a  off: 5 in flight at once, for all together, but only in the gateway, and there are no routes
        b  off: 1 in flight at once, for each client address, but only in the gateway, and there are no routes
    "#]],
    );
}

#[test]
fn requests_under_way_have_groups_of_their_own() {
    check(
        "policies:
- {name: login, group: endpoint, when: {path: /login}, quota: {rate: 1/s}}
- {name: default, group: endpoint, quota: {rate: 9/s}}
- {name: uploads, group: at-once, when: {path: /upload}, in_flight: 2}
- {name: others, group: at-once, in_flight: 20}
routes: [{id: r, match: {path: /**}, upstream: http://h}]
exempt: {paths: [], methods: []}
",
        expect![[r#"
            of endpoint, the first that matches:
              login    1 every second, for all together; on /login
              default  9 at once, then 9 every second, for all together; on all others
            of at-once, the first that matches:
              uploads  2 in flight at once, for all together; on /upload
              others   20 in flight at once, for all together; on all others
            paths are case-sensitive; if an upstream ignores case, set clients.case: insensitive
            route r: /** to http://h:80
        "#]],
    );
    check(
        "policies:
- {name: login, group: endpoint, quota: {rate: 1/s}}
- {name: a, group: endpoint, in_flight: 2}
- {name: b, group: other, in_flight: 2}
- {name: c, group: other, quota: {rate: 1/s}}
",
        expect![[r#"
            t.yaml:3:20: policies.a.group is also used by the policy in line 2, but a group cannot mix quota and in_flight; give one of them another group
            t.yaml:5:20: policies.c.group is also used by the policy in line 4, but a group cannot mix quota and in_flight; give one of them another group
        "#]],
    );
}

#[test]
fn errors_of_in_flight_are_reported() {
    check(
        "policies:
- {name: a, in_flight: 0}
- {name: b, in_flight: -1}
- {name: c, in_flight: 1.5}
- {name: d, in_flight: many}
- {name: e, in_flight: 4294967296}
- {name: f, in_flight: ''}
- {name: g, quota: {rate: x}, in_flight: 0, by: ipp}
- {name: h, in_flight: 5, on_failure: maybe, count: {status: 99}, cost: much, mode: on, retry_after: 60}
- {name: i, in_flight: 5, overrides: [{match: {user: x}, quota: {rate: 1/s}}, {match: {user: x}}, {match: {user: x}, in_flight: 0}, {in_flight: 5}]}
- {name: j, quota: {rate: 1/s}, overrides: [{match: {user: x}, in_flight: 5}, {match: {user: x}, in_flight: 5, quota: {rate: x}}]}
- {name: k, quota: {rate: 1/s}}
- {name: k, in_flight: 5}
- {name: k, quota: {rate: 1/s}}
- {name: fixed_window, in_flight: 5}
- {in_flight: 5}
",
        expect![[r#"
            t.yaml:2:24: policies.a.in_flight is "0"; an in_flight of 0 would deny everything. Use at least 1
            t.yaml:3:24: policies.b.in_flight is "-1"; use a whole number from 1 to 4294967295
            t.yaml:4:24: policies.c.in_flight is "1.5"; use a whole number from 1 to 4294967295
            t.yaml:5:24: policies.d.in_flight is "many"; use a whole number from 1 to 4294967295
            t.yaml:6:24: policies.e.in_flight is "4294967296"; use a whole number from 1 to 4294967295
            t.yaml:7:24: policies.f.in_flight is ""; use a whole number from 1 to 4294967295
            t.yaml:8:27: policies.g.quota.rate is "x"; a rate is units/time, for example 10/s, 1/6s or 250/min
            t.yaml:8:42: policies.g has a quota and in_flight; write two policies, one with each
            t.yaml:8:42: policies.g.in_flight is "0"; an in_flight of 0 would deny everything. Use at least 1
            t.yaml:8:49: policies.g.by is "ipp"; did you mean ip? Otherwise use ip, user, route, method, path, host, or header:NAME, cookie:NAME, query:NAME, claim:NAME, attribute:NAME
            t.yaml:9:39: policies.h.on_failure has no effect with in_flight, which does not use Redis; remove it
            t.yaml:9:53: policies.h.count has no effect with in_flight, which counts every request, whatever its response; remove it
            t.yaml:9:73: policies.h.cost is "much"; use a whole number from 0 to 4294967295
            t.yaml:9:85: policies.h.mode is "on"; use one of enforce, shadow, off
            t.yaml:9:102: policies.h.retry_after is "60"; use a whole number and us, ms, s, min, h or d: 5ms, 60s
            t.yaml:10:65: policies.i.overrides[0] has a quota, but its policy has in_flight; write in_flight: 10
            t.yaml:10:79: policies.i.overrides[1] changes nothing; give it in_flight or a mode
            t.yaml:10:129: policies.i.overrides[2].in_flight is "0"; an in_flight of 0 would deny everything. Use at least 1
            t.yaml:10:133: policies.i.overrides[3] has no match; write a condition, for example match: {user: "batch-*"}
            t.yaml:11:75: policies.j.overrides[0] has in_flight, but its policy has a quota; write quota: {rate: 10/s}
            t.yaml:11:109: policies.j.overrides[1] has in_flight, but its policy has a quota; write quota: {rate: 10/s}
            t.yaml:13:10: duplicate policy name "k", also used in line 12; rename one
            t.yaml:14:10: duplicate policy name "k", also used in line 13; rename one
            t.yaml:15:10: policies.fixed_window: the names of algorithms are reserved for ad hoc keys; use another
            t.yaml:16:3: a policy has no name; write name: login
        "#]],
    );
    check(
        "policies: [{name: a, in_flight: [5]}]",
        expect![[r#"
        t.yaml:1:33: a single value is expected here, not a list and not a section
    "#]],
    );
    check(
        "policies: [{name: a, in_flight: {n: 5}}]",
        expect![[r#"
        t.yaml:1:33: a single value is expected here, not a list and not a section
    "#]],
    );
    check(
        "policies: [{name: a, inflight: 5}]",
        expect![[r#"
            t.yaml:1:22: unknown setting "inflight"; did you mean in_flight? Known: name, group, when, by, missing, quota, in_flight, after_abort, cost, count, overrides, retry_after, mode, on_failure
        "#]],
    );
    check(
        "policies: [{name: a, in_flight: }]",
        expect![[r#"
        t.yaml:1:19: policies.a has no quota; write quota: {rate: 10/s}, or in_flight: 10 to limit requests in flight
    "#]],
    );
}

#[test]
fn routes_name_policies_with_in_flight_too() {
    check(
        "policies: [{name: '${NAME:-uploads}', in_flight: 5}]
routes:
- {id: r, match: {path: /r}, upstream: http://h, policies: [uploads]}
- {id: s, match: {path: /s}, upstream: http://h, policies: [upload]}
",
        expect![[r#"
            t.yaml:4:61: routes.s.policies: there is no policy "upload"; did you mean uploads?
        "#]],
    );
}

#[test]
fn a_profile_changes_how_many_may_be_under_way() {
    let text = "policies: [{name: a, by: ip, in_flight: 5}]
routes: [{id: r, match: {path: /**}, upstream: http://h}]
exempt: {paths: [], methods: []}
";
    let with = |profile: &str| Files::of(text).profile("t.dev.yaml", profile);
    with("policies: [{name: a, in_flight: 50}]").check(expect![[r#"
        a  50 in flight at once, for each client address
        route r: /** to http://h:80
    "#]]);
    with("policies: [{name: a, mode: off}, {name: b, in_flight: 1}]").check(expect![[r#"
        a  off: 5 in flight at once, for each client address
        b  1 in flight at once, for all together
        route r: /** to http://h:80
    "#]]);
    with("policies: [{name: a, quota: {rate: 1/s}}, {name: c}]").check(expect![[r#"
        t.dev.yaml:1:29: policies.a has a quota and in_flight; write two policies, one with each
        t.dev.yaml:1:50: policies.c has no quota, and no base file has a policy of that name; correct the name, or write quota: {rate: 10/s}, or in_flight: 10 to limit requests in flight
    "#]]);
    Files::default()
        .beside("conf/a.yaml", "policies: [{name: a, quota: {rate: 1/s}}]")
        .beside("conf/b.yaml", "policies: [{name: a, in_flight: 5}]")
        .check(expect![[r#"
            conf/b.yaml:1:19: duplicate policy name "a", also used in conf/a.yaml:1; rename one
        "#]]);
}
