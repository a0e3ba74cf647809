//! `count`: which answers count.

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
        a  10 at once, then 1 every 6 s, for each client address; counts answers 401, 403; retry after at least 60 s
        b  1 every second, for all together; counts answers 429
        c  1 every second, for all together; counts answers 4xx, 5xx, 1xx, 500-503, 302, 200-204
        d  1 every second, for all together; counts answers 401
        e  1 every second, for all together
        route r: /** to http://h:80
    "#]],
    );
    let Ok(config) = Config::of_text(text) else { panic!("it is sound") };
    let covered = |name: &str, status| config.policies.named(name).unwrap().counted().covers(status);
    let counts =
        |name: &str| [200, 204, 302, 399, 400, 401, 404, 500, 599].map(|status| covered(name, status));
    assert_eq!(counts("a"), [false, false, false, false, false, true, false, false, false]);
    assert_eq!(counts("c"), [true, true, true, false, true, true, true, true, true]);
    assert_eq!(counts("e"), [true; 9]);
}

/// Who asks over REST sees the answer itself, and can give back.
#[test]
fn without_a_gateway_nobody_sees_the_answers() {
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: {status: 401}}]\nexempt: {paths: [], methods: []}",
        expect![[r#"
            a  1 every second, for all together; counts answers 401, but only in the gateway, and there are no routes
        "#]],
    );
}

#[test]
fn what_is_wrong_with_count_is_told() {
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
            t.yaml:2:40: policies.a.count has no status, so nothing would count; write {status: [401, 403]}, or leave it out
            t.yaml:3:49: policies.b.count has no status, so nothing would count; write {status: [401, 403]}, or leave it out
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
        t.yaml:1:49: a section is expected here: lines of name: value, one step further in
    "#]],
    );
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: 401}]",
        expect![[r#"
        t.yaml:1:49: a section is expected here: lines of name: value, one step further in
    "#]],
    );
    check(
        "policies: [{name: a, quota: {rate: 1/s}, count: {statuses: 401}}]",
        expect![[r#"
        t.yaml:1:50: there is no setting "statuses" here; did you mean status? Known are status
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
        t.yaml:1:58: this cannot be read as YAML: a number with a point or an exponent could be read in several ways; put it in quotes
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
        a  1 every second, for all together; counts answers 5xx
        route r: /** to http://h:80
    "#
    ]]);
    Files::of(text).profile("t.dev.yaml", "policies: [{name: a, mode: shadow}]").check(expect![[r#"
        a  shadow, never denies: 1 every second, for all together; counts answers 401, 403
        route r: /** to http://h:80
    "#]]);
}
