//! Invalid Spring files are errors with a line.

use super::*;

#[test]
fn invalid_values_are_errors_with_their_line() {
    let limit = |text: &str| format!("rate-limit:\n  limits:\n    a: {{{text}}}\n");
    check(
        &limit("capacity: -5, window: 1m"),
        expect![[r#"
        error: application.yml:3:19: rate-limit.limits.a.capacity: "-5" is not a whole number from 0 up; write one, such as 10
    "#]],
    );
    check(
        &limit("capacity: 5"),
        expect![[r#"
        error: application.yml:3:8: rate-limit.limits.a: this limit has no capacity with a refill or a window; their defaults are in your Java class. Write capacity, refill-tokens and refill-period here, and convert again
    "#]],
    );
    check(
        &limit("capacity: 5, window: soon"),
        expect![[r#"
        error: application.yml:3:30: rate-limit.limits.a.window: "soon" is not a duration of up to 100 years; write for example 6s or 1m
    "#]],
    );
    check(
        &limit("capacity: 0, window: 1m"),
        expect![[r#"
        error: application.yml:3:19: rate-limit.limits.a.capacity: 0 would deny everything or refill nothing; use at least 1
    "#]],
    );
    check(
        &limit("capacity: 5, refill-tokens: 1, refill-period: 200000d"),
        expect![[r#"
        error: application.yml:3:55: rate-limit.limits.a.refill-period: "200000d" is not a duration of up to 100 years; write for example 6s or 1m
    "#]],
    );
    check(
        &with_filter("{name: RequestRateLimiter, args: {key-resolver: x}}"),
        expect![[r#"
        error: application.yml:1:91: spring.cloud.gateway.routes[0].filters[0]: RequestRateLimiter needs args: redis-rate-limiter.replenishRate and burstCapacity
    "#]],
    );
    check(
        "spring.cloud.gateway.routes: [{id: a, uri: 'http://h', predicates: ['Path=/a b']}]",
        expect![[r#"
            error: application.yml:1:31: cannot be converted: routes.a.match.path: path segment "a b" matches no path: paths are matched in normalized form; write "a%20b"
        "#]],
    );
    check(
        "server: {port: 80}",
        expect![[r#"
        error: application.yml: no rate limits found; a section rate-limit with limits, spring.cloud.gateway.routes or bucket4j.filters is expected. Limits that are written in Java cannot be converted
    "#]],
    );
    check(
        "zuul.ratelimit.policy-list.users: [{limit: 10}]",
        expect![[r#"
            error: application.yml:1:44: zuul.ratelimit.policy-list.users[0].limit: not converted; this property is not known; docs/reference/configuration.md lists all settings
            error: application.yml: no rate limits found; a section rate-limit with limits, spring.cloud.gateway.routes or bucket4j.filters is expected. Limits that are written in Java cannot be converted
        "#]],
    );
    check(
        "- a\n- b\n",
        expect![[r#"
        error: application.yml: no rate limits found; a section rate-limit with limits, spring.cloud.gateway.routes or bucket4j.filters is expected. Limits that are written in Java cannot be converted
    "#]],
    );
    check(
        "a: [1\nb: 2",
        expect![[r#"
        error: application.yml:2:2: invalid YAML: illegal placement of ':' indicator
    "#]],
    );
    check(
        "",
        expect![[r#"
        error: application.yml: no rate limits found; a section rate-limit with limits, spring.cloud.gateway.routes or bucket4j.filters is expected. Limits that are written in Java cannot be converted
    "#]],
    );
    check(
        &format!("a{}: 1", ".b".repeat(40)).replace(": 1", &format!(": {{c{}: 1}}", ".d".repeat(40))),
        expect![[r#"
            error: application.yml:1:168: properties are nested more than 64 levels deep; is this a Spring file?
        "#]],
    );
}
